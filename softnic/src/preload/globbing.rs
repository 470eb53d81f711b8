//! `glob`: inside of the C library it opens folders by functions that no other library can be called for, unless it is given others.

use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

use nix::errno::Errno;
use nix::libc::{self, DIR, GLOB_ALTDIRFUNC, c_char, c_int, c_void, dirent, stat as Stat};

use crate::location::is_of_a_device;
use crate::next::next;
use crate::paths;

/// `glob_t`, with the functions that the C library calls instead of its own.
#[repr(C)]
pub struct Glob {
    count: usize,
    paths: *mut *mut c_char,
    reserved: usize,
    flags: c_int,
    close: Option<unsafe extern "C" fn(*mut DIR)>,
    read: Option<unsafe extern "C" fn(*mut DIR) -> *mut dirent>,
    open: Option<unsafe extern "C" fn(*const c_char) -> *mut DIR>,
    lstat: Option<unsafe extern "C" fn(*const c_char, *mut Stat) -> c_int>,
    stat: Option<unsafe extern "C" fn(*const c_char, *mut Stat) -> c_int>,
}
const _: () = assert!(size_of::<Glob>() == size_of::<libc::glob_t>());

type Next = unsafe extern "C" fn(*const c_char, c_int, *const c_void, *mut Glob) -> c_int;

unsafe extern "C" fn close(folder: *mut DIR) {
    // SAFETY: `glob` opened it.
    unsafe { libc::closedir(folder) };
}

/// Has the next function look into folders as this library does, where the pattern is of a device.
unsafe fn find(
    next: *mut c_void,
    pattern: *const c_char,
    flags: c_int,
    failed: *const c_void,
    out: *mut Glob,
) -> c_int {
    // SAFETY: the function that was found has this type, and NULL is none.
    let Some(next) = (unsafe { transmute::<*mut c_void, Option<Next>>(next) }) else {
        Errno::ENOSYS.set();
        return libc::GLOB_ABORTED;
    };
    if !is_of_a_device(pattern) || flags & GLOB_ALTDIRFUNC != 0 {
        // SAFETY: the program's own arguments.
        return unsafe { next(pattern, flags, failed, out) };
    }
    // SAFETY: the program's own arguments; of its struct those fields are written that are looked at with the flag alone.
    unsafe {
        (*out).close = Some(close);
        (*out).read = Some(libc::readdir);
        (*out).open = Some(paths::opendir);
        (*out).lstat = Some(paths::lstat);
        (*out).stat = Some(paths::stat);
        let result = next(pattern, flags | GLOB_ALTDIRFUNC, failed, out);
        (*out).flags &= !GLOB_ALTDIRFUNC;
        result
    }
}

/// `glob` of the C library.
///
/// # Safety
/// As the C library asks for.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn glob(pattern: *const c_char, flags: c_int, failed: *const c_void, out: *mut Glob) -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    // SAFETY: the contract is the same.
    unsafe { find(next(c"glob", &NEXT), pattern, flags, failed, out) }
}

/// `glob64` of the C library, which is the same on 64-bit Linux.
///
/// # Safety
/// As the C library asks for.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn glob64(pattern: *const c_char, flags: c_int, failed: *const c_void, out: *mut Glob) -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    // SAFETY: the contract is the same.
    unsafe { find(next(c"glob64", &NEXT), pattern, flags, failed, out) }
}
