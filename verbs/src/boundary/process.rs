//! Faults of the whole process: it is killed, or stopped for a while.

use std::time::Duration;

/// Kills the process, as the kernel does when there is no memory left.
pub(crate) fn kill() {
    // SAFETY: the signal goes to this process, which has ended when it is delivered.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Stops the process, with its NIC, for so long.
///
/// Somebody else has to let it go on: a child that the program does not see, because its end sends no signal, and wait(2) does not look for
/// such. It ends with its parent.
pub(crate) fn stop(time: Duration) {
    let me = std::process::id() as libc::pid_t;
    let pause = libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: the same as fork(2), without the signal at its end and without the handlers of pthread_atfork(3). The child calls nothing but
    // the system, and allocates nothing.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if child == 0 {
        // SAFETY: plain calls of the system, with memory of this function.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::nanosleep(&raw const pause, std::ptr::null_mut());
            if libc::getppid() == me {
                libc::kill(me, libc::SIGCONT);
            }
            libc::_exit(0);
        }
    }
    if child < 0 {
        // Nobody would wake the process.
        std::thread::sleep(time);
        return;
    }
    // SAFETY: the signal goes to this process; the number is one of a child of it.
    unsafe {
        libc::kill(me, libc::SIGSTOP);
        libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), libc::__WALL);
    }
}
