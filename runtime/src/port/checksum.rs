//! Checksums that a sender left to its network card: on a veth pair, or from a virtual machine, there is none that would complete them.
//!
//! Such a TCP or UDP header has the sum of the pseudo header where the checksum goes. Whoever takes frames out of the kernel
//! sees it there, and whoever puts them back has no way to say what is missing.

use softnic_wire::ethernet::ethertype;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Where a checksum is and what it is of.
struct Place {
    /// The header, and what follows it in the packet.
    start: usize,
    end: usize,
    /// Where the two bytes are.
    field: usize,
    /// The sum of the pseudo header, not folded.
    pseudo: u64,
    protocol: u8,
}

/// Completes the checksum of a TCP or UDP packet that has only the pseudo header's sum; says whether it did. Anything else is left
/// alone, a wrong checksum too.
pub(crate) fn complete(frame: &mut [u8]) -> bool {
    let Some(place) = locate(frame) else { return false };
    let found = u16::from_be_bytes([frame[place.field], frame[place.field + 1]]);
    if found != fold(place.pseudo) || place.protocol == UDP && found == 0 {
        return false;
    }
    let all = place.pseudo + sum(&frame[place.start..place.end]);
    // It may be right as it is: one in 65536 is.
    if fold(all) == 0xffff {
        return false;
    }
    let right = !fold(all - u64::from(found));
    // Zero would say that there is none.
    let right = if right == 0 && place.protocol == UDP { 0xffff } else { right };
    frame[place.field..place.field + 2].copy_from_slice(&right.to_be_bytes());
    true
}

/// `None` for whatever has no checksum that could be partial: other protocols, fragments, IPv6 extension headers, packets cut off.
fn locate(frame: &[u8]) -> Option<Place> {
    let mut network = 14;
    let mut kind = be16(frame, 12)?;
    for _ in 0..2 {
        if kind != ethertype::VLAN && kind != ethertype::QINQ {
            break;
        }
        kind = be16(frame, network + 2)?;
        network += 4;
    }
    let (start, end, protocol, addresses) = match kind {
        ethertype::IPV4 => {
            let header = usize::from(frame.get(network)? & 0x0f) * 4;
            let fragment = be16(frame, network + 6)? & 0x3fff;
            if frame[network] >> 4 != 4 || header < 20 || fragment != 0 {
                return None;
            }
            let total = usize::from(be16(frame, network + 2)?);
            (network + header, network + total, *frame.get(network + 9)?, frame.get(network + 12..network + 20)?)
        }
        ethertype::IPV6 => {
            if frame.get(network)? >> 4 != 6 {
                return None;
            }
            let (start, len) = (network + 40, usize::from(be16(frame, network + 4)?));
            (start, start + len, *frame.get(network + 6)?, frame.get(network + 8..start)?)
        }
        _ => return None,
    };
    let field = match protocol {
        TCP => start + 16,
        UDP => start + 6,
        _ => return None,
    };
    if field + 2 > end || end > frame.len() {
        return None;
    }
    let pseudo = sum(addresses) + u64::from(protocol) + (end - start) as u64;
    Some(Place { start, end, field, pseudo, protocol })
}

fn be16(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]))
}

/// The sum of big-endian words, not folded; of an odd number of bytes the last is the upper one of a word.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let words: u64 = words.iter().map(|w| u64::from(u32::from_be_bytes(*w))).sum();
    let (pairs, odd) = rest.as_chunks::<2>();
    let pairs: u64 = pairs.iter().map(|w| u64::from(u16::from_be_bytes(*w))).sum();
    words + pairs + odd.first().map_or(0, |&b| u64::from(b) << 8)
}

/// Into 16 bits, with the carries added.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with the right checksum, as the RFCs compute it, and where that is.
    fn packet(v6: bool, tags: usize, protocol: u8, payload: &[u8]) -> (Vec<u8>, usize) {
        let mut frame = vec![2; 12];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 5]));
        let header = if protocol == TCP { 20 } else { 8 };
        let len = header + payload.len();
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((len as u16).to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend((0..32).map(|i| 0xf0 + i % 13));
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((len as u16 + 20).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
        }
        let start = frame.len();
        frame.extend((0..header as u8).map(|i| i.wrapping_mul(37)));
        frame.extend(payload);
        let field = start + if protocol == TCP { 16 } else { 6 };
        frame[field..field + 2].fill(0);
        if protocol == UDP {
            frame[start + 4..start + 6].copy_from_slice(&(len as u16).to_be_bytes());
        }
        let addresses = if v6 { start - 32..start } else { start - 8..start };
        let mut words = frame[addresses].to_vec();
        words.extend([0, protocol]);
        words.extend((len as u16).to_be_bytes());
        words.extend(&frame[start..]);
        words.resize(words.len().next_multiple_of(2), 0);
        let mut sum = 0u32;
        for w in words.chunks(2) {
            sum += u32::from(u16::from_be_bytes([w[0], w[1]]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        frame[field..field + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        (frame, field)
    }

    /// The frame with the partial checksum that a sender leaves.
    fn partial(frame: &[u8], field: usize) -> Vec<u8> {
        let mut frame = frame.to_vec();
        let pseudo = fold(locate(&frame).unwrap().pseudo);
        frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        frame
    }

    #[test]
    fn a_partial_checksum_is_completed_and_a_complete_one_left_alone() {
        for (v6, tags, protocol) in [(false, 0, TCP), (true, 0, TCP), (false, 1, UDP), (true, 2, UDP)] {
            for len in [0, 1, 2, 3, 5, 100, 1001, 1460, 4000] {
                let payload: Vec<u8> = (0..len).map(|i| (i * i % 251) as u8).collect();
                let (right, field) = packet(v6, tags, protocol, &payload);
                let mut frame = partial(&right, field);
                // Ethernet fills up what is too short; that is not part of the packet.
                frame.resize(frame.len() + 3, 0xee);
                assert!(complete(&mut frame), "{v6} {tags} {protocol} {len}");
                assert_eq!(&frame[..right.len()], &right[..]);
                assert!(frame.ends_with(&[0xee; 3]));
                assert!(!complete(&mut frame), "there is nothing left to do");
            }
        }
    }

    #[test]
    fn a_checksum_that_is_wrong_in_another_way_stays_wrong() {
        let (right, field) = packet(false, 0, TCP, b"some data");
        for change in 1..=255u8 {
            let mut frame = right.clone();
            frame[field] ^= change;
            let before = frame.clone();
            if frame != partial(&right, field) {
                assert!(!complete(&mut frame) && frame == before);
            }
        }
    }

    #[test]
    fn other_packets_are_left_alone() {
        let (right, field) = packet(false, 0, UDP, b"some data");
        let untouched = |mut frame: Vec<u8>| {
            let before = frame.clone();
            assert!(!complete(&mut frame) && frame == before, "{before:x?}");
        };
        let partial = partial(&right, field);
        for (at, byte) in [(12, 9), (14, 0x65), (14, 0x44), (20, 0x20), (21, 1), (23, 1), (16, 0xff)] {
            let mut frame = partial.clone();
            frame[at] = byte;
            untouched(frame);
        }
        (0..right.len()).for_each(|len| untouched(partial[..len].to_vec()));
        // UDP without a checksum, as RoCE is sent.
        let mut none = right.clone();
        none[field..field + 2].fill(0);
        untouched(none);
        // A segment shorter than its header.
        let mut short = partial.clone();
        short[17] = 24;
        untouched(short);
    }

    #[test]
    fn a_udp_checksum_of_zero_is_written_as_ones() {
        for a in 0..=255 {
            let (right, field) = packet(true, 0, UDP, &[a, 7]);
            let found = u16::from_be_bytes([right[field], right[field + 1]]);
            // This payload makes the sum come out as zero.
            let payload = (u16::from_be_bytes([a, 7])).wrapping_add(found);
            let (zero, _) = packet(true, 0, UDP, &payload.to_be_bytes());
            if zero[field..field + 2] == [0, 0] {
                let mut frame = partial(&zero, field);
                assert!(complete(&mut frame));
                assert_eq!(frame[field..field + 2], [0xff, 0xff]);
                return;
            }
        }
        panic!("no payload with that sum");
    }
}
