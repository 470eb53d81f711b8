//! The processes that a process trusts on a network of `shm`: those of its own user, or those of a group if the folder is the group's.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::process::{Gid, Uid, geteuid};

use super::error::ShmError;
use crate::peer::Peer;

/// The users that a process trusts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trust {
    uid: Uid,
    /// The group whose members are trusted as well.
    group: Option<Gid>,
}

impl Trust {
    /// Checks that no other user can replace a folder: a user who may rename entries of the parent folder can.
    pub(super) fn of_parent(folder: &Path) -> Result<(), ShmError> {
        let Some(parent) = folder.parent() else { return Ok(()) };
        let untrusted = |why| Err(ShmError::Untrusted { path: parent.into(), why });
        let above = fs::symlink_metadata(parent).map_err(ShmError::in_folder(parent))?;
        let sticky = above.mode() & 0o1000 != 0;
        match () {
            () if ![0, geteuid().as_raw()].contains(&above.uid()) => {
                untrusted("it belongs to another user, who may rename what lies in it")
            }
            () if above.mode() & 0o002 != 0 && !sticky => untrusted("others may rename what lies in it"),
            () => Ok(()),
        }
    }

    /// Determines the trusted users from a folder, which must be private to this user or, with `group_mode`, to a group.
    pub(super) fn of_folder(folder: &Path, group_mode: bool) -> Result<Trust, ShmError> {
        let untrusted = |why| Err(ShmError::Untrusted { path: folder.into(), why });
        Trust::of_parent(folder)?;
        let about = fs::symlink_metadata(folder).map_err(ShmError::in_folder(folder))?;
        let (uid, others, group) = (geteuid(), about.mode() & 0o007, about.mode() & 0o070);
        if !about.is_dir() {
            return untrusted("it is no folder");
        }
        if others & 0o002 != 0 {
            return untrusted("everybody may write there");
        }
        if group_mode {
            return Ok(Trust { uid, group: Some(Gid::from_raw(about.gid())) });
        }
        match () {
            () if about.uid() != uid.as_raw() => untrusted("it belongs to another user"),
            () if others | group != 0 => {
                untrusted("others may enter it; `chmod 700` it, or say by mode= that they are meant to")
            }
            () => Ok(Trust { uid, group: None }),
        }
    }

    /// The mode of files in the folder.
    pub(super) fn file_mode(self) -> u32 {
        if self.group.is_some() { 0o660 } else { 0o600 }
    }

    /// Lets all trusted users access a file, regardless of this process's umask. Only the owner of the file can change the mode, and has
    /// done so.
    pub(super) fn open_to_all(self, file: &File) -> io::Result<()> {
        match self.group.is_some() && file.metadata()?.uid() == self.uid.as_raw() {
            true => file.set_permissions(Permissions::from_mode(self.file_mode())),
            false => Ok(()),
        }
    }

    /// The process at the other end of a socket, if it is trusted. If the folder is a group's, the modes of the folder and the socket
    /// already restrict the access.
    pub(super) fn admits(self, socket: impl AsFd) -> io::Result<Option<Peer>> {
        let peer = Peer::of(socket)?;
        let trusted = peer.uid == self.uid.as_raw() || self.group.is_some();
        Ok(trusted.then_some(peer))
    }
}
