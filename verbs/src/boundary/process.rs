//! Faults of the whole process: it is killed, stopped for a while, or begins anew.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use crate::identity::{RESTARTED, arguments, is_restarted, split};
use crate::message::warn;

/// Kills the process, as the kernel does when there is no memory left.
pub(crate) fn kill() {
    // SAFETY: the signal goes to this process, which has ended when it is delivered.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Stops the process, with its NIC, for so long.
///
/// Somebody else has to stop it and let it go on: a child that the program does not see, because its end sends no signal, and wait(2) does
/// not look for such. It ends with its parent, and takes no signal that is for the program: those of a terminal go to both.
pub(crate) fn stop(time: Duration) {
    let me = std::process::id() as libc::pid_t;
    let pause = libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos().into() };
    let mut before: libc::sigset_t;
    // SAFETY: the sets are this function's own.
    unsafe {
        let mut all = std::mem::zeroed();
        before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    // SAFETY: the same as fork(2), without the signal at its end and without the handlers of pthread_atfork(3). The child calls nothing but
    // the system, and allocates nothing.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if child == 0 {
        // SAFETY: plain calls of the system, with memory of this function.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() == me {
                // Both by the child: a parent that stopped itself could be late, and nobody would wake it.
                libc::kill(me, libc::SIGSTOP);
                libc::nanosleep(&raw const pause, std::ptr::null_mut());
                libc::kill(me, libc::SIGCONT);
            }
            libc::_exit(0);
        }
    }
    // SAFETY: the set that was there before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    if child < 0 {
        // Nobody would wake the process.
        std::thread::sleep(time);
        return;
    }
    loop {
        // SAFETY: the number is one of a child of this process.
        let ended = unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), libc::__WALL) };
        // Handlers of the program interrupt it, that of SIGCONT above all.
        if ended >= 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}

/// Begins anew, as when a supervisor starts a program again that has died: with the arguments and the environment that it was started with, and
/// nothing open but its standard streams. It keeps its number, so that whoever waits for it does not notice.
///
/// Once only: in its second life it counts its calls anew, and the same call would end that, too.
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
    // As it was at first: what the program has set since then its next life sets itself.
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
    // SAFETY: the set is this function's own; lists of strings that end with a null pointer and live until it returns, if it does.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        // A mask outlives the program; handlers do not.
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::execve(program.as_ptr(), words.as_ptr(), environment.as_ptr());
    }
    Err(io::Error::last_os_error())
}

/// Nothing but the standard streams outlives the program.
fn close_at_exec() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<libc::c_int>().ok());
        if let Some(fd) = number.filter(|&fd| fd > libc::STDERR_FILENO) {
            // SAFETY: a flag of a descriptor; where it was closed meanwhile, that fails.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}
