//! A process that is this test binary once more, told by a variable what to be.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A process, and the first thing that it said; killed when it is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) said: String,
    /// Kept open: the process may have more to say.
    _more: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts the ignored test `test` with `variable` set. `wrapper` are the words of a command that runs the command behind it (in a
    /// namespace, with fewer rights), or none.
    pub(crate) fn start(wrapper: &str, test: &str, variable: &str, value: &str) -> Process {
        let program = std::env::current_exe().unwrap();
        let mut words = wrapper.split_whitespace().map(std::ffi::OsStr::new).chain([program.as_os_str()]);
        let mut child = Command::new(words.next().unwrap())
            .args(words)
            .args(["--exact", "--ignored", "--nocapture", test])
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("SAID ").map(|(_, said)| said.to_string()));
        Process { child, said: said.unwrap_or_else(|| "nothing".into()), _more: lines }
    }

    /// SIGKILL: it has no chance to clean up.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a process says to the test that started it.
pub(crate) fn say(what: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "SAID {what}").and_then(|()| out.flush()).unwrap();
}
