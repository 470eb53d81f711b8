//! What the threads of a run that hangs are doing, as text.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::processes::Process;
use crate::check::findings::{Findings, Frame};
use crate::check::symbols::Symbols;
use crate::check::text::of_frame;
use crate::plain::plain;

/// All processes: their command lines, and the stacks that their library wrote to a folder.
pub(super) fn text(all: &[Process], waits: &[Option<String>], folder: &Path) -> String {
    let mut out = String::new();
    let mut symbols = Symbols::default();
    for (process, waits) in all.iter().zip(waits) {
        // Writing to a string does not fail.
        let _ = writeln!(out, "process {}: {}", process.pid, process.command);
        let lines = fs::read_to_string(folder.join(format!("{}.stacks", process.pid))).unwrap_or_default();
        let threads: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if threads.is_empty() {
            let _ =
                writeln!(out, "  no stacks{}", waits.as_ref().map_or(String::new(), |w| format!("; it waits in {w}")));
        }
        for thread in &threads {
            let name = thread["name"].as_str().map(plain).unwrap_or_default();
            let _ = writeln!(out, "  thread {} {name}", thread["tid"].as_u64().unwrap_or(0));
            for frame in frames(thread, &mut symbols) {
                let _ = writeln!(out, "    {}", of_frame(&frame));
            }
        }
    }
    out
}

/// The calls of a thread. Of those inside the library the functions that it exports are told: what else it does is its own matter.
fn frames(thread: &Value, symbols: &mut Symbols) -> Vec<Frame> {
    let (ours, mut own): (Vec<_>, Vec<_>) = Findings::stack_of(&thread["stack"]).into_iter().partition(is_ours);
    Findings::name_stack(&mut own, symbols);
    ours.into_iter().filter(|frame| frame.function.is_some()).chain(own).collect()
}

/// Whether it is a call inside of softnic.
fn is_ours(frame: &Frame) -> bool {
    let name =
        frame.module.as_ref().and_then(|module| module.file_name()).map(|name| name.to_string_lossy().into_owned());
    name.is_some_and(|name| OURS.iter().any(|ours| name.starts_with(ours)))
}

/// How the names of softnic's libraries begin.
const OURS: [&str; 3] = ["libibverbs.so", "librdmacm.so", "libsoftnic"];

/// The innermost call of the program itself in the text of stacks: where it hangs, in a line.
pub(super) fn place(text: &str) -> Option<String> {
    let mut inside = text.lines().skip_while(|line| !line.starts_with("  thread "));
    // Sources of the C library are told from where it was built: `(./time/../sysdeps/…`.
    let is_of_c_library = |line: &str| {
        ["libc.so", "ld-linux", "[vdso]"].iter().any(|name| line.contains(name))
            || line.contains(" (./") && (line.contains("/../") || line.contains("/./"))
    };
    let own = |line: &&str| {
        line.starts_with("    ") && !is_of_c_library(line) && !OURS.iter().any(|name| line.contains(name))
    };
    inside.find(own).map(|line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_told_with_their_threads_and_where_the_program_waits() {
        let folder = std::env::temp_dir().join(format!("softnic-stacks-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let line = |function: &str| {
            format!(
                "{{\"pid\":17,\"tid\":7,\"name\":\"main\",\"stack\":[{{\"address\":\"0x1\",\"module\":\"/x/libibverbs.so.1\",\
                 \"offset\":\"0x10\",\"function\":\"poll\"}},{{\"address\":\"0x2\",\"module\":\"/x/prog\",\"offset\":\"0x20\",\
                 \"function\":\"{function}\"}}]}}\n"
            )
        };
        fs::write(folder.join("17.stacks"), line("wait_for_it")).unwrap();
        let process = |pid, command: &str| Process { pid, command: command.into() };
        let all = [process(17, "./prog a"), process(18, "sh -c x")];
        let text = text(&all, &[None, Some("do_wait".into())], &folder);
        fs::remove_dir_all(&folder).unwrap();
        let expected = "process 17: ./prog a
  thread 7 main
    poll (/x/libibverbs.so.1+0x10)
    wait_for_it (/x/prog+0x20)
process 18: sh -c x
  no stacks; it waits in do_wait
";
        assert_eq!(text, expected);
        assert_eq!(place(&text).as_deref(), Some("wait_for_it (/x/prog+0x20)"));
        let inside = "  thread 7 x\n    usleep (./posix/../sysdeps/posix/usleep.c:31)\n    waitpid (./posix/./posix/waitpid.c:38)\n    main (x.c:3)\n";
        assert_eq!(place(inside).as_deref(), Some("main (x.c:3)"));
    }
}
