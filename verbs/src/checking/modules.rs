//! The modules of the process: the program and its loaded libraries, by the addresses of their code.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

/// The module that contains an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Module {
    /// The path of its file; empty for the program itself.
    pub(super) name: String,
    /// The value to subtract from an address to get the address in the file.
    pub(super) base: u64,
    /// The range of its addresses.
    pub(super) range: Range<u64>,
}

struct Search {
    address: u64,
    found: Option<Module>,
}

extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes its own data, and the pointer given by `module_of`.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    // SAFETY: the loader has this number of headers there.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let (from, to) = loaded.fold((u64::MAX, 0), |(least, most): (u64, u64), header| {
        let from = info.dlpi_addr.wrapping_add(header.p_vaddr);
        (least.min(from), most.max(from.wrapping_add(header.p_memsz)))
    });
    let range = from..to;
    if !range.contains(&search.address) {
        return 0;
    }
    // SAFETY: NULL, or a string that lives as long as the module.
    let name = (!info.dlpi_name.is_null()).then(|| unsafe { CStr::from_ptr(info.dlpi_name) });
    let name = name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    search.found = Some(Module { name, base: info.dlpi_addr, range });
    1
}

/// The module that contains an address.
pub(super) fn module_of(address: u64) -> Option<Module> {
    let mut search = Search { address, found: None };
    // SAFETY: the callback has the type that the loader calls, and `search` lives long enough.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// The address range of the module that contains an address.
pub(super) fn range_of(address: u64) -> Range<u64> {
    module_of(address).map_or(0..0, |module| module.range)
}

/// The name of the function that contains an address, if the module exports it.
pub(super) fn function_of(address: u64) -> Option<String> {
    // SAFETY: zeros are NULL pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be looked up, and `info` has room for the result.
    let found = unsafe { libc::dladdr(std::ptr::without_provenance(address as usize), &raw mut info) };
    if found == 0 || info.dli_sname.is_null() {
        return None;
    }
    // SAFETY: the loader found a name, which lives as long as the module.
    Some(unsafe { CStr::from_ptr(info.dli_sname) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_its_module() {
        let ours = module_of(module_of as *const () as u64).unwrap();
        assert_eq!(ours.name, "", "tests are the program itself");
        let c = module_of(libc::gnu_get_libc_version as *const () as u64).unwrap();
        assert!(c.name.contains("libc") && c.range != ours.range, "{c:?}");
        assert_eq!(
            function_of(libc::gnu_get_libc_version as *const () as u64).as_deref(),
            Some("gnu_get_libc_version")
        );
        assert_eq!(module_of(16), None);
    }
}
