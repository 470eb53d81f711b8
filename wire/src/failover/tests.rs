//! Status blocks and entries: bytes in their places, MACs as another implementation computes them, and what is refused.

use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::mad::tests::hex;
use crate::{PathMtu, Qpn};

const SECRET: [u8; 16] = *b"0123456789abcdef";
/// 0, 1, 2, … 15.
const COUNTED: u128 = 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f;

fn status() -> Status {
    Status {
        epoch: 3,
        phase: Phase::Fallback,
        recv_on: Side::Backup,
        recv_count: 0x1112_1314,
        next_psn: [Psn::new(0x31_3233), Psn::new(0x41_4243)],
        returned: 2,
        woke: true,
        refused: true,
    }
}

fn block(status: &Status) -> [u8; Status::LEN] {
    let mut out = [0xff; Status::LEN];
    status.emit(&SECRET, &mut out);
    out
}

// The MACs of this file are what `openssl mac SIPHASH` of OpenSSL 3.0 says.
#[test]
fn macs_are_those_of_the_reference() {
    let expected =
        ["a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45", "8177228da4a45dc7fca38bdef60affe4"];
    for (len, expected) in expected.iter().enumerate() {
        let mut mac = Mac::new(&COUNTED.to_be_bytes());
        mac.update(&COUNTED.to_be_bytes()[..len]);
        assert_eq!(mac.finish(), hex(expected));
    }
}

#[test]
fn the_secret_follows_from_both_nonces_in_their_order() {
    let nonces = [COUNTED.to_be_bytes(), COUNTED.to_be_bytes().map(|b| b + 16)];
    assert_eq!(connection_secret(nonces), hex("7dcf33b0749b32d6a87cb54fbd0ea943"));
    let exchanged = [nonces[1], nonces[0]];
    assert_ne!(connection_secret(exchanged), connection_secret(nonces));
}

#[test]
fn fields_of_a_status_block_in_their_places() {
    let expect =
        hex("534e464f 01020103 00000003 11121314 00000000 00313233 00414243 00000002 00000000000000000000000000000000
         99a53d9480cfc346a22e0bc967379fba");
    assert_eq!(block(&status()), expect);
    assert_eq!(Status::parse(&expect, &SECRET), Ok(Some(status())));
}

#[test]
fn memory_that_nobody_has_written_to_is_no_block_and_no_error() {
    assert_eq!(Status::parse(&[0; Status::LEN], &SECRET), Ok(None));
}

#[test]
fn a_block_of_another_connection_or_half_a_block_has_no_right_mac() {
    let good = block(&status());
    assert_eq!(Status::parse(&good, b"0123456789abcdeF"), Err(StatusError::Mac));
    let next = block(&Status { epoch: 4, recv_count: 7, ..status() });
    // Up to here is the new block, behind it the old one: the first bytes that differ are those of the epoch.
    for at in 12..Status::LEN {
        let mut torn = good;
        torn[..at].copy_from_slice(&next[..at]);
        assert_eq!(Status::parse(&torn, &SECRET), Err(StatusError::Mac), "torn at {at}");
    }
}

#[test]
fn every_changed_bit_of_a_block_is_found() {
    for bit in 0..8 * Status::LEN {
        let mut bad = block(&status());
        bad[bit / 8] ^= 1 << (bit % 8);
        let expected = match bit / 8 {
            0..4 => StatusError::Magic,
            4 => StatusError::Version(bad[4]),
            _ => StatusError::Mac,
        };
        assert_eq!(Status::parse(&bad, &SECRET), Err(expected), "bit {bit}");
    }
}

#[test]
fn impossible_values_are_refused_though_their_mac_is_right() {
    let change = |at: usize, value: u8| {
        let mut bad = block(&status());
        bad[at] = value;
        seal(&mut bad, &SECRET);
        Status::parse(&bad, &SECRET)
    };
    assert_eq!(change(5, 6), Err(StatusError::Field("phase")));
    assert_eq!(change(6, 2), Err(StatusError::Field("path of receives")));
    assert_eq!(change(31, 4), Err(StatusError::Field("epoch of the return")));
    // Reserved bytes are ignored.
    for at in [20, 24, 32, 47] {
        assert_eq!(change(at, 0xff), Ok(Some(status())));
    }
    // Before the first switch-over everything is on the default path, or nowhere.
    let first = Status { epoch: 0, returned: 0, phase: Phase::Default, recv_on: Side::Default, ..status() };
    for phase in Phase::ALL {
        let status = Status { phase, ..first };
        let expected = match phase {
            Phase::Default | Phase::Failed => Ok(Some(status)),
            _ => Err(StatusError::Field("epoch")),
        };
        assert_eq!(Status::parse(&block(&status), &SECRET), expected, "{phase:?}");
    }
    let moved = Status { recv_on: Side::Backup, ..first };
    assert_eq!(Status::parse(&block(&moved), &SECRET), Err(StatusError::Field("epoch")));
}

fn gid() -> Ipv6Addr {
    Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped()
}

const REGION: RegionAnswer = RegionAnswer { addr: 0x7f00_0000_1000, len: 4096, backup_rkey: 0xc1c2_c3c4 };

/// A key and an entry of each kind.
fn entries() -> [(EntryKey<'static>, Entry); 2] {
    let backup = BackupQp {
        gid: Ipv4Addr::new(10, 1, 0, 1).to_ipv6_mapped(),
        qpn: Qpn::new(0xa1_a2a3),
        psn: Psn::new(0xb1_b2b3),
        mtu: PathMtu::B1024,
        control_addr: 0x7f00_1122_3340,
        control_keys: [0x5152_5354, 0x6162_6364],
    };
    let nonce = COUNTED.to_be_bytes();
    let queue_pair = Object::QueuePair { gid: gid(), qpn: Qpn::new(0x11_1213) };
    let region = Object::Region { gid: gid(), rkey: 0xd1d2_d3d4 };
    [
        (
            EntryKey { prefix: EntryKey::PREFIX, object: queue_pair },
            Entry { nonce, value: EntryValue::QueuePair(backup) },
        ),
        (EntryKey { prefix: "other", object: region }, Entry { nonce, value: EntryValue::Region(REGION) }),
    ]
}

fn value(key: &EntryKey<'_>, entry: &Entry) -> [u8; Entry::LEN] {
    let mut out = [0xff; Entry::LEN];
    entry.emit(key, &mut out);
    out
}

#[test]
fn keys_and_values_of_entries() {
    let [(qp_key, qp), (mr_key, mr)] = entries();
    assert_eq!(qp_key.to_string(), "softnic:1:qp:00000000000000000000ffff0a000001:111213");
    assert_eq!(mr_key.to_string(), "other:1:mr:00000000000000000000ffff0a000001:d1d2d3d4");
    let expect = hex(
        "534e4645 01010000 000102030405060708090a0b0c0d0e0f 00000000000000000000ffff0a010001 00007f0011223340 51525354
         61626364 03a1a2a3 00b1b2b3 01f28370ec2e1304aca9a502440a3a0b",
    );
    assert_eq!(value(&qp_key, &qp), expect);
    assert_eq!(Entry::parse(&qp_key, &expect), Ok(qp));
    let expect = hex("534e4645 01020000 000102030405060708090a0b0c0d0e0f 00007f0000001000 0000000000001000 c1c2c3c4
         0000000000000000000000000000000000000000 32f8c88d48928a34c27d2e6aa30c1cc2");
    assert_eq!(value(&mr_key, &mr), expect);
    assert_eq!(Entry::parse(&mr_key, &expect), Ok(mr));
}

#[test]
fn an_entry_counts_under_its_own_key_only() {
    let [(qp_key, qp), (mr_key, mr)] = entries();
    let (qp_value, mr_value) = (value(&qp_key, &qp), value(&mr_key, &mr));
    let of = |object| EntryKey { object, ..qp_key };
    let others = [
        EntryKey { prefix: "another", ..qp_key },
        of(Object::QueuePair { gid: gid(), qpn: Qpn::new(0x11_1214) }),
        of(Object::QueuePair { gid: Ipv6Addr::LOCALHOST, qpn: Qpn::new(0x11_1213) }),
        mr_key,
    ];
    for other in others {
        assert_eq!(Entry::parse(&other, &qp_value), Err(EntryError::Digest), "{other}");
    }
    assert_eq!(Entry::parse(&qp_key, &mr_value), Err(EntryError::Digest));
    // Written for the key, but of the other kind.
    assert_eq!(Entry::parse(&qp_key, &value(&qp_key, &mr)), Err(EntryError::Field("impossible kind")));
    assert_eq!(Entry::parse(&mr_key, &value(&mr_key, &qp)), Err(EntryError::Field("impossible kind")));
}

#[test]
fn garbage_is_no_entry() {
    for (key, entry) in entries() {
        let good = value(&key, &entry);
        for len in (0..Entry::LEN).chain([Entry::LEN + 1]) {
            let bytes: Vec<u8> = good.iter().copied().chain([0]).take(len).collect();
            assert_eq!(Entry::parse(&key, &bytes), Err(EntryError::Length(len)));
        }
        for bit in 0..8 * Entry::LEN {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            let expected = match bit / 8 {
                0..4 => EntryError::Magic,
                4 => EntryError::Version(bad[4]),
                _ => EntryError::Digest,
            };
            assert_eq!(Entry::parse(&key, &bad), Err(expected), "{key}, bit {bit}");
        }
    }
    let [(key, Entry { nonce, value: EntryValue::QueuePair(backup) }), _] = entries() else { panic!("a queue pair") };
    let impossible = Entry { nonce, value: EntryValue::QueuePair(BackupQp { qpn: Qpn::GSI, ..backup }) };
    assert_eq!(Entry::parse(&key, &value(&key, &impossible)), Err(EntryError::Field("impossible QPN of the backup")));
}

/// Any backup queue pair that there can be.
pub(crate) fn some_backup() -> impl Strategy<Value = BackupQp> {
    let unicast = any::<u128>().prop_filter("a unicast GID", |&gid| gid != 0 && gid >> 120 != 0xff);
    let mtu = prop::sample::select(PathMtu::ALL.to_vec());
    let control = (0..=u64::MAX - Status::LEN as u64, any::<[u32; 2]>());
    (unicast, 2u32..0xff_ffff, any::<u32>(), mtu, control).prop_map(|(gid, qpn, psn, mtu, control)| BackupQp {
        gid: Ipv6Addr::from_bits(gid),
        qpn: Qpn::new(qpn),
        psn: Psn::new(psn),
        mtu,
        control_addr: control.0,
        control_keys: control.1,
    })
}

/// Any region that there can be.
pub(crate) fn some_region() -> impl Strategy<Value = RegionAnswer> {
    (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(addr, len, backup_rkey)| RegionAnswer {
        addr,
        len: len.min(u64::MAX - addr),
        backup_rkey,
    })
}

proptest! {
    #[test]
    fn status_round_trip(
        epoch in 1..=u32::MAX,
        phase in prop::sample::select(Phase::ALL.to_vec()),
        recv_on in prop::sample::select(Side::ALL.to_vec()),
        recv_count: u32,
        psns: [u32; 2],
        returned: u32,
        woke: bool,
        refused: bool,
        secret: [u8; 16],
    ) {
        let next_psn = psns.map(Psn::new);
        let returned = returned % epoch;
        let status = Status { epoch, phase, recv_on, recv_count, next_psn, returned, woke, refused };
        let mut out = [0xff; Status::LEN];
        status.emit(&secret, &mut out);
        prop_assert_eq!(Status::parse(&out, &secret), Ok(Some(status)));
    }

    #[test]
    fn entry_round_trip(
        prefix in "[a-z:]{0,12}",
        gid: u128,
        number: u32,
        nonce: [u8; 16],
        backup in some_backup(),
        region in some_region(),
    ) {
        let gid = Ipv6Addr::from_bits(gid);
        let objects = [
            (Object::QueuePair { gid, qpn: Qpn::new(number) }, EntryValue::QueuePair(backup)),
            (Object::Region { gid, rkey: number }, EntryValue::Region(region)),
        ];
        for (object, value) in objects {
            let key = EntryKey { prefix: &prefix, object };
            let entry = Entry { nonce, value };
            let mut out = [0xff; Entry::LEN];
            entry.emit(&key, &mut out);
            prop_assert_eq!(Entry::parse(&key, &out), Ok(entry));
        }
    }

    /// Random bytes hardly ever begin as a block or an entry: give them the front.
    #[test]
    fn any_bytes_into_the_fuzz_body(how: u8, data in prop::collection::vec(any::<u8>(), 0..300), front: bool) {
        let mut data = data;
        if front && data.len() > 8 {
            data[..5].copy_from_slice(if how & 7 < 4 { b"SNFO\x01" } else { b"SNFE\x01" });
            (data[5], data[6]) = (data[5] % 6, data[6] % 2);
        }
        data.insert(0, how);
        fuzz_failover(&data);
    }
}
