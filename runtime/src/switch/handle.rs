//! What other threads ask of a switch: answered by its own thread between two turns, from a list that is looked at only
//! when somebody put something there.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use softnic_switch::GroupReport;
use softnic_switch::group::{GroupError, GroupSpec};
use softnic_wire::Qpn;

use super::report::Report;
use crate::locked::lock;
use crate::wake::Wake;

/// Places of the table of groups that are looked at between two turns.
pub(super) const PAGE: usize = 256;
/// The switch's thread looks at least this often.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a switch did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It makes no sense, is there already, is not there, or does not fit.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// It is no more.
    #[error("the switch has ended")]
    Ended,
}

/// What a switch is asked for, and where the answer goes.
pub(super) enum Command {
    Add(Box<GroupSpec>, SyncSender<Result<(), GroupError>>),
    Remove(IpAddr, Qpn, SyncSender<Result<(), GroupError>>),
    /// Those in [`PAGE`] places of the table from one on; and whether there are more.
    Groups(usize, SyncSender<(Vec<GroupReport>, bool)>),
}

/// State shared by the thread and others.
#[derive(Debug)]
pub(super) struct Shared {
    stop: AtomicBool,
    pub(super) wake: Wake,
    commands: Mutex<VecDeque<Command>>,
    pending: AtomicBool,
    report: Mutex<Arc<Report>>,
    notices: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Command")
    }
}

impl Shared {
    pub(super) fn new() -> io::Result<Shared> {
        Ok(Shared {
            stop: AtomicBool::new(false),
            wake: Wake::new()?,
            commands: Mutex::default(),
            pending: AtomicBool::new(false),
            report: Mutex::default(),
            notices: Mutex::default(),
        })
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.wake();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Whether somebody asks for something.
    #[inline]
    pub(super) fn is_asked(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }

    /// The next thing that is asked for.
    pub(super) fn take_command(&self) -> Option<Command> {
        let mut commands = lock(&self.commands);
        let command = commands.pop_front();
        self.pending.store(!commands.is_empty(), Ordering::Release);
        command
    }

    pub(super) fn show(&self, report: Report) {
        let report = Arc::new(report);
        // The old one is freed behind the lock.
        let _old = std::mem::replace(&mut *lock(&self.report), report);
    }

    /// Something that a person is to read.
    pub(super) fn notice(&self, text: String) {
        let mut notices = lock(&self.notices);
        if notices.len() < PAGE {
            notices.push(text);
        }
    }
}

/// A switch, for other threads.
#[derive(Debug, Clone)]
pub struct Handle(pub(super) Arc<Shared>);

impl Handle {
    /// Adds a group.
    ///
    /// # Errors
    /// When it makes no sense, is there, or does not fit: then all is as before.
    pub fn add_group(&self, spec: GroupSpec) -> Result<(), CommandError> {
        Ok(self.ask(|answer| Command::Add(Box::new(spec), answer))??)
    }

    /// Removes a group. Copies in queues still leave.
    ///
    /// # Errors
    /// When there is none.
    pub fn remove_group(&self, sender: IpAddr, mc_id: Qpn) -> Result<(), CommandError> {
        Ok(self.ask(|answer| Command::Remove(sender, mc_id, answer))??)
    }

    /// All groups as they are; one that is added meanwhile may be left out.
    ///
    /// # Errors
    /// When the switch has ended.
    pub fn groups(&self) -> Result<Vec<GroupReport>, CommandError> {
        let mut all = Vec::new();
        for from in (0..).step_by(PAGE) {
            let (page, more) = self.ask(|answer| Command::Groups(from, answer))?;
            all.extend(page);
            if !more {
                break;
            }
        }
        Ok(all)
    }

    /// Counters of a moment ago; of groups the first 64.
    pub fn report(&self) -> Arc<Report> {
        Arc::clone(&lock(&self.0.report))
    }

    /// What was to be told to a person since the last call: interfaces that went, or came back.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.0.notices))
    }

    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, CommandError> {
        let (sender, answer) = sync_channel(1);
        lock(&self.0.commands).push_back(command(sender));
        self.0.pending.store(true, Ordering::Release);
        self.0.wake.wake_sleeper();
        answer.recv_timeout(PATIENCE).map_err(|_| CommandError::Ended)
    }
}
