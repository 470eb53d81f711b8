//! The sender's own switch, watched: what comes in and what the sender is told, compared with the model.

use std::collections::VecDeque;
use std::net::IpAddr;

use softnic_sim::node::SimNode;
use softnic_switch::Switch;
use softnic_wire::aeth::{Aeth, NakCode, Syndrome};
use softnic_wire::{Instant, Node, Opcode, Psn, Qpn, RocePacket, TxFrame, icrc};

use super::model::{Model, Told, unwrapped};

/// The port of the sender.
pub(super) const SENDER: usize = 0;
/// A key that no range has.
pub(super) const NO_KEY: u32 = 0xbad0_0bad;

/// The group.
pub(super) struct Watch {
    pub(super) sender: IpAddr,
    pub(super) qpn: Qpn,
    pub(super) mc_id: Qpn,
    /// The receivers.
    pub(super) members: Vec<IpAddr>,
    pub(super) first: Psn,
}

/// The switch, and what must hold at it.
pub(super) struct Watched {
    pub(super) switch: Switch,
    watch: Watch,
    /// The furthest that each member has acknowledged, by ACKs and NAKs that reached the switch.
    said: Vec<i64>,
    model: Option<Model>,
    due: VecDeque<Told>,
    /// What did not hold.
    pub(super) wrong: Option<String>,
    /// What the sender was told.
    pub(super) told: u64,
    pub(super) cnps: u64,
}

impl Watched {
    pub(super) fn new(switch: Switch, watch: Watch, modelled: bool) -> Watched {
        let said = vec![i64::from(watch.first.value()) - 1; watch.members.len()];
        let model = modelled.then(|| Model::new(watch.first, watch.members.len()));
        Watched { switch, watch, said, model, due: VecDeque::new(), wrong: None, told: 0, cnps: 0 }
    }

    /// What the model says that the sender is told, and nobody told it.
    pub(super) fn left(&self) -> Option<String> {
        self.due.front().map(|told| format!("the sender was not told {told:?}"))
    }

    fn came(&mut self, frame: &[u8]) {
        let Ok(packet) = RocePacket::parse(frame) else { return };
        let Some((src, dst)) = packet.layout.addresses(frame) else { return };
        let (psn, watch) = (packet.bth.psn, &self.watch);
        let told = if src == watch.sender && packet.bth.dest_qp == watch.mc_id && Some(&dst) == watch.members.first() {
            // The sender says it to nobody: acknowledgements that were marked do not come slower.
            if packet.bth.opcode == Opcode::CNP {
                return;
            }
            let refused = match (packet.bth.opcode, packet.ext.reth) {
                (Opcode::RC_RDMA_READ_REQUEST, _) => Some(NakCode::INVALID_REQUEST),
                (_, Some(reth)) if reth.rkey == NO_KEY => Some(NakCode::REMOTE_ACCESS_ERROR),
                _ => None,
            };
            self.model.as_mut().and_then(|model| model.sent(psn, refused))
        } else if dst == watch.sender && packet.bth.dest_qp == watch.qpn {
            let Some(member) = watch.members.iter().position(|ip| *ip == src) else { return };
            let Some(aeth) = packet.ext.aeth.filter(|_| icrc::verify_shared(frame, &packet.layout).is_ok()) else {
                return;
            };
            let said = &mut self.said[member];
            *said = (*said).max(unwrapped(psn, *said) - i64::from(!is_ack(aeth)));
            self.model.as_mut().and_then(|model| model.heard(member, psn, aeth))
        } else {
            return;
        };
        self.due.extend(told);
    }

    /// A frame leaves for the sender.
    fn leaves(&mut self, frame: &[u8]) -> Result<(), String> {
        let Ok(packet) = RocePacket::parse(frame) else { return Ok(()) };
        if packet.bth.dest_qp != self.watch.qpn || icrc::verify_shared(frame, &packet.layout).is_err() {
            return Ok(());
        }
        let src = packet.layout.addresses(frame).map(|(src, _)| src);
        if src.as_ref() != self.watch.members.first() {
            return Err(format!("safety: the sender is spoken to by {src:?}, who is not its peer"));
        }
        let Some(aeth) = packet.ext.aeth else {
            self.cnps += u64::from(packet.bth.opcode == Opcode::CNP);
            return Ok(());
        };
        self.told += 1;
        let told = Told { psn: packet.bth.psn, aeth };
        let all = self.said.iter().copied().min().unwrap_or(0);
        let n = unwrapped(told.psn, all) - i64::from(!is_ack(aeth));
        if n > all {
            return Err(format!("safety: the sender is told {told:?}, and a member has only said {all:#x}"));
        }
        let due = self.due.pop_front();
        if self.model.is_some() && due != Some(told) {
            return Err(format!("the sender is told {told:?} instead of {due:?}"));
        }
        Ok(())
    }
}

fn is_ack(aeth: Aeth) -> bool {
    matches!(aeth.syndrome, Syndrome::Ack(_))
}

impl Node for Watched {
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &mut [u8]) {
        self.came(frame);
        self.switch.handle_frame(now, port, frame);
    }

    fn poll_transmit(&mut self, now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        let sent = self.switch.poll_transmit(now, port, tx);
        if sent && port == SENDER && self.wrong.is_none() {
            let frame = tx.segments().0.to_vec();
            self.wrong = self.leaves(&frame).err();
        }
        sent
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.switch.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.switch.handle_timeout(now);
    }
}

impl SimNode for Watched {
    fn switch(&mut self) -> Option<&mut Switch> {
        Some(&mut self.switch)
    }
}
