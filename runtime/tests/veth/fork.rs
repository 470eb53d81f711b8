//! A program that forks, and its child that closes what the NIC holds.
#![allow(unsafe_code)]

use softnic_runtime::api::{Context, DeviceSpec, OpenOptions};

use crate::peer;
use crate::veth::Veth;

/// The body of a process of its own, lest the child has descriptors of other tests: opens, forks, closes, opens again.
pub(crate) fn fork(interface: &str) -> String {
    let device = DeviceSpec::afxdp(interface);
    let open = || Context::open(&device, &OpenOptions::default());
    let context = open().unwrap();
    let descriptors = context.descriptors();
    // SAFETY: the child calls nothing but close(2), pause(2) and _exit(2), which may be called after a fork of any process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        for fd in descriptors {
            // SAFETY: they are the NIC's, which the child never uses.
            unsafe { libc::close(fd) };
        }
        // SAFETY: as said above.
        unsafe {
            libc::pause();
            libc::_exit(0)
        }
    }
    drop(context);
    let again = match open() {
        Ok(_) => "opened again".into(),
        Err(why) => why.to_string(),
    };
    // SAFETY: it is our child, which nobody has waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    again
}

#[test]
fn a_child_that_closed_the_descriptors_does_not_keep_the_device() {
    let Some(veth) = Veth::new(2, 1500) else { return };
    let inside = format!("ip netns exec {}", veth.namespaces[0]);
    assert_eq!(peer::start(&inside, &format!("fork {}", veth.interface(0))).said, "opened again");
    veth.await_no_program(0);
}
