//! What one end tells the other out of band: the numbers and keys of its queue pairs, as bytes that are specified one by one
//! (`docs/wire-formats.md`, SDR).

use softnic_wire::PathMtu;
use softnic_wire::mad::vendor::ExtensionSettings;
use softnic_wire::sdr::Info;
pub use softnic_wire::sdr::{Contact, InfoError};

use softnic_wire::sdr::{SdrSettings, Split};

/// One generation of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// The root key of its receives.
    pub key: u32,
    /// Its queue pairs.
    pub channels: Vec<Contact>,
}

/// What a peer must know to send to an SDR queue pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QpInfo {
    /// Path MTU, the same at both ends.
    pub mtu: PathMtu,
    /// The division of immediates.
    pub split: Split,
    /// Receives that can be posted at a time: message n has slot n modulo this.
    pub slots: u32,
    /// Bytes of a slot of a root key, a power of two.
    pub slot_len: u64,
    /// Bytes of the longest message.
    pub max_message: u64,
    /// What control messages to here carry: nobody else can guess it.
    pub token: u32,
    /// The queue pair of control messages.
    pub control: Contact,
    /// What makes messages reliable, and packets of a chunk then: the same at both ends.
    pub scheme: SdrSettings,
    /// Packets of a chunk; 0 without a scheme.
    pub chunk_packets: u16,
    /// The generations, all with as many channels.
    pub generations: Vec<Generation>,
}

impl QpInfo {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let channels = self.generations.first().map_or(0, |g| g.channels.len());
        let len = Info::len_of(self.generations.len() as u8, channels as u8);
        let [message, packet, user] = self.split.bits();
        let mut b = Vec::with_capacity(len);
        b.extend([Info::VERSION, self.mtu.code()]);
        b.extend((len as u16).to_be_bytes());
        b.extend([message, packet, user, self.slot_len.ilog2() as u8]);
        b.extend([self.generations.len() as u8, channels as u8]);
        b.extend(self.chunk_packets.to_be_bytes());
        b.extend(self.slots.to_be_bytes());
        b.extend(self.max_message.to_be_bytes());
        b.extend(self.token.to_be_bytes());
        b.extend(self.control.bytes());
        let mut scheme = [0; 4];
        self.scheme.emit(&mut scheme);
        b.extend(scheme);
        for generation in &self.generations {
            b.extend(generation.key.to_be_bytes());
            b.extend(generation.channels.iter().flat_map(Contact::bytes));
        }
        b
    }

    /// Reads the bytes, and checks all that a sender relies on.
    pub fn decode(bytes: &[u8]) -> Result<QpInfo, InfoError> {
        let info = Info::parse(bytes)?;
        let Info { mtu, split, slots, slot_len, max_message, token, control, scheme, chunk_packets, .. } = info;
        let generations = info.generations().map(|g| Generation { key: g.key, channels: g.channels().collect() });
        let generations = generations.collect();
        Ok(QpInfo { mtu, split, slots, slot_len, max_message, token, control, scheme, chunk_packets, generations })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use softnic_wire::{Psn, Qpn};

    use super::*;

    fn some() -> QpInfo {
        let contact = |n: u32| Contact { qpn: Qpn::new(0x100 + n), psn: Psn::new(0xabc + n) };
        let generation =
            |g: u32| Generation { key: 0x1234_5600 + g, channels: (0..3).map(|c| contact(10 * g + c)).collect() };
        QpInfo {
            mtu: PathMtu::B4096,
            split: Split::PAPER,
            slots: 1000,
            slot_len: 1 << 24,
            max_message: (1 << 24) - 5,
            token: 0xdead_beef,
            control: contact(99),
            scheme: SdrSettings { scheme: 3, parameters: [32, 8, 0] },
            chunk_packets: 16,
            generations: (0..4).map(generation).collect(),
        }
    }

    #[test]
    fn what_is_written_is_read_byte_for_byte() {
        let bytes = some().encode();
        assert_eq!(bytes.len(), 40 + 4 * 28);
        assert_eq!(bytes[..16], [1, 5, 0, 152, 10, 18, 4, 24, 4, 3, 0, 16, 0, 0, 3, 232]);
        assert_eq!(
            bytes[16..40],
            [0, 0, 0, 0, 0, 255, 255, 251, 0xde, 0xad, 0xbe, 0xef, 0, 0, 1, 99, 0, 0, 0x0b, 0x1f, 3, 32, 8, 0]
        );
        assert_eq!(QpInfo::decode(&bytes), Ok(some()));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = some().encode();
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            QpInfo::decode(&bytes)
        };
        assert_eq!(with(0, 2), Err(InfoError::Version(2)));
        assert_eq!(with(1, 0), Err(InfoError::Field("path MTU")));
        assert_eq!(with(3, 0), Err(InfoError::Length(152, 152)));
        assert_eq!(with(4, 9), Err(InfoError::Field("division of immediates")));
        assert_eq!(with(7, 23), Err(InfoError::Field("length of slots")));
        assert_eq!(with(7, 200), Err(InfoError::Field("length of slots")));
        assert_eq!(with(8, 3), Err(InfoError::Length(152, 124)));
        assert_eq!(with(13, 1), Err(InfoError::Field("number of receives")));
        assert_eq!(with(20, 0x80), Err(InfoError::Field("longest message")));
        assert_eq!(with(11, 0), Err(InfoError::Field("length of chunks")));
        assert_eq!(with(28, 1), Err(InfoError::Field("number of a queue pair")));
        assert_eq!(QpInfo::decode(&good[..39]), Err(InfoError::Length(39, 40)));
        assert_eq!(QpInfo::decode(&good[..40]), Err(InfoError::Length(40, 152)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_mean_what_they_say(bytes in prop::collection::vec(any::<u8>(), 0..200), keep in 0usize..152) {
            let _ = QpInfo::decode(&bytes);
            let mut mixed = some().encode();
            mixed.iter_mut().zip(&bytes).skip(keep).for_each(|(b, other)| *b = *other);
            if let Ok(info) = QpInfo::decode(&mixed) {
                // But for reserved bytes, which say nothing.
                prop_assert_eq!(QpInfo::decode(&info.encode()), Ok(info));
            }
        }
    }
}
