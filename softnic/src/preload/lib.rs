//! The library that `softnic run` preloads: programs find softnic where they look for it without asking ld.so by a name that it knows.
//!
//! Programs that bring copies of libibverbs under names of their own load these by `dlopen` ([`libraries`]). And UCX asks for a device's file in
//! /dev/infiniband, and for its attributes in /sys/class/infiniband, before it uses the device. It asks
//! the C library and not libibverbs, so only a library that is loaded before the C library hears of it. Here such a question is passed on,
//! and when nothing is found the library that has the NIC is asked; everything else is left as it is.
#![allow(unsafe_code)]

pub mod libraries;
mod next;

use std::ffi::CStr;
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::errno::Errno;
use nix::libc::{self, c_char, c_int, c_void, mode_t, stat as Stat};

use next::next;

/// Where the files of RDMA devices lie.
const PLACES: [&[u8]; 2] = [b"/dev/infiniband/", b"/sys/class/infiniband/"];

/// Opens such a file of a softnic: a descriptor, or -1 where it has none.
type Opener = extern "C" fn(*const c_char, c_int) -> c_int;

/// That of the library with the NIC, once it has told.
static OPENER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// The library with the NIC says who answers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn softnic_preload_opener(opener: Opener) {
    OPENER.store(opener as *mut c_void, Ordering::Release);
}

/// A descriptor of a file that nobody else has; errno is as it was where there is none.
fn ours(path: *const c_char, flags: c_int) -> Option<c_int> {
    let opener = OPENER.load(Ordering::Acquire);
    if opener.is_null() || path.is_null() || Errno::last() != Errno::ENOENT {
        return None;
    }
    // SAFETY: the C library was given the same, and looked for it: it is a string.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    if !PLACES.iter().any(|place| name.starts_with(place)) {
        return None;
    }
    // SAFETY: `softnic_preload_opener` was given such a function.
    let opener = unsafe { transmute::<*mut c_void, Opener>(opener) };
    let descriptor = opener(path, flags);
    if descriptor < 0 {
        Errno::ENOENT.set();
        return None;
    }
    Some(descriptor)
}

/// What stat(2) says of such a file.
fn status(path: *const c_char, out: *mut Stat) -> Option<c_int> {
    let descriptor = ours(path, libc::O_RDONLY | libc::O_CLOEXEC)?;
    // SAFETY: the program has room for it; the descriptor is ours.
    unsafe {
        let result = libc::fstat(descriptor, out);
        libc::close(descriptor);
        Some(result)
    }
}

/// One function of the C library: calls the next of its name, and where that fails what stands behind `else`.
macro_rules! instead {
    ($($name:ident($($argument:ident: $type:ty),*) else $answer:expr;)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        ///
        /// # Safety
        /// As the C library asks for.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            // SAFETY: the function of this name has this type, and NULL is none.
            let next = unsafe {
                transmute::<*mut c_void, Option<unsafe extern "C" fn($($type),*) -> c_int>>(next(NAME, &NEXT))
            };
            let Some(next) = next else {
                Errno::ENOSYS.set();
                return -1;
            };
            // SAFETY: the program's own arguments.
            match unsafe { next($($argument),*) } {
                -1 => Option::unwrap_or($answer, -1),
                result => result,
            }
        }
    )* };
}

// On 64-bit Linux the names with 64 do the same, and a third argument that is not given is a register that nobody reads. The names that
// begin with __x are those of programs that were built before glibc 2.33.
instead! {
    open(path: *const c_char, flags: c_int, mode: mode_t) else ours(path, flags);
    open64(path: *const c_char, flags: c_int, mode: mode_t) else ours(path, flags);
    stat(path: *const c_char, out: *mut Stat) else status(path, out);
    stat64(path: *const c_char, out: *mut Stat) else status(path, out);
    __xstat(version: c_int, path: *const c_char, out: *mut Stat) else status(path, out);
    __xstat64(version: c_int, path: *const c_char, out: *mut Stat) else status(path, out);
    access(path: *const c_char, mode: c_int) else readable(path, mode);
}

/// Such files are for reading and writing, and nothing to run.
fn readable(path: *const c_char, mode: c_int) -> Option<c_int> {
    if mode & libc::X_OK != 0 {
        return None;
    }
    let descriptor = ours(path, libc::O_RDONLY | libc::O_CLOEXEC)?;
    // SAFETY: it is ours.
    unsafe { libc::close(descriptor) };
    Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has one file.
    extern "C" fn opener(path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: a string, by the contract.
        match unsafe { CStr::from_ptr(path) } == c"/dev/infiniband/no-such-device" {
            // SAFETY: a string.
            true => unsafe { libc::open(c"/dev/null".as_ptr(), flags) },
            false => -1,
        }
    }

    #[test]
    fn only_what_is_nowhere_else_is_asked_of_the_nic() {
        // SAFETY: strings, and room for what stat says, throughout.
        unsafe {
            let mut said: Stat = std::mem::zeroed();
            let file = c"/dev/infiniband/no-such-device".as_ptr();
            assert_eq!((stat(file, &raw mut said), Errno::last()), (-1, Errno::ENOENT), "nobody answers");
            softnic_preload_opener(opener);
            assert_eq!(stat(file, &raw mut said), 0);
            assert_eq!(said.st_mode & libc::S_IFMT, libc::S_IFCHR);
            assert_eq!(access(file, libc::R_OK | libc::W_OK), 0);
            assert_eq!(access(file, libc::X_OK), -1);
            let descriptor = open(file, libc::O_RDWR, 0);
            assert!(descriptor >= 0);
            libc::close(descriptor);
            for other in [c"/dev/infiniband/another", c"/no/such/file"] {
                assert_eq!((stat(other.as_ptr(), &raw mut said), Errno::last()), (-1, Errno::ENOENT));
            }
            assert_eq!(stat(c"/".as_ptr(), &raw mut said), 0);
            assert_eq!(said.st_mode & libc::S_IFMT, libc::S_IFDIR);
        }
    }
}
