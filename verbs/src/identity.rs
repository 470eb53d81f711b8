//! The name of this process within a run: scripts use it to select the process of a table.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::hash::{Hash, Hasher};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;

use softnic_explore::record::LONGEST_LABEL;
use softnic_runtime::api::ProcessName;

use crate::environment::files;
use crate::fork;
use crate::per_process::PerProcess;

/// The name of this process. The child of a fork has the label of its parent, and its own number.
pub(crate) fn name() -> &'static ProcessName {
    static NAME: PerProcess<OnceLock<ProcessName>> = PerProcess::new();
    fork::watch();
    NAME.get().get_or_init(|| {
        let label = label(arguments().into_iter());
        let ordinal = files().map_or(1, |folder| ordinal(&folder, &label));
        ProcessName { label, ordinal }
    })
}

/// Marks a process that was restarted by a fault. The value is its process ID, so that it does not apply to the programs that it starts.
pub(crate) const RESTARTED: &str = "SOFTNIC_RESTARTED";

/// Whether this process was restarted.
pub(crate) fn is_restarted() -> bool {
    is_named(std::env::var_os(RESTARTED).as_deref())
}

fn is_named(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| value == OsStr::new(&std::process::id().to_string()))
}

/// The original command line of the process: getopt(3) reorders the list that the program has.
pub(crate) fn arguments() -> Vec<Vec<u8>> {
    match std::fs::read("/proc/self/cmdline") {
        Ok(all) if !all.is_empty() => split(&all),
        _ => std::env::args_os().map(|argument| argument.as_bytes().to_vec()).collect(),
    }
}

/// Splits a list of zero-terminated words.
pub(crate) fn split(all: &[u8]) -> Vec<Vec<u8>> {
    let all = all.strip_suffix(b"\0").unwrap_or(all);
    all.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
}

/// The name of the program without its folder, and its arguments, separated by spaces; in one line.
fn label(arguments: impl Iterator<Item = Vec<u8>>) -> String {
    let words = arguments.enumerate().map(|(place, argument)| {
        let begin = if place == 0 { argument.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1) } else { 0 };
        String::from_utf8_lossy(&argument[begin..]).replace(char::is_control, " ")
    });
    let mut label = words.collect::<Vec<_>>().join(" ");
    let mut end = label.len().min(LONGEST_LABEL);
    while !label.is_char_boundary(end) {
        end -= 1;
    }
    label.truncate(end);
    label
}

/// The lowest number that no process with this label has taken in the folder of the run.
fn ordinal(folder: &Path, label: &str) -> u32 {
    // Equal for equal labels: this hasher has no random key.
    let mut hasher = DefaultHasher::new();
    label.hash(&mut hasher);
    let label = hasher.finish();
    let take = |n: &u32| {
        let path = folder.join(format!("process-{label:016x}-{n}"));
        let taken = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        // If nothing can be written, every process is the first.
        !taken.is_err_and(|e| e.kind() == ErrorKind::AlreadyExists)
    };
    (1..).find(take).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_began_anew_is_known_by_the_variable() {
        let own = std::process::id().to_string();
        assert!(is_named(Some(own.as_ref())));
        assert!(!is_named(Some("1".as_ref())) && !is_named(Some("".as_ref())) && !is_named(None));
    }

    #[test]
    fn a_label_is_the_command_line_without_the_folder_of_the_program() {
        let of = |words: &[&str]| label(words.iter().map(|word| word.as_bytes().to_vec()));
        assert_eq!(of(&["/usr/bin/ib_write_bw", "-d", "/dev/x"]), "ib_write_bw -d /dev/x");
        assert_eq!(label(split(b"/bin/a\0\0-x\0").into_iter()), "a  -x");
        assert_eq!(arguments(), std::env::args_os().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>());
        assert_eq!((of(&["sh", "-c", "a\nb"]), of(&["./a"]), of(&[])), ("sh -c a b".into(), "a".into(), String::new()));
        let long = of(&["é".repeat(LONGEST_LABEL).as_str()]);
        assert_eq!(long.len(), LONGEST_LABEL, "it is even");
        assert_eq!(of(&["a", &"é".repeat(LONGEST_LABEL)]).len(), LONGEST_LABEL);
        assert_eq!(of(&["aa", &"é".repeat(LONGEST_LABEL)]).len(), LONGEST_LABEL - 1, "characters stay whole");
    }

    #[test]
    fn processes_of_one_label_are_counted_in_the_folder_of_the_run() {
        let folder = std::env::temp_dir().join(format!("softnic-ordinal-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        assert_eq!(["a b", "a b", "a", "a b"].map(|label| ordinal(&folder, label)), [1, 2, 1, 3]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!([ordinal(&folder, "a"), ordinal(&folder, "a")], [1, 1], "nothing can be written");
    }
}
