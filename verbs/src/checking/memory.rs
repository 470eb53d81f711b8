//! The program's memory as the model reads it.

use std::cell::Cell;

use softnic_check::Memory;

const PAGE: u64 = 4096;
/// Pages that are looked for at a time, at most.
const AHEAD: u64 = 64;

/// Memory of work that is being posted: the NIC reads it, too.
pub(super) struct Posted;

impl Memory for Posted {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        copy(address, into);
        true
    }
}

fn copy(address: u64, into: &mut [u8]) {
    let from: *const u8 = std::ptr::with_exposed_provenance(address as usize);
    // SAFETY: the memory is there: whoever calls has seen to that. Others may write to it meanwhile, which is what is looked for; it is
    // copied by address alone, and never borrowed.
    unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
}

/// Memory of work that is done: the program may have unmapped it since, though its region is still there.
#[derive(Default)]
pub(super) struct Done {
    /// Pages that were there a moment ago.
    from: Cell<u64>,
    to: Cell<u64>,
    /// How many were looked for the last time.
    ahead: Cell<u64>,
}

impl Memory for Done {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let end = address + into.len() as u64;
        if (address < self.from.get() || end > self.to.get()) && !self.look(address, end) {
            return false;
        }
        copy(address, into);
        true
    }
}

impl Done {
    fn look(&self, address: u64, end: u64) -> bool {
        let from = address & !(PAGE - 1);
        let need = (end - from).div_ceil(PAGE);
        // The longer the message, the more at a time.
        let more = (2 * self.ahead.get()).clamp(need, AHEAD.max(need));
        for pages in [more, need] {
            if is_readable(from, pages * PAGE) {
                self.from.set(from);
                self.to.set(from + pages * PAGE);
                self.ahead.set(pages);
                return true;
            }
        }
        false
    }
}

/// Whether memory can be read without a signal.
fn is_readable(from: u64, len: u64) -> bool {
    /// MADV_POPULATE_READ.
    const POPULATE_READ: i32 = 22;
    let start: *mut libc::c_void = std::ptr::with_exposed_provenance_mut(from as usize);
    // SAFETY: it changes no memory: pages that are there stay as they are.
    if unsafe { libc::madvise(start, len as usize, POPULATE_READ) } == 0 {
        return true;
    }
    if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
        return false;
    }
    // Linux before 5.14, or memory of a device: whether it is mapped is all that can be asked.
    let mut pages = [0u8; AHEAD as usize];
    len / PAGE <= AHEAD
        // SAFETY: there is a byte for each page.
        && unsafe { libc::mincore(start, len as usize, pages.as_mut_ptr()) } == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_gone_is_not_read() {
        let len = 4 * PAGE as usize;
        // SAFETY: new memory, of which nobody knows.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let address = memory.expose_provenance() as u64;
        let mut room = [1; 64];
        assert!(Done::default().read(address + 100, &mut room) && room == [0; 64]);
        // SAFETY: nobody else uses the last two pages.
        unsafe { libc::mprotect(memory.add(2 * PAGE as usize), PAGE as usize, libc::PROT_NONE) };
        // SAFETY: the same.
        unsafe { libc::munmap(memory.add(3 * PAGE as usize), PAGE as usize) };
        let done = Done::default();
        assert!(done.read(address, &mut room) && done.read(address + PAGE, &mut room));
        assert!(!done.read(address + 2 * PAGE - 8, &mut room), "it may not be read");
        assert!(!Done::default().read(address + 3 * PAGE, &mut room), "it is not there");
        // SAFETY: nobody uses the rest.
        unsafe { libc::munmap(memory, 3 * PAGE as usize) };
    }
}
