//! The fuzz body: a sealed frame, changed byte by byte and truncated, or arbitrary input in place of a frame.

use softnic_wire::{Addresses, ExtHeaders, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame, bth};
use softnic_wire::{Layout, MacAddr, icrc};

use super::Secret;
use super::keys::Direction;
use super::seal::{Sealer, Unauthentic, Unsealer};

/// The outcome for the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unsealed {
    /// The lengths in the frame are not those of a packet, so it would not have reached this layer.
    NoPacket,
    /// The tag was not valid.
    Rejected,
    /// The frame was accepted, once.
    Taken,
}

/// Seals a frame of the first bytes, changes it as the other bytes say, and unseals it. Panics if a changed frame is accepted, if an
/// unchanged frame is not accepted, or if a frame is accepted twice.
#[doc(hidden)]
pub fn fuzz_unseal(data: &[u8]) -> Unsealed {
    let (&len, data) = data.split_first().unwrap_or((&0, &[]));
    let (payload, changes) = data.split_at(data.len().min(len.into()));
    let ends = [([10, 0, 0, 1], 0x11), ([10, 0, 0, 2], 0x22)].map(|(ip, qpn)| (ip.into(), Qpn::new(qpn)));
    let secret = Secret::new(&[7; 16]).expect("long enough");
    let key = || Direction { from: ends[0], to: ends[1], nonces: [[1; 16], [2; 16]] }.key(&secret);
    let mut unsealer = Unsealer::new(key());
    let mut buffer = [0; 512];
    let mut tx = TxFrame::new(&mut buffer);
    build(&mut tx, payload);
    Sealer::new(key()).seal(&mut tx).expect("the first epoch");
    let genuine = tx.segments().0.to_vec();
    let mut frame = genuine.clone();
    let end = frame.len();
    for change in changes.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([change[0], change[1]]));
        match frame.get_mut(at) {
            Some(byte) => *byte ^= change[2],
            None => frame.truncate(end.saturating_sub(at % 64)),
        }
    }
    let Some(layout) = Layout::locate(&frame).ok().filter(|layout| layout.check(frame.len()).is_ok()) else {
        return Unsealed::NoPacket;
    };
    // The bytes that the tag covers. The bytes before them are checked by the NIC.
    let covered = |frame: &[u8], layout: &Layout| {
        let mut bytes = frame[layout.bth..layout.end - icrc::LEN].to_vec();
        bytes[icrc::BTH_VARIANT] = 0xff;
        bytes
    };
    let same = covered(&frame, &layout) == covered(&genuine, &Layout::locate(&genuine).expect("it was built"));
    let mut once = |with_icrc| {
        let (mut frame, mut layout) = (frame.clone(), layout);
        unsealer.unseal(&mut frame, &mut layout, with_icrc)
    };
    match once(true) {
        Err(error) => {
            assert_eq!((error, same), (Unauthentic::Tag, false));
            Unsealed::Rejected
        }
        Ok(()) => {
            assert!(same, "it was changed");
            assert_eq!(once(false), Err(Unauthentic::Replayed));
            Unsealed::Taken
        }
    }
}

fn build(tx: &mut TxFrame<'_>, payload: &[u8]) {
    let path = Path {
        src_mac: MacAddr([2; 6]),
        dst_mac: MacAddr([4; 6]),
        tags: [None; 2],
        addresses: Addresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() },
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        src_port: 50_000,
    };
    let fields = PacketFields {
        opcode: Opcode::RC_SEND_ONLY,
        psn: Psn::new(7),
        ack_req: true,
        solicited: false,
        becn: false,
        payload_len: payload.len(),
    };
    let template = Template::new(&path, Qpn::new(0x22), bth::DEFAULT_PKEY);
    template.build(tx, &fields, &ExtHeaders::default(), payload).expect("it fits");
}
