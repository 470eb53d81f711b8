//! The name of a network in shared memory, and the location of its folder.

use std::env;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::process::geteuid;

use super::directory::Directory;
use super::error::ShmError;
use crate::host_network::{HostNetwork, HostNetworkError, Interface};

/// The name of the network if none is given.
const DEFAULT: &str = "default";
/// Bytes left for the folder in the longest name of a socket (`sun_path`), without the terminator and the name in the folder.
const SOCKET_NAME: usize = 108 - 1 - "/0000".len();

/// A network: `shm`, `shm:NAME` or `shm:/FOLDER`, with `,mode=0770` if a group shares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShmSpec {
    name: String,
    pub(super) mode: Option<u32>,
}

/// Why the name of a network was rejected.
#[derive(Debug, thiserror::Error)]
pub enum ShmSpecError {
    /// The name is not valid.
    #[error("`{0}` cannot name a network: write shm, shm:NAME with letters, digits, `.`, `-` and `_`, or shm:/FOLDER")]
    Name(String),
    /// The mode is not valid.
    #[error("`{0}` is no mode of a folder that a group shares: write mode=0770")]
    Mode(String),
    /// A mode was given without a folder; the default folder is private to the user.
    #[error("a network that a group shares needs a folder that the group can reach: shm:/FOLDER,mode=0770")]
    ModeWithoutFolder,
}

impl ShmSpec {
    /// Parses the text after `shm` and the colon.
    pub(crate) fn parse(name: Option<&str>, mode: Option<&str>) -> Result<ShmSpec, ShmSpecError> {
        let name = name.unwrap_or(DEFAULT);
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
        let is_name = !name.is_empty() && name.len() <= 64 && name.chars().all(plain) && !name.starts_with('.');
        let is_folder = Path::new(name).is_absolute() && Path::new(name).file_name().is_some();
        if !is_name && !is_folder {
            return Err(ShmSpecError::Name(name.into()));
        }
        let parse_mode = |text: &str| {
            let mode = u32::from_str_radix(text.trim_start_matches("0o"), 8).ok();
            // The group needs all permissions to connect with each other; all other users must have none.
            mode.filter(|mode| mode & 0o770 == 0o770 && mode & !0o770 == 0)
                .ok_or_else(|| ShmSpecError::Mode(text.into()))
        };
        let mode = mode.map(parse_mode).transpose()?;
        if mode.is_some() && !is_folder {
            return Err(ShmSpecError::ModeWithoutFolder);
        }
        Ok(ShmSpec { name: name.into(), mode })
    }

    /// The addresses of all processes on the network: those of loopback, and those of the interface with the network's name, if there is
    /// one.
    ///
    /// # Errors
    /// When the kernel does not report the addresses of the interface.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, HostNetworkError> {
        let mut addresses = vec![IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        if Interface::names()?.contains(&self.name) && self.name != "lo" {
            addresses.extend(HostNetwork::open(&self.name)?.addresses());
        }
        Ok(addresses)
    }

    /// Whether the network can be joined, as far as that can be tested without joining.
    ///
    /// # Errors
    /// As for joining the network.
    pub fn check(&self) -> Result<(), ShmError> {
        Directory::check(&self.folder()?, self.mode)
    }

    /// The location of the folder: the user's runtime folder, which exists as long as the user is logged in, or else a folder in /tmp.
    pub(super) fn folder(&self) -> Result<PathBuf, ShmError> {
        let uid = geteuid().as_raw();
        let is_own = |path: &PathBuf| fs::metadata(path).is_ok_and(|about| about.is_dir() && about.uid() == uid);
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let runtime = runtime.filter(is_own).or_else(|| Some(format!("/run/user/{uid}").into()).filter(is_own));
        let folder = match runtime {
            _ if self.name.starts_with('/') => PathBuf::from(&self.name),
            Some(runtime) => runtime.join("softnic").join(&self.name),
            None => Path::new("/tmp").join(format!("softnic-{uid}")).join(&self.name),
        };
        match folder.as_os_str().as_bytes().len() <= SOCKET_NAME {
            true => Ok(folder),
            false => Err(ShmError::TooLong(folder)),
        }
    }
}

impl Default for ShmSpec {
    fn default() -> ShmSpec {
        ShmSpec { name: DEFAULT.into(), mode: None }
    }
}

impl FromStr for ShmSpec {
    type Err = ShmSpecError;

    fn from_str(s: &str) -> Result<ShmSpec, ShmSpecError> {
        ShmSpec::parse((!s.is_empty()).then_some(s), None)
    }
}

impl fmt::Display for ShmSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name.as_str(), self.mode) {
            (DEFAULT, _) => f.write_str("shm"),
            (name, None) => write!(f, "shm:{name}"),
            (name, Some(mode)) => write!(f, "shm:{name},mode={mode:04o}"),
        }
    }
}
