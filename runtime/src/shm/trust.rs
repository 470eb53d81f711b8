//! Whom a process trusts on a network of `shm`: its own user, or a group where the folder is the group's.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::process::{Gid, Uid, geteuid};

use super::error::ShmError;
use crate::peer::Peer;

/// Whom a process trusts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trust {
    uid: Uid,
    /// The group whose members are trusted, too.
    group: Option<Gid>,
}

impl Trust {
    /// Sees that nobody else can put another folder in the place of one: who may rename what lies above it can.
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

    /// By a folder, which must be this user's alone, or, if that is wanted, a group's.
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

    /// The mode of files there.
    pub(super) fn file_mode(self) -> u32 {
        if self.group.is_some() { 0o660 } else { 0o600 }
    }

    /// Lets all who are trusted use a file, whatever the mask of this process is. Only its owner can, and did.
    pub(super) fn open_to_all(self, file: &File) -> io::Result<()> {
        match self.group.is_some() && file.metadata()?.uid() == self.uid.as_raw() {
            true => file.set_permissions(Permissions::from_mode(self.file_mode())),
            false => Ok(()),
        }
    }

    /// The process at the other end of a socket, if it is trusted. Where the folder is a group's, the system asked by the modes of folder and socket
    /// who may be there.
    pub(super) fn admits(self, socket: impl AsFd) -> io::Result<Option<Peer>> {
        let peer = Peer::of(socket)?;
        let trusted = peer.uid == self.uid.as_raw() || self.group.is_some();
        Ok(trusted.then_some(peer))
    }
}
