//! Runs of SDR: what their queue pairs are made with, and what such a run cannot have.

use serde::{Deserialize, Serialize};
use softnic_runtime::api::sdr::{SdrAttr, Split};
use softnic_wire::PathMtu;

use super::{Op, Plan};

/// What the queue pairs of a run of SDR are made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SdrPlan {
    /// Bytes that a bit of the bitmap stands for.
    pub chunk: u32,
    /// Queue pairs that the packets of a message go by in turn.
    pub channels: u8,
    /// How often numbers of messages come round before a late packet can be taken for a later message's.
    pub generations: u8,
    /// Bits of immediates: message, packet, user.
    pub split: [u8; 3],
}

impl Default for SdrPlan {
    fn default() -> SdrPlan {
        let SdrAttr { chunk, channels, generations, split, .. } = SdrAttr::default();
        SdrPlan { chunk, channels, generations, split: split.bits() }
    }
}

impl SdrPlan {
    /// Messages in flight, where nobody says: as the paper has it (SDR-RDMA §5.4.1).
    pub const DEPTH: u32 = 16;

    /// The attributes of a queue pair for messages of so many bytes, so many at a time.
    pub(crate) fn attr(&self, size: u32, depth: u64, mtu: PathMtu) -> Result<SdrAttr, String> {
        let [message, packet, user] = self.split;
        let attr = SdrAttr {
            max_message: size.into(),
            chunk: self.chunk,
            split: Split::new(message, packet, user).map_err(|e| format!("--split: {e}"))?,
            slots: u32::try_from(depth).unwrap_or(u32::MAX),
            generations: self.generations,
            channels: self.channels,
            mtu,
            ..SdrAttr::default()
        };
        attr.check().map_err(|e| format!("sdr: {e}"))?;
        Ok(attr)
    }
}

impl Plan {
    /// What is wrong with a run of SDR, if it is one.
    pub(super) fn check_sdr(&self) -> Result<(), String> {
        let Some(sdr) = &self.sdr else { return Ok(()) };
        if self.op != Op::WriteBw {
            return Err(format!("sdr has no {}: only write_bw", self.op.name()));
        }
        if self.qps != 1 {
            return Err("a run of sdr has one queue pair, of several channels: --channels instead of --qps".into());
        }
        if self.cc.is_some() || self.auth {
            return Err("sdr has no congestion control and no authentication: leave --cc and --auth out".into());
        }
        self.sizes.iter().try_for_each(|&size| sdr.attr(size, self.outstanding(), self.path_mtu()).map(drop))
    }
}
