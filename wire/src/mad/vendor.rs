//! Vendor MADs with an OUI, and softnic's own in them: what two NICs agree on for a pair of QPs (IBA 16.5).
//!
//! A vendor class from 0x30 to 0x4F puts an RMPP header and an OUI between the MAD header and its data. Ours asks
//! with Get and answers with GetResp, so a peer that knows nothing of it answers with an error status at once, as the
//! MAD rules ask of it, and the QPs speak plain RC.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 24 | MAD header: class [`CLASS`], class version 1, method Get (offer) or GetResp (answer), attribute [`ATTRIBUTE`] |
//! | 24 | 12 | RMPP header: zeros, inactive |
//! | 36 | 1 | reserved |
//! | 37 | 3 | OUI, [`Oui::SOFTNIC`] |
//! | 40 | 1 | format version, 1 |
//! | 41 | 4 | reserved |
//! | 45 | 3 | QPN of the sender |
//! | 48 | 1 | reserved |
//! | 49 | 3 | QPN of the receiver |
//! | 52 | 4 | extensions: bit 0 SR, bit 1 LoWAR, bit 2 XP, bit 3 SDR, bit 4 AUTH; offered, or accepted of what was offered |
//! | 56 | 1 | LoWAR: R, data packets in a coding block |
//! | 57 | 1 | LoWAR: C, interleaving depth, repair packets a block |
//! | 58 | 2 | reserved |
//! | 60 | 4 | SR: window in packets, the length of the receiver's bitmap |
//! | 64 | 16 | AUTH: what the sender has drawn for this negotiation |
//! | 80 | 1 | SDR: the scheme on top of it, 0 none |
//! | 81 | 3 | SDR: settings of the scheme |
//! | 84 | 4 | reserved: settings of extensions to come |
//! | 88 | 16 | AUTH: MAC of the whole MAD ([`MAC`]); else zeros |
//! | 104 | 152 | SDR: the sender's [`Info`], which says how long it is, then zeros ([`SDR_INFO`]); else zeros |
//!
//! A MAD with bit 3 whose bytes from 104 on are no such information counts as one without bit 3.
//!
//! Reserved bytes are zero on send and ignored on receipt. A later format version only adds fields in reserved bytes
//! and bits in the bitmap, so a receiver reads of it what it knows.

use core::fmt;
use core::ops::Range;

pub use super::extensions::Extensions;
use super::{Attribute, BASE_VERSION, Class, HEADER_LEN, MAD_LEN, Method, Repr, Status};
use crate::bytes::{array, be24, be32, put24, put32};
use crate::sdr::{Info, InfoError};
pub use crate::settings::{ExtensionSettings, Settings};
use crate::{Error, Qpn};

/// The vendor class that softnic negotiates in.
pub const CLASS: Class = Class(0x4e);
/// The version of that class.
pub const CLASS_VERSION: u8 = 1;
/// The attribute that is negotiated.
pub const ATTRIBUTE: Attribute = Attribute(0x0010);
/// The version of the format that this code writes.
pub const VERSION: u8 = 1;

/// The bytes of a MAD by which a sender with a shared secret authenticates it. In what they are computed of they are zeros.
pub const MAC: Range<usize> = 88..104;

/// The bytes of a MAD for what the sender's end of SDR tells the other. Longer information is not negotiated.
pub const SDR_INFO: Range<usize> = 104..MAD_LEN;

/// Bytes that a vendor class with OUI leaves to the vendor.
pub const DATA_LEN: usize = 216;

/// Whose vendor MAD it is: an IEEE organizationally unique identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Oui(pub [u8; 3]);

impl Oui {
    /// Ours. We own none, so it is one of the locally administered ones.
    pub const SOFTNIC: Oui = Oui([0x0e, 0x53, 0x4e]);
}

impl fmt::Display for Oui {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c] = self.0;
        write!(f, "{a:02X}-{b:02X}-{c:02X}")
    }
}

mod field {
    use core::ops::Range;

    pub(super) const RMPP_FLAGS: usize = 26;
    pub(super) const OUI: usize = 37;
    pub(super) const DATA: Range<usize> = super::MAD_LEN - super::DATA_LEN..super::MAD_LEN;

    // Of the negotiation, inside the data.
    pub(super) const VERSION: usize = 0;
    pub(super) const SENDER_QPN: usize = 5;
    pub(super) const RECEIVER_QPN: usize = 9;
    pub(super) const EXTENSIONS: usize = 12;
    pub(super) const SETTINGS: usize = 16;
    pub(super) const SDR_INFO: usize = super::SDR_INFO.start - DATA.start;
}

/// A view of a MAD of a vendor class with OUI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<T: AsRef<[u8]>> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view without a look at the bytes: accessors panic where they end too soon.
    pub const fn new_unchecked(buffer: T) -> Packet<T> {
        Packet { buffer }
    }

    /// A view of a whole MAD of a vendor class with OUI.
    pub fn new_checked(buffer: T) -> Result<Packet<T>, Error> {
        let packet = Packet::new_unchecked(buffer);
        packet.check_len()?;
        if !super::Packet::new_unchecked(packet.buffer.as_ref()).mgmt_class().is_vendor_with_oui() {
            return Err(Error::Malformed { what: WHAT, why: "the management class is none with an OUI" });
        }
        Ok(packet)
    }

    /// `Ok` when no accessor can panic.
    pub fn check_len(&self) -> Result<(), Error> {
        Error::check_len(WHAT, MAD_LEN, self.buffer.as_ref().len())
    }

    /// Whether this MAD is a part of a longer message (RMPP, IBA 13.6).
    pub fn is_rmpp_active(&self) -> bool {
        self.buffer.as_ref()[field::RMPP_FLAGS] & 0x01 != 0
    }

    /// Whose MAD it is.
    pub fn oui(&self) -> Oui {
        Oui(array(self.buffer.as_ref(), field::OUI))
    }

    /// The vendor's 216 bytes.
    pub fn data(&self) -> &[u8] {
        &self.buffer.as_ref()[field::DATA]
    }

    /// Format version and QPN of the receiver (24 bits) in a MAD of softnic's: at the same place in all of them.
    pub fn version_and_receiver(&self) -> (u8, u32) {
        let data = self.data();
        (data[field::VERSION], be24(data, field::RECEIVER_QPN))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes an inactive RMPP header and the OUI.
    pub fn set_oui(&mut self, oui: Oui) {
        let b = self.buffer.as_mut();
        b[HEADER_LEN..field::OUI].fill(0);
        b[field::OUI..field::DATA.start].copy_from_slice(&oui.0);
    }

    /// The vendor's 216 bytes, to write to.
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut()[field::DATA]
    }
}

const WHAT: &str = "vendor MAD";

/// Whether a MAD of ours asks or answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Method Get.
    Offer,
    /// Method GetResp, with how it went. Whatever is not a success says that the peer does not speak this.
    Answer(Status),
}

/// What all MADs of ours begin with: who asks or answers, about which pair of QPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) transaction_id: u64,
    pub(super) kind: Kind,
    pub(super) version: u8,
    pub(super) sender_qpn: Qpn,
    pub(super) receiver_qpn: Qpn,
}

impl Head {
    /// Reads a whole MAD of ours with this attribute: the head, and the vendor's bytes with it.
    pub(super) fn parse<'a>(
        mad: &'a [u8],
        attribute: Attribute,
        what: &'static str,
    ) -> Result<(Head, &'a [u8; DATA_LEN]), Error> {
        let refuse = |why| Err(Error::Malformed { what, why });
        let packet = Packet::new_checked(mad)?;
        let header = Repr::parse(mad)?;
        if header.mgmt_class != CLASS || packet.oui() != Oui::SOFTNIC || header.attribute_id != attribute {
            return refuse("class, OUI and attribute are not softnic's");
        }
        let kind = match header.method {
            Method::GET => Kind::Offer,
            Method::GET_RESP => Kind::Answer(header.status),
            _ => return refuse("the method is neither Get nor GetResp"),
        };
        if packet.is_rmpp_active() {
            return refuse("RMPP is active");
        }
        let Some(data) = mad[field::DATA.start..].first_chunk() else {
            return refuse("the MAD is too short");
        };
        if data[field::VERSION] == 0 {
            return refuse("there is no format version 0");
        }
        let head = Head {
            transaction_id: header.transaction_id,
            kind,
            version: data[field::VERSION],
            sender_qpn: Qpn::new(be24(data, field::SENDER_QPN)),
            receiver_qpn: Qpn::new(be24(data, field::RECEIVER_QPN)),
        };
        Ok((head, data))
    }

    /// Writes a whole MAD with zeros behind the head: the vendor's bytes, to write the rest to.
    ///
    /// # Panics
    /// When `mad` is shorter than [`MAD_LEN`].
    pub(super) fn emit<'a>(&self, attribute: Attribute, mad: &'a mut [u8]) -> &'a mut [u8] {
        let (method, status) = match self.kind {
            Kind::Offer => (Method::GET, Status::SUCCESS),
            Kind::Answer(status) => (Method::GET_RESP, status),
        };
        let header = Repr {
            base_version: BASE_VERSION,
            mgmt_class: CLASS,
            class_version: CLASS_VERSION,
            method,
            status,
            class_specific: 0,
            transaction_id: self.transaction_id,
            attribute_id: attribute,
            attribute_modifier: 0,
        };
        header.emit(mad);
        Packet::new_unchecked(&mut *mad).set_oui(Oui::SOFTNIC);
        let data = &mut mad[field::DATA];
        data.fill(0);
        data[field::VERSION] = self.version;
        put24(data, field::SENDER_QPN, self.sender_qpn.value());
        put24(data, field::RECEIVER_QPN, self.receiver_qpn.value());
        data
    }

    /// `softnic offer tid … qpn … > …`, with what it is about before `offer`.
    pub(super) fn show(&self, about: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Head { transaction_id: tid, sender_qpn, receiver_qpn, .. } = self;
        match self.kind {
            Kind::Offer => write!(f, "softnic {about}offer tid {tid:#018x}")?,
            Kind::Answer(Status::SUCCESS) => write!(f, "softnic {about}answer tid {tid:#018x}")?,
            Kind::Answer(status) => write!(f, "softnic {about}answer tid {tid:#018x} status {status}")?,
        }
        write!(f, " qpn {sender_qpn} > {receiver_qpn}")
    }
}

/// softnic's negotiation of extensions for one pair of QPs.
///
/// A peer that refuses may send back anything behind the MAD header, so look for an error status with
/// [`mad::Repr`](Repr) and the transaction id before parsing this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Negotiation<'a> {
    /// What ties an answer to its offer.
    pub transaction_id: u64,
    /// Offer or answer.
    pub kind: Kind,
    /// Format version of the sender, [`VERSION`] from this code.
    pub version: u8,
    /// QPN at the sender (24 bits).
    pub sender_qpn: u32,
    /// QPN at the receiver (24 bits).
    pub receiver_qpn: u32,
    /// What is offered, or accepted.
    pub extensions: Extensions,
    /// The settings of these extensions.
    pub settings: Settings,
    /// What the sender's end of SDR tells the other; it is there when SDR is among the extensions, in what was parsed.
    pub sdr: Option<Info<'a>>,
}

impl<'a> Negotiation<'a> {
    /// Reads a whole MAD.
    pub fn parse(mad: &'a [u8]) -> Result<Negotiation<'a>, Error> {
        let (head, data) = Head::parse(mad, ATTRIBUTE, "softnic negotiation MAD")?;
        let named = Extensions(be32(data, field::EXTENSIONS));
        let sdr = sdr_info(mad).and_then(Result::ok);
        let extensions = if sdr.is_some() { named } else { named.without(Extensions::SDR) };
        Ok(Negotiation {
            transaction_id: head.transaction_id,
            kind: head.kind,
            version: head.version,
            sender_qpn: head.sender_qpn.value(),
            receiver_qpn: head.receiver_qpn.value(),
            extensions,
            settings: Settings::from_bytes(array(data, field::SETTINGS)),
            sdr,
        })
    }

    /// The same without the information of SDR, to be kept longer than the MAD.
    pub const fn without_info(&self) -> Negotiation<'static> {
        let Negotiation { transaction_id, kind, version, sender_qpn, receiver_qpn, extensions, settings, sdr: _ } =
            *self;
        Negotiation { transaction_id, kind, version, sender_qpn, receiver_qpn, extensions, settings, sdr: None }
    }

    /// Bytes that [`Negotiation::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        MAD_LEN
    }

    /// Writes a whole MAD. Information of SDR for which there is no room is left out.
    ///
    /// # Panics
    /// When `mad` is shorter than [`MAD_LEN`].
    pub fn emit(&self, mad: &mut [u8]) {
        let data = self.head().emit(ATTRIBUTE, mad);
        put32(data, field::EXTENSIONS, self.extensions.0);
        data[field::SETTINGS..][..Settings::LEN].copy_from_slice(self.settings.as_bytes());
        if let Some(info) = self.sdr.map(|info| info.as_bytes()).filter(|info| info.len() <= SDR_INFO.len()) {
            data[field::SDR_INFO..][..info.len()].copy_from_slice(info);
        }
    }

    fn head(&self) -> Head {
        Head {
            transaction_id: self.transaction_id,
            kind: self.kind,
            version: self.version,
            sender_qpn: Qpn::new(self.sender_qpn),
            receiver_qpn: Qpn::new(self.receiver_qpn),
        }
    }
}

/// What the sender's end of SDR tells the other in a whole MAD of ours that has the bit of SDR, or why it is none; `None` without the bit.
pub fn sdr_info(mad: &[u8]) -> Option<Result<Info<'_>, InfoError>> {
    let packet = Packet::new_checked(mad).ok()?;
    let data = packet.data();
    let named = Extensions(be32(data, field::EXTENSIONS));
    named.contains(Extensions::SDR).then(|| Info::parse_front(&mad[SDR_INFO]))
}

impl fmt::Display for Negotiation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head().show("", f)?;
        write!(f, " ext {}", self.extensions)?;
        self.extensions.show_settings(&self.settings, f)?;
        self.sdr.map_or(Ok(()), |info| write!(f, " {info}"))
    }
}
