//! Completion channels: one descriptor that tells of several completion queues.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};
use softnic_nic::Notify;
use softnic_sync::cq_arm::{Batch, CqArm};

/// Where events of completion queues come together, each by the name that its queue was given ([`super::Context::create_cq_with`]).
/// Clones are the same channel.
///
/// Its descriptor ([`AsFd`]) can be read from, as poll(2) and epoll(7) see it, exactly while there are events. It is not to be read:
/// [`CompletionChannel::next_event`] takes an event.
#[derive(Clone)]
pub struct CompletionChannel(Arc<Channel>);

struct Channel {
    events: Mutex<VecDeque<u64>>,
    /// Blocking, because programs that wait by read(2)-like calls decide by O_NONBLOCK whether they wait: it is only read when there is
    /// something.
    fd: OwnedFd,
}

impl CompletionChannel {
    /// Makes a channel.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new() -> io::Result<CompletionChannel> {
        Ok(CompletionChannel(Arc::new(Channel { events: Mutex::default(), fd: eventfd(0, EventfdFlags::CLOEXEC)? })))
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.0.events.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// Takes the oldest event: the name of a completion queue that got what it was armed for. Never waits.
    pub fn next_event(&self) -> Option<u64> {
        self.next_event_with(|_| ())
    }

    /// The next event; `took` is called with the name while [`CompletionChannel::forget`] of another thread has to wait.
    pub fn next_event_with(&self, took: impl FnOnce(u64)) -> Option<u64> {
        let mut events = self.events();
        let event = events.pop_front()?;
        self.show(&events);
        took(event);
        Some(event)
    }

    /// Drops the events of a completion queue that is gone, or that was disarmed ([`super::CompletionQueue::disarm`]).
    pub fn forget(&self, name: u64) {
        let mut events = self.events();
        let before = events.len();
        events.retain(|&event| event != name);
        if events.len() < before {
            self.show(&events);
        }
    }

    fn push(&self, name: u64) {
        let mut events = self.events();
        events.push_back(name);
        if events.len() == 1 {
            // It cannot be full: it is read for every time that it is written to.
            let _ = rustix::io::write(&self.0.fd, &1u64.to_ne_bytes());
        }
    }

    /// After events were taken: the descriptor is as it is to be, because nobody else changes both meanwhile.
    fn show(&self, events: &VecDeque<u64>) {
        if events.is_empty() {
            let _ = rustix::io::read(&self.0.fd, &mut [0; 8]);
        }
    }
}

/// Readable exactly while there are events.
impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionChannel").field(&self.as_fd()).finish()
    }
}

/// A completion queue's end of its channel.
pub(crate) struct ChannelEnd {
    channel: CompletionChannel,
    name: u64,
    arm: CqArm,
    /// Of each engine, how many programs sleep: one more as long as there is an arm, because a program that armed may sleep.
    sleeping: Vec<Arc<AtomicU32>>,
}

impl ChannelEnd {
    pub(super) fn new(channel: &CompletionChannel, name: u64, sleeping: Vec<Arc<AtomicU32>>) -> ChannelEnd {
        ChannelEnd { channel: channel.clone(), name, arm: CqArm::new(sleeping.len()), sleeping }
    }

    /// Asks for one event. The caller has counted the program among those that sleep, at each engine. `missed` looks into the rings whether
    /// the event is raised at once ([`CqArm::take_missed`]).
    pub(super) fn arm(&self, what: Notify, missed: impl FnOnce(&CqArm) -> bool) {
        // Counted before the queue is armed: whoever takes the arm takes off what is there. An arm that stood before has its own count.
        if !self.arm.arm(what == Notify::Solicited) {
            self.release();
        }
        if missed(&self.arm) {
            self.raise();
        }
    }

    /// Completions were put into the ring of an engine before this.
    #[inline]
    pub(super) fn on_completions(&self, engine: usize, batch: Batch) {
        if self.arm.take_if(engine, batch) {
            self.raise();
        }
    }

    pub(super) fn replace_ring(&self, engine: usize, count: impl Fn(usize) -> usize) {
        self.arm.replace_ring(engine, count);
    }

    /// The arm was taken.
    fn raise(&self) {
        self.channel.push(self.name);
        self.release();
    }

    /// As a completion does that the queue is armed for.
    pub(super) fn raise_armed(&self) {
        if self.arm.disarm() {
            self.raise();
        }
    }

    /// The queue goes: nobody waits for it any more.
    pub(super) fn end(&self) {
        if self.arm.disarm() {
            self.release();
        }
    }

    fn release(&self) {
        for sleeping in &self.sleeping {
            sleeping.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nic_runs_by_itself_as_long_as_a_queue_is_armed() {
        let (channel, sleeping) = (CompletionChannel::new().unwrap(), [Arc::default(), Arc::default()]);
        let end = ChannelEnd::new(&channel, 1, sleeping.to_vec());
        let count = || sleeping.each_ref().map(|s| s.load(Ordering::Relaxed));
        let arm = |what| {
            sleeping.iter().for_each(|s: &Arc<AtomicU32>| {
                s.fetch_add(1, Ordering::Relaxed);
            });
            end.arm(what, |_| false);
        };
        let complete = |solicited: bool| end.on_completions(1, Batch { first: 0, solicited: solicited.then_some(1) });
        arm(Notify::Solicited);
        arm(Notify::Next);
        assert_eq!(count(), [1, 1], "armed twice is armed");
        complete(false);
        complete(true);
        assert_eq!((count(), channel.next_event(), channel.next_event()), ([0, 0], Some(1), None));
        arm(Notify::Solicited);
        complete(false);
        assert_eq!(count(), [1, 1], "what was asked for has not come");
        end.end();
        end.end();
        assert_eq!((count(), channel.next_event()), ([0, 0], None));
    }
}
