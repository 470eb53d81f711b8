//! A process that opens a device and says what came of it: this test binary once more, run with a variable set.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use softnic_runtime::afxdp::{AfXdp, Options};

const VARIABLE: &str = "SOFTNIC_TEST_AFXDP_OPEN";

/// A process with a device open, or not.
pub(crate) struct Helper {
    pub(crate) child: Child,
    /// `opened`, or the error.
    pub(crate) said: String,
}

impl Helper {
    /// Starts it: `wrapper` are the words of a command that runs the command behind it (in a namespace, with fewer rights).
    pub(crate) fn start(wrapper: &str, interface: &str) -> Helper {
        let mut words = wrapper.split_whitespace();
        let mut child = Command::new(words.next().unwrap())
            .args(words)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "helper::opens_a_device_when_told_to"])
            .env(VARIABLE, interface)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said =
            lines.map_while(Result::ok).find_map(|line| line.split_once("SAID ").map(|(_, said)| said.to_string()));
        Helper { child, said: said.unwrap_or_else(|| "nothing".into()) }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "only as a process of its own that other tests start"]
fn opens_a_device_when_told_to() {
    let Ok(interface) = std::env::var(VARIABLE) else { return };
    let opened = AfXdp::open(&interface, &Options::default());
    let said = opened.as_ref().map_or_else(ToString::to_string, |_| "opened".into());
    let mut out = std::io::stdout();
    let _ = writeln!(out, "SAID {said}").and_then(|()| out.flush());
    // Until whoever started us ends it, or is gone.
    let _ = std::io::stdin().read(&mut [0]);
}
