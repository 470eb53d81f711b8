//! One queue pair as an observer saw it last.

use softnic_nic::Nic;
use softnic_nic::transports::Vitals;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::qp::QpState;
use softnic_pcaps::decode::Dissection;
use softnic_pcaps::sequence::{Order, Sequence};
use softnic_wire::opcode::{Kind, Service};
use softnic_wire::{PathMtu, Qpn};

use crate::event::Event;

/// What was known of a queue pair when it was looked at last.
pub(crate) struct Watched {
    pub(crate) group: String,
    pub(crate) state: QpState,
    is_connected: bool,
    choice: Option<Choice>,
    pub(crate) vitals: Vitals,
    mtu: Option<PathMtu>,
    sequence: Sequence,
    /// Why packets are sent again, by the last that was heard of it.
    pub(crate) loss: Option<&'static str>,
}

impl Watched {
    /// A queue pair that is new.
    pub(crate) fn new(nic: &str, qpn: Qpn) -> Watched {
        let group = match nic {
            "" => format!("{:#x}", qpn.value()),
            _ => format!("{nic} {:#x}", qpn.value()),
        };
        Watched {
            group,
            state: QpState::Reset,
            is_connected: false,
            choice: None,
            vitals: Vitals::default(),
            mtu: None,
            sequence: Sequence::default(),
            loss: None,
        }
    }

    /// Looks at the queue pair and says what has changed; `false` when it is there no more.
    pub(crate) fn look(&mut self, nic: &Nic, qpn: Qpn, tell: &mut impl FnMut(&str, &Event)) -> bool {
        let (Some(state), Some(now)) = (nic.qp_state(qpn), nic.vitals(qpn)) else { return false };
        if state != self.state {
            let (old, new) = (Some(self.state.name().into()), Some(state.name().into()));
            tell(&self.group, &Event::StateUpdated { old, new });
            self.state = state;
            if state == QpState::Reset {
                (self.is_connected, self.sequence, self.loss) = (false, Sequence::default(), None);
            }
        }
        if !self.is_connected && !matches!(state, QpState::Reset | QpState::Init) {
            self.is_connected = true;
            if let Some(event) = self.connected(nic, qpn) {
                tell(&self.group, &event);
            }
        }
        let choice = nic.choice(qpn);
        if choice != self.choice {
            self.choice = choice;
            if let Some(choice) = choice {
                tell(&self.group, &Event::Negotiated { outcome: outcome(choice) });
            }
        }
        let before = self.vitals;
        if let Some(count) = more(before.receives_posted, now.receives_posted) {
            tell(&self.group, &Event::ReceivesPosted { count });
        }
        if let Some(posted) = more(before.posted, now.posted) {
            let wr_ids = nic.outstanding_sends(qpn).map_or_else(Vec::new, |all| {
                let all: Vec<u64> = all.map(|send| send.wr.wr_id).collect();
                all[all.len().saturating_sub(posted as usize)..].to_vec()
            });
            tell(&self.group, &Event::WorkPosted { count: posted, wr_ids });
        }
        if let Some(count) = more(before.completed, now.completed) {
            tell(&self.group, &Event::WorkCompleted { count });
        }
        if let Some(count) = more(before.receives_completed, now.receives_completed) {
            tell(&self.group, &Event::ReceivesCompleted { count });
        }
        let limits = |v: Vitals| Vitals {
            posted: 0,
            completed: 0,
            requested: 0,
            answered: 0,
            receives_posted: 0,
            receives_completed: 0,
            in_flight: 0,
            late_packets: 0,
            ..v
        };
        if limits(now) != limits(before) || (now.in_flight == 0) != (before.in_flight == 0) {
            let Vitals { in_flight, window, congestion_window, rate, retries, rnr_retries, .. } = now;
            let event = Event::MetricsUpdated { in_flight, window, congestion_window, rate, retries, rnr_retries };
            tell(&self.group, &event);
        }
        self.vitals = now;
        true
    }

    /// Whether its timer ran out since it was looked at, and then whether it gave up: retries have risen, or there were no more of them.
    pub(crate) fn expired(&self, nic: &Nic, qpn: Qpn) -> Option<bool> {
        let now = nic.vitals(qpn)?;
        let rose = (now.retries, now.rnr_retries) > (self.vitals.retries, self.vitals.rnr_retries);
        let failed = self.state != QpState::Error && nic.qp_state(qpn) == Some(QpState::Error);
        let gave_up = failed && nic.query_qp(qpn)?.1.retry_cnt == Some(self.vitals.retries);
        (rose || gave_up).then_some(gave_up)
    }

    fn connected(&mut self, nic: &Nic, qpn: Qpn) -> Option<Event> {
        let (init, attr) = nic.query_qp(qpn)?;
        self.mtu = attr.mtu;
        Some(Event::Connected {
            transport: init.transport.to_string(),
            peer_address: attr.path?.addresses.dst().to_string(),
            peer_qpn: attr.dest_qp?.value(),
            path_mtu: attr.mtu.map(PathMtu::bytes),
            first_psn: attr.sq_psn.map(|psn| psn.value()),
        })
    }

    /// Whether a packet that leaves was sent before, and why it is sent again.
    pub(crate) fn resent(&mut self, d: &Dissection<'_>) -> Option<&'static str> {
        let (opcode, psn) = (d.opcode?, d.psn?);
        if !opcode.is_request() {
            return None;
        }
        let psns = match (opcode.kind(), d.ext.reth, self.mtu) {
            // Selective Repeat numbers answers apart from requests.
            (Kind::ReadRequest, Some(reth), Some(mtu)) if opcode.service() == Service::Rc => mtu.packets(reth.len),
            _ => 1,
        };
        if self.sequence.follow(psn, psns, psns) != Order::Again {
            // It goes on: what was lost was sent again.
            self.loss = None;
            return None;
        }
        Some(self.loss.unwrap_or("selective_ack"))
    }
}

/// By how much a number that counts round has grown; one that began again has not.
fn more(before: u32, now: u32) -> Option<u32> {
    Some(now.wrapping_sub(before)).filter(|&count| count != 0 && count < u32::MAX / 2)
}

fn outcome(choice: Choice) -> String {
    match choice {
        Choice::Waiting => "waiting".into(),
        Choice::Agreed => "agreed".into(),
        Choice::Standard(why) => format!("standard: {why:?}"),
    }
}
