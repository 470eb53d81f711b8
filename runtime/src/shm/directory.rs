//! The folder of a network in which processes find each other: who is there, and who listens to what.
//!
//! Each process has a socket there, named by its number; who wants to send to it connects and hands it a ring. A service that somebody listens to is
//! a file with the number of its owner, and so is a membership of a group. There is nobody who must be asked, so nobody whose death must be noticed: a
//! socket says by itself whether its process lives, and what the dead left behind is removed by whoever wants its place. Changes are made under a lock of the whole
//! folder; who only looks takes none.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use softnic_nic::sharing::Process;
use softnic_wire::mad::ip_cm::ServiceId;

use super::error::ShmError;
use super::trust::Trust;
use crate::locked::lock;
use crate::remedy::no_descriptors;

/// What the first line of the lock file begins with. Whoever changes the rings, the folder or what is said at a meeting changes it.
const VERSION: &str = "softnic shm 1";
/// How long to wait for the folder's lock, which is held for microseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Sockets that are looked at when somebody joins, to remove what the dead left behind.
const SWEPT: usize = 64;
/// How long a list of the members of groups is good for.
const MEMBERS_FRESH: Duration = Duration::from_millis(1);

/// The network of a process, and the process's place in it.
#[derive(Debug)]
pub(crate) struct Directory {
    folder: PathBuf,
    trust: Trust,
    lock: File,
    me: Process,
    /// The process that joined: a child that it forks is not on the network.
    pid: u32,
    /// Services and groups that are this process's, and for how many reasons.
    claims: Mutex<HashMap<String, usize>>,
    left: AtomicBool,
    members: Mutex<Members>,
}

/// The members of all groups as they were a moment ago.
#[derive(Debug, Default)]
struct Members {
    read_at: Option<Instant>,
    of: HashMap<IpAddr, Vec<Process>>,
}

/// The folder is locked as long as this lives.
struct Locked<'a>(&'a File);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // It was locked, so it can be unlocked.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

impl Directory {
    /// Whether a folder can be one of a network; it is made if it is not there.
    pub(super) fn check(folder: &Path, mode: Option<u32>) -> Result<(), ShmError> {
        Directory::trusted(folder, mode).map(|_| ())
    }

    fn trusted(folder: &Path, mode: Option<u32>) -> Result<Trust, ShmError> {
        if let Err(error) = make_folder(folder, mode) {
            // Somebody else's is the better reason.
            let untrusted = Trust::of_parent(folder).err().filter(|why| matches!(why, ShmError::Untrusted { .. }));
            return Err(untrusted.unwrap_or_else(|| ShmError::in_folder(folder)(error)));
        }
        Trust::of_folder(folder, mode.is_some())
    }

    /// Joins the network in a folder, which is made if it is not there: a number, and the socket at which others meet this process.
    pub(crate) fn join(folder: &Path, mode: Option<u32>) -> Result<(Directory, UnixListener), ShmError> {
        let failed = ShmError::in_folder(folder);
        let trust = Directory::trusted(folder, mode)?;
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .mode(trust.file_mode())
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(folder.join("lock"))
            .map_err(&failed)?;
        trust.open_to_all(&lock).map_err(&failed)?;
        let mut directory = Directory {
            folder: folder.into(),
            trust,
            lock,
            me: Process::FIRST,
            pid: std::process::id(),
            claims: Mutex::default(),
            // Until it has a number, what it would leave is another's.
            left: AtomicBool::new(true),
            members: Mutex::default(),
        };
        let listener = directory.take_number()?;
        Ok((directory, listener))
    }

    /// This process.
    pub(crate) fn me(&self) -> Process {
        self.me
    }

    /// Whom this process trusts as a peer.
    pub(super) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The folder's descriptor, for whoever closes it in a child.
    pub(super) fn descriptor(&self) -> RawFd {
        self.lock.as_raw_fd()
    }

    fn locked(&self) -> Result<Locked<'_>, ShmError> {
        let begin = Instant::now();
        while let Err(error) = flock(&self.lock, FlockOperation::NonBlockingLockExclusive) {
            if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
                return Err(ShmError::System(error.into()));
            }
            if begin.elapsed() > PATIENCE {
                return Err(ShmError::Locked(self.folder.join("lock")));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(Locked(&self.lock))
    }

    /// Takes the first number behind the one that was given out last that nobody has: so a number rests as long as there are others.
    fn take_number(&mut self) -> Result<UnixListener, ShmError> {
        let failed = ShmError::in_folder(&self.folder);
        let locked = self.locked()?;
        let mut text = String::new();
        (&self.lock).rewind()?;
        // Something else than text is another version's, too.
        let _ = (&self.lock).take(256).read_to_string(&mut text);
        let last = self.last_number(&text)?;
        let mut candidate = last.next();
        let listener = loop {
            if let Some(listener) = self.bind(candidate).map_err(&failed)? {
                break listener;
            }
            candidate = candidate.next();
            if candidate == last.next() {
                return Err(ShmError::Full);
            }
        };
        self.sweep(candidate)?;
        (&self.lock).rewind()?;
        writeln!(&self.lock, "{VERSION}, last {:04}", candidate.number())?;
        drop(locked);
        (self.me, self.left) = (candidate, AtomicBool::new(false));
        Ok(listener)
    }

    /// Removes what the dead left behind, some of it at a time, and what the last owner of a number claimed. The folder is locked.
    fn sweep(&self, taken: Process) -> io::Result<()> {
        let (mut looked_at, mut dead) = (0, Vec::new());
        for process in self.processes()? {
            looked_at += 1;
            if process != taken && looked_at <= SWEPT && !self.is_alive(process) {
                // Who cannot be removed stays dead.
                let _ = fs::remove_file(self.socket_of(process));
                dead.push(process);
            }
        }
        for (name, owner) in self.entries()? {
            if owner == taken || dead.contains(&owner) {
                let _ = fs::remove_file(self.folder.join(name));
            }
        }
        for &owner in dead.iter().chain([&taken]) {
            let _ = fs::remove_file(self.unfinished_claim_of(owner));
        }
        Ok(())
    }

    /// All that have a socket, alive or not.
    fn processes(&self) -> io::Result<Vec<Process>> {
        let names = fs::read_dir(&self.folder)?.flatten().map(|entry| entry.file_name());
        Ok(names.filter_map(|name| Process::new(name.to_str()?.parse().ok()?)).collect())
    }

    /// The number that was given out last, by what the lock file says.
    fn last_number(&self, text: &str) -> Result<Process, ShmError> {
        let known = text.trim().strip_prefix(VERSION).and_then(|rest| rest.strip_prefix(", last "));
        match known {
            Some(number) => Ok(number.parse().ok().and_then(Process::new).unwrap_or(Process::LAST)),
            None if text.trim().is_empty() => Ok(Process::LAST),
            // Nobody of that version lives any more: the folder is ours.
            None if !self.is_anybody_there()? => Ok(Process::LAST),
            None => {
                let theirs = text.chars().filter(|c| !c.is_control()).take_while(|&c| c != ',').take(40).collect();
                Err(ShmError::Version { path: self.folder.clone(), theirs, ours: VERSION })
            }
        }
    }

    fn is_anybody_there(&self) -> io::Result<bool> {
        Ok(self.processes()?.into_iter().any(|process| self.is_alive(process)))
    }

    /// The socket of a process.
    fn socket_of(&self, process: Process) -> PathBuf {
        self.folder.join(format!("{:04}", process.number()))
    }

    /// Makes the socket of a number; `None` when a live process has it. The folder is locked.
    fn bind(&self, process: Process) -> io::Result<Option<UnixListener>> {
        let path = self.socket_of(process);
        if fs::symlink_metadata(&path).is_ok() {
            if self.is_alive(process) {
                return Ok(None);
            }
            fs::remove_file(&path)?;
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(self.trust.file_mode()))?;
        listener.set_nonblocking(true)?;
        Ok(Some(listener))
    }

    /// Whether the process of a number lives: its socket is taken care of.
    fn is_alive(&self, process: Process) -> bool {
        // A queue of meetings that is full is a sign of life, too.
        !self.connect(process).is_err_and(|error| is_gone(&error))
    }

    /// A connection to a process; never waits.
    pub(super) fn connect(&self, process: Process) -> io::Result<std::os::unix::net::UnixStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(self.socket_of(process))?)?;
        Ok(socket.into())
    }

    /// Claims a service for this process; `false` when another one has it.
    pub(crate) fn claim(&self, service: ServiceId) -> Result<bool, ShmError> {
        let name = service_name(service);
        let mut claims = lock(&self.claims);
        if let Some(reasons) = claims.get_mut(&name) {
            *reasons += 1;
            return Ok(true);
        }
        let _locked = self.locked()?;
        let path = self.folder.join(&name);
        if let Some(owner) = read_owner(&path)?
            && owner != self.me
            && self.is_alive(owner)
        {
            return Ok(false);
        }
        self.write_owner(&path)?;
        claims.insert(name, 1);
        Ok(true)
    }

    /// Gives a service back.
    pub(crate) fn release(&self, service: ServiceId) {
        self.drop_claim(&service_name(service));
    }

    /// This process has a member of a group.
    fn join_group(&self, group: IpAddr) -> Result<(), ShmError> {
        let name = self.member_name(group);
        let mut claims = lock(&self.claims);
        let reasons = claims.entry(name.clone()).or_default();
        *reasons += 1;
        if *reasons == 1 {
            self.write_owner(&self.folder.join(name))?;
        }
        Ok(())
    }

    /// One member less.
    fn leave_group(&self, group: IpAddr) {
        self.drop_claim(&self.member_name(group));
    }

    fn drop_claim(&self, name: &str) {
        let mut claims = lock(&self.claims);
        let Some(reasons) = claims.get_mut(name) else { return };
        *reasons -= 1;
        if *reasons == 0 {
            claims.remove(name);
            // It is this process's own: nobody takes it while the process lives.
            let _ = fs::remove_file(self.folder.join(name));
        }
    }

    /// Where a process writes a claim before it has its name.
    fn unfinished_claim_of(&self, process: Process) -> PathBuf {
        self.folder.join(format!("new-{:04}", process.number()))
    }

    fn write_owner(&self, path: &Path) -> io::Result<()> {
        // In one step: who looks finds the owner before, or this one.
        let new = self.unfinished_claim_of(self.me);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(self.trust.file_mode())
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(&new)?;
        write!(file, "{:04}", self.me.number())?;
        self.trust.open_to_all(&file)?;
        fs::rename(&new, path)
    }

    /// Who listens to a service.
    ///
    /// # Errors
    /// When that cannot be told: no descriptor is left, say.
    pub(super) fn owner_of(&self, service: ServiceId) -> io::Result<Option<Process>> {
        read_owner(&self.folder.join(service_name(service)))
    }

    /// Adds the other processes that have members of a group to `to`.
    pub(super) fn members(&self, group: IpAddr, to: &mut Vec<Process>) {
        let mut members = lock(&self.members);
        if members.read_at.is_none_or(|at| at.elapsed() > MEMBERS_FRESH) {
            members.of.clear();
            for (name, owner) in self.entries().into_iter().flatten() {
                let group = name.strip_prefix("group-").and_then(|n| n.rsplit_once('-')?.0.parse().ok());
                if let Some(group) = group {
                    members.of.entry(group).or_default().push(owner);
                }
            }
            members.read_at = Some(Instant::now());
        }
        to.extend(members.of.get(&group).into_iter().flatten().filter(|&&process| process != self.me));
    }

    /// All claims, with their owners.
    fn entries(&self) -> io::Result<impl Iterator<Item = (String, Process)> + '_> {
        let names = fs::read_dir(&self.folder)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let claims = names.filter(|name| name.starts_with("service-") || name.starts_with("group-"));
        Ok(claims
            .filter_map(|name| Some((read_owner(&self.folder.join(&name)).ok()??, name)))
            .map(|(owner, name)| (name, owner)))
    }

    /// Nobody finds this process any more; those who have, still reach it.
    pub(crate) fn leave(&self) {
        if std::process::id() != self.pid {
            return;
        }
        // What cannot be removed is found dead by others.
        for (name, _) in lock(&self.claims).drain() {
            let _ = fs::remove_file(self.folder.join(name));
        }
        // Once: behind this, another process may have the number.
        if !self.left.swap(true, Ordering::Relaxed) {
            let _ = fs::remove_file(self.socket_of(self.me));
        }
    }

    fn member_name(&self, group: IpAddr) -> String {
        format!("group-{group}-{:04}", self.me.number())
    }
}

/// A member of a group, as long as this lives.
#[derive(Debug)]
pub(crate) struct GroupMember {
    directory: Arc<Directory>,
    group: IpAddr,
}

impl GroupMember {
    /// This process has one more member of a group.
    pub(crate) fn join(directory: &Arc<Directory>, group: IpAddr) -> Result<GroupMember, ShmError> {
        directory.join_group(group)?;
        Ok(GroupMember { directory: Arc::clone(directory), group })
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        self.directory.leave_group(self.group);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Whether nobody is behind a socket that could not be connected to.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}

fn service_name(service: ServiceId) -> String {
    format!("service-{:016x}", service.0)
}

/// The process that a file names; `None` where there is no file, or it names nobody.
fn read_owner(path: &Path) -> io::Result<Option<Process>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        // Whose file it is must not be guessed.
        Err(error) if no_descriptors(&error) => return Err(error),
        Err(_) => return Ok(None),
        Ok(file) => file,
    };
    let mut text = String::new();
    let read = file.take(16).read_to_string(&mut text).is_ok();
    Ok(text.trim().parse().ok().filter(|_| read).and_then(Process::new))
}

/// Makes the folder, and those above it, which are the user's own.
fn make_folder(folder: &Path, mode: Option<u32>) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    match DirBuilder::new().mode(mode.unwrap_or(0o700)).create(folder) {
        // Whatever the mask of this process is. Files get the folder's group.
        Ok(()) => match mode {
            Some(mode) => fs::set_permissions(folder, Permissions::from_mode(mode | 0o2000)),
            None => Ok(()),
        },
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}
