//! Work requests on their way from a program thread to the engine, with a copy of their scatter/gather elements.

use softnic_nic::transports::{BestEffort, Data, Datagram, RecvWr, SendFlags, SendOp, SendWr, Sge};

/// Number of elements, and of inline bytes, that are stored in the ring itself; larger ones are boxed.
const SGES: usize = 2;
const INLINE: usize = 64;

#[derive(Debug)]
enum Posted {
    Sges([Sge; SGES], u8),
    ManySges(Box<[Sge]>),
    Inline([u8; INLINE], u8),
    LongInline(Box<[u8]>),
}

impl Posted {
    #[inline]
    fn sges(sges: &[Sge]) -> Posted {
        let mut few = [Sge::default(); SGES];
        match few.get_mut(..sges.len()) {
            Some(room) => {
                room.copy_from_slice(sges);
                Posted::Sges(few, sges.len() as u8)
            }
            None => Posted::ManySges(sges.into()),
        }
    }

    fn inline(bytes: &[u8]) -> Posted {
        let mut few = [0; INLINE];
        match few.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                Posted::Inline(few, bytes.len() as u8)
            }
            None => Posted::LongInline(bytes.into()),
        }
    }

    #[inline]
    fn data(&self) -> Data<'_> {
        match self {
            Posted::Sges(few, n) => Data::Gather(&few[..usize::from(*n)]),
            Posted::ManySges(sges) => Data::Gather(sges),
            Posted::Inline(few, n) => Data::Inline(&few[..usize::from(*n)]),
            Posted::LongInline(bytes) => Data::Inline(bytes),
        }
    }
}

/// A send work request.
#[derive(Debug)]
pub(crate) struct PostedSend {
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    best_effort: Option<BestEffort>,
    to: Option<Datagram>,
    data: Posted,
}

impl PostedSend {
    #[inline]
    pub(crate) fn new(wr: &SendWr<'_>) -> PostedSend {
        let data = match wr.data {
            Data::Gather(sges) => Posted::sges(sges),
            Data::Inline(bytes) => Posted::inline(bytes),
        };
        PostedSend {
            wr_id: wr.wr_id,
            op: wr.op,
            flags: wr.flags,
            best_effort: wr.best_effort.copied(),
            to: wr.to,
            data,
        }
    }

    #[inline]
    pub(crate) fn wr(&self) -> SendWr<'_> {
        let PostedSend { wr_id, op, flags, best_effort, to, data } = self;
        let (data, best_effort) = (data.data(), best_effort.as_ref());
        SendWr { wr_id: *wr_id, op: *op, data, flags: *flags, best_effort, to: *to }
    }
}

/// A receive work request.
#[derive(Debug)]
pub(crate) struct PostedRecv {
    wr_id: u64,
    sges: Posted,
    best_effort: Option<BestEffort>,
}

impl PostedRecv {
    #[inline]
    pub(crate) fn new(wr: &RecvWr<'_>) -> PostedRecv {
        PostedRecv { wr_id: wr.wr_id, sges: Posted::sges(wr.sges), best_effort: wr.best_effort.copied() }
    }

    #[inline]
    pub(crate) fn wr(&self) -> RecvWr<'_> {
        let sges = match self.sges.data() {
            Data::Gather(sges) => sges,
            Data::Inline(_) => &[],
        };
        RecvWr { wr_id: self.wr_id, sges, best_effort: self.best_effort.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use softnic_wire::Instant;

    use super::*;

    #[test]
    fn work_keeps_its_deadline_on_its_way_to_the_engine() {
        let until = BestEffort::until(Instant::from_nanos(7));
        for best_effort in [None, Some(&until)] {
            let (op, data, flags) = (SendOp::Send, Data::Inline(b"abc"), SendFlags::default());
            let send = SendWr { wr_id: 1, op, data, flags, best_effort, to: None };
            assert_eq!(PostedSend::new(&send).wr(), send);
            let recv = RecvWr { wr_id: 2, sges: &[Sge::default()], best_effort };
            assert_eq!(PostedRecv::new(&recv).wr(), recv);
        }
    }

    #[test]
    fn posted_work_stays_small() {
        assert!(size_of::<PostedSend>() <= 200 && size_of::<PostedRecv>() <= 136);
    }
}
