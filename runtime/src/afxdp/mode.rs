//! Who moves the bytes of frames: the device itself (zero-copy), or the kernel.

use std::fmt;
use std::str::FromStr;

/// How frames get from the device to our memory and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyMode {
    /// By the device itself, where its driver can with the interface's MTU; else the kernel copies.
    #[default]
    Auto,
    /// By the device itself, or not at all.
    ZeroCopy,
    /// The kernel copies.
    Copy,
}

impl CopyMode {
    /// The flag that an AF_XDP socket is bound with. Without one the kernel tries zero-copy first, and copies where the device cannot.
    pub(super) fn flag(self) -> u16 {
        match self {
            CopyMode::Auto => 0,
            CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
            CopyMode::Copy => libc::XDP_COPY,
        }
    }
}

impl FromStr for CopyMode {
    type Err = ();

    fn from_str(s: &str) -> Result<CopyMode, ()> {
        match s {
            "auto" => Ok(CopyMode::Auto),
            "zero-copy" => Ok(CopyMode::ZeroCopy),
            "copy" => Ok(CopyMode::Copy),
            _ => Err(()),
        }
    }
}

impl fmt::Display for CopyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CopyMode::Auto => "auto",
            CopyMode::ZeroCopy => "zero-copy",
            CopyMode::Copy => "copy",
        })
    }
}
