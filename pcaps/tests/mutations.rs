//! Damaged packets: bits flipped and ends cut off in our captures never panic, and never pass for whole ones.

mod common;

use common::{captures_in, corpus, frames};
use proptest::prelude::*;
use softnic_pcaps::decode::{IcrcVerdict, decode_ethernet, decode_network};
use softnic_pcaps::fuzz::check_packet;
use softnic_wire::{Carrier, Layout};
use std::sync::LazyLock;

/// Every frame of the corpus that is not damaged already.
static CORPUS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let all = captures_in(&corpus()).into_iter().flat_map(|p| frames(&p));
    all.map(|f| f.data).filter(|f| decode_ethernet(f).is_ok_and(|d| d.icrc == IcrcVerdict::Ok)).collect()
});

/// Whether a byte counts for the ICRC as a whole: from the network header to the ICRC, without what routers may change.
fn is_invariant(l: &Layout, at: usize) -> bool {
    let variant: &[usize] = match l.carrier {
        Carrier::Ipv4 => &[1, 8, 10, 11],
        Carrier::Ipv6 | Carrier::RoceV1 => &[0, 1, 2, 3, 7],
    };
    let variant = variant.iter().map(|v| l.network + v).chain([l.udp + 6, l.udp + 7, l.bth + 4]);
    (l.network..l.end).contains(&at) && !variant.into_iter().any(|v| v == at)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any change of up to 32 bits in a row in what the ICRC covers is found: that is what a CRC-32 promises.
    #[test]
    fn a_burst_of_wrong_bits_is_never_ok(pick: prop::sample::Index, place: prop::sample::Index, flip in 1u32..) {
        let mut frame = pick.get(&CORPUS).clone();
        let l = Layout::locate(&frame).unwrap();
        let at = l.network + place.index(l.end - l.network);
        let mut hit = false;
        for (i, bits) in flip.to_be_bytes().into_iter().enumerate() {
            if at + i < l.end {
                hit |= bits != 0 && is_invariant(&l, at + i);
                frame[at + i] ^= bits;
            }
        }
        let Ok(d) = decode_ethernet(&frame) else { return Ok(()) };
        check_packet(&frame, &d);
        prop_assert!(!hit || d.icrc != IcrcVerdict::Ok, "ok, with wrong bits at {at}");
    }

    /// What routers may change leaves the ICRC as it is.
    #[test]
    fn variant_fields_may_change(pick: prop::sample::Index, tos: u8, ttl: u8, sum: u16, bth: u8) {
        let mut frame = pick.get(&CORPUS).clone();
        let l = Layout::locate(&frame).unwrap();
        match l.carrier {
            Carrier::Ipv4 => {
                frame[l.network + 1] = tos;
                frame[l.network + 8] = ttl;
                frame[l.network + 10..][..2].copy_from_slice(&sum.to_be_bytes());
            }
            _ => {
                frame[l.network] = 0x60 | tos >> 4;
                frame[l.network + 1] = tos;
                frame[l.network + 2..][..2].copy_from_slice(&sum.to_be_bytes());
                frame[l.network + 7] = ttl;
            }
        }
        frame[l.udp + 6..][..2].copy_from_slice(&sum.to_be_bytes());
        frame[l.bth + 4] = bth;
        prop_assert_eq!(decode_ethernet(&frame).unwrap().icrc, IcrcVerdict::Ok);
    }

    /// A packet that was cut off is never called whole, and shows each field that was captured whole as it is.
    #[test]
    fn a_cut_off_packet_is_shown_as_far_as_it_goes(pick: prop::sample::Index, cut: prop::sample::Index) {
        let frame = pick.get(&CORPUS);
        let whole = decode_ethernet(frame).unwrap();
        let len = cut.index(whole.layout.end);
        let Ok(d) = decode_ethernet(&frame[..len]) else {
            prop_assert!(len < whole.layout.bth, "{len} bytes have a BTH's first");
            return Ok(());
        };
        check_packet(&frame[..len], &d);
        prop_assert_eq!(d.icrc, IcrcVerdict::Truncated);
        prop_assert_eq!(d.problem, None);
        let bth = len - whole.layout.bth;
        prop_assert_eq!(d.opcode, whole.opcode.filter(|_| bth >= 1));
        prop_assert_eq!(d.pkey, whole.pkey.filter(|_| bth >= 4));
        prop_assert_eq!(d.dest_qp, whole.dest_qp.filter(|_| bth >= 8));
        prop_assert_eq!(d.psn, whole.psn.filter(|_| bth >= 12));
        prop_assert_eq!(d.payload_len, whole.payload_len.filter(|_| bth >= 2));
        if d.headers_complete() {
            prop_assert_eq!(d.ext, whole.ext);
        }
        prop_assert_eq!(d.payload, &whole.payload[..d.payload.len()]);
    }

    /// Several faults at once, also in the link header, and a cut: nothing panics.
    #[test]
    fn any_damage_is_survived(
        pick: prop::sample::Index,
        flips: Vec<(prop::sample::Index, u8)>,
        cut: Option<prop::sample::Index>,
        ethertype: prop::sample::Index,
        offset in 0usize..64,
    ) {
        let mut frame = pick.get(&CORPUS).clone();
        for (place, bits) in flips {
            // Mostly where the headers are.
            let at = place.index(if bits & 1 == 0 { frame.len() } else { frame.len().min(90) });
            frame[at] ^= bits;
        }
        if let Some(cut) = cut {
            frame.truncate(cut.index(frame.len()));
        }
        if let Ok(d) = decode_ethernet(&frame) {
            check_packet(&frame, &d);
        }
        let ethertype = *ethertype.get(&[0x0800, 0x86dd, 0x8915]);
        if let Ok(d) = decode_network(&frame, ethertype, offset) {
            check_packet(&frame, &d);
        }
    }
}
