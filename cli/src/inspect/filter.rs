//! Which packets of a capture are shown.

use std::collections::HashSet;
use std::time::Duration;

use softnic_fault_injector::units;
use softnic_pcaps::Timestamp;
use softnic_pcaps::analysis::{Analysis, EndPoint};
use softnic_pcaps::decode::Dissection;
use softnic_pcaps::summary::FlowKey;
use softnic_wire::aeth::Syndrome;
use softnic_wire::{Opcode, Qpn};

/// What a packet must be to be shown.
#[derive(Debug, Default)]
pub(super) struct Filter<'a> {
    pub(super) qps: &'a [Qpn],
    pub(super) opcodes: &'a [OpcodeName],
    pub(super) time: Option<TimeSpan>,
    /// The packets that verdicts name, where only those are wanted.
    pub(super) named: Option<HashSet<u64>>,
}

impl Filter<'_> {
    /// Whether all packets are shown.
    pub(super) fn is_open(&self) -> bool {
        self.qps.is_empty() && self.opcodes.is_empty() && self.time.is_none() && self.named.is_none()
    }

    /// Whether the packet with this number, so long after the first one, is shown; `analysis` knows its connection.
    pub(super) fn takes(&self, p: &Dissection<'_>, number: u64, since: i128, analysis: &Analysis) -> bool {
        self.named.as_ref().is_none_or(|named| named.contains(&number))
            && self.time.is_none_or(|span| span.contains(since))
            && (self.opcodes.is_empty() || self.opcodes.iter().any(|o| o.is_of(p)))
            && self.is_of_queue_pair(p, analysis)
    }

    fn is_of_queue_pair(&self, p: &Dissection<'_>, analysis: &Analysis) -> bool {
        let any_of = |qp: Option<Qpn>| qp.is_some_and(|q| self.qps.contains(&q));
        let of_connection = |dest_qp: Qpn| {
            let key = FlowKey { src: p.src, dst: p.dst, dest_qp };
            analysis.connection_of(&key).is_some_and(|c| self.is_of(&c.ends))
        };
        self.qps.is_empty()
            || any_of(p.dest_qp)
            || any_of(p.ext.deth.map(|d| d.src_qp))
            || p.dest_qp.is_some_and(of_connection)
    }

    /// Whether a connection between these is asked for.
    pub(super) fn is_of(&self, ends: &[EndPoint; 2]) -> bool {
        self.qps.is_empty() || ends.iter().any(|end| end.qp.is_some_and(|qp| self.qps.contains(&qp)))
    }
}

/// The beginning of an opcode's name, in lower case and with underscores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpcodeName(String);

impl OpcodeName {
    pub(super) fn parse(s: &str) -> Result<OpcodeName, String> {
        let name = OpcodeName(s.to_lowercase().replace('-', "_"));
        match !s.is_empty() && (["nak", "rnr"].contains(&&*name.0) || (0..=255).any(|o| name.begins(Opcode(o)))) {
            true => Ok(name),
            false => {
                Err("write the beginning of an opcode: write, read-req, rc-send-last, ack, cnp; or nak, rnr".into())
            }
        }
    }

    /// With or without the service, and the word RDMA.
    fn begins(&self, opcode: Opcode) -> bool {
        let whole = opcode.to_string().to_lowercase();
        let operation = whole.split_once('_').map_or("", |(_, operation)| operation);
        let bare = operation.strip_prefix("rdma_").unwrap_or(operation);
        opcode.is_known() && [&*whole, operation, bare].iter().any(|name| name.starts_with(&self.0))
    }

    fn is_of(&self, p: &Dissection<'_>) -> bool {
        let syndrome = p.ext.aeth.map(|a| a.syndrome);
        match &*self.0 {
            "nak" => matches!(syndrome, Some(Syndrome::Nak(_))),
            "rnr" => matches!(syndrome, Some(Syndrome::RnrNak(_))),
            _ => p.opcode.is_some_and(|o| self.begins(o)),
        }
    }
}

/// A part of a capture, in time after its first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeSpan {
    from: Duration,
    to: Option<Duration>,
}

impl TimeSpan {
    /// `FROM..TO`, of which either may be left out.
    pub(super) fn parse(s: &str) -> Result<TimeSpan, String> {
        let (from, to) = s.split_once("..").ok_or("write FROM..TO, as in 10ms..1.5s, 2s.. or ..500us")?;
        let bound = |text: &str| (!text.is_empty()).then(|| units::parse_time(text)).transpose();
        let (from, to) = (bound(from)?.unwrap_or_default(), bound(to)?);
        match to.is_some_and(|to| to < from) {
            true => Err("the end lies before the beginning".into()),
            false => Ok(TimeSpan { from, to }),
        }
    }

    fn contains(self, nanos: i128) -> bool {
        nanos >= self.from.as_nanos() as i128 && self.to.is_none_or(|to| nanos <= to.as_nanos() as i128)
    }
}

/// Nanoseconds from the first packet to this one.
pub(super) fn since(first: Timestamp, now: Timestamp) -> i128 {
    now.nanos() - first.nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_opcodes_as_people_write_them() {
        let begins = |name: &str, opcode| OpcodeName::parse(name).unwrap().begins(Opcode(opcode));
        assert!(begins("write", 0x06) && begins("WRITE", 0xca) && begins("rdma-write", 0x0a) && !begins("write", 0x04));
        assert!(begins("rc-send-last", 0x02) && begins("rc_send_last", 0x03) && !begins("rc-send-last", 0x22));
        assert!(begins("ack", 0x11) && begins("ack", 0xd1) && begins("cnp", 0x81) && begins("read-resp", 0x0e));
        assert!(["", "wrote", "yes"].iter().all(|wrong| OpcodeName::parse(wrong).is_err()));
    }

    #[test]
    fn spans_of_time() {
        let contains = |s: &str, us: i128| TimeSpan::parse(s).unwrap().contains(us * 1000);
        assert!(contains("10us..1ms", 10) && contains("10us..1ms", 1000) && !contains("10us..1ms", 1001));
        assert!(contains("..1ms", 0) && contains("2s..", 2_000_000) && !contains("2s..", 1_999_999));
        assert!(["1s", "5..6", "2s..1s", "x..1s"].iter().all(|wrong| TimeSpan::parse(wrong).is_err()));
    }
}
