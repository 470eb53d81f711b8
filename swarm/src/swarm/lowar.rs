//! LoWAR in the swarm: who offers which blocks, READs of memory that changes meanwhile, and that all that was lent comes back.

use softnic_nic::transports::SendOp;
use softnic_nic::transports::lowar::{Code, MAX_DEPTH};

use super::Swarm;
use super::ground::{AreaId, Content};
use super::sending::Draft;

const BLOCKS: [u8; 10] = [1, 2, 3, 4, 8, 13, 32, 64, 128, 255];
/// How often a READ is one of memory that changes, in worlds with LoWAR.
const CHANGING: f64 = 0.12;
/// How often that changes, at each look.
const CHANGES: f64 = 0.05;

/// A READ under way whose memory changes: what was sent of it twice is not the same, and must not be mixed up.
pub(super) struct Changing {
    reader: usize,
    message: usize,
    /// In this ground, and what will be there next.
    ground: usize,
    area: AreaId,
    next: Vec<u8>,
}

impl Swarm {
    /// The blocks that the two ends of a connection send, if they offer LoWAR.
    pub(super) fn draw_lowar(&mut self) -> [Option<Code>; 2] {
        let (chance, r) = (self.world.lowar, &mut self.lowar_random);
        [0, 1].map(|_| {
            let blocks = BLOCKS[r.below(BLOCKS.len() as u64) as usize];
            let deepest = u64::from(blocks.min(MAX_DEPTH));
            let depth = if r.chance(0.5) { 1 } else { 1 + r.below(deepest) as u8 };
            Code::new(blocks, depth).filter(|_| r.chance(chance))
        })
    }

    /// Now and then a READ of memory that changes until it is done.
    pub(super) fn read_what_changes(&mut self, q: usize, data: &[u8]) -> Result<Option<Draft>, String> {
        let r = &mut self.lowar_random;
        if self.world.lowar == 0.0 || data.is_empty() || self.qps[q].dying || !r.chance(CHANGING) {
            return Ok(None);
        }
        let other: Vec<u8> = data.iter().map(|b| b ^ r.next_u32() as u8).collect();
        let ground = self.qps[self.qps[q].peer].ground;
        let theirs = &mut self.grounds[ground];
        let at = theirs.reserve(data.len(), 1)?;
        let area = theirs.area(at, data.len(), Content::Any);
        theirs.fill(area, data.to_vec());
        let op = SendOp::Read { remote_addr: theirs.addr(area), rkey: theirs.key };
        let message = self.qps[q].messages.len();
        self.changing.push(Changing { reader: q, message, ground, area, next: other.clone() });
        self.done.changing += 1;
        Ok(Some(Draft { other: Some(other), ..Draft::new(op, data.to_vec()) }))
    }

    /// The programs whose memory is read write to it.
    pub(super) fn change_memory(&mut self) {
        self.changing.retain(|c| c.message >= self.qps[c.reader].completed);
        for c in &mut self.changing {
            if self.lowar_random.chance(CHANGES) {
                let ground = &mut self.grounds[c.ground];
                let now = ground.read(c.area);
                ground.fill(c.area, std::mem::replace(&mut c.next, now));
            }
        }
    }

    /// No queue pair has any coding unit, and none has a packet in the ring.
    pub(super) fn check_unused(&mut self) -> Result<(), String> {
        for host in 0..self.pair.nics() {
            let buffers = &self.pair.nic(host).shim_pools().lowar;
            if !buffers.are_unused() {
                let free = buffers.free_units();
                return Err(format!(
                    "host {host} did not get back all coding units or places of the ring: {free:?} free"
                ));
            }
        }
        Ok(())
    }

    /// When all is over, whether queue pairs are reset or destroyed.
    pub(super) fn check_all_given_back(&mut self) -> Result<(), String> {
        for q in 0..self.qps.len() {
            if self.lowar_random.chance(0.5) {
                self.set_state(q, softnic_nic::transports::qp::QpState::Reset)?;
            } else {
                let (host, qpn) = (self.qps[q].host, self.qps[q].qpn);
                self.pair.nic(host).destroy_qp(qpn).map_err(|e| e.to_string())?;
            }
        }
        self.check_unused()
    }
}

/// Each byte of `found` where it is that of one of the two, else that of the first.
pub(super) fn either(found: &[u8], one: &[u8], other: &[u8]) -> Vec<u8> {
    let right = |i: usize| [one[i], other[i]].into_iter().find(|b| found.get(i) == Some(b)).unwrap_or(one[i]);
    (0..one.len()).map(right).collect()
}
