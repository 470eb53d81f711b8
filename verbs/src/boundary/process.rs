//! Faults of the whole process: it is killed, or stopped for a while.

use std::time::Duration;

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
