//! Faults of the whole process: it is killed, stopped for a while, or restarted.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use crate::identity::{RESTARTED, arguments, is_restarted, split};
use crate::message::warn;

/// Kills the process, as the kernel does when memory runs out.
pub(crate) fn kill() {
    // SAFETY: the signal is sent to this process, which has ended when the signal is delivered.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Stops the process, with its NIC, for this time.
///
/// Another process has to stop and continue it: a child that the program does not notice, because the child's end sends no signal, and
/// wait(2) ignores such children. The child ends with its parent, and blocks the program's signals, because those of a terminal are sent to
/// both.
pub(crate) fn stop(time: Duration) {
    let me = std::process::id() as libc::pid_t;
    let pause = libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos().into() };
    let mut before: libc::sigset_t;
    // SAFETY: the sets belong to this function.
    unsafe {
        let mut all = std::mem::zeroed();
        before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    // SAFETY: equivalent to fork(2), without a signal at the child's end and without the handlers of pthread_atfork(3). The child makes
    // only system calls, and allocates no memory.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if child == 0 {
        // SAFETY: plain system calls, with memory of this function.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() == me {
                // Both signals are sent by the child: a parent that stopped itself could do so too late, and would not be continued.
                libc::kill(me, libc::SIGSTOP);
                libc::nanosleep(&raw const pause, std::ptr::null_mut());
                libc::kill(me, libc::SIGCONT);
            }
            libc::_exit(0);
        }
    }
    // SAFETY: the set is the one that was in effect before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    if child < 0 {
        // Without a child the process could not be continued, so it sleeps instead.
        std::thread::sleep(time);
        return;
    }
    loop {
        // SAFETY: the number is that of a child of this process.
        let ended = unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), libc::__WALL) };
        // Signal handlers of the program interrupt the wait, in particular that of SIGCONT.
        if ended >= 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}

/// Restarts the process, as a supervisor does after a crash: with the original arguments and environment, and with only the standard
/// streams open. The process ID stays, so that the parent does not notice.
///
/// Only once: a restarted process counts its calls from the start, and the same call would restart it again.
pub(crate) fn restart() {
    if is_restarted() {
        return;
    }
    if let Err(e) = begin_anew() {
        warn(format_args!("cannot start the program anew: {e}"));
    }
}

fn begin_anew() -> io::Result<()> {
    let c_string = |bytes: Vec<u8>| CString::new(bytes).map_err(io::Error::from);
    let program = c_string(std::fs::read_link("/proc/self/exe")?.into_os_string().into_vec())?;
    let words = arguments().into_iter().map(c_string).collect::<io::Result<Vec<_>>>()?;
    // The original environment: the restarted program makes its own changes again.
    let mut environment = split(&std::fs::read("/proc/self/environ")?);
    let mark = format!("{RESTARTED}=");
    environment.retain(|entry| !entry.is_empty() && !entry.starts_with(mark.as_bytes()));
    environment.push(format!("{mark}{}", std::process::id()).into_bytes());
    let environment = environment.into_iter().map(c_string).collect::<io::Result<Vec<_>>>()?;
    close_at_exec()?;
    let pointers = |strings: &[CString]| {
        strings.iter().map(|s| CStr::as_ptr(s)).chain([std::ptr::null()]).collect::<Vec<*const libc::c_char>>()
    };
    let (words, environment) = (pointers(&words), pointers(&environment));
    // SAFETY: the set belongs to this function; the lists of strings end with a null pointer and live until the function returns, if it
    // does.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        // A signal mask survives exec; handlers do not.
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::execve(program.as_ptr(), words.as_ptr(), environment.as_ptr());
    }
    Err(io::Error::last_os_error())
}

/// Only the standard streams are kept open.
fn close_at_exec() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<libc::c_int>().ok());
        if let Some(fd) = number.filter(|&fd| fd > libc::STDERR_FILENO) {
            // SAFETY: sets a flag of a descriptor; if the descriptor was closed meanwhile, the call fails.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}
