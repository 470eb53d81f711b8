//! Frames that a sender left to be segmented by its card, as a virtual machine or a kernel with TSO does, come in by a tap.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Error, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use softnic_runtime::bump::{Bump, Options};

use crate::veth::{LIMIT, Veth, left_out};

/// A tap that takes frames with what a card is to do with them before each; gone when the file is closed.
fn tap(name: &str) -> std::io::Result<File> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_flags: (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short,
        },
    };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: TUNSETIFF takes such a request, whose name ends with a zero.
    match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request) } {
        0 => Ok(file),
        _ => Err(Error::last_os_error()),
    }
}

/// TCP over IPv4 with so many bytes, to be cut into segments of 1448 if it is longer than that.
fn tcp(len: usize) -> Vec<u8> {
    // struct virtio_net_hdr: what to do, how, header bytes, bytes of a segment, where the checksum begins and goes.
    let long = len > 1448;
    let header: [u16; 5] = if long { [0x0101, 54, 1448, 34, 16] } else { [0; 5] };
    let mut frame: Vec<u8> = header.iter().flat_map(|n| n.to_le_bytes()).collect();
    frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0]);
    frame.extend((40 + len as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0x50, 0x10, 0, 100, 0x12, 0x34, 0, 0]);
    frame.resize(frame.len() + len, 7);
    frame
}

#[test]
fn frames_that_no_ethernet_carries_are_dropped_and_counted() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let opened = veth.inside(0, || Ok::<_, Error>([tap("sntap0")?, tap("sntap1")?]));
    let [mut first, _second] = match opened {
        Ok(taps) => taps,
        Err(e) => return left_out(&format!("no tap: {e}")),
    };
    for name in ["sntap0", "sntap1"] {
        veth.ip(0, &format!("link set {name} up")).unwrap();
    }
    let options = Options { a: "sntap0".into(), b: "sntap1".into(), ..Options::default() };
    let bump = veth.inside(0, || Bump::start(&options).unwrap());
    // In one chunk, in several, and as long as the kernel has them.
    for len in [100, 3000, 20_000, 60_000] {
        assert_eq!(first.write(&tcp(len)).unwrap(), 10 + 54 + len);
    }
    let begin = Instant::now();
    while bump.counters()[0].unsegmented < 3 {
        assert!(begin.elapsed() < LIMIT, "{:?}", bump.counters());
        std::thread::sleep(Duration::from_millis(10));
    }
    let c = bump.stop().unwrap().counters[0];
    // The kernel may say something by a tap that came up; so may it to nobody.
    assert!(c.unsegmented == 3 && c.tx_frames >= 1 && c.tx_bytes < 3000, "{c:?}");
}
