//! Queueing disciplines and filters of traffic in rtnetlink: `struct tcmsg` and its attributes.

use super::attributes::{Attributes, read, text_of, u32_at, u32_of};

pub(crate) const TCA_KIND: u16 = 1;
pub(crate) const TCA_OPTIONS: u16 = 2;
/// Inside of the options of a filter that is a program.
pub(crate) const TCA_BPF_FD: u16 = 6;
pub(crate) const TCA_BPF_NAME: u16 = 7;
pub(crate) const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_ID: u16 = 11;
/// The program says itself what becomes of a frame.
pub(crate) const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1 << 0;

/// Bytes of `struct tcmsg`.
const LEN: usize = 20;

/// Where a filter, or a queueing discipline, stands: the fields of `struct tcmsg`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the device.
    pub(crate) index: u32,
    pub(crate) handle: u32,
    pub(crate) parent: u32,
    /// Of a filter: its preference, and the protocol that it is for.
    pub(crate) info: u32,
}

impl Place {
    /// `struct tcmsg`.
    pub(crate) fn attributes(self) -> Attributes {
        let words = [0, self.index, self.handle, self.parent, self.info];
        Attributes::after(words.map(u32::to_ne_bytes).as_flattened())
    }
}

/// A filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterMessage {
    pub(crate) place: Place,
    /// The id of its program, if it is one.
    pub(crate) program: Option<u32>,
}

impl FilterMessage {
    pub(super) fn read(body: &[u8]) -> Option<FilterMessage> {
        let place = Place {
            index: u32_at(body, 4)?,
            handle: u32_at(body, 8)?,
            parent: u32_at(body, 12)?,
            info: u32_at(body, 16)?,
        };
        let (mut is_program, mut options) = (false, &[][..]);
        read(body.get(LEN..)?, |kind, value| {
            match kind {
                TCA_KIND => is_program = text_of(value) == "bpf",
                TCA_OPTIONS => options = value,
                _ => {}
            }
            Some(())
        })?;
        let mut program = None;
        if is_program {
            read(options, |kind, value| {
                if kind == TCA_BPF_ID {
                    program = Some(u32_of(value)?);
                }
                Some(())
            })?;
        }
        Some(FilterMessage { place, program })
    }
}
