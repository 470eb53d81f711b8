//! The location of an interface's daemon: a socket named after the interface and the number of its network namespace.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect as connect_to, listen, socket_with,
};
use rustix::process::geteuid;

use super::error::ShareError;
use super::namespace;

/// The folder of the daemons' sockets. Only root may write there, so no other user can pose as a daemon.
const FOLDER: &str = "/run/softnic";
/// Backlog of clients that wait to be admitted.
const WAITING: i32 = 128;
/// How long a client waits for a reply: a port takes the daemon some milliseconds, and other clients may be served first.
const PATIENCE: Duration = Duration::from_secs(30);

/// The path of the socket of the daemon that serves an interface of this network namespace.
pub(super) fn socket_of(interface: &str) -> Result<PathBuf, ShareError> {
    let number = namespace::number().map_err(ShareError::when("look at the network namespace"))?;
    Ok(Path::new(FOLDER).join(format!("{interface}.{number}")))
}

/// The interfaces of this network namespace that a daemon serves.
pub fn served_here() -> Vec<String> {
    let Ok(number) = namespace::number() else { return Vec::new() };
    let suffix = format!(".{number}");
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let names = entries.filter_map(|e| Some(e.file_name().to_str()?.strip_suffix(&suffix)?.to_string()));
    let mut served: Vec<String> =
        names.filter(|name| socket_of(name).is_ok_and(|path| connect(name, &path).is_ok())).collect();
    served.sort_unstable();
    served
}

fn unix_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Connects to the daemon of an interface, whose socket has this path.
pub(super) fn connect(interface: &str, path: &Path) -> Result<OwnedFd, ShareError> {
    let failed = ShareError::when("connect to the daemon");
    let address = SocketAddrUnix::new(path).map_err(|_| ShareError::NotServed(interface.into()))?;
    let socket = unix_socket().map_err(&failed)?;
    trusted()?;
    for which in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, which, Some(PATIENCE)).map_err(|e| failed(e.into()))?;
    }
    match connect_to(&socket, &address) {
        Ok(()) => Ok(socket),
        Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => Err(ShareError::NotPermitted(path.into())),
        // The backlog is full.
        Err(rustix::io::Errno::AGAIN) => Err(ShareError::Silent(interface.into())),
        Err(_) => Err(ShareError::NotServed(interface.into())),
    }
}

/// Checks that only the administrator, or a user authorised by the administrator, could create sockets in the folder. If the folder does
/// not exist, no daemon runs.
fn trusted() -> Result<(), ShareError> {
    let untrusted = |why| Err(ShareError::Untrusted { path: FOLDER.into(), why });
    let Ok(folder) = fs::symlink_metadata(FOLDER) else { return Ok(()) };
    let everybody_may_write = |about: fs::Metadata| about.mode() & 0o002 != 0;
    let above = Path::new(FOLDER).parent().map(fs::symlink_metadata);
    match () {
        () if !folder.is_dir() => untrusted("it is no folder"),
        () if folder.mode() & 0o022 != 0 => untrusted("others may write there; `chmod 755` it"),
        // If any user may create folders in the parent, this folder may have been created by any user.
        () if ![0, geteuid().as_raw()].contains(&folder.uid())
            && above.is_some_and(|above| above.is_ok_and(everybody_may_write)) =>
        {
            untrusted("it belongs to another user")
        }
        () => Ok(()),
    }
}

/// Removes the files of daemons that were killed. Neither their clients nor their successors need these files.
fn sweep() {
    for path in fs::read_dir(FOLDER).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let held = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive).is_err();
        if path.extension().is_some_and(|it| it == "lock") && File::open(&path).is_ok_and(|file| !held(&file)) {
            let _ = fs::remove_file(path.with_extension(""));
            let _ = fs::remove_file(&path);
        }
    }
}

/// The place of an interface's daemon: while it is held, no other daemon can serve the interface.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    lock: PathBuf,
    _held: File,
}

impl Place {
    /// Takes the place of an interface's daemon.
    pub(super) fn take(interface: &str) -> Result<Place, ShareError> {
        let failed = ShareError::when("use the folder /run/softnic");
        DirBuilder::new().recursive(true).mode(0o755).create(FOLDER).map_err(&failed)?;
        trusted()?;
        sweep();
        let path = socket_of(interface)?;
        let mut lock = path.clone().into_os_string();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o644);
        let mut held = loop {
            let mut file = options.open(&lock).map_err(&failed)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                return Err(ShareError::Served { interface: interface.into(), pid: pid.trim().into() });
            }
            // Another process that sweeps may have removed the file just now.
            if fs::metadata(&lock).is_ok_and(|there| file.metadata().is_ok_and(|it| it.ino() == there.ino())) {
                break file;
            }
        };
        held.set_len(0).map_err(&failed)?;
        writeln!(held, "{}", std::process::id()).map_err(&failed)?;
        Ok(Place { path, lock, _held: held })
    }

    /// Listens for clients, on a socket with this group and mode.
    pub(super) fn listen(&self, group: Option<u32>, mode: u32) -> Result<OwnedFd, ShareError> {
        let failed = ShareError::when("listen for clients in /run/softnic");
        // Removes the socket of a daemon that was killed.
        let _ = fs::remove_file(&self.path);
        let listener = unix_socket().map_err(&failed)?;
        let bound = SocketAddrUnix::new(&self.path).and_then(|address| bind(&listener, &address));
        bound.map_err(|e| failed(e.into()))?;
        // No client can connect before `listen`, and by then group and mode are set.
        chown(&self.path, None, group).map_err(&failed)?;
        fs::set_permissions(&self.path, Permissions::from_mode(mode)).map_err(&failed)?;
        listen(&listener, WAITING).map_err(|e| failed(e.into()))?;
        rustix::io::ioctl_fionbio(&listener, true).map_err(|e| failed(e.into()))?;
        Ok(listener)
    }

    /// Removes the socket: no client finds the daemon any more.
    pub(super) fn close(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.close();
        let _ = fs::remove_file(&self.lock);
    }
}
