//! Why a process cannot join a network of `shm`.

use std::io;
use std::path::{Path, PathBuf};

use softnic_nic::sharing::Process;

use crate::remedy::{no_descriptors, remedy};

/// Why a process cannot join a network of `shm`.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// The folder cannot be created or used.
    #[error("cannot use the folder {}: {error}; set XDG_RUNTIME_DIR to one that is yours, or name one: shm:/path/to/folder", path.display())]
    Folder {
        /// The path of the folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The folder belongs to another user, or other users may enter it.
    #[error("{} is not to be trusted: {why}", path.display())]
    Untrusted {
        /// The path of the folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another version of softnic uses the network.
    #[error("{} is in use by another version of softnic, whose rings are of another kind ({theirs} instead of {ours}): end its processes, or take another name, as in shm:mine", path.display())]
    Version {
        /// The folder.
        path: PathBuf,
        /// The version of the processes on the network.
        theirs: String,
        /// The version of this process.
        ours: &'static str,
    },
    /// All process numbers are taken.
    #[error(
        "there are {} processes on this network already, and no more can be told apart: take another one, as in shm:mine",
        Process::COUNT
    )]
    Full,
    /// Another process holds the folder's lock and does not release it.
    #[error("a process holds the lock {} and does not let go of it", .0.display())]
    Locked(PathBuf),
    /// The folder's name is too long for sockets in it.
    #[error("the name of the folder {} is too long for sockets in it", .0.display())]
    TooLong(PathBuf),
    /// The system refused a descriptor, a thread or memory.
    #[error("the system refused a descriptor, a thread or memory: {0}{remedy}", remedy = remedy(.0))]
    System(#[from] io::Error),
}

impl ShmError {
    /// Maps an error in a folder, for use with `map_err`. If no file descriptor is left, another folder would not help.
    pub(super) fn in_folder(folder: &Path) -> impl Fn(io::Error) -> ShmError {
        move |error| match no_descriptors(&error) {
            true => ShmError::System(error),
            false => ShmError::Folder { path: folder.into(), error },
        }
    }
}
