//! `realpath` and the like: a path of a device leads to another such path, not to where its file lies.

use std::ffi::CStr;
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

use nix::errno::Errno;
use nix::libc::{self, c_char, c_void};

use crate::location::{is_of_a_device, location};
use crate::next::next;

type RealPath = unsafe extern "C" fn(path: *const c_char, out: *mut c_char) -> *mut c_char;

/// `realpath` of the C library.
///
/// # Safety
/// As the C library asks for.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn realpath(path: *const c_char, out: *mut c_char) -> *mut c_char {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    // SAFETY: the function of this name has this type, and NULL is none.
    let next = unsafe { transmute::<*mut c_void, Option<RealPath>>(next(c"realpath", &NEXT)) };
    let Some(next) = next else {
        Errno::ENOSYS.set();
        return null_mut();
    };
    let location = is_of_a_device(path).then(|| location(path)).flatten();
    let Some(location) = location else {
        // SAFETY: the program's own arguments.
        return unsafe { next(path, out) };
    };
    // SAFETY: a path, and the program's own room.
    let found = unsafe { next(location.path(), out) };
    if !found.is_null() {
        // SAFETY: the C library wrote it.
        unsafe { without(location.folder(), found) };
    }
    found
}

/// Takes a folder off the beginning of a path, if it begins so.
///
/// # Safety
/// `path` is a string that may be written.
unsafe fn without(folder: &[u8], path: *mut c_char) {
    // SAFETY: a string, by the contract; what is behind the folder is moved with its end to the beginning.
    unsafe {
        let whole = CStr::from_ptr(path).to_bytes_with_nul();
        if let Some(rest) = whole.strip_prefix(folder).filter(|rest| rest.starts_with(b"/")) {
            let (from, length) = (rest.as_ptr(), rest.len());
            std::ptr::copy(from, path.cast::<u8>(), length);
        }
    }
}

/// `canonicalize_file_name` of the C library.
///
/// # Safety
/// As the C library asks for.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: the contract is the same, without room of the program's.
    unsafe { realpath(path, null_mut()) }
}

/// `realpath` of programs that were built with `_FORTIFY_SOURCE`, which know how much room they have.
///
/// # Safety
/// As the C library asks for.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __realpath_chk(path: *const c_char, out: *mut c_char, room: usize) -> *mut c_char {
    if room < libc::PATH_MAX as usize {
        // As the C library does: the program is wrong.
        std::process::abort();
    }
    // SAFETY: the contract is the same.
    unsafe { realpath(path, out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_taken_off_where_it_is_whole() {
        let shortened = |path: &str| {
            let mut path = path.as_bytes().to_vec();
            path.push(0);
            // SAFETY: a string, which may be written.
            unsafe {
                without(b"/tmp/x", path.as_mut_ptr().cast());
                CStr::from_ptr(path.as_ptr().cast()).to_str().unwrap().to_string()
            }
        };
        assert_eq!(shortened("/tmp/x/sys/devices/softnic"), "/sys/devices/softnic");
        for other in ["/tmp/xy/sys", "/sys/devices/pci0000:00", "/tmp/x"] {
            assert_eq!(shortened(other), other);
        }
    }

    #[test]
    fn other_paths_are_the_c_librarys() {
        // SAFETY: a string; what comes back is from malloc.
        unsafe {
            let found = realpath(c"/usr/..".as_ptr(), null_mut());
            assert_eq!(CStr::from_ptr(found), c"/");
            libc::free(found.cast());
        }
    }
}
