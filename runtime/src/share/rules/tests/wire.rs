//! The programs on real veths, in a network namespace of the test's own. These tests cover effects that test runs over single frames do not
//! show: copies that arrive, packets whose headers are in several fragments, and tags that the kernel removes before a classifier runs.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Command;

use softnic_wire::Qpn;
use softnic_wire::ethernet::VlanTag;

use super::frames::*;
use super::*;
use crate::bpf::Mode;
use crate::bpf::assembler::{Assembler, Reg};

/// The veth pairs: the shared interface and its peer on the wire, and two clients.
const PAIRS: [(&str, &str); 3] = [("port", "peer"), ("outer77", "inner77"), ("outer1", "inner1")];

fn ip(arguments: &str) -> io::Result<()> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr)))),
    }
}

/// Moves this thread into a network namespace with the pairs; the namespace ends with the thread.
fn enter_namespace() -> io::Result<()> {
    // SAFETY: the call changes only this thread's network namespace.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for (a, b) in PAIRS {
        ip(&format!("link add {a} mtu 9000 type veth peer name {b} mtu 9000"))?;
        for end in [a, b] {
            ip(&format!("link set {end} addrgenmode none"))?;
            ip(&format!("link set {end} up"))?;
        }
    }
    Ok(())
}

fn index(interface: &str) -> u32 {
    let name = CString::new(interface).unwrap();
    // SAFETY: the name is terminated by a zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0, "{interface}");
    index
}

/// A socket that sends and receives whole frames at an interface.
struct Tap(std::fs::File);

impl Tap {
    fn on(interface: &str) -> Tap {
        const EVERYTHING: u16 = (libc::ETH_P_ALL as u16).to_be();
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: EVERYTHING,
            sll_ifindex: index(interface) as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let patience = libc::timeval { tv_sec: 10, tv_usec: 0 };
        // SAFETY: the file descriptor is new and owned here; addresses and lengths are those of values that live until the calls return.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            let socket = OwnedFd::from_raw_fd(fd);
            let (at, len) = (std::ptr::from_ref(&patience).cast(), size_of_val(&patience) as u32);
            assert_eq!(libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, at, len), 0);
            let (at, len) = (std::ptr::from_ref(&address).cast(), size_of_val(&address) as u32);
            assert_eq!(libc::bind(fd, at, len), 0, "{}", io::Error::last_os_error());
            Tap(socket.into())
        }
    }

    fn send(&mut self, frame: &[u8]) {
        assert_eq!(self.0.write(frame).unwrap(), frame.len());
    }

    /// Receives the next frame, and checks that it is this one.
    fn expect(&mut self, frame: &[u8], what: &str) {
        let mut bytes = vec![0; 10_000];
        let len = self.0.read(&mut bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(bytes[..len] == *frame, "{what}: {:x?}", &bytes[..len.min(100)]);
    }
}

fn jumbo(path: &softnic_wire::Path, to: Qpn) -> Vec<u8> {
    // More than a page: the kernel puts only the Ethernet header into the first fragment.
    let mut frame = ud(path, to, qp(SENDER));
    frame.resize(8000, 9);
    frame
}

fn frames_arrive_where_the_programs_say(with_xdp: bool) {
    if let Err(e) = enter_namespace() {
        // Written past the test harness, which shows no output of tests that pass.
        let _ = writeln!(io::stderr(), "LEFT OUT: the programs of a shared port on veths: {e}");
        return;
    }
    let Some(port) = SharedPort::with_members(&[1, 77]) else { return };
    for (number, outer) in [(1, "outer1"), (77, "outer77")] {
        port.maps.set_client(process(number), &Client { ifindex: index(outer), ..Client::default() }).unwrap();
    }
    port.maps.set_port(index("port"), LOCAL_MAC, None).unwrap();
    let attached = [port.spread.attach_classifier(index("port")), port.egress.attach_classifier(index("outer77"))];
    if let Some(e) = attached.iter().find_map(|link| link.as_ref().err()) {
        let _ = writeln!(io::stderr(), "LEFT OUT: the programs of a shared port on veths: kernels before 6.6: {e}");
        return;
    }
    // A veth accepts frames that XDP redirects to it only if its other end has a program, too, as a client's inner end has.
    let mut a = Assembler::default();
    a.set(Reg::R0, XDP_PASS as i32);
    a.exit();
    let pass = Program::load(Kind::Xdp { fragments: true }, &a.finish()).unwrap();
    let attach = |program: &Program, interface| program.attach(index(interface), Mode::Native).unwrap();
    let _attached = [attach(&pass, "inner77"), attach(&pass, "inner1")];
    let _attached_to_port = with_xdp.then(|| attach(&port.ingress, "port"));
    let [mut peer, mut sender, mut other] = ["peer", "inner77", "inner1"].map(Tap::on);

    for v6 in [false, true] {
        // Incoming packets. No client gets a packet of another one: the next check would find it.
        for frame in [rc(&inwards(v6), qp(1)), jumbo(&inwards(v6), qp(1))] {
            peer.send(&frame);
            other.expect(&frame, "from the wire to a client");
        }
        let group = softnic_wire::Path { dst_mac: GROUP_MAC, ..inwards(v6) };
        for frame in [ud(&group, Qpn::MULTICAST, Qpn::new(9)), jumbo(&group, Qpn::MULTICAST)] {
            peer.send(&frame);
            sender.expect(&frame, "from the wire to a member");
            other.expect(&frame, "from the wire to another member");
        }

        // Outgoing packets.
        let before = port.client(SENDER);
        let wire = outwards(v6, REMOTE_MAC);
        let tagged = softnic_wire::Path { tags: [Some(VlanTag::new(5, 0)), None], ..wire };
        sender.send(&rc(&tagged, Qpn::new(5)));
        for frame in [rc(&wire, Qpn::new(5)), jumbo(&wire, Qpn::new(5))] {
            sender.send(&frame);
            peer.expect(&frame, "from a client to the wire");
        }
        let local = outwards(v6, LOCAL_MAC);
        for frame in [rc(&local, qp(1)), jumbo(&local, qp(1)), cm(&local, &rej(id(SENDER), id(1)))] {
            sender.send(&frame);
            other.expect(&frame, "from a client to another");
        }
        let own = rc(&local, qp(SENDER));
        sender.send(&own);
        sender.expect(&own, "from a client to itself");
        let group = outwards(v6, GROUP_MAC);
        for frame in [ud(&group, Qpn::MULTICAST, qp(SENDER)), jumbo(&group, Qpn::MULTICAST)] {
            sender.send(&frame);
            peer.expect(&frame, "from a client to a group on the wire");
            other.expect(&frame, "from a client to a member");
        }
        let after = port.client(SENDER);
        assert_eq!((after.tx_denied - before.tx_denied, after.tx_frames - before.tx_frames), (1, 8));
    }
}

#[test]
fn on_veths_frames_arrive_where_the_programs_say() {
    for with_xdp in [true, false] {
        std::thread::spawn(move || frames_arrive_where_the_programs_say(with_xdp)).join().unwrap();
    }
}
