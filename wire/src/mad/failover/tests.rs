//! Hellos and questions for regions: bytes in their places, round trips, and what is refused.

use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::failover::tests::{some_backup, some_region};
use crate::mad::tests::mad;
use crate::mad::vendor::{ATTRIBUTE, MAC};
use crate::mad::{Status, fuzz_mad};
use crate::{PathMtu, Psn};

fn hello() -> Hello {
    Hello {
        transaction_id: 0x0102_0304_0506_0708,
        kind: Kind::Offer,
        version: VERSION,
        sender_qpn: Qpn::new(0x11_1213),
        receiver_qpn: Qpn::new(0x21_2223),
        mode: Mode::Shift,
        readiness: Readiness::Ready,
        nonce: *b"0123456789abcdef",
        backup: Some(BackupQp {
            gid: Ipv4Addr::new(10, 1, 0, 1).to_ipv6_mapped(),
            qpn: Qpn::new(0xa1_a2a3),
            psn: Psn::new(0xb1_b2b3),
            mtu: PathMtu::B1024,
            control_addr: 0x7f00_1122_3340,
            control_keys: [0x5152_5354, 0x6162_6364],
        }),
    }
}

fn query() -> RegionQuery {
    RegionQuery {
        transaction_id: 0x0102_0304_0506_0708,
        kind: Kind::Offer,
        version: VERSION,
        sender_qpn: Qpn::new(0x11_1213),
        receiver_qpn: Qpn::new(0x21_2223),
        rkey: 0xd1d2_d3d4,
        answer: None,
        pending: false,
    }
}

const REGION: RegionAnswer = RegionAnswer { addr: 0x7f00_0000_1000, len: 4096, backup_rkey: 0xc1c2_c3c4 };

fn bytes_of(hello: &Hello) -> [u8; MAD_LEN] {
    let mut bytes = [0xff; MAD_LEN];
    hello.emit(&mut bytes);
    bytes
}

fn bytes_of_query(query: &RegionQuery) -> [u8; MAD_LEN] {
    let mut bytes = [0xff; MAD_LEN];
    query.emit(&mut bytes);
    bytes
}

#[test]
fn fields_of_a_hello_in_their_places() {
    let expect = mad("014e0101 00000000 0102030405060708 0011 0000 00000000
        000000000000000000000000 00 0e534e 01000000 00111213 00212223
        01 02 01 00 30313233343536373839616263646566 00000000000000000000000000000000 00000000000000000000000000000000
        00000000000000000000ffff0a010001 00007f0011223340 51525354 61626364 03 a1a2a3 00 b1b2b3");
    assert_eq!(bytes_of(&hello()), expect);
    assert_eq!(Hello::parse(&expect), Ok(hello()));
    assert_eq!(
        hello().to_string(),
        "softnic failover offer tid 0x0102030405060708 qpn 0x111213 > 0x212223 mode shift ready \
         nonce 30313233343536373839616263646566 backup gid ::ffff:10.1.0.1 qpn 0xa1a2a3 psn 11645619 mtu 1024 \
         control 0x7f0011223340 rkeys 0x51525354,0x61626364"
    );
}

#[test]
fn fields_of_a_region_in_their_places() {
    let front = "0102030405060708 0012 0000 00000000 000000000000000000000000 00 0e534e 01000000 00111213 00212223";
    let question = mad(&format!("014e0101 00000000 {front} 00000000 d1d2d3d4"));
    assert_eq!(bytes_of_query(&query()), question);
    assert_eq!(RegionQuery::parse(&question), Ok(query()));
    let told = RegionQuery { kind: Kind::Answer(Status::SUCCESS), answer: Some(REGION), ..query() };
    let free = "00".repeat(44);
    let answer =
        mad(&format!("014e0181 00000000 {front} 01000000 d1d2d3d4 {free} 00007f0000001000 0000000000001000 c1c2c3c4"));
    assert_eq!(bytes_of_query(&told), answer);
    assert_eq!(RegionQuery::parse(&answer), Ok(told));
    let pending = RegionQuery { kind: Kind::Answer(Status::SUCCESS), pending: true, ..query() };
    assert_eq!(bytes_of_query(&pending)[52..60], [2, 0, 0, 0, 0xd1, 0xd2, 0xd3, 0xd4]);

    let ends = "tid 0x0102030405060708 qpn 0x111213 > 0x212223 rkey 0xd1d2d3d4";
    assert_eq!(query().to_string(), format!("softnic region offer {ends}"));
    let region = "addr 0x7f0000001000 len 4096 backup rkey 0xc1c2c3c4";
    assert_eq!(told.to_string(), format!("softnic region answer {ends} {region}"));
    assert_eq!(pending.to_string(), format!("softnic region answer {ends} pending"));
    let unknown = RegionQuery { pending: false, ..pending };
    assert_eq!(unknown.to_string(), format!("softnic region answer {ends} unknown"));
}

#[test]
fn the_bytes_of_the_negotiations_mac_are_free_in_both() {
    let answer = RegionQuery { kind: Kind::Answer(Status::SUCCESS), answer: Some(REGION), ..query() };
    for mut bytes in [bytes_of(&hello()), bytes_of_query(&answer)] {
        assert_eq!(bytes[MAC], [0; 16]);
        bytes[MAC].fill(0xff);
        assert_eq!(
            (Hello::parse(&bytes).ok(), RegionQuery::parse(&bytes).ok()),
            match bytes[17] {
                0x11 => (Some(hello()), None),
                _ => (None, Some(answer)),
            }
        );
    }
}

#[test]
fn reserved_bytes_and_what_is_not_told_are_ignored() {
    let not_yet = Hello { readiness: Readiness::NotYet, backup: None, ..hello() };
    let mut bytes = bytes_of(&not_yet);
    (bytes[54], bytes[55]) = (0xfe, 0xff);
    bytes[41..45].fill(0xff);
    bytes[72..].fill(0xff);
    assert_eq!(Hello::parse(&bytes), Ok(not_yet));
    let mut bytes = bytes_of_query(&query());
    bytes[52] = 0xfc;
    bytes[60..].fill(0xff);
    assert_eq!(RegionQuery::parse(&bytes), Ok(query()));
    // A mode of later days, from a later version.
    let later = Hello { version: 9, mode: Mode::Other(2), ..hello() };
    assert_eq!(Hello::parse(&bytes_of(&later)), Ok(later));
}

#[test]
fn what_is_no_hello() {
    let good = bytes_of(&hello());
    // Class, method, attribute, RMPP flags, OUI, format version; readiness that there is not, or that has no backup to
    // tell.
    let front = [(1, 0x30), (3, 0x02), (17, ATTRIBUTE.0 as u8), (17, 0x12), (26, 0x01), (38, 0x00), (40, 0x00)];
    let readiness = [(53, 0), (53, 1), (53, 3), (53, 0xff)];
    // Of the backup: a multicast GID, MTUs that there are not.
    let backup = [(104, 0xff), (136, 0), (136, 6)];
    for (at, value) in front.into_iter().chain(readiness).chain(backup) {
        let mut bad = good;
        bad[at] = value;
        assert!(matches!(Hello::parse(&bad), Err(Error::Malformed { .. })), "byte {at} = {value:#04x}");
    }
    let backup = hello().backup.unwrap();
    let impossible = [
        BackupQp { gid: Ipv6Addr::UNSPECIFIED, ..backup },
        BackupQp { control_addr: u64::MAX - 62, ..backup },
        BackupQp { qpn: Qpn::QP0, ..backup },
        BackupQp { qpn: Qpn::GSI, ..backup },
        BackupQp { qpn: Qpn::MULTICAST, ..backup },
    ];
    for backup in impossible {
        let bad = bytes_of(&Hello { backup: Some(backup), ..hello() });
        assert!(matches!(Hello::parse(&bad), Err(Error::Malformed { .. })), "{backup}");
    }
}

#[test]
fn what_is_no_question_for_a_region() {
    let told = RegionQuery { kind: Kind::Answer(Status::SUCCESS), answer: Some(REGION), ..query() };
    let good = bytes_of_query(&told);
    // Attribute, format version; a question that answers; a region that is there and is not yet.
    for (at, value) in [(17, 0x11), (40, 0x00), (3, 0x01), (52, 3)] {
        let mut bad = good;
        bad[at] = value;
        assert!(matches!(RegionQuery::parse(&bad), Err(Error::Malformed { .. })), "byte {at} = {value:#04x}");
    }
    let goes_round = RegionQuery { answer: Some(RegionAnswer { addr: 1, len: u64::MAX, ..REGION }), ..told };
    assert!(matches!(RegionQuery::parse(&bytes_of_query(&goes_round)), Err(Error::Malformed { .. })));
    let mut pending = bytes_of_query(&query());
    pending[52] = 2;
    assert!(RegionQuery::parse(&pending).is_err(), "a question that puts off");
}

#[test]
fn truncations_of_every_length_are_told() {
    let (hello, query) = (bytes_of(&hello()), bytes_of_query(&query()));
    for have in 0..MAD_LEN {
        for error in [Hello::parse(&hello[..have]).err(), RegionQuery::parse(&query[..have]).err()] {
            assert!(matches!(error, Some(Error::Truncated { need: MAD_LEN, have: h, .. }) if h == have));
        }
    }
}

proptest! {
    #[test]
    fn hello_round_trip(
        transaction_id: u64,
        answer in prop::option::of(any::<u16>()),
        version in 1..=u8::MAX,
        qpns: (u32, u32),
        mode: u8,
        readiness in 0usize..3,
        nonce: [u8; 16],
        backup in prop::option::of(some_backup()),
    ) {
        let hello = Hello {
            transaction_id,
            kind: answer.map_or(Kind::Offer, |status| Kind::Answer(Status(status))),
            version,
            sender_qpn: Qpn::new(qpns.0),
            receiver_qpn: Qpn::new(qpns.1),
            mode: Mode::from_code(mode),
            readiness: if backup.is_some() { Readiness::Ready } else { Readiness::ALL[readiness] },
            nonce,
            backup,
        };
        prop_assert_eq!(Hello::parse(&bytes_of(&hello)), Ok(hello));
    }

    #[test]
    fn region_round_trip(
        transaction_id: u64,
        answer in prop::option::of((any::<u16>(), prop::option::of(some_region()), any::<bool>())),
        version in 1..=u8::MAX,
        qpns: (u32, u32),
        rkey: u32,
    ) {
        let (kind, answer, pending) = match answer {
            Some((status, region, pending)) => (Kind::Answer(Status(status)), region, pending && region.is_none()),
            None => (Kind::Offer, None, false),
        };
        let (sender_qpn, receiver_qpn) = (Qpn::new(qpns.0), Qpn::new(qpns.1));
        let query = RegionQuery { transaction_id, kind, version, sender_qpn, receiver_qpn, rkey, answer, pending };
        prop_assert_eq!(RegionQuery::parse(&bytes_of_query(&query)), Ok(query));
    }

    #[test]
    fn any_bytes_behind_a_front(data: [u8; 32], rest in prop::collection::vec(any::<u8>(), MAD_LEN), region: bool) {
        let mut mad = if region { bytes_of_query(&query()) } else { bytes_of(&hello()) };
        mad[52..84].copy_from_slice(&data);
        mad[53] &= 3;
        mad[104..].copy_from_slice(&rest[104..]);
        fuzz_mad(&mad);
    }
}
