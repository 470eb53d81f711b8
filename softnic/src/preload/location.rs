//! Where a file of an RDMA device lies that a program looks for in /sys or /dev: in a folder of ordinary files.

use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::libc::{self, c_char, c_int, c_void};

use crate::libraries;

/// Folders that are softnic's alone, as far as programs see that.
const PLACES: [&[u8]; 5] = [
    b"/sys/class/infiniband",
    b"/sys/class/infiniband_mad",
    b"/sys/class/infiniband_verbs",
    b"/sys/devices/softnic",
    b"/dev/infiniband",
];

/// The library's answer to where a file lies: it writes that path, for which there is room, and says how much longer it is. -1 is a path that is
/// left as it is.
type Locate = unsafe extern "C" fn(path: *const c_char, out: *mut c_char, size: usize) -> c_int;

/// Another path, and how much longer it is than that of the program: the length of the folder that files lie in.
pub(crate) struct Location {
    path: [u8; libc::PATH_MAX as usize],
    folder: usize,
}

impl Location {
    pub(crate) fn path(&self) -> *const c_char {
        self.path.as_ptr().cast()
    }

    /// The folder, with nothing behind it.
    pub(crate) fn folder(&self) -> &[u8] {
        &self.path[..self.folder]
    }
}

/// Calls a function with a path, or with where its file lies.
#[inline]
pub(crate) fn located<R>(path: *const c_char, call: impl FnOnce(*const c_char) -> R) -> R {
    match is_of_a_device(path) {
        false => call(path),
        true => elsewhere(path, call),
    }
}

/// Calls a function with where a file of a device lies.
#[cold]
#[inline(never)]
fn elsewhere<R>(path: *const c_char, call: impl FnOnce(*const c_char) -> R) -> R {
    match location(path) {
        Some(location) => call(location.path()),
        None => call(path),
    }
}

/// Whether that is a path in one of the folders, or of one.
#[inline]
pub(crate) fn is_of_a_device(path: *const c_char) -> bool {
    // SAFETY: a string, if it is not NULL: the program gives it to the C library.
    !path.is_null() && PLACES.iter().any(|place| unsafe { is_in(path, place) })
}

/// Whether a path is in a folder, or names it. Nothing behind the first difference is read: programs open files all the time.
///
/// # Safety
/// `path` is a string.
#[inline]
unsafe fn is_in(path: *const c_char, place: &[u8]) -> bool {
    // SAFETY: bytes of the string up to its end: no byte of the folder is zero, so a shorter path differs at its end.
    unsafe {
        place.iter().enumerate().all(|(i, &byte)| *path.add(i) as u8 == byte)
            && matches!(*path.add(place.len()) as u8, 0 | b'/')
    }
}

/// Where a file lies; `None` where there is no device, or no library to ask.
pub(crate) fn location(path: *const c_char) -> Option<Location> {
    let locate = locate()?;
    let mut location = Location { path: [0; libc::PATH_MAX as usize], folder: 0 };
    // SAFETY: the path is a string, and there is so much room.
    let longer = unsafe { locate(path, location.path.as_mut_ptr().cast(), location.path.len()) };
    location.folder = usize::try_from(longer).ok()?;
    Some(location)
}

/// The library's function, if there is one and the environment names a device.
fn locate() -> Option<Locate> {
    static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let mut function = KNOWN.load(Ordering::Relaxed);
    if function.is_null() {
        std::env::var_os("SOFTNIC_DEV").filter(|devices| !devices.is_empty())?;
        function = libraries::symbol(c"softnic_device_file")?;
        KNOWN.store(function, Ordering::Relaxed);
    }
    // SAFETY: the function of that name has this type.
    Some(unsafe { transmute::<*mut c_void, Locate>(function) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_devices_are_known_by_whole_names() {
        for path in [
            c"/sys/class/infiniband",
            c"/sys/class/infiniband/",
            c"/sys/class/infiniband/softnic0/ports/1/state",
            c"/sys/class/infiniband_verbs/abi_version",
            c"/dev/infiniband/uverbs0",
        ] {
            assert!(is_of_a_device(path.as_ptr()), "{path:?}");
        }
        for path in
            [c"", c"/", c"/sys/class", c"/sys/class/infinibandage", c"/dev/infinibanda", c"sys/class/infiniband"]
        {
            assert!(!is_of_a_device(path.as_ptr()), "{path:?}");
        }
        assert!(!is_of_a_device(std::ptr::null()));
    }

    #[test]
    fn without_the_library_paths_stay_as_they_are() {
        let path = c"/sys/class/infiniband/softnic0";
        assert_eq!(located(path.as_ptr(), |path| path), path.as_ptr());
    }
}
