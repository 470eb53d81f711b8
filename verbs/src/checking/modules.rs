//! Modules of the process: the program and the libraries that it has loaded, by the addresses of their code.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

/// A module that an address is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Module {
    /// Its file, by its name; empty for the program itself.
    pub(super) name: String,
    /// What is to be taken from an address to get that in the file.
    pub(super) base: u64,
    /// All its addresses.
    pub(super) range: Range<u64>,
}

struct Search {
    address: u64,
    found: Option<Module>,
}

extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes its own, and what `module_of` gave it.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    // SAFETY: the loader has so many headers there.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let range = loaded.fold(Range { start: u64::MAX, end: 0 }, |range, header| {
        let from = info.dlpi_addr.wrapping_add(header.p_vaddr);
        range.start.min(from)..range.end.max(from.wrapping_add(header.p_memsz))
    });
    if !range.contains(&search.address) {
        return 0;
    }
    // SAFETY: NULL, or a string that stays as long as the module.
    let name = (!info.dlpi_name.is_null()).then(|| unsafe { CStr::from_ptr(info.dlpi_name) });
    let name = name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    search.found = Some(Module { name, base: info.dlpi_addr, range });
    1
}

/// The module that an address is in.
pub(super) fn module_of(address: u64) -> Option<Module> {
    let mut search = Search { address, found: None };
    // SAFETY: the callback has the type that the loader calls, and `search` is there as long.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// The addresses of the module that an address is in.
pub(super) fn range_of(address: u64) -> Range<u64> {
    module_of(address).map_or(0..0, |module| module.range)
}

/// The name of the function that an address is in, where the module exports it.
pub(super) fn function_of(address: u64) -> Option<String> {
    // SAFETY: zeros are NULL pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for, and `info` is a place for the answer.
    let found = unsafe { libc::dladdr(std::ptr::without_provenance(address as usize), &raw mut info) };
    if found == 0 || info.dli_sname.is_null() {
        return None;
    }
    // SAFETY: the loader found a name, which stays as long as the module.
    Some(unsafe { CStr::from_ptr(info.dli_sname) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_its_module() {
        let ours = module_of(module_of as *const () as u64).unwrap();
        assert_eq!(ours.name, "", "tests are the program itself");
        let c = module_of(libc::getpid as *const () as u64).unwrap();
        assert!(c.name.contains("libc") && c.range != ours.range, "{c:?}");
        assert_eq!(function_of(libc::getpid as *const () as u64).as_deref(), Some("getpid"));
        assert_eq!(module_of(16), None);
    }
}
