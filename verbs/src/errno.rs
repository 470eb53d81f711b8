//! Errors in C form: an errno, and the errno of each error of the runtime.

use libc::{EBUSY, EINVAL, ENOMEM, c_int};
use softnic_runtime::api::sdr::{AttrError, SdrError, SplitError};
use softnic_runtime::api::{AddressError, CqError, ModifyError, MrError, ObjectError, PathError, PostError, cm};

/// An errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const EINVAL: Errno = Errno(EINVAL);
    pub(crate) const EBUSY: Errno = Errno(EBUSY);
    pub(crate) const ENOMEM: Errno = Errno(ENOMEM);
    pub(crate) const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

    /// The errno of the thread's last failed function.
    pub(crate) fn last() -> Errno {
        // SAFETY: the C library's errno always exists, and belongs to this thread.
        Errno(unsafe { *libc::__errno_location() })
    }

    /// Sets the thread's errno.
    pub(crate) fn set(self) {
        // SAFETY: the C library's errno always exists, and belongs to this thread.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

impl From<std::io::Error> for Errno {
    fn from(e: std::io::Error) -> Errno {
        Errno(e.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(e: rustix::io::Errno) -> Errno {
        Errno(e.raw_os_error())
    }
}

impl From<ObjectError> for Errno {
    fn from(e: ObjectError) -> Errno {
        match e {
            ObjectError::NoNumbers => Errno::ENOMEM,
            ObjectError::Busy => Errno::EBUSY,
            _ => Errno::EINVAL,
        }
    }
}

impl From<MrError> for Errno {
    fn from(e: MrError) -> Errno {
        match e {
            MrError::NoKeys => Errno::ENOMEM,
            MrError::Busy => Errno::EBUSY,
            _ => Errno::EINVAL,
        }
    }
}

impl From<CqError> for Errno {
    fn from(e: CqError) -> Errno {
        match e {
            CqError::Busy => Errno::EBUSY,
            _ => Errno::EINVAL,
        }
    }
}

impl From<AddressError> for Errno {
    fn from(e: AddressError) -> Errno {
        match e {
            AddressError::TooMany => Errno::ENOMEM,
            _ => Errno::EINVAL,
        }
    }
}

impl From<ModifyError> for Errno {
    fn from(_: ModifyError) -> Errno {
        Errno::EINVAL
    }
}

impl From<PostError> for Errno {
    fn from(e: PostError) -> Errno {
        match e {
            PostError::QueueFull => Errno::ENOMEM,
            PostError::NoDeadlines => Errno::EOPNOTSUPP,
            _ => Errno::EINVAL,
        }
    }
}

impl From<cm::Error> for Errno {
    fn from(e: cm::Error) -> Errno {
        match e {
            cm::Error::ServiceInUse => Errno(libc::EADDRINUSE),
            cm::Error::TooMany => Errno::ENOMEM,
            cm::Error::QpnInUse => Errno::EBUSY,
            _ => Errno::EINVAL,
        }
    }
}

impl From<AttrError> for Errno {
    fn from(_: AttrError) -> Errno {
        Errno::EINVAL
    }
}

impl From<SplitError> for Errno {
    fn from(_: SplitError) -> Errno {
        Errno::EINVAL
    }
}

impl From<SdrError> for Errno {
    fn from(e: SdrError) -> Errno {
        match e {
            SdrError::Attr(e) => e.into(),
            SdrError::Info(_) | SdrError::Differs(..) | SdrError::Scheme(..) => Errno::EINVAL,
            SdrError::Part(..) | SdrError::Ended => Errno::EINVAL,
            SdrError::NotConnected => Errno(libc::ENOTCONN),
            SdrError::Connected => Errno(libc::EISCONN),
            SdrError::Declined(_) => Errno(libc::ECONNREFUSED),
            SdrError::Full(_) => Errno::ENOMEM,
            SdrError::TooLong(..) => Errno(libc::EMSGSIZE),
            SdrError::NoImmediate => Errno::EOPNOTSUPP,
            SdrError::NoSuchMessage => Errno(libc::ENOENT),
            SdrError::Layered => Errno::EBUSY,
            SdrError::NoSuchQp | SdrError::Device | SdrError::Send(_) => Errno(libc::EIO),
            SdrError::Object(e) => e.into(),
            SdrError::Key(e) => e.into(),
            SdrError::Modify(e) => e.into(),
            SdrError::Post(e) => e.into(),
        }
    }
}

impl From<PathError> for Errno {
    fn from(e: PathError) -> Errno {
        match e {
            PathError::NoAddress(_) | PathError::NoSuchGid { .. } | PathError::Versions { .. } => Errno::EINVAL,
            PathError::Failed(_) => Errno(libc::ENETDOWN),
            PathError::Host(_) | PathError::Neighbour(_) | PathError::Elsewhere(_) => Errno(libc::EHOSTUNREACH),
        }
    }
}
