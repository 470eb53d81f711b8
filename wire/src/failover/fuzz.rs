//! The fuzz body of failover: whatever parses is emitted and parsed again to the same value.

use core::net::Ipv6Addr;

use super::entry::{self, Entry, EntryKey, Object};
use super::{Status, seal};
use crate::Qpn;
use crate::bytes::{array, be24, be32};
use crate::mad::failover::{FAILOVER_HELLO, FAILOVER_PROOF, FAILOVER_REGION};
use crate::mad::vendor::{self, CLASS, Oui};
use crate::mad::{self, Attribute, MAD_LEN, fuzz_mad};

/// What the blocks of the fuzzer have their MACs under.
const SECRET: [u8; 16] = *b"a fuzzers secret";

/// A byte that says which format and, of its upper bits, what is damaged; then bytes of the format, zeros where they
/// end too soon.
///
/// Nobody guesses a MAC, so there are both: blocks and entries as they come, and those that are given a right MAC
/// first.
pub fn fuzz_failover(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first() else { return };
    let damage = usize::from(how >> 3);
    match how & 7 {
        0 => mad_of(FAILOVER_HELLO, bytes),
        1 if damage & 1 == 0 => mad_of(FAILOVER_REGION, bytes),
        1 => mad_of(FAILOVER_PROOF, bytes),
        2 => status(padded(bytes), damage),
        3 => {
            let mut block: [u8; Status::LEN] = padded(bytes);
            seal(&mut block, &SECRET);
            status(block, damage);
        }
        4 => assert!(Entry::parse(&queue_pair(bytes), bytes).is_err() || bytes.len() == Entry::LEN),
        5 => sealed_entry(&queue_pair(bytes), padded(bytes), damage),
        6 => assert!(Entry::parse(&region(bytes), bytes).is_err() || bytes.len() == Entry::LEN),
        _ => sealed_entry(&region(bytes), padded(bytes), damage),
    }
}

fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.iter_mut().zip(bytes).for_each(|(o, b)| *o = *b);
    out
}

/// Bytes with a front that leads into the parser of the attribute.
fn mad_of(attribute: Attribute, bytes: &[u8]) {
    let mut mad: [u8; MAD_LEN] = padded(bytes);
    let mut header = mad::Packet::new_unchecked(&mut mad);
    header.set_mgmt_class(CLASS);
    header.set_attribute_id(attribute);
    vendor::Packet::new_unchecked(&mut mad).set_oui(Oui::SOFTNIC);
    fuzz_mad(&mad);
}

fn status(block: [u8; Status::LEN], damage: usize) {
    let Ok(Some(status)) = Status::parse(&block, &SECRET) else { return };
    let mut again = [0xa5; Status::LEN];
    status.emit(&SECRET, &mut again);
    assert_eq!(Status::parse(&again, &SECRET), Ok(Some(status)));
    again[2 * damage] ^= 1;
    assert!(Status::parse(&again, &SECRET).is_err(), "a bit is changed, and the MAC is right");
}

fn queue_pair(bytes: &[u8]) -> EntryKey<'static> {
    let drawn: [u8; Entry::LEN] = padded(bytes);
    let object = Object::QueuePair { gid: Ipv6Addr::from(array::<16>(&drawn, 60)), qpn: Qpn::new(be24(&drawn, 76)) };
    EntryKey { prefix: EntryKey::PREFIX, object }
}

fn region(bytes: &[u8]) -> EntryKey<'static> {
    let drawn: [u8; Entry::LEN] = padded(bytes);
    let object = Object::Region { gid: Ipv6Addr::from(array::<16>(&drawn, 60)), rkey: be32(&drawn, 76) };
    EntryKey { prefix: EntryKey::PREFIX, object }
}

fn sealed_entry(key: &EntryKey<'_>, mut bytes: [u8; Entry::LEN], damage: usize) {
    entry::seal(key, &mut bytes);
    let Ok(entry) = Entry::parse(key, &bytes) else { return };
    let mut again = [0xa5; Entry::LEN];
    entry.emit(key, &mut again);
    assert_eq!(Entry::parse(key, &again), Ok(entry));
    let other = EntryKey { prefix: "another", ..*key };
    assert!(Entry::parse(&other, &again).is_err(), "an entry of another store");
    again[2 * damage] ^= 1;
    assert!(Entry::parse(key, &again).is_err(), "a bit is changed, and the digest is right");
}
