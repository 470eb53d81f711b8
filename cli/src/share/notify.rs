//! Telling systemd how far a service is (sd_notify(3)); where nobody wants to know, nothing is said.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// It serves.
pub(super) fn ready() {
    notify("READY=1");
}

/// It is about to end.
pub(super) fn stopping() {
    notify("STOPPING=1");
}

fn notify(state: &str) {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = name.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
        None => SocketAddr::from_pathname(&name),
    };
    // Who wanted to know and cannot be told waits; a service works without.
    if let (Ok(socket), Ok(address)) = (UnixDatagram::unbound(), address) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}
