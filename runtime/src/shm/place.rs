//! The name of a network in shared memory, and where its folder is.

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

/// The network where none is named.
const DEFAULT: &str = "default";
/// Bytes of the longest name of a socket (`sun_path`), its end, and the name in the folder.
const SOCKET_NAME: usize = 108 - 1 - "/0000".len();

/// A network: `shm`, `shm:NAME`, `shm:/FOLDER`, with `,mode=0770` where a group shares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShmSpec {
    name: String,
    pub(super) mode: Option<u32>,
}

/// Why the name of a network was not understood.
#[derive(Debug, thiserror::Error)]
pub enum ShmSpecError {
    /// Not a name.
    #[error("`{0}` cannot name a network: write shm, shm:NAME with letters, digits, `.`, `-` and `_`, or shm:/FOLDER")]
    Name(String),
    /// Not a mode.
    #[error("`{0}` is no mode of a folder that a group shares: write mode=0770")]
    Mode(String),
    /// The folder of a user is the user's.
    #[error("a network that a group shares needs a folder that the group can reach: shm:/FOLDER,mode=0770")]
    ModeWithoutFolder,
}

impl ShmSpec {
    /// What is behind `shm` and the colon.
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
            // The group may do all, or it cannot meet anybody; everybody may do nothing.
            mode.filter(|mode| mode & 0o770 == 0o770 && mode & !0o770 == 0)
                .ok_or_else(|| ShmSpecError::Mode(text.into()))
        };
        let mode = mode.map(parse_mode).transpose()?;
        if mode.is_some() && !is_folder {
            return Err(ShmSpecError::ModeWithoutFolder);
        }
        Ok(ShmSpec { name: name.into(), mode })
    }

    /// The addresses of all who are there: those of loopback, and those of the interface of the network's name, if there is one.
    ///
    /// # Errors
    /// When the kernel does not tell the interface's.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, HostNetworkError> {
        let mut addresses = vec![IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        if Interface::names()?.contains(&self.name) && self.name != "lo" {
            addresses.extend(HostNetwork::open(&self.name)?.addresses());
        }
        Ok(addresses)
    }

    /// Whether the network can be joined, as far as can be told without doing it.
    ///
    /// # Errors
    /// As joining it.
    pub fn check(&self) -> Result<(), ShmError> {
        Directory::check(&self.folder()?, self.mode)
    }

    /// Where its folder is: the user's own, for what lives as long as he is logged in, else one in /tmp.
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
