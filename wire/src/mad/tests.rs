//! The MAD header, the RDMA-CM header and the negotiation; and any bytes at all into every parser.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;

use super::ip_cm::{IpCm, ServiceId};
use super::vendor::{self, Extensions, Kind, Negotiation, Oui, SDR_INFO, Settings};
use super::*;
use crate::lowar::LowarSettings;
use crate::sdr::{Info, SdrSettings};
use crate::sr::SrSettings;

/// Hex digits, white space ignored, as the front of `N` bytes that are zero behind them.
pub(crate) fn hex<const N: usize>(text: &str) -> [u8; N] {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (pair[0] << 4) | pair[1];
    }
    out
}

/// The same for a whole MAD.
pub(super) fn mad(text: &str) -> [u8; MAD_LEN] {
    hex(text)
}

fn offer() -> Negotiation<'static> {
    Negotiation {
        transaction_id: 0x0102_0304_0506_0708,
        kind: Kind::Offer,
        version: vendor::VERSION,
        sender_qpn: 0x11_1213,
        receiver_qpn: 0x21_2223,
        extensions: Extensions::SR.union(Extensions::LOWAR),
        settings: Settings::NONE.with(LowarSettings { r: 8, c: 2 }).with(SrSettings { window: 4096 }),
        sdr: None,
    }
}

#[test]
fn header_fields_in_their_places() {
    let bytes = mad("01070281 001c1112 2122232425262728 3132ffff 41424344");
    let repr = Repr::parse(&bytes).unwrap();
    assert_eq!(
        repr,
        Repr {
            base_version: 1,
            mgmt_class: Class::CM,
            class_version: 2,
            method: Method::GET_RESP,
            status: Status::INVALID_ATTRIB_VALUE,
            class_specific: 0x1112,
            transaction_id: 0x2122_2324_2526_2728,
            attribute_id: Attribute(0x3132),
            attribute_modifier: 0x4142_4344,
        }
    );
    let mut out = [0xff; HEADER_LEN];
    repr.emit(&mut out);
    assert_eq!(out, hex("01070281 001c1112 2122232425262728 31320000 41424344"));
    assert_eq!(
        repr.to_string(),
        "MAD CM GetResp tid 0x2122232425262728 attr 0x3132 mod 0x41424344 status INVALID_ATTRIB_VALUE"
    );
}

#[test]
fn a_refusal_answers_the_request() {
    let mut bytes = [0; MAD_LEN];
    offer().emit(&mut bytes);
    let refusal = Repr::parse(&bytes).unwrap().refusal(Status::UNSUPPORTED_METHOD_ATTRIB);
    assert_eq!(refusal.method, Method::GET_RESP);
    // Linux sends the request back with another method and status.
    refusal.emit(&mut bytes);
    let answer = Negotiation::parse(&bytes).unwrap();
    assert_eq!(answer, Negotiation { kind: Kind::Answer(Status::UNSUPPORTED_METHOD_ATTRIB), ..offer() });
    assert_eq!(Method::SET.response(), Method::GET_RESP);
}

#[test]
fn negotiation_fields_in_their_places() {
    let mut bytes = [0xff; MAD_LEN];
    offer().emit(&mut bytes);
    let expect = mad("014e0101 00000000 0102030405060708 0010 0000 00000000
        000000000000000000000000 00 0e534e 01000000 00111213 00212223 00000003 08020000 00001000");
    assert_eq!(bytes, expect);
    assert_eq!(Negotiation::parse(&bytes), Ok(offer()));
    assert_eq!(
        offer().to_string(),
        "softnic offer tid 0x0102030405060708 qpn 0x111213 > 0x212223 ext sr,lowar lowar 8,2 window 4096"
    );
    let vendor = vendor::Packet::new_checked(&bytes[..]).unwrap();
    assert_eq!((vendor.oui(), vendor.data().len(), vendor.is_rmpp_active()), (Oui::SOFTNIC, vendor::DATA_LEN, false));
    assert_eq!(vendor.oui().to_string(), "0E-53-4E");
}

#[test]
fn a_later_negotiation_is_read_for_what_is_known() {
    let later = Negotiation { version: 9, extensions: Extensions(0x8000_0001), ..offer() };
    let mut bytes = [0; MAD_LEN];
    later.emit(&mut bytes);
    bytes[64..].fill(0xff); // settings and fields we do not know
    bytes[41..45].fill(0xff);
    let read = Negotiation::parse(&bytes).unwrap();
    assert_eq!(Negotiation { settings: later.settings, ..read }, later);
    assert_eq!(read.settings.get::<SrSettings>(), later.settings.get());
    assert!(later.extensions.contains(Extensions::SR) && !later.extensions.contains(Extensions::LOWAR));
    assert_eq!(later.extensions.to_string(), "sr,0x80000000");
}

/// Information of SDR: 2 generations of 1 channel.
const SDR: &str = "01030040 0a120418 02010000 00000400 00000000 00040000 deadbeef 00000163 00000b1f 00000000
    11223344 00000100 00000abc 55667788 00000101 00000abd";

#[test]
fn information_of_sdr_stands_behind_the_mac_and_its_scheme_before() {
    let info: [u8; 64] = hex(SDR);
    let info = Info::parse(&info).unwrap();
    let settings = Settings::NONE.with(SdrSettings { scheme: 2, parameters: [4, 5, 6] });
    let offer = Negotiation { extensions: Extensions::SDR, settings, sdr: Some(info), ..offer() };
    let mut bytes = [0xff; MAD_LEN];
    offer.emit(&mut bytes);
    assert_eq!(bytes[52..56], [0, 0, 0, 8]);
    assert_eq!(bytes[56..80], [0; 24]);
    assert_eq!(bytes[80..104], hex::<24>("02040506"));
    assert_eq!((&bytes[104..168], &bytes[168..]), (info.as_bytes(), &[0; 88][..]));
    assert_eq!(Negotiation::parse(&bytes), Ok(offer));
    assert_eq!(
        offer.to_string(),
        "softnic offer tid 0x0102030405060708 qpn 0x111213 > 0x212223 ext sdr sdr scheme 2:4,5,6 \
         split 10+18+4 mtu 1024 slots 1024 generations 2 channels 1 control 0x000163"
    );
}

#[test]
fn impossible_information_of_sdr_is_as_if_sdr_was_not_named() {
    let info: [u8; 64] = hex(SDR);
    let extensions = Extensions::SDR.union(Extensions::SR);
    let mut good = [0; MAD_LEN];
    Negotiation { extensions, sdr: Info::parse(&info).ok(), ..offer() }.emit(&mut good);
    // Version, MTU, a length that is too long for the MAD, that is none, and that does not fit the numbers; the split; a queue pair.
    for (at, value) in [(0, 2), (1, 9), (2, 1), (3, 0), (3, 63), (3, 152), (8, 3), (4, 11), (46, 0)] {
        let mut bad = good;
        bad[SDR_INFO][at] = value;
        let read = Negotiation::parse(&bad).unwrap();
        assert_eq!((read.extensions, read.sdr), (Extensions::SR, None), "byte {at} = {value}");
        assert!(matches!(vendor::sdr_info(&bad), Some(Err(_))));
    }
    // Reserved bytes behind it mean nothing yet; and without the bit nobody looks.
    good[168..].fill(0xff);
    assert_eq!(Negotiation::parse(&good).unwrap().sdr.map(|info| info.as_bytes().len()), Some(64));
    good[55] = 1;
    assert_eq!((Negotiation::parse(&good).unwrap().sdr, vendor::sdr_info(&good)), (None, None));
}

#[test]
fn what_is_no_negotiation() {
    let mut good = [0; MAD_LEN];
    offer().emit(&mut good);
    // Class, method, attribute, RMPP flags, OUI, format version.
    for (at, value) in [(1, 0x30), (1, 0x07), (3, 0x02), (17, 0x11), (26, 0x01), (38, 0x00), (40, 0x00)] {
        let mut bad = good;
        bad[at] = value;
        assert!(matches!(Negotiation::parse(&bad), Err(Error::Malformed { .. })), "byte {at} = {value:#04x}");
    }
}

#[test]
fn service_ids() {
    assert_eq!(ServiceId::ip(ServiceId::TCP, 0x0a5c).to_string(), "0x0000000001060a5c");
    assert_eq!(ServiceId(0x0111_1c06).as_ip(), Some((ServiceId::UDP, 0x1c06)));
    assert_eq!(ServiceId(0x1000_0000_0106_0a5c).as_ip(), None);
}

#[test]
fn what_is_no_rdma_cm_header() {
    for front in ["1040", "0050"] {
        assert!(matches!(IpCm::parse(&hex::<92>(front)), Err(Error::Malformed { .. })));
    }
    let v4 = SocketAddr::from(([10, 0, 0, 1], 7));
    assert!(IpCm::new(v4, IpAddr::V6(Ipv6Addr::LOCALHOST)).is_err());
}

#[test]
fn rdma_cm_header_in_its_place() {
    let ip = IpCm::new(SocketAddr::from(([10, 1, 2, 3], 0x1234)), IpAddr::V4(Ipv4Addr::new(10, 4, 5, 6))).unwrap();
    let mut out = [0xff; IpCm::LEN];
    ip.emit(&mut out);
    assert_eq!(out, hex("00401234 0000000000000000000000000a010203 0000000000000000000000000a040506"));
    assert_eq!(ip.to_string(), "10.1.2.3:4660 > 10.4.5.6");
}

#[test]
fn truncations_of_every_length_are_told() {
    let mut bytes = [0; MAD_LEN];
    offer().emit(&mut bytes);
    let cm = mad("0107020300000000000000000000000000100000");
    let truncated = |need, have, result: Option<Error>| {
        assert!(matches!(result, Some(Error::Truncated { need: n, have: h, .. }) if (n, h) == (need, have)));
    };
    for len in 0..MAD_LEN {
        truncated(MAD_LEN, len, Negotiation::parse(&bytes[..len]).err());
        truncated(MAD_LEN, len, cm::Message::parse(&cm[..len]).err());
        if len < HEADER_LEN {
            truncated(HEADER_LEN, len, Repr::parse(&bytes[..len]).err());
        }
        if len < cm::DATA_LEN {
            let data = &cm[..len];
            truncated(cm::DATA_LEN, len, cm::Req::parse(data).err());
            truncated(cm::DATA_LEN, len, cm::Mra::parse(data).err());
            truncated(cm::DATA_LEN, len, cm::Rej::parse(data).err());
            truncated(cm::DATA_LEN, len, cm::Rep::parse(data).err());
            truncated(cm::DATA_LEN, len, cm::Rtu::parse(data).err());
            truncated(cm::DATA_LEN, len, cm::Dreq::parse(data).err());
            truncated(cm::DATA_LEN, len, cm::Drep::parse(data).err());
            truncated(cm::DATA_LEN, len, cm::SidrReq::parse(data).err());
            truncated(cm::DATA_LEN, len, cm::SidrRep::parse(data).err());
        }
        if len < IpCm::LEN {
            truncated(IpCm::LEN, len, IpCm::parse(&bytes[..len]).err());
        }
    }
}

/// Information of SDR that a MAD has room for: any keys, tokens and numbers that there are.
fn some_info() -> impl Strategy<Value = Vec<u8>> {
    let shape = prop::sample::select(vec![(1u8, 1u8), (1, 13), (2, 6), (4, 3), (4, 1), (9, 1)]);
    (shape, any::<[u8; 152]>()).prop_map(|((generations, channels), drawn)| {
        let mut b = [&hex::<40>(SDR)[..], &drawn[40..]].concat();
        b.truncate(Info::len_of(generations, channels));
        let len = b.len() as u16;
        b[2..4].copy_from_slice(&len.to_be_bytes());
        (b[8], b[9]) = (generations, channels);
        b[24..28].copy_from_slice(&drawn[24..28]);
        for generation in b[40..].chunks_exact_mut(4 + 8 * usize::from(channels)) {
            for contact in generation[4..].chunks_exact_mut(8) {
                (contact[0], contact[4]) = (0, 0);
                contact[3] |= 2;
            }
        }
        b
    })
}

proptest! {
    #[test]
    fn any_bytes_of_any_length(data in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz_mad(&data);
    }

    /// Random bytes are hardly ever a MAD of ours: give them a front that leads into each parser.
    #[test]
    fn any_bytes_behind_a_front(
        data in prop::collection::vec(any::<u8>(), MAD_LEN),
        front in prop::sample::select(vec![(0x07, 0x03), (0x4e, 0x01), (0x4e, 0x81)]),
        attribute in 0x0f_u8..0x1d,
        ip_version in prop::sample::select(vec![0x40, 0x60]),
    ) {
        let mut data = data;
        (data[1], data[3]) = front;
        (data[16], data[17]) = (0, if front.0 == 0x4e { 0x10 } else { attribute });
        if front.0 == 0x4e {
            data[26] &= 0xfe;
            data[37..40].copy_from_slice(&Oui::SOFTNIC.0);
        }
        fuzz_mad(&data);
        (data[0], data[1]) = (data[0] & 0x0f, ip_version | (data[1] & 0x0f));
        prop_assert!(IpCm::parse(&data).is_ok());
        fuzz_mad(&data);
    }

    #[test]
    fn header_round_trip(data in prop::collection::vec(any::<u8>(), HEADER_LEN)) {
        let mut out = [0xff; HEADER_LEN];
        Repr::parse(&data).unwrap().emit(&mut out);
        prop_assert_eq!(&out[..18], &data[..18]);
        prop_assert_eq!(&out[18..20], &[0, 0]);
        prop_assert_eq!(&out[20..], &data[20..]);
    }

    #[test]
    fn negotiation_round_trip(
        transaction_id: u64,
        answer in prop::option::of(any::<u16>()),
        version in 1..=u8::MAX,
        qpns in (0u32..1 << 24, 0u32..1 << 24),
        extensions: u32,
        lowar: (u8, u8),
        window: u32,
        sdr: (u8, [u8; 3]),
        info in prop::option::of(some_info()),
    ) {
        let sdr_settings = SdrSettings { scheme: sdr.0, parameters: sdr.1 };
        let extensions = match info {
            Some(_) => Extensions(extensions).union(Extensions::SDR),
            None => Extensions(extensions).without(Extensions::SDR),
        };
        let settings = Settings::NONE.with(LowarSettings { r: lowar.0, c: lowar.1 }).with(SrSettings { window });
        let negotiation = Negotiation {
            transaction_id,
            kind: answer.map_or(Kind::Offer, |status| Kind::Answer(Status(status))),
            version,
            sender_qpn: qpns.0,
            receiver_qpn: qpns.1,
            extensions,
            settings: settings.with(sdr_settings),
            sdr: info.as_ref().map(|bytes| Info::parse(bytes).unwrap()),
        };
        let mut bytes = [0xff; MAD_LEN];
        negotiation.emit(&mut bytes);
        prop_assert_eq!(Negotiation::parse(&bytes), Ok(negotiation));
    }

    #[test]
    fn rdma_cm_header_round_trip(port: u16, v6: bool, a: [u8; 16], b: [u8; 16], minor_version in 0u8..16) {
        let v4 = |x: [u8; 16]| IpAddr::from([x[0], x[1], x[2], x[3]]);
        let (a, b) = if v6 { (IpAddr::from(a), IpAddr::from(b)) } else { (v4(a), v4(b)) };
        let ip = IpCm { minor_version, ..IpCm::new(SocketAddr::new(a, port), b).unwrap() };
        let mut out = [0xff; IpCm::LEN];
        ip.emit(&mut out);
        prop_assert_eq!(IpCm::parse(&out), Ok(ip));
        prop_assert_eq!((ip.source(), ip.destination()), (SocketAddr::new(a, port), b));
    }
}
