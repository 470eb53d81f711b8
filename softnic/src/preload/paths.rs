//! Functions of the C library that take a path, and are called with another one where that is a path of a device.
//!
//! On 64-bit Linux the names with 64 do the same as those without, and an argument that is not given is a register that nobody reads. The names
//! that begin with `__x` are those of programs that were built before glibc 2.33, those with `_2` and `_chk` of programs that were built with
//! `_FORTIFY_SOURCE`.

use std::ffi::CStr;
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

use nix::errno::Errno;
use nix::libc::{DIR, FILE, c_char, c_int, c_uint, c_void, mode_t, stat as Stat, statx as Statx};

use crate::location::located;
use crate::next::next;

/// Functions by name, with their path in brackets, and what they return where the C library has no such function.
macro_rules! with_another_path {
    ($($name:ident[$path:ident]($($argument:ident: $type:ty),*) -> $result:ty, $failed:expr;)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        ///
        /// # Safety
        /// As the C library asks for.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            // SAFETY: the function of this name has this type, and NULL is none.
            let next = unsafe {
                transmute::<*mut c_void, Option<unsafe extern "C" fn($($type),*) -> $result>>(next(NAME, &NEXT))
            };
            let Some(next) = next else {
                Errno::ENOSYS.set();
                return $failed;
            };
            // SAFETY: the program's own arguments, but for the path, which is a string that lives as long.
            located($path, |$path| unsafe { next($($argument),*) })
        }
    )* };
}

// Opening.
with_another_path! {
    open[path](path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1;
    open64[path](path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1;
    __open_2[path](path: *const c_char, flags: c_int) -> c_int, -1;
    __open64_2[path](path: *const c_char, flags: c_int) -> c_int, -1;
    openat[path](folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1;
    openat64[path](folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1;
    __openat_2[path](folder: c_int, path: *const c_char, flags: c_int) -> c_int, -1;
    __openat64_2[path](folder: c_int, path: *const c_char, flags: c_int) -> c_int, -1;
    fopen[path](path: *const c_char, mode: *const c_char) -> *mut FILE, null_mut();
    fopen64[path](path: *const c_char, mode: *const c_char) -> *mut FILE, null_mut();
    opendir[path](path: *const c_char) -> *mut DIR, null_mut();
    scandir[path](path: *const c_char, list: *mut c_void, filter: *const c_void, compare: *const c_void) -> c_int, -1;
    scandir64[path](path: *const c_char, list: *mut c_void, filter: *const c_void, compare: *const c_void) -> c_int, -1;
    chdir[path](path: *const c_char) -> c_int, -1;
}

// What kind of file it is, and who may use it.
with_another_path! {
    stat[path](path: *const c_char, out: *mut Stat) -> c_int, -1;
    stat64[path](path: *const c_char, out: *mut Stat) -> c_int, -1;
    lstat[path](path: *const c_char, out: *mut Stat) -> c_int, -1;
    lstat64[path](path: *const c_char, out: *mut Stat) -> c_int, -1;
    fstatat[path](folder: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int, -1;
    fstatat64[path](folder: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int, -1;
    __xstat[path](version: c_int, path: *const c_char, out: *mut Stat) -> c_int, -1;
    __xstat64[path](version: c_int, path: *const c_char, out: *mut Stat) -> c_int, -1;
    __lxstat[path](version: c_int, path: *const c_char, out: *mut Stat) -> c_int, -1;
    __lxstat64[path](version: c_int, path: *const c_char, out: *mut Stat) -> c_int, -1;
    __fxstatat[path](version: c_int, folder: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int, -1;
    __fxstatat64[path](version: c_int, folder: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int, -1;
    statx[path](folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut Statx) -> c_int, -1;
    access[path](path: *const c_char, mode: c_int) -> c_int, -1;
    faccessat[path](folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, -1;
    euidaccess[path](path: *const c_char, mode: c_int) -> c_int, -1;
    eaccess[path](path: *const c_char, mode: c_int) -> c_int, -1;
    // `ls -l` asks for what it may not have.
    getxattr[path](path: *const c_char, name: *const c_char, out: *mut c_void, size: usize) -> isize, -1;
    lgetxattr[path](path: *const c_char, name: *const c_char, out: *mut c_void, size: usize) -> isize, -1;
    listxattr[path](path: *const c_char, out: *mut c_char, size: usize) -> isize, -1;
    llistxattr[path](path: *const c_char, out: *mut c_char, size: usize) -> isize, -1;
}

// Where a link leads. Those between files of devices are relative, so nothing of where they lie is in them.
with_another_path! {
    readlink[path](path: *const c_char, out: *mut c_char, size: usize) -> isize, -1;
    readlinkat[path](folder: c_int, path: *const c_char, out: *mut c_char, size: usize) -> isize, -1;
    __readlink_chk[path](path: *const c_char, out: *mut c_char, size: usize, room: usize) -> isize, -1;
    __readlinkat_chk[path](folder: c_int, path: *const c_char, out: *mut c_char, size: usize, room: usize) -> isize, -1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_other_paths_are_the_c_librarys() {
        // SAFETY: strings, and room for what stat says, throughout.
        unsafe {
            let mut said: Stat = std::mem::zeroed();
            assert_eq!(stat(c"/".as_ptr(), &raw mut said), 0);
            assert_eq!(said.st_mode & nix::libc::S_IFMT, nix::libc::S_IFDIR);
            assert_eq!((stat(c"/no/such/file".as_ptr(), &raw mut said), Errno::last()), (-1, Errno::ENOENT));
            assert_eq!(access(c"/dev/null".as_ptr(), nix::libc::R_OK | nix::libc::W_OK), 0);
            let descriptor = open(c"/dev/null".as_ptr(), nix::libc::O_RDWR, 0);
            assert!(descriptor >= 0);
            nix::libc::close(descriptor);
        }
    }
}
