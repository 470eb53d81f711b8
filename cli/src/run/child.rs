//! The program as a child: signals go on to it, and it does not outlive us.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpid, getppid};
use softnic_perf::say;

/// What a person or another program ends or tells a program with.
const FORWARDED: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// How a run ended.
pub(crate) struct Ended {
    /// Our own exit code.
    pub(crate) ours: ExitCode,
    /// That of the program, if it was started.
    pub(crate) program: Option<u8>,
}

/// Signals that wait to be read from now on.
pub(super) struct Signals {
    before: SigSet,
    pending: SignalFd,
}

impl Signals {
    /// Takes the signals that are forwarded, and that of a child that ends.
    pub(super) fn block() -> Result<Signals, String> {
        let failed = |e: Errno| format!("cannot take signals: {e}");
        let mut taken: SigSet = FORWARDED.into_iter().collect();
        taken.add(Signal::SIGCHLD);
        let before = SigSet::thread_get_mask().map_err(failed)?;
        taken.thread_block().map_err(failed)?;
        let pending = SignalFd::with_flags(&taken, SfdFlags::SFD_CLOEXEC).map_err(failed)?;
        Ok(Signals { before, pending })
    }

    /// Runs a program until it ends, and has the exit code that a shell would.
    pub(super) fn run(&self, command: &mut Command) -> Result<Ended, String> {
        let (before, parent) = (self.before, getpid());
        let prepare = move || {
            // A program whose launcher is killed goes too: its library lies in our folder.
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The launcher may have died before that was said.
            if getppid() != parent {
                return Err(io::Error::from(Errno::ESRCH));
            }
            before.thread_set_mask()?;
            Ok(())
        };
        // SAFETY: between fork and exec, only system calls that are safe there: prctl, getppid and sigprocmask.
        unsafe { command.pre_exec(prepare) };
        match command.spawn() {
            Ok(child) => self.watch(child).map(|status| {
                let code = exit_code(status);
                Ended { ours: ExitCode::from(code), program: Some(code) }
            }),
            Err(e) => {
                let name = command.get_program().display();
                let (why, code) = match e.kind() {
                    io::ErrorKind::NotFound => ("not found".into(), 127),
                    _ => (e.to_string(), 126),
                };
                say!("softnic: cannot run {name}: {why}");
                Ok(Ended { ours: ExitCode::from(code), program: None })
            }
        }
    }

    /// Waits for the end of the child.
    fn watch(&self, mut child: Child) -> Result<ExitStatus, String> {
        let pid = Pid::from_raw(child.id() as i32);
        loop {
            if let Some(status) = child.try_wait().map_err(|e| format!("cannot wait for the program: {e}"))? {
                return Ok(status);
            }
            let signal = match self.pending.read_signal() {
                Ok(Some(signal)) => signal,
                Ok(None) | Err(Errno::EINTR) => continue,
                Err(e) => return Err(format!("cannot read signals: {e}")),
            };
            // What comes from the terminal came to the program as well.
            let from_terminal = signal.ssi_code == nix::libc::SI_KERNEL;
            match Signal::try_from(signal.ssi_signo as i32) {
                Ok(signal) if signal != Signal::SIGCHLD && !from_terminal => {
                    // It is not waited for yet, so the number is still its own.
                    let _ = kill(pid, signal);
                }
                _ => {}
            }
        }
    }
}

/// The program's, or 128 and the signal that ended it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    // An exit code has eight bits.
    (code & 0xff) as u8
}
