//! What each try to connect has come to, as both programs know it: the model that events are held against.

use softnic_cm::{CmId, Disconnect, Event};
use softnic_wire::mad::cm::{Rej, RejReason};
use softnic_wire::mad::ip_cm::IpCm;
use softnic_wire::{Psn, Qpn};

/// One side of a try.
#[derive(Debug, Default, Clone)]
pub(crate) struct Side {
    pub(crate) host: usize,
    pub(crate) id: Option<CmId>,
    pub(crate) qpn: Qpn,
    pub(crate) psn: Psn,
    /// Asking: established by the program. Asked: accepted by the program.
    pub(crate) agreed: bool,
    pub(crate) established: bool,
    /// Asking: the reply came.
    pub(crate) responded: bool,
    /// Refused by this side's program.
    pub(crate) refused: bool,
    pub(crate) rejected: bool,
    pub(crate) unreachable: bool,
    pub(crate) disconnected: Option<Disconnect>,
    /// This side's program has asked for the end, or agreed to it.
    pub(crate) ended: bool,
    pub(crate) exited: bool,
    pub(crate) destroyed: bool,
    /// Its manager forgot everything.
    pub(crate) crashed: bool,
}

impl Side {
    /// Ready to use, as its program sees it.
    pub(crate) fn up(&self) -> bool {
        let over = self.disconnected.is_some() || self.ended || self.destroyed || self.refused || self.crashed;
        self.established && !over
    }

    /// It gave up in a way that the other side may never hear of.
    pub(crate) fn gave_up(&self) -> bool {
        let unheard = matches!(self.disconnected, Some(Disconnect::NoAnswer | Disconnect::Rejected(_)));
        self.unreachable || self.refused || self.destroyed || self.rejected || self.crashed || unheard
    }
}

/// A try to connect two queue pairs.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) token: u64,
    pub(crate) asking: Side,
    pub(crate) asked: Side,
    /// A manager forgot everything, on either side: then a refusal or an end can come out of the blue.
    pub(crate) shaken: bool,
    /// Messages of it that the network lost.
    pub(crate) lost: u64,
    /// Times that a message has to be lost, or its answer, before anybody may give up; programs are slow three times.
    pub(crate) enough: u64,
}

/// What a program says, so that the other can see whose words they are.
pub(crate) fn words(token: u64, what: u8) -> [u8; 9] {
    let mut words = [what; 9];
    words[..8].copy_from_slice(&token.to_be_bytes());
    words
}

/// The token in the private data of a message.
pub(crate) fn token(private_data: &[u8]) -> u64 {
    u64::from_be_bytes(private_data[..8].try_into().unwrap())
}

pub(crate) const REQ: u8 = 1;
pub(crate) const REP: u8 = 2;
pub(crate) const RTU: u8 = 3;
pub(crate) const NO_TO_REQ: u8 = 4;
pub(crate) const NO_TO_REP: u8 = 5;
pub(crate) const TAKEN_BACK: u8 = 6;

impl Attempt {
    /// An event of the asking side (`asking`), or of the asked one.
    pub(crate) fn check(&mut self, asking: bool, event: &Event) {
        let before = self.clone();
        let token = self.token;
        let (own, other) = if asking { (&mut self.asking, &before.asked) } else { (&mut self.asked, &before.asking) };
        assert!(!own.destroyed && !own.crashed, "{event:?} of what was destroyed: {before:?}");
        assert!(!own.exited, "{event:?} after the end: {before:?}");
        let over = own.rejected || own.unreachable;
        match event {
            Event::ConnectRequest { id, request, .. } => {
                assert!(own.id.is_none(), "asked twice: {before:?}");
                own.id = Some(*id);
                assert_eq!((request.local_qpn, request.starting_psn), (other.qpn.value(), other.psn));
                assert_eq!(Some(request.local_comm_id), other.id.map(CmId::comm_id));
                assert_eq!(IpCm::consumer_data(&request.private_data)[..9], words(token, REQ));
            }
            Event::ConnectResponse { reply, .. } => {
                assert!(other.agreed && !own.responded && !over, "{before:?}");
                own.responded = true;
                assert_eq!((reply.local_qpn, reply.starting_psn), (other.qpn.value(), other.psn));
                assert_eq!(Some(reply.local_comm_id), other.id.map(CmId::comm_id));
                assert_eq!(reply.private_data[..9], words(token, REP));
            }
            Event::Established { private_data, .. } => {
                assert!(!asking && own.agreed && !own.established && !over, "{before:?}");
                assert!(other.agreed, "established by nobody: {before:?}");
                own.established = true;
                if let Some(data) = private_data {
                    assert_eq!(data[..9], words(token, RTU));
                }
            }
            Event::Rejected { rej, .. } => {
                assert!(!over && !own.established && !own.refused, "{before:?}");
                own.rejected = true;
                self.check_refusal(asking, rej);
            }
            Event::Unreachable { .. } => {
                assert!(!over && !own.established, "{before:?}");
                assert!(before.lost >= before.enough, "given up too early: {before:?}");
                own.unreachable = true;
            }
            Event::Disconnected { how, .. } => {
                assert!(own.agreed && own.disconnected.is_none() && !over, "{before:?}");
                match how {
                    Disconnect::Peer => assert!(other.ended || other.destroyed || self.shaken, "{before:?}"),
                    // Or our manager ended what was stale: the other side had given up and used its queue pair again.
                    Disconnect::Agreed | Disconnect::NoAnswer => {
                        assert!(own.ended || other.gave_up() || self.shaken, "{before:?}");
                        let early = *how == Disconnect::NoAnswer && before.lost < before.enough;
                        assert!(!early, "given up too early: {before:?}");
                    }
                    Disconnect::Rejected(reason) => {
                        assert!(other.gave_up() || self.shaken, "{before:?}");
                        let of_a_connection =
                            [RejReason::CONSUMER_DEFINED, RejReason::TIMEOUT, RejReason::INVALID_COMM_ID];
                        assert!(of_a_connection.contains(reason), "{event:?}: {before:?}");
                    }
                }
                own.disconnected = Some(*how);
            }
            Event::TimewaitExit { qpn, .. } => {
                assert!(over || own.refused || own.disconnected.is_some(), "{before:?}");
                assert_eq!(*qpn, own.qpn);
                own.exited = true;
            }
            Event::SidrRequest { .. } | Event::SidrResponse { .. } => panic!("{event:?} of a connection"),
        }
    }

    /// A refusal has its reason, and if a program said it, its words.
    fn check_refusal(&self, asking: bool, rej: &Rej) {
        let other = if asking { &self.asked } else { &self.asking };
        match rej.reason {
            RejReason::CONSUMER_DEFINED if other.destroyed || self.shaken => {}
            RejReason::CONSUMER_DEFINED => {
                assert!(other.refused, "{self:?}");
                let what = if asking { [NO_TO_REQ, TAKEN_BACK].as_slice() } else { &[NO_TO_REP] };
                assert!(what.iter().any(|&what| rej.private_data[..9] == words(self.token, what)), "{self:?}");
            }
            // Nobody listened just then, or a number is used again where a refusal was not heard.
            RejReason::INVALID_SERVICE_ID => assert!(asking, "{self:?}"),
            RejReason::STALE_CONNECTION => {}
            RejReason::TIMEOUT | RejReason::INVALID_COMM_ID => assert!(other.gave_up() || self.shaken, "{self:?}"),
            other => panic!("{other}: {self:?}"),
        }
    }

    /// Faults have stopped and nobody waits for an answer: who is connected is so on both sides.
    pub(crate) fn check_agreement(&self) {
        assert!(!self.asking.up() || self.asked.up() || self.asked.gave_up() || self.shaken, "{self:?}");
        assert!(!self.asked.up() || self.asking.up() || self.asking.gave_up() || self.shaken, "{self:?}");
    }
}
