//! Priority-based flow control (IEEE 802.1Qbb): the MAC control frame that pauses priorities of a link's other end, and the priority of
//! a frame.

use crate::bytes::{array, be16, put16};
use crate::ethernet::{self, ethertype};
use crate::{Error, MacAddr, ipv4, ipv6};

/// MAC control frames, which no bridge forwards.
pub const DESTINATION: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 1]);
/// The ethertype of MAC control.
pub const ETHERTYPE: u16 = 0x8808;
/// The opcode of priority-based flow control; 0x0001 pauses a whole link.
pub const OPCODE: u16 = 0x0101;
/// Priorities of a link.
pub const PRIORITIES: usize = 8;
/// Bytes of a frame, with the padding to Ethernet's shortest and without the FCS.
pub const LEN: usize = 60;
/// Bits that a link carries in the time that one quantum pauses.
pub const QUANTUM_BITS: u64 = 512;

mod field {
    pub(super) const ETHERTYPE: usize = 12;
    pub(super) const OPCODE: usize = 14;
    pub(super) const ENABLED: usize = 16;
    pub(super) const TIMES: usize = 18;
    pub(super) const END: usize = 34;
}

/// What a pause frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// Who sends it.
    pub src: MacAddr,
    /// For each priority how long it is paused, in quanta; 0 lets it go on, `None` says nothing of it.
    pub times: [Option<u16>; PRIORITIES],
}

impl Repr {
    /// Whether a frame is MAC control, which ends at the port that it came to.
    #[inline]
    pub fn is_mac_control(frame: &[u8]) -> bool {
        frame.len() >= ethernet::LEN && MacAddr(array(frame, 0)) == DESTINATION
    }

    /// Reads a frame; other MAC control frames than this one are refused.
    pub fn parse(frame: &[u8]) -> Result<Repr, Error> {
        Error::check_len("pause frame", field::END, frame.len())?;
        let is_pause = Repr::is_mac_control(frame)
            && be16(frame, field::ETHERTYPE) == ETHERTYPE
            && be16(frame, field::OPCODE) == OPCODE;
        if !is_pause {
            return Err(Error::Malformed { what: "pause frame", why: "another kind of MAC control" });
        }
        let enabled = be16(frame, field::ENABLED);
        let mut times = [None; PRIORITIES];
        for (priority, time) in times.iter_mut().enumerate() {
            *time = (enabled >> priority & 1 == 1).then(|| be16(frame, field::TIMES + 2 * priority));
        }
        Ok(Repr { src: MacAddr(array(frame, 6)), times })
    }

    /// The frame.
    pub fn emit(&self) -> [u8; LEN] {
        let mut frame = [0; LEN];
        frame[..6].copy_from_slice(&DESTINATION.0);
        frame[6..12].copy_from_slice(&self.src.0);
        put16(&mut frame, field::ETHERTYPE, ETHERTYPE);
        put16(&mut frame, field::OPCODE, OPCODE);
        let mut enabled = 0;
        for (priority, time) in self.times.iter().enumerate() {
            enabled |= u16::from(time.is_some()) << priority;
            put16(&mut frame, field::TIMES + 2 * priority, time.unwrap_or(0));
        }
        put16(&mut frame, field::ENABLED, enabled);
        frame
    }
}

/// The priority of a frame: the class selector of its DSCP (RFC 2474 §4.2.2), its upper three bits; 0 of what is not IP.
#[inline]
pub fn priority(frame: &[u8]) -> usize {
    let class = ethernet::network_layer(frame).ok().and_then(|(kind, at)| {
        let packet = frame.get(at..)?;
        match kind {
            ethertype::IPV4 => ipv4::Packet::new_checked(packet).ok().map(|ip| ip.tos()),
            ethertype::IPV6 => ipv6::Packet::new_checked(packet).ok().map(|ip| ip.traffic_class()),
            _ => None,
        }
    });
    usize::from(class.unwrap_or(0) >> 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_says_what_it_was_made_of_in_the_bytes_of_the_standard() {
        let mut times = [None; PRIORITIES];
        (times[3], times[6]) = (Some(0xffff), Some(0));
        let pause = Repr { src: MacAddr([2, 0, 0, 0, 0, 9]), times };
        let frame = pause.emit();
        assert_eq!(&frame[..12], &[1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 9]);
        assert_eq!(&frame[12..18], &[0x88, 0x08, 0x01, 0x01, 0, 0b0100_1000]);
        assert_eq!((&frame[24..26], &frame[30..32]), (&[0xff, 0xff][..], &[0, 0][..]));
        assert_eq!(Repr::parse(&frame), Ok(pause));
    }

    #[test]
    fn what_is_no_pause_frame_of_priorities_is_refused() {
        let frame = Repr { src: MacAddr([2; 6]), times: [Some(1); PRIORITIES] }.emit();
        assert!((0..field::END).all(|len| Repr::parse(&frame[..len]).is_err()), "cut off");
        for at in [0, 12, 14] {
            let mut other = frame;
            other[at] ^= 0x10;
            assert!(Repr::parse(&other).is_err(), "byte {at}");
        }
        assert!(Repr::is_mac_control(&frame) && !Repr::is_mac_control(&frame[..13]));
    }
}
