//! A run apart from all others: a session of its own, and where it may a network of its own, with nothing but loopback.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{getegid, geteuid, getpid, getppid, setsid};

/// Whether commands get a network of their own here: it takes user namespaces, or root.
pub(super) fn has_own_networks() -> bool {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    isolate(&mut command, true);
    command.status().is_ok_and(|status| status.success())
}

/// Has a command run in a session of its own, which ends with us, and in a network of its own if it is to.
pub(super) fn isolate(command: &mut Command, network: bool) {
    let parent = getpid();
    // Made before the fork: behind it nothing may be allocated.
    let (users, groups) = (format!("{0} {0} 1", geteuid()), format!("{0} {0} 1", getegid()));
    let prepare = move || {
        setsid()?;
        if network {
            own_network(users.as_bytes(), groups.as_bytes())?;
        }
        // Behind that: whoever gets other rights loses it.
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        match getppid() == parent {
            true => Ok(()),
            false => Err(io::Error::from(Errno::ESRCH)),
        }
    };
    // SAFETY: between fork and exec, only system calls that are safe there, and nothing is allocated.
    unsafe { command.pre_exec(prepare) };
}

fn own_network(users: &[u8], groups: &[u8]) -> io::Result<()> {
    // SAFETY: this process has one thread, and unsharing its namespaces takes nothing from anybody.
    let unshare = |flags| match unsafe { libc::unshare(flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    if unshare(libc::CLONE_NEWNET).is_err() {
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)?;
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", users)?;
        write(c"/proc/self/gid_map", groups)?;
    }
    loopback_up()
}

fn write(path: &std::ffi::CStr, text: &[u8]) -> io::Result<()> {
    // SAFETY: the path ends with a zero.
    let file = owned(unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) })?;
    // SAFETY: the text is as long as is said.
    match unsafe { libc::write(file.as_raw_fd(), text.as_ptr().cast(), text.len()) } {
        written if written == text.len() as isize => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn loopback_up() -> io::Result<()> {
    // SAFETY: it takes no pointers.
    let socket = owned(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: all zeros are a value of this struct of numbers.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is one of this ioctl, with its name and flags.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to one thread. It may be gone by then.
pub(super) fn signal_thread(process: u32, thread: u32, signal: i32) {
    // SAFETY: it takes numbers alone.
    let _ = unsafe { libc::syscall(libc::SYS_tgkill, process as i32, thread as i32, signal) };
}

/// The signal that has the library write stacks.
pub(super) fn stack_signal() -> i32 {
    libc::SIGRTMAX() - 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_loopback_alone_in_a_network_of_its_own() {
        if !has_own_networks() {
            return;
        }
        let mut command = Command::new("cat");
        command.arg("/proc/net/dev").stdout(Stdio::piped());
        isolate(&mut command, true);
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let interfaces = text.lines().filter(|line| line.contains(':')).count();
        assert_eq!(interfaces, 1, "{text}");
        let mut command = Command::new("sh");
        command.args(["-c", "ps -o pid= -o sid= -p $$ | { read pid sid; [ $pid = $sid ]; }"]);
        isolate(&mut command, false);
        assert!(command.status().unwrap().success(), "it leads its session");
    }
}
