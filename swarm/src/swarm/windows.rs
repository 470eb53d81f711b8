//! Memory windows of the swarm: bound, used by the peer, taken away and bound anew; and keys used that are good for nothing.

use softnic_nic::transports::memory::{Access, Bind};
use softnic_nic::transports::{SendOp, Transport};
use softnic_nic::{QpKind, WindowType, next_key};

use super::Swarm;
use super::ground::{AreaId, Content};
use super::sending::Draft;
use super::setup::WINDOW;

/// What a window is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Bound nowhere.
    Free,
    /// A work request that binds it, or takes it away, is under way.
    Changing,
    /// The peer may use it.
    Bound,
}

/// A memory window of a queue pair of a reliable connection, for its peer.
pub(super) struct Window {
    /// The queue pair through which it is bound.
    owner: usize,
    kind: WindowType,
    key: u32,
    state: State,
    /// Messages through it that are not known to be done.
    uses: u32,
    /// Where it begins in the owner's ground, and how much of it messages have had.
    at: usize,
    next: usize,
    /// The address that the peer gives to its first byte.
    base: u64,
    /// What atomics have made of its first eight bytes.
    counter: u64,
    counter_area: Option<AreaId>,
    /// Key and address before it is bound anew; they are good until that is done.
    before: (u32, u64),
    /// Keys that it had, with the addresses that were good then.
    stale: Vec<(u32, u64)>,
}

impl Window {
    pub(super) fn new(owner: usize, kind: WindowType, key: u32) -> Window {
        Window {
            owner,
            kind,
            key,
            state: State::Free,
            uses: 0,
            at: 0,
            next: 0,
            base: 0,
            counter: 0,
            counter_area: None,
            before: (key, 0),
            stale: Vec::new(),
        }
    }
}

impl Swarm {
    /// Binds a window of this queue pair's own, or takes one away; `None` when there is none to do that with.
    pub(super) fn change_window(&mut self, q: usize) -> Result<Option<Draft>, String> {
        let own: Vec<usize> = (0..self.windows.len()).filter(|&w| self.windows[w].owner == q).collect();
        let w = own[self.random.below(own.len() as u64) as usize];
        let ground = &mut self.grounds[self.qps[q].ground];
        let window = &mut self.windows[w];
        let op = match (window.state, window.kind) {
            (State::Free, _) | (State::Bound, WindowType::Type1) if window.uses == 0 => {
                let (at, zero_based) = (ground.reserve(WINDOW, 8)?, self.random.chance(0.5));
                let counter_area = ground.area(at, 8, Content::Any);
                ground.wipe(counter_area, 0);
                let addr = ground.buffer.addr() + at as u64;
                let rkey = next_key(window.key);
                let bind = Bind {
                    window: window.key,
                    rkey,
                    lkey: ground.key,
                    addr,
                    len: WINDOW as u64,
                    access: Access::REMOTE,
                    zero_based,
                };
                window.before = (window.key, window.base);
                (window.key, window.at, window.next) = (rkey, at, 8);
                (window.base, window.counter) = (if zero_based { 0 } else { addr }, 0);
                window.counter_area = Some(counter_area);
                SendOp::BindWindow(bind)
            }
            (State::Bound, WindowType::Type2B) if window.uses == 0 => SendOp::LocalInv { rkey: window.key },
            _ => return Ok(None),
        };
        window.state = State::Changing;
        Ok(Some(Draft { changes: Some(w), ..Draft::new(op, Vec::new()) }))
    }

    /// A window that the queue pair may use, with room for `len` bytes.
    pub(super) fn usable_window(&mut self, q: usize, len: usize) -> Option<usize> {
        let peer = self.qps[q].peer;
        let usable = |w: &Window| w.owner == peer && w.state == State::Bound && w.next + len <= WINDOW;
        let found: Vec<usize> = (0..self.windows.len()).filter(|&w| usable(&self.windows[w])).collect();
        (!found.is_empty()).then(|| found[self.random.below(found.len() as u64) as usize])
    }

    /// Room for `len` bytes in a window: the address for the peer, the key, and where that is in the ground of its owner.
    pub(super) fn room_in_window(&mut self, w: usize, len: usize) -> (u64, u32, usize) {
        let window = &mut self.windows[w];
        let offset = window.next;
        // A byte of nobody between messages.
        window.next += len + 1;
        window.uses += 1;
        (window.base + offset as u64, window.key, window.at + offset)
    }

    /// The counter of a window, for an atomic: its address and key, and its value, which `change` changes.
    pub(super) fn count_in_window(&mut self, w: usize, change: impl FnOnce(u64) -> u64) -> (u64, u32, u64) {
        let window = &mut self.windows[w];
        window.uses += 1;
        let was = window.counter;
        window.counter = change(was);
        let value = Content::Exact(window.counter.to_ne_bytes().to_vec());
        if let Some(area) = window.counter_area {
            self.grounds[self.qps[window.owner].ground].expect(area, value);
        }
        (window.base, window.key, was)
    }

    /// A message after which a window of the peer is gone. What used it before must be done when it goes: with a fence,
    /// READs and atomics are.
    pub(super) fn send_and_invalidate(&mut self, q: usize, data: Vec<u8>) -> Option<Draft> {
        let w = self.usable_window(q, 0).filter(|&w| self.windows[w].kind == WindowType::Type2B)?;
        self.windows[w].state = State::Changing;
        let op = SendOp::SendInv { rkey: self.windows[w].key };
        Some(Draft { fence: true, changes: Some(w), ..Draft::new(op, data) })
    }

    /// A message with a key that gives no access: of old, or of another connection's window. It ends the connection.
    pub(super) fn use_stale_key(&mut self, q: usize, data: Vec<u8>) -> Option<Draft> {
        let peer = self.qps[q].peer;
        let mut keys = Vec::new();
        for w in &self.windows {
            if w.owner == peer {
                keys.extend(&w.stale);
            } else if self.qps[w.owner].host == self.qps[peer].host && w.kind == WindowType::Type2B {
                keys.extend((w.state == State::Bound).then_some((w.key, w.base)));
            }
        }
        if keys.is_empty() || data.is_empty() {
            return None; // no key is looked at for no bytes
        }
        let (rkey, remote_addr) = keys[self.random.below(keys.len() as u64) as usize];
        let (op, data) = match self.random.below(5) {
            0 => (SendOp::Write { remote_addr, rkey }, data),
            1 => (SendOp::WriteImm { remote_addr, rkey, imm: 7 }, data),
            2 => (SendOp::Read { remote_addr, rkey }, data),
            3 => (SendOp::FetchAdd { remote_addr: remote_addr & !7, rkey, add: 1 }, vec![0; 8]),
            _ => (SendOp::SendInv { rkey }, data),
        };
        for end in [q, peer] {
            self.qps[end].dying = true;
        }
        Some(Draft { refused: true, ..Draft::new(op, data) })
    }

    /// Now and then a message whose last byte is the first one behind a region or window of the peer, or for which the peer's
    /// region gives no right. It ends a reliable connection; an unreliable one drops it.
    pub(super) fn reach_beyond(&mut self, q: usize, data: &[u8]) -> Option<Draft> {
        if data.is_empty() || self.qps[q].dying || !self.random.chance(self.world.beyond) {
            return None;
        }
        let (peer, kind) = (self.qps[q].peer, self.qps[q].kind);
        let ways = if kind == QpKind::Rc { 3 } else { 2 };
        let (way, n, mut data) = (self.random.below(ways), data.len() as u64, data);
        let ground = &self.grounds[self.qps[peer].ground];
        let (first, end) = (ground.buffer.addr(), ground.buffer.addr() + ground.buffer.len() as u64);
        let key = ground.key;
        let (remote_addr, rkey) = match self.random.below(6) {
            0 => (first, ground.no_access[self.random.below(2) as usize]),
            1 if way < 2 => (first, ground.read_only),
            2 => (end + 1 - n, key),
            3 => {
                // Selective Repeat judges each packet by itself: all but the first one would be within the region, and may be placed.
                if matches!(self.qps[q].offers, Transport::Sr { .. }) {
                    data = &data[..data.len().min(self.world.mtu.bytes() as usize)];
                }
                (first - 1, key)
            }
            _ => match self.usable_window(q, 0).filter(|_| n <= WINDOW as u64 && !self.qps[q].reborn) {
                Some(w) => (self.windows[w].base + WINDOW as u64 + 1 - n, self.windows[w].key),
                None => (end, key),
            },
        };
        self.done.beyond += 1;
        let op = match way {
            0 => SendOp::Write { remote_addr, rkey },
            1 => SendOp::WriteImm { remote_addr, rkey, imm: 8 },
            _ => SendOp::Read { remote_addr, rkey },
        };
        if kind == QpKind::Rc {
            for end in [q, peer] {
                self.qps[end].dying = true;
            }
        }
        Some(Draft { refused: true, ..Draft::new(op, data.to_vec()) })
    }

    /// A message through a window is done.
    pub(super) fn window_used(&mut self, w: usize) {
        self.windows[w].uses -= 1;
    }

    /// A work request that binds a window or takes one away is done.
    pub(super) fn window_changed(&mut self, w: usize, op: &SendOp) {
        let window = &mut self.windows[w];
        match op {
            SendOp::BindWindow(_) => {
                window.state = State::Bound;
                // A key that was never bound is as good for nothing as one that was.
                window.stale.push(window.before);
            }
            _ => {
                window.state = State::Free;
                window.stale.push((window.key, window.base));
            }
        }
        self.done.windows += 1;
    }

    /// The counters of a connection that died may be anything that was on the way.
    pub(super) fn forget_counters(&mut self) {
        for w in &self.windows {
            if let (Some(area), true) = (w.counter_area, self.qps[w.owner].dying) {
                self.grounds[self.qps[w.owner].ground].expect(area, Content::Any);
            }
        }
        for qp in self.qps.iter().filter(|qp| qp.kind == QpKind::Rc && qp.dying) {
            self.grounds[qp.ground].expect(qp.counter_area, Content::Any);
        }
    }
}
