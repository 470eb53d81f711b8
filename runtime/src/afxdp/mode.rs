//! The copy mode: frame data is moved by the device itself (zero-copy), or by the kernel.

use std::fmt;
use std::str::FromStr;

/// How frames get from the device to the memory of this process and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyMode {
    /// Zero-copy, if the driver supports it with the interface's MTU; otherwise the kernel copies.
    #[default]
    Auto,
    /// Zero-copy, or an error if the driver does not support it.
    ZeroCopy,
    /// The kernel copies.
    Copy,
}

impl CopyMode {
    /// The flag for binding an AF_XDP socket. Without a flag, the kernel tries zero-copy first, and copies if the device does not support
    /// it.
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
