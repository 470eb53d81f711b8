//! Sealing and unsealing of frames: the trailer after the payload, and the resulting lengths and ICRC.

use softnic_wire::auth::{EPOCH_LEN, MAX_EPOCH, TRAILER_LEN, Trailer};
use softnic_wire::{Layout, TxFrame, bth, icrc};

use super::keys::PacketKey;
use super::replay::ReplayWindow;

/// The longest frame with its trailer.
const MAX_FRAME: usize = 4096 + 256;

/// All epochs of the connection are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// Why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unauthentic {
    /// The tag is missing or invalid.
    Tag,
    /// The packet was received before, or is too old for the replay window.
    Replayed,
}

/// The outgoing direction.
pub(super) struct Sealer {
    key: PacketKey,
    /// Number of sealed packets.
    epoch: u64,
}

impl Sealer {
    pub(super) fn new(key: PacketKey) -> Sealer {
        Sealer { key, epoch: 0 }
    }

    pub(super) fn seal(&mut self, tx: &mut TxFrame<'_>) -> Result<(), Exhausted> {
        if self.epoch == MAX_EPOCH || !tx.extend(TRAILER_LEN) {
            return Err(Exhausted);
        }
        self.epoch += 1;
        let len = tx.len();
        match tx.slices_mut(0, len) {
            (frame, []) => seal(&self.key, self.epoch, frame),
            _ => self.seal_straddling(tx),
        }
        Ok(())
    }

    /// The tag is computed over contiguous bytes, so the frame is assembled first.
    #[cold]
    fn seal_straddling(&self, tx: &mut TxFrame<'_>) {
        let mut whole = [0; MAX_FRAME];
        let (a, b) = tx.segments();
        let Some(frame) = whole.get_mut(..a.len() + b.len()) else { return };
        frame[..a.len()].copy_from_slice(a);
        frame[a.len()..].copy_from_slice(b);
        seal(&self.key, self.epoch, frame);
        tx.put(0, frame);
    }
}

/// Seals a frame that has room for the trailer after its ICRC.
fn seal(key: &PacketKey, epoch: u64, frame: &mut [u8]) {
    let Ok(mut layout) = Layout::locate(frame) else { return };
    let at = layout.end - icrc::LEN;
    frame[at..at + EPOCH_LEN].copy_from_slice(&epoch.to_be_bytes());
    let tag = with_ones(frame, layout.bth, |frame| {
        let sealed = &frame[layout.bth..at];
        key.tag(&nonce(sealed, epoch), sealed)
    });
    frame[at + EPOCH_LEN..at + TRAILER_LEN].copy_from_slice(&tag);
    let end = layout.end + TRAILER_LEN;
    layout.set_end(frame, end);
    (layout.end, layout.udp_end) = (end, end);
    let _ = icrc::write(frame, &layout);
}

/// The incoming direction.
pub(super) struct Unsealer {
    key: PacketKey,
    window: ReplayWindow,
}

impl Unsealer {
    pub(super) fn new(key: PacketKey) -> Unsealer {
        Unsealer { key, window: ReplayWindow::new() }
    }

    /// Checks and removes the trailer of a frame whose lengths and ICRC are valid.
    pub(super) fn unseal(&mut self, frame: &mut [u8], layout: &mut Layout, with_icrc: bool) -> Result<(), Unauthentic> {
        let at = layout.end - icrc::LEN - layout.bth;
        let at = layout.bth + at.checked_sub(TRAILER_LEN).filter(|&len| len >= bth::LEN).ok_or(Unauthentic::Tag)?;
        let trailer = frame[at..].first_chunk().and_then(Trailer::parse);
        let Trailer { epoch, tag } = trailer.ok_or(Unauthentic::Tag)?;
        let right = with_ones(frame, layout.bth, |frame| {
            let sealed = &frame[layout.bth..at];
            self.key.verifies(&nonce(sealed, epoch), sealed, &tag)
        });
        if !right {
            return Err(Unauthentic::Tag);
        }
        if !self.window.take(epoch) {
            return Err(Unauthentic::Replayed);
        }
        let end = at + icrc::LEN;
        if with_icrc {
            layout.set_end(frame, end);
        }
        (layout.end, layout.udp_end) = (end, end);
        if with_icrc {
            let _ = icrc::write(frame, layout);
        }
        Ok(())
    }
}

/// Calls `call` with the sealed bytes from the BTH on, in which the bits that a switch may change are set to one; restores them afterwards.
#[inline]
fn with_ones<T>(frame: &mut [u8], bth: usize, call: impl FnOnce(&[u8]) -> T) -> T {
    let at = bth + icrc::BTH_VARIANT;
    let before = std::mem::replace(&mut frame[at], 0xff);
    let result = call(frame);
    frame[at] = before;
    result
}

/// The nonce: destination QP, PSN and epoch. No two packets under one key have the same nonce. The tag covers the nonce, so the epoch is
/// not among the authenticated bytes.
#[inline]
fn nonce(sealed: &[u8], epoch: u64) -> [u8; 12] {
    let [.., e0, e1, e2, e3, e4, e5] = epoch.to_be_bytes();
    let b = sealed.first_chunk::<{ bth::LEN }>().copied().unwrap_or_default();
    [b[5], b[6], b[7], b[9], b[10], b[11], e0, e1, e2, e3, e4, e5]
}

#[cfg(test)]
mod tests {
    use super::super::Secret;
    use super::super::keys::Direction;
    use super::*;
    use softnic_wire::ethernet::MacAddr;
    use softnic_wire::{Addresses, ExtHeaders, Opcode, PacketFields, Path, Psn, Qpn, RocePacket, Template};

    fn key() -> PacketKey {
        let nonces = [0u8, 240].map(|first| std::array::from_fn(|i| first + i as u8));
        let ends = [([10, 0, 0, 1], 0x11), ([10, 0, 0, 2], 0x22)].map(|(ip, qpn)| (ip.into(), Qpn::new(qpn)));
        Direction { from: ends[0], to: ends[1], nonces }.key(&Secret::new(b"0123456789abcdef0123456789abcdef").unwrap())
    }

    fn template(ipv6: bool) -> Template {
        let addresses = match ipv6 {
            false => Addresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() },
            true => Addresses::V6 { src: [1; 16].into(), dst: [2; 16].into() },
        };
        let path = Path {
            src_mac: MacAddr([2; 6]),
            dst_mac: MacAddr([4; 6]),
            tags: [None; 2],
            addresses,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            src_port: 50_000,
        };
        Template::new(&path, Qpn::new(0x22), bth::DEFAULT_PKEY)
    }

    fn build(tx: &mut TxFrame<'_>, template: &Template, psn: u32, payload: &[u8]) {
        let fields = PacketFields {
            opcode: Opcode::RC_SEND_ONLY,
            psn: Psn::new(psn),
            ack_req: true,
            solicited: false,
            becn: false,
            payload_len: payload.len(),
        };
        template.build(tx, &fields, &ExtHeaders::default(), payload).unwrap();
    }

    /// Seals a plain frame, in one or two pieces; returns the frame and the sealed one.
    fn sealed(sealer: &mut Sealer, ipv6: bool, psn: u32, payload: &[u8], split: usize) -> [Vec<u8>; 2] {
        let mut buffer = vec![0xee; MAX_FRAME];
        let (first, second) = buffer.split_at_mut(split);
        let mut tx = TxFrame::new_split(first, second);
        build(&mut tx, &template(ipv6), psn, payload);
        let joined = |tx: &TxFrame<'_>| [tx.segments().0, tx.segments().1].concat();
        let plain = joined(&tx);
        sealer.seal(&mut tx).unwrap();
        [plain, joined(&tx)]
    }

    fn unseal(unsealer: &mut Unsealer, frame: &[u8]) -> Result<Vec<u8>, Unauthentic> {
        let mut frame = frame.to_vec();
        let mut layout = Layout::locate(&frame).unwrap();
        unsealer.unseal(&mut frame, &mut layout, true)?;
        assert_eq!((layout.check(frame.len()), icrc::verify_shared(&frame, &layout)), (Ok(()), Ok(())));
        frame.truncate(layout.end);
        Ok(frame)
    }

    /// Computed with Python's `cryptography`: HKDF(SHA256, 32, salt = 00..0f ‖ f0..ff, info = b"softnic auth 1 packet" ‖ ::ffff:10.0.0.1 ‖
    /// 000011 ‖ ::ffff:10.0.0.2 ‖ 000022).derive(b"0123456789abcdef" * 2), then AESGCM(key).encrypt(000022 ‖ PSN ‖ epoch's six bytes, b"",
    /// 0470ffff ff 000022 80 PSN ‖ b"hello" and three zeros), and the same of 0440… without payload.
    #[test]
    fn trailers_are_those_of_an_independent_implementation() {
        let mut sealer = Sealer::new(key());
        for (psn, payload, expected) in [
            (7, &b"hello"[..], 0x8e06_c086_50ab_1b67_9b67_24eb_33ee_5094_u128),
            (0xff_ffff, b"", 0x5b49_63a6_5089_054c_c70e_e381_c710_6c4f),
        ] {
            let [plain, frame] = sealed(&mut sealer, false, psn, payload, MAX_FRAME);
            let at = plain.len() - icrc::LEN;
            let (epoch, tag) = frame[at..at + TRAILER_LEN].split_at(EPOCH_LEN);
            assert_eq!((epoch, tag), (&[0, 0, 0, 0, 0, 0, 0, sealer.epoch as u8][..], &expected.to_be_bytes()[..]));
        }
    }

    #[test]
    fn a_frame_of_any_length_and_in_any_pieces_is_the_plain_one_again() {
        let (mut sealer, mut unsealer) = (Sealer::new(key()), Unsealer::new(key()));
        for len in (0..70).chain([255, 256, 1024, 4095, 4096]) {
            let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
            for (ipv6, split) in [(false, MAX_FRAME), (true, MAX_FRAME), (false, 128), (true, 130)] {
                let [plain, frame] = sealed(&mut sealer, ipv6, len, &payload, split);
                assert_eq!(frame.len(), plain.len() + TRAILER_LEN);
                let packet = RocePacket::parse(&frame).unwrap();
                assert_eq!(icrc::verify_shared(&frame, &packet.layout), Ok(()));
                assert_eq!(unseal(&mut unsealer, &frame), Ok(plain), "{len} bytes, split at {split}");
            }
        }
    }

    #[test]
    fn every_bit_counts_but_those_that_a_switch_may_change() {
        let [plain, frame] = sealed(&mut Sealer::new(key()), false, 7, b"hello", MAX_FRAME);
        let Layout { bth, end, .. } = Layout::locate(&frame).unwrap();
        for bit in bth * 8..(end - icrc::LEN) * 8 {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let mut unsealer = Unsealer::new(key());
            match bit / 8 == bth + icrc::BTH_VARIANT {
                true => assert!(unseal(&mut unsealer, &changed).is_ok()),
                false => assert_eq!(unseal(&mut unsealer, &changed), Err(Unauthentic::Tag), "bit {bit}"),
            }
            assert_eq!(unseal(&mut unsealer, &frame).is_ok(), bit / 8 != bth + icrc::BTH_VARIANT, "it stays new");
        }
        assert_eq!(unseal(&mut Unsealer::new(key()), &plain), Err(Unauthentic::Tag), "no trailer");
    }

    #[test]
    fn a_packet_from_before_the_psn_wrapped_is_a_replay_when_its_psn_is_due_again() {
        let (mut sealer, mut unsealer) = (Sealer::new(key()), Unsealer::new(key()));
        let [_, old] = sealed(&mut sealer, false, 7, b"hello", MAX_FRAME);
        assert!(unseal(&mut unsealer, &old).is_ok());
        for (epoch, expected) in [(100, Unauthentic::Replayed), ((1 << 24) + 1, Unauthentic::Replayed)] {
            sealer.epoch = epoch - 1;
            let [_, new] = sealed(&mut sealer, false, 7, b"hello", MAX_FRAME);
            assert_eq!(unseal(&mut unsealer, &old), Err(expected), "before");
            assert!(new != old && unseal(&mut unsealer, &new).is_ok());
            assert_eq!([&old, &new].map(|f| unseal(&mut unsealer, f)), [Err(expected), Err(expected)], "and after");
        }
    }

    #[test]
    fn the_last_epoch_is_the_end() {
        let mut sealer = Sealer::new(key());
        sealer.epoch = MAX_EPOCH - 1;
        let [_, frame] = sealed(&mut sealer, false, 7, b"hello", MAX_FRAME);
        assert!(unseal(&mut Unsealer::new(key()), &frame).is_ok());
        let mut buffer = [0; 200];
        let mut tx = TxFrame::new(&mut buffer);
        build(&mut tx, &template(false), 8, b"hello");
        assert_eq!(sealer.seal(&mut tx), Err(Exhausted));
    }
}
