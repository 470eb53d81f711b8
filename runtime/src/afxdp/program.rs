//! The XDP programs. One redirects packets for UDP port 4791 to the socket of the queue at which they arrived, and passes all others to the
//! kernel. The other redirects all packets to the socket.

use crate::bpf::XDP_PASS;
use crate::bpf::assembler::{Assembler, Code, Reg, Size};
use crate::bpf::look::{DATA, DATA_END, Look};

/// The kernel's function `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// The offset of the queue index in `struct xdp_md`.
const RX_QUEUE_INDEX: i16 = 16;

/// The program that redirects RoCE packets by an XSKMAP. `on_miss` is the verdict on a RoCE packet whose queue has no socket in the map.
pub(super) fn redirect_roce(map_fd: i32, on_miss: i32) -> Code {
    use Reg::{R0, R1, R2, R3, R6};
    let mut a = Assembler::default();
    let pass = a.label();
    a.copy(R6, R1);
    a.load(Size::U32, R2, R1, DATA);
    a.load(Size::U32, R3, R1, DATA_END);
    Look { tags: true, source: None, cut_off: pass, other: pass }.for_roce(&mut a);
    redirect(&mut a, R6, map_fd, on_miss);

    a.place(pass);
    a.set(R0, XDP_PASS);
    a.exit();
    a.finish()
}

/// Ends a program by redirecting the packet to the socket of its queue. `context` is the register with the program's argument.
fn redirect(a: &mut Assembler, context: Reg, map_fd: i32, on_miss: i32) {
    a.load(Size::U32, Reg::R2, context, RX_QUEUE_INDEX);
    a.set_map(Reg::R1, map_fd);
    a.set(Reg::R3, on_miss);
    a.call(REDIRECT_MAP);
    a.exit();
}

/// The program that redirects every packet to the socket of its queue. `on_miss` is the verdict on a packet whose queue has no socket in
/// the map.
pub(super) fn redirect_everything(map_fd: i32, on_miss: i32) -> Code {
    let mut a = Assembler::default();
    redirect(&mut a, Reg::R1, map_fd, on_miss);
    a.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;
    use crate::bpf::look::{IPV4, IPV6, SERVICE_TAG, TAG};
    use crate::bpf::{Kind, Program, XDP_DROP, XskMap};

    /// Stands for a redirect to the socket. No queue has a socket in these tests, so the program returns `on_miss`, which is this value.
    const REDIRECT: u32 = XDP_DROP as u32;
    const PASS: u32 = XDP_PASS as u32;

    fn ethernet(tags: &[u16], ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for tag in tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0x60, 0x05]);
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn udp(port: u16) -> Vec<u8> {
        let mut packet = vec![0xc0, 0];
        packet.extend(port.to_be_bytes());
        packet.extend([0; 40]);
        packet
    }

    fn ipv4(options: usize, fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 20 + options];
        packet[0] = 0x40 | (5 + options / 4) as u8;
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[9] = protocol;
        packet.extend(payload);
        packet
    }

    fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        (packet[0], packet[6]) = (0x60, next);
        packet.extend(payload);
        packet
    }

    fn check(program: &Program, what: &str, frame: &[u8], expected: u32) {
        assert_eq!(program.test_run(frame).unwrap(), expected, "{what}");
    }

    fn load_xdp(code: &Code) -> std::io::Result<Program> {
        Program::load(Kind::Xdp { fragments: true }, code)
    }

    fn map_of_sockets() -> Option<XskMap> {
        let map = XskMap::new(4);
        if let Err(e) = &map {
            // Written past the test harness, which shows no output of tests that pass.
            let _ = writeln!(std::io::stderr(), "LEFT OUT: the verdicts of the XDP program: bpf(2): {e}");
        }
        map.ok()
    }

    #[test]
    fn the_program_that_takes_everything_takes_everything() {
        let Some(map) = map_of_sockets() else { return };
        let load = |on_miss| load_xdp(&redirect_everything(map.as_fd().as_raw_fd(), on_miss)).unwrap();
        for (on_miss, verdict) in [(XDP_DROP, REDIRECT), (XDP_PASS, PASS)] {
            let p = load(on_miss);
            check(&p, "RoCE", &ethernet(&[], IPV4, &ipv4(0, 0x4000, 17, &udp(4791))), verdict);
            check(&p, "a fragment", &ethernet(&[], IPV4, &ipv4(0, 0x2000, 17, &udp(4791))), verdict);
            check(&p, "TCP", &ethernet(&[TAG; 3], IPV6, &ipv6(6, &udp(80))), verdict);
            check(&p, "ARP", &ethernet(&[], 0x0806, &[0; 28]), verdict);
            check(&p, "nothing but the header", &ethernet(&[], 0x1234, &[]), verdict);
        }
    }

    #[test]
    fn every_verdict() {
        let Some(map) = map_of_sockets() else { return };
        let load = |on_miss| load_xdp(&redirect_roce(map.as_fd().as_raw_fd(), on_miss)).unwrap();
        let p = load(XDP_DROP);
        let (v4, v6) = (ipv4(0, 0x4000, 17, &udp(4791)), ipv6(17, &udp(4791)));
        for (version, ethertype, packet) in [("IPv4", IPV4, &v4), ("IPv6", IPV6, &v6)] {
            for tags in [&[][..], &[TAG], &[SERVICE_TAG], &[SERVICE_TAG, TAG], &[TAG, TAG]] {
                let frame = ethernet(tags, ethertype, packet);
                check(&p, &format!("{version} {tags:x?}"), &frame, REDIRECT);
            }
            check(&p, "three tags", &ethernet(&[TAG; 3], ethertype, packet), PASS);
            check(&p, "another ethertype", &ethernet(&[], ethertype + 1, packet), PASS);
            // Packets truncated anywhere before the end of the UDP header.
            let frame = ethernet(&[TAG], ethertype, packet);
            let headers = frame.len() - 36;
            (14..headers).for_each(|len| check(&p, "cut off", &frame[..len], PASS));
            check(&p, "only headers", &frame[..headers], REDIRECT);
        }
        for options in (4..=40).step_by(4) {
            check(&p, "options", &ethernet(&[], IPV4, &ipv4(options, 0, 17, &udp(4791))), PASS);
        }
        for fragment in [0x2000, 0x0001, 0x1fff, 0x3fff, 0x6000] {
            check(&p, "a fragment", &ethernet(&[], IPV4, &ipv4(0, fragment, 17, &udp(4791))), PASS);
        }
        let mut short_header = v4.clone();
        short_header[0] = 0x44;
        check(&p, "a header length of 16", &ethernet(&[], IPV4, &short_header), PASS);
        for protocol in [0, 1, 6, 58, 255] {
            check(&p, "no UDP", &ethernet(&[], IPV4, &ipv4(0, 0, protocol, &udp(4791))), PASS);
            check(&p, "no UDP", &ethernet(&[], IPV6, &ipv6(protocol, &udp(4791))), PASS);
        }
        for port in [4790, 4792, 53, 0xb712] {
            check(&p, "another port", &ethernet(&[], IPV4, &ipv4(0, 0, 17, &udp(port))), PASS);
            check(&p, "another port", &ethernet(&[], IPV6, &ipv6(17, &udp(port))), PASS);
        }
        check(&p, "ARP", &ethernet(&[], 0x0806, &[0; 28]), PASS);
        check(&load(XDP_PASS), "no socket for the queue", &ethernet(&[], IPV4, &v4), PASS);
    }
}
