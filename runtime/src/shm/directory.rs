//! The folder of a network, in which processes find each other: which processes are present, and which process listens to which service.
//!
//! Each process has a socket in the folder, named by its number. A process that wants to send to it connects to the socket and hands over a
//! ring. A service that a process listens to is a file that contains the owner's number; so is a group membership. There is no central
//! process, so no process must watch for the end of one: a socket itself shows whether its process is alive, and the files of an ended
//! process are removed by the process that needs their place. Changes are made under a lock of the whole folder; readers take no lock.

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

/// The start of the first line in the lock file. It must change with the format of the rings, of the folder, or of the ring transfer.
const VERSION: &str = "softnic shm 1";
/// How long to wait for the folder's lock, which is held for microseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of sockets that are checked when a process joins, to remove the files of ended processes.
const SWEPT: usize = 64;
/// How long a cached list of group members stays valid.
const MEMBERS_FRESH: Duration = Duration::from_millis(1);

/// The network of a process, and the process's place in it.
#[derive(Debug)]
pub(crate) struct Directory {
    folder: PathBuf,
    trust: Trust,
    lock: File,
    me: Process,
    /// The process that joined. A child that it forks is not on the network.
    pid: u32,
    /// The services and groups that this process has claimed, with the number of users of each.
    claims: Mutex<HashMap<String, usize>>,
    left: AtomicBool,
    members: Mutex<Members>,
}

/// The cached members of all groups.
#[derive(Debug, Default)]
struct Members {
    read_at: Option<Instant>,
    of: HashMap<IpAddr, Vec<Process>>,
}

/// Holds the lock of the folder while this value lives.
struct Locked<'a>(&'a File);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // The lock is held, so the unlock succeeds.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

impl Directory {
    /// Whether a folder can be used for a network; creates the folder if it does not exist.
    pub(super) fn check(folder: &Path, mode: Option<u32>) -> Result<(), ShmError> {
        Directory::trusted(folder, mode).map(|_| ())
    }

    fn trusted(folder: &Path, mode: Option<u32>) -> Result<Trust, ShmError> {
        if let Err(error) = make_folder(folder, mode) {
            // If the folder belongs to another user, that is the more useful error.
            let untrusted = Trust::of_parent(folder).err().filter(|why| matches!(why, ShmError::Untrusted { .. }));
            return Err(untrusted.unwrap_or_else(|| ShmError::in_folder(folder)(error)));
        }
        Trust::of_folder(folder, mode.is_some())
    }

    /// Joins the network in a folder, which is created if it does not exist. Returns the process's place, and the socket at which other
    /// processes connect.
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
            // Until the process has a number, it must not remove the files of another process.
            left: AtomicBool::new(true),
            members: Mutex::default(),
        };
        let listener = directory.take_number()?;
        Ok((directory, listener))
    }

    /// The number of this process.
    pub(crate) fn me(&self) -> Process {
        self.me
    }

    /// The users that this process trusts as peers.
    pub(super) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The descriptor of the folder's lock file, to be closed in a forked child.
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

    /// Takes the next free number after the last one given out, so that a number is not reused while other numbers are free.
    fn take_number(&mut self) -> Result<UnixListener, ShmError> {
        let failed = ShmError::in_folder(&self.folder);
        let locked = self.locked()?;
        let mut text = String::new();
        (&self.lock).rewind()?;
        // Contents that are not text also mean another version.
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

    /// Removes the files of ended processes, some of them at a time, and the claims of the previous owner of a number. The folder must be
    /// locked.
    fn sweep(&self, taken: Process) -> io::Result<()> {
        let (mut looked_at, mut dead) = (0, Vec::new());
        for process in self.processes()? {
            looked_at += 1;
            if process != taken && looked_at <= SWEPT && !self.is_alive(process) {
                // If the socket cannot be removed, its process still counts as ended.
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

    /// All processes that have a socket, whether they are alive or not.
    fn processes(&self) -> io::Result<Vec<Process>> {
        let names = fs::read_dir(&self.folder)?.flatten().map(|entry| entry.file_name());
        Ok(names.filter_map(|name| Process::new(name.to_str()?.parse().ok()?)).collect())
    }

    /// The number that was given out last, according to the lock file.
    fn last_number(&self, text: &str) -> Result<Process, ShmError> {
        let known = text.trim().strip_prefix(VERSION).and_then(|rest| rest.strip_prefix(", last "));
        match known {
            Some(number) => Ok(number.parse().ok().and_then(Process::new).unwrap_or(Process::LAST)),
            None if text.trim().is_empty() => Ok(Process::LAST),
            // No process of the other version is alive, so the folder is taken over.
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

    /// The path of a process's socket.
    fn socket_of(&self, process: Process) -> PathBuf {
        self.folder.join(format!("{:04}", process.number()))
    }

    /// Creates the socket of a number; returns `None` if a live process has the number. The folder must be locked.
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

    /// Whether the process of a number is alive, that is, whether its socket accepts connections.
    fn is_alive(&self, process: Process) -> bool {
        // A full backlog is also a sign of life.
        !self.connect(process).is_err_and(|error| is_gone(&error))
    }

    /// Connects to a process; never waits.
    pub(super) fn connect(&self, process: Process) -> io::Result<std::os::unix::net::UnixStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(self.socket_of(process))?)?;
        Ok(socket.into())
    }

    /// Claims a service for this process; returns `false` if another process has it.
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

    /// Releases a service.
    pub(crate) fn release(&self, service: ServiceId) {
        self.drop_claim(&service_name(service));
    }

    /// Adds a member of a group to this process.
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

    /// Removes a member of a group from this process.
    fn leave_group(&self, group: IpAddr) {
        self.drop_claim(&self.member_name(group));
    }

    fn drop_claim(&self, name: &str) {
        let mut claims = lock(&self.claims);
        let Some(reasons) = claims.get_mut(name) else { return };
        *reasons -= 1;
        if *reasons == 0 {
            claims.remove(name);
            // The claim belongs to this process; no other process takes it over while this process is alive.
            let _ = fs::remove_file(self.folder.join(name));
        }
    }

    /// The path at which a process writes a claim before it renames the file.
    fn unfinished_claim_of(&self, process: Process) -> PathBuf {
        self.folder.join(format!("new-{:04}", process.number()))
    }

    fn write_owner(&self, path: &Path) -> io::Result<()> {
        // The rename is atomic: a reader finds either the previous owner or this process.
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

    /// The process that listens to a service.
    ///
    /// # Errors
    /// When that cannot be determined, for example because no file descriptor is left.
    pub(super) fn owner_of(&self, service: ServiceId) -> io::Result<Option<Process>> {
        read_owner(&self.folder.join(service_name(service)))
    }

    /// Appends the other processes that have members of a group to `to`.
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

    /// Removes this process from the folder: no process finds it any more, but existing rings continue to work.
    pub(crate) fn leave(&self) {
        if std::process::id() != self.pid {
            return;
        }
        // Files that cannot be removed are recognised by others as those of an ended process.
        for (name, _) in lock(&self.claims).drain() {
            let _ = fs::remove_file(self.folder.join(name));
        }
        // Only once: afterwards, another process may have the number.
        if !self.left.swap(true, Ordering::Relaxed) {
            let _ = fs::remove_file(self.socket_of(self.me));
        }
    }

    fn member_name(&self, group: IpAddr) -> String {
        format!("group-{group}-{:04}", self.me.number())
    }
}

/// A group membership, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct GroupMember {
    directory: Arc<Directory>,
    group: IpAddr,
}

impl GroupMember {
    /// Adds a member of a group to this process.
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

/// Whether an error of `connect` means that no process is behind the socket.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}

fn service_name(service: ServiceId) -> String {
    format!("service-{:016x}", service.0)
}

/// The process that a file names; `None` if the file does not exist, or names no process.
fn read_owner(path: &Path) -> io::Result<Option<Process>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        // The owner of the file must not be guessed.
        Err(error) if no_descriptors(&error) => return Err(error),
        Err(_) => return Ok(None),
        Ok(file) => file,
    };
    let mut text = String::new();
    let read = file.take(16).read_to_string(&mut text).is_ok();
    Ok(text.trim().parse().ok().filter(|_| read).and_then(Process::new))
}

/// Creates the folder and its parents. The parents are private to the user.
fn make_folder(folder: &Path, mode: Option<u32>) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    match DirBuilder::new().mode(mode.unwrap_or(0o700)).create(folder) {
        // Regardless of this process's umask. Files get the folder's group.
        Ok(()) => match mode {
            Some(mode) => fs::set_permissions(folder, Permissions::from_mode(mode | 0o2000)),
            None => Ok(()),
        },
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}
