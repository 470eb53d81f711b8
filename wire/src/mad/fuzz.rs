//! The fuzz body of this module: whatever parses is emitted and parsed again to the same value.

use super::cm::Message;
use super::failover::{Hello, Proof, RegionQuery};
use super::ip_cm::IpCm;
use super::vendor::Negotiation;
use super::{HEADER_LEN, MAD_LEN, Repr};

/// Feeds any bytes to every MAD parser; panics where a round trip loses something.
#[doc(hidden)]
pub fn fuzz_mad(data: &[u8]) {
    if let Ok(header) = Repr::parse(data) {
        let mut out = [0xff; HEADER_LEN];
        header.emit(&mut out);
        assert_eq!(Repr::parse(&out), Ok(header));
    }
    if let Ok((header, message)) = Message::parse(data) {
        let mut out = [0xff; MAD_LEN];
        message.emit(&header, &mut out);
        assert_eq!(Message::parse(&out), Ok((header, message)));
    }
    if let Ok(negotiation) = Negotiation::parse(data) {
        let mut out = [0xff; MAD_LEN];
        negotiation.emit(&mut out);
        assert_eq!(Negotiation::parse(&out), Ok(negotiation));
    }
    if let Ok(hello) = Hello::parse(data) {
        let mut out = [0xff; MAD_LEN];
        hello.emit(&mut out);
        assert_eq!(Hello::parse(&out), Ok(hello));
    }
    if let Ok(query) = RegionQuery::parse(data) {
        let mut out = [0xff; MAD_LEN];
        query.emit(&mut out);
        assert_eq!(RegionQuery::parse(&out), Ok(query));
    }
    if let Ok(proof) = Proof::parse(data) {
        let mut out = [0xff; MAD_LEN];
        proof.emit(&mut out);
        assert_eq!(Proof::parse(&out), Ok(proof));
    }
    if let Ok(ip) = IpCm::parse(data) {
        let mut out = [0xff; IpCm::LEN];
        ip.emit(&mut out);
        assert_eq!(IpCm::parse(&out), Ok(ip));
    }
}
