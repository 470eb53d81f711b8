//! Libraries that a program loads itself: copies of libibverbs and librdmacm, wherever they lie and whatever is added to their names, give
//! way to softnic's.
//!
//! Python's wheels bring such copies, with a part of a hash in the name. Those that something is linked with need no help: softnic's library is
//! preloaded, so its symbols are found first. Who asks for a symbol of a library that was loaded by `dlopen` gets that library's.
//!
//! `dlopen` looks for a library where its caller would: by the RUNPATH of the library that the call comes from. So the function here is no
//! caller of the C library's; it changes the name and jumps there, and the return address on the stack stays the program's.

use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::libc::{self, c_char, c_void};

use crate::next::next;

/// softnic's library, beside this one.
const LIBRARY: &str = "libibverbs.so.1";
/// The libraries that it stands for, as far as all their names are the same.
const STEMS: [&[u8]; 2] = [b"libibverbs", b"librdmacm"];

/// The C library's `dlopen`, once [`chosen`] has returned.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// `dlopen` of the C library, of another name where [`chosen`] says so.
///
/// # Safety
/// As the C library asks for.
#[cfg(all(target_arch = "x86_64", not(test)))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(name: *const c_char, flags: libc::c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "endbr64",
        "push rsi",
        "call {chosen}",
        "pop rsi",
        "mov rdi, rax",
        "mov rax, qword ptr [rip + {next}]",
        "jmp rax",
        chosen = sym chosen,
        next = sym NEXT,
    )
}

/// `dlopen` of the C library, of another name where [`chosen`] says so.
///
/// # Safety
/// As the C library asks for.
#[cfg(all(target_arch = "aarch64", not(test)))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(name: *const c_char, flags: libc::c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "str x1, [sp, #16]",
        "bl {chosen}",
        "ldr x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "adrp x9, {next}",
        "ldr x9, [x9, :lo12:{next}]",
        "br x9",
        chosen = sym chosen,
        next = sym NEXT,
    )
}

/// The name to load instead of `name`, which may be NULL.
#[cfg_attr(test, allow(dead_code))]
extern "C" fn chosen(name: *const c_char) -> *const c_char {
    extern "C" fn nothing() -> *mut c_void {
        null_mut()
    }
    if next(c"dlopen", &NEXT).is_null() {
        NEXT.store(nothing as *mut c_void, Ordering::Relaxed);
    }
    // SAFETY: a string, if it is not NULL: the program gave it to `dlopen`.
    match !name.is_null() && is_copy(unsafe { CStr::from_ptr(name) }.to_bytes()) {
        true => own().map_or(name, CStr::as_ptr),
        false => name,
    }
}

/// Whether that is a name of libibverbs or librdmacm: with any version or none, and with a hash before that.
fn is_copy(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    STEMS.iter().filter_map(|stem| name.strip_prefix(*stem)).any(|rest| {
        let hash = rest.strip_prefix(b"-").map(|rest| 1 + rest.iter().take_while(|c| c.is_ascii_hexdigit()).count());
        let rest = &rest[hash.unwrap_or(0)..];
        rest == b".so" || rest.starts_with(b".so.")
    })
}

/// softnic's own library, if it lies beside this one.
fn own() -> Option<&'static CStr> {
    static OWN: OnceLock<Option<CString>> = OnceLock::new();
    let find = || {
        // SAFETY: the struct has pointers alone, and `dladdr` writes it for an address of this library.
        let this = unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            if libc::dladdr(is_copy as *const c_void, &raw mut info) == 0 || info.dli_fname.is_null() {
                return None;
            }
            CStr::from_ptr(info.dli_fname).to_bytes()
        };
        let folder = &this[..=this.iter().rposition(|&byte| byte == b'/')?];
        let library = CString::new([folder, LIBRARY.as_bytes()].concat()).ok()?;
        // SAFETY: it is a string.
        (unsafe { libc::access(library.as_ptr(), libc::R_OK) } == 0).then_some(library)
    };
    OWN.get_or_init(find).as_deref()
}

/// Something that softnic's library exports. Where the program has not loaded the library, that is done now.
pub(crate) fn symbol(name: &CStr) -> Option<*mut c_void> {
    let library = own()?;
    // SAFETY: strings. The library has nothing that runs when it is loaded, and is never unloaded.
    let found = unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if handle.is_null() {
            return None;
        }
        libc::dlsym(handle, name.as_ptr())
    };
    (!found.is_null()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_known_by_their_names_with_any_version_and_hash() {
        for name in [
            "libibverbs.so",
            "libibverbs.so.1",
            "librdmacm.so.1.3.44.0",
            "/opt/wheel.libs/libibverbs-1de1263b.so.1.14.48.0",
            "/usr/lib/librdmacm-0a.so.1",
        ] {
            assert!(is_copy(name.as_bytes()), "{name}");
        }
        for name in
            ["", "libibverbs", "libibverbs.sox", "libibverbs-mlx5.so", "/usr/lib/libibverbs/libmlx5.so", "libc.so.6"]
        {
            assert!(!is_copy(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn without_a_library_of_its_own_beside_it_nothing_is_changed() {
        let name = c"/no/such/folder/libibverbs.so.1";
        assert_eq!(chosen(name.as_ptr()), name.as_ptr());
        assert!(chosen(std::ptr::null()).is_null());
        assert!(!NEXT.load(Ordering::Relaxed).is_null(), "the C library has one");
    }
}
