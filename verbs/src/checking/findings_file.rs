//! Findings in a file: one line of JSON each, written at once, so that a crash loses none.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use softnic_check::{ALL_WRITTEN, Finding, Stack};

use super::modules::{function_of, module_of};

/// The file of this process.
pub(super) struct FindingsFile {
    path: PathBuf,
    /// A marker file: while it exists, all findings were written.
    all_written: Option<PathBuf>,
}

impl FindingsFile {
    /// In a folder, one file per process; a single file is shared by all processes.
    pub(super) fn of(path: &Path) -> FindingsFile {
        match path.is_dir() {
            true => FindingsFile {
                all_written: Some(path.join(ALL_WRITTEN)),
                path: path.join(format!("check-{}.json", std::process::id())),
            },
            false => FindingsFile { path: path.to_owned(), all_written: None },
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends findings. A failure is visible to the reader of the file.
    pub(super) fn add(&self, findings: &[Finding]) -> io::Result<()> {
        self.append(findings).inspect_err(|_| {
            if let Some(all_written) = &self.all_written {
                // Another process may have removed it already.
                let _ = std::fs::remove_file(all_written);
            }
        })
    }

    /// The file is opened every time, because a program may close descriptors that it does not know.
    fn append(&self, findings: &[Finding]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let lines: String = findings.iter().map(line).collect();
        options.open(&self.path)?.write_all(lines.as_bytes())
    }
}

/// One line.
fn line(finding: &Finding) -> String {
    let mut out = String::from("{");
    // Writing to a string does not fail.
    let _ = write!(out, "\"pid\":{},\"kind\":\"{}\"", std::process::id(), finding.kind);
    let _ = write!(out, ",\"severity\":\"{}\",\"message\":{}", finding.severity.name(), text(&finding.message));
    if let Some(qp) = finding.queue_pair {
        let _ = write!(out, ",\"queue_pair\":{{\"number\":{},\"order\":{}}}", qp.number, qp.order);
    }
    if let Some(wr_id) = finding.wr_id {
        let _ = write!(out, ",\"wr_id\":{wr_id}");
    }
    for (name, stack) in [("stack", &finding.stack), ("made", &finding.made)] {
        if let Some(stack) = stack {
            let _ = write!(out, ",\"{name}\":{}", frames(stack));
        }
    }
    if let Some((what, stack)) = &finding.related {
        let _ = write!(out, ",\"related\":{{\"what\":{},\"stack\":{}}}", text(what), frames(stack));
    }
    out + "}\n"
}

fn frames(stack: &Stack) -> String {
    let all: Vec<String> = stack.addresses().iter().map(|&address| frame(address)).collect();
    format!("[{}]", all.join(","))
}

/// An address by its module and the address in the module's file, for `addr2line`; with the function if the module exports it.
fn frame(address: u64) -> String {
    let mut out = format!("{{\"address\":\"{address:#x}\"");
    if let Some(module) = module_of(address) {
        let name = match module.name.is_empty() {
            true => std::env::current_exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
            false => module.name,
        };
        let _ = write!(out, ",\"module\":{},\"offset\":\"{:#x}\"", text(&name), address.wrapping_sub(module.base));
    }
    if let Some(function) = function_of(address) {
        let _ = write!(out, ",\"function\":{}", text(&function));
    }
    out + "}"
}

/// A string in JSON form.
fn text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use softnic_check::{Kind, QueuePairName, Severity};

    use super::*;

    #[test]
    fn a_finding_is_a_line_of_json() {
        let finding = Finding {
            kind: Kind::Leak,
            severity: Severity::Note,
            message: "a \"name\"\\ with\na line".into(),
            queue_pair: Some(QueuePairName { number: 17, order: 2 }),
            wr_id: Some(u64::MAX),
            stack: Some(Stack::new(&[16])),
            made: None,
            related: Some(("deregistered", Stack::new(&[]))),
        };
        assert_eq!(
            line(&finding),
            format!(
                "{{\"pid\":{},\"kind\":\"leak\",\"severity\":\"note\",\"message\":\"a \\\"name\\\"\\\\ with\\u000aa line\",\
                 \"queue_pair\":{{\"number\":17,\"order\":2}},\"wr_id\":18446744073709551615,\"stack\":[{{\"address\":\"0x10\"}}],\
                 \"related\":{{\"what\":\"deregistered\",\"stack\":[]}}}}\n",
                std::process::id()
            )
        );
        let known = frame(libc::gnu_get_libc_version as *const () as u64);
        assert!(known.contains("libc") && known.contains("\"function\":\"gnu_get_libc_version\""), "{known}");
    }

    #[test]
    fn lines_are_added_and_a_folder_has_a_file_for_each_process() {
        let folder = std::env::temp_dir().join(format!("softnic-findings-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let file = FindingsFile::of(&folder);
        assert_eq!(file.path(), folder.join(format!("check-{}.json", std::process::id())));
        let finding = Finding {
            kind: Kind::Leak,
            severity: Severity::Note,
            message: String::new(),
            queue_pair: None,
            wr_id: None,
            stack: None,
            made: None,
            related: None,
        };
        file.add(&[finding.clone(), finding.clone()]).unwrap();
        file.add(&[finding]).unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap().lines().count(), 3);
        assert!(FindingsFile::of(&folder.join("none/file")).add(&[]).is_err());
        // The reader knows of findings that could not be written.
        std::fs::write(folder.join(ALL_WRITTEN), "").unwrap();
        file.add(&[]).unwrap();
        assert!(folder.join(ALL_WRITTEN).exists());
        std::fs::remove_file(file.path()).unwrap();
        std::fs::create_dir(file.path()).unwrap();
        assert!(file.add(&[]).is_err() && !folder.join(ALL_WRITTEN).exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
