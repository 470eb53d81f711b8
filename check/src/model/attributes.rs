//! Attributes of queue pairs and completion queues: what elsewhere is refused, or does something else.

use super::{About, Model};
use crate::calls::{Change, CompletionQueue, ObjectId, QpState, QpType};
use crate::finding::{Kind, Place};
use crate::queue_pair::Pair;

/// Elements of a work request that a ConnectX has.
const CONNECTX_SGES: u32 = 30;
/// Completions that a ConnectX has room for.
const CONNECTX_COMPLETIONS: u32 = (1 << 22) - 1;

/// Bits of `enum ibv_qp_attr_mask`, and their names.
const ATTRIBUTES: [(u32, &str); 22] = [
    (1 << 0, "IBV_QP_STATE"),
    (1 << 1, "IBV_QP_CUR_STATE"),
    (1 << 2, "IBV_QP_EN_SQD_ASYNC_NOTIFY"),
    (1 << 3, "IBV_QP_ACCESS_FLAGS"),
    (1 << 4, "IBV_QP_PKEY_INDEX"),
    (1 << 5, "IBV_QP_PORT"),
    (1 << 6, "IBV_QP_QKEY"),
    (1 << 7, "IBV_QP_AV"),
    (1 << 8, "IBV_QP_PATH_MTU"),
    (1 << 9, "IBV_QP_TIMEOUT"),
    (1 << 10, "IBV_QP_RETRY_CNT"),
    (1 << 11, "IBV_QP_RNR_RETRY"),
    (1 << 12, "IBV_QP_RQ_PSN"),
    (1 << 13, "IBV_QP_MAX_QP_RD_ATOMIC"),
    (1 << 14, "IBV_QP_ALT_PATH"),
    (1 << 15, "IBV_QP_MIN_RNR_TIMER"),
    (1 << 16, "IBV_QP_SQ_PSN"),
    (1 << 17, "IBV_QP_MAX_DEST_RD_ATOMIC"),
    (1 << 18, "IBV_QP_PATH_MIG_STATE"),
    (1 << 19, "IBV_QP_CAP"),
    (1 << 20, "IBV_QP_DEST_QPN"),
    (1 << 25, "IBV_QP_RATE_LIMIT"),
];

const fn bits(list: &[u32]) -> u32 {
    let mut all = 0;
    let mut i = 0;
    while i < list.len() {
        all |= 1 << list[i];
        i += 1;
    }
    all
}

/// The attributes that a transition must name, and those that it may name, as the kernel has them; those that are not here are not judged.
fn rules(kind: QpType, from: QpState, to: QpState) -> Option<(u32, u32)> {
    use QpState::{Init, Reset, Rtr, Rts};
    use QpType::{Rc, Uc, Ud};
    Some(match (from, to, kind) {
        (Reset, Init, Rc | Uc) => (bits(&[4, 5, 3]), 0),
        (Reset, Init, Ud) => (bits(&[4, 5, 6]), 0),
        (Init, Init, Rc | Uc) => (0, bits(&[4, 5, 3])),
        (Init, Init, Ud) => (0, bits(&[4, 5, 6])),
        (Init, Rtr, Rc) => (bits(&[7, 8, 20, 12, 17, 15]), bits(&[14, 3, 4])),
        (Init, Rtr, Uc) => (bits(&[7, 8, 20, 12]), bits(&[14, 3, 4])),
        (Init, Rtr, Ud) => (0, bits(&[4, 6])),
        (Rtr, Rts, Rc) => (bits(&[9, 10, 11, 16, 13]), bits(&[1, 14, 3, 15, 18])),
        (Rtr, Rts, Uc) => (bits(&[16]), bits(&[1, 14, 3, 18])),
        (Rtr, Rts, Ud) => (bits(&[16]), bits(&[1, 6])),
        _ => return None,
    })
}

/// The names of the bits of a mask.
fn names(mask: u32) -> String {
    let known = ATTRIBUTES.iter().filter(|(bit, _)| mask & bit != 0);
    let mut names: Vec<String> = known.clone().map(|(_, name)| (*name).to_owned()).collect();
    let unknown = known.fold(mask, |left, (bit, _)| left & !bit);
    if unknown != 0 {
        names.push(format!("{unknown:#x}"));
    }
    names.join(", ")
}

impl Model {
    /// A queue pair was changed.
    pub fn modified(&mut self, id: ObjectId, change: &Change, place: &Place) {
        let Some(pair) = self.pairs.get(&id) else { return };
        let mut found = Vec::new();
        if change.is_the_programs && pair.is_the_programs {
            check_mask(pair, change, &mut found);
        }
        if pair.attributes.kind == QpType::Rc && change.timeout == Some(0) {
            let message = "timeout 0 is for ever: a packet or acknowledgement that is lost stops the queue pair, and nothing tells; 14 \
                           (67 ms) is usual";
            found.push((Kind::TimeoutZero, message.to_owned()));
        }
        let about = |pair: &Pair| About::pair(pair);
        for (kind, message) in found {
            let Some(pair) = self.pairs.get(&id) else { return };
            let about = about(pair);
            self.report(kind, place, about, message);
        }
        if change.state == Some(QpState::Reset) {
            self.clear_pair(id);
        }
        if let Some(pair) = self.pairs.get_mut(&id) {
            pair.note(change);
        }
    }

    /// What a queue pair was asked to hold.
    pub(super) fn check_capacity(&mut self, pair: &Pair, place: &Place) {
        let capacity = pair.attributes.capacity;
        for (name, sges) in [("max_send_sge", capacity.send_sges), ("max_recv_sge", capacity.receive_sges)] {
            if sges > CONNECTX_SGES {
                let message = format!("{name} {sges}: a ConnectX has {CONNECTX_SGES}");
                self.report(Kind::BeyondConnectX, place, About::pair(pair), message);
            }
        }
    }

    /// What a completion queue was asked to hold.
    pub(super) fn check_completion_queue(&mut self, queue: CompletionQueue, place: &Place) {
        if queue.capacity > CONNECTX_COMPLETIONS {
            let message = format!("a completion queue for {}: a ConnectX has {CONNECTX_COMPLETIONS}", queue.capacity);
            self.report(Kind::BeyondConnectX, place, About::default(), message);
        }
    }
}

/// Whether the kernel takes the attributes that a change names.
fn check_mask(pair: &Pair, change: &Change, found: &mut Vec<(Kind, String)>) {
    let to = change.state.unwrap_or(pair.state);
    let Some((must, may)) = rules(pair.attributes.kind, pair.state, to) else { return };
    let named = change.mask.0 & !1;
    let (missing, extra) = (must & !named, named & !(must | may));
    let (from, to) = (pair.state.name(), to.name());
    if missing != 0 {
        let message =
            format!("{from} to {to} without {}: the kernel refuses it (EINVAL) for any other device", names(missing));
        found.push((Kind::AttributeMask, message));
    } else if extra != 0 {
        let message =
            format!("{from} to {to} with {}: the kernel refuses it (EINVAL) for any other device", names(extra));
        found.push((Kind::AttributeMask, message));
    }
}
