//! Reads the program's memory for the model.

use softnic_check::Memory;

const PAGE: u64 = 4096;

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
    // SAFETY: the memory exists, which the caller guarantees. Other threads may write to it meanwhile, which is what the checker looks for;
    // it is copied by address only, and never borrowed.
    unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
}

/// Memory of completed work. The program may have unmapped it since, although its region still exists, and may do so now.
///
/// The kernel copies it, and returns an error where a load would end the program.
pub(super) struct Done;

impl Memory for Done {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.read_all(&[(address, into.len() as u64)], into)
    }

    fn read_all(&self, spans: &[(u64, u64)], into: &mut [u8]) -> bool {
        let mut rest = into;
        for spans in spans.chunks(AT_ONCE) {
            let remote = spans.iter().map(|&(address, len)| libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(address as usize),
                iov_len: len as usize,
            });
            let remote: Vec<libc::iovec> = remote.collect();
            let len: usize = remote.iter().map(|piece| piece.iov_len).sum();
            let (piece, behind) = std::mem::take(&mut rest).split_at_mut(len);
            rest = behind;
            let local = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: len };
            let count = remote.len() as libc::c_ulong;
            // SAFETY: the call writes only to `piece`, and reads only readable memory.
            let read =
                unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, remote.as_ptr(), count, 0) };
            if read == len as isize {
                continue;
            }
            let is_forbidden =
                matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EPERM | libc::ENOSYS));
            if read >= 0 || !is_forbidden || !copy_if_readable(spans, piece) {
                return false;
            }
        }
        true
    }
}

/// Number of ranges that one system call reads.
const AT_ONCE: usize = 1024;

/// For sandboxes that forbid this system call: copies readable memory, which is assumed to stay readable until then.
fn copy_if_readable(spans: &[(u64, u64)], into: &mut [u8]) -> bool {
    let mut rest = into;
    spans.iter().all(|&(address, len)| {
        let (piece, behind) = std::mem::take(&mut rest).split_at_mut(len as usize);
        rest = behind;
        let from = address & !(PAGE - 1);
        let is_there = is_readable(from, (address + len - from).next_multiple_of(PAGE));
        if is_there {
            copy(address, piece);
        }
        is_there
    })
}

/// Whether memory can be read without a signal.
fn is_readable(from: u64, len: u64) -> bool {
    /// MADV_POPULATE_READ.
    const POPULATE_READ: i32 = 22;
    let start: *mut libc::c_void = std::ptr::with_exposed_provenance_mut(from as usize);
    // SAFETY: changes no memory: existing pages keep their contents. Before Linux 5.14, and for memory without access rights, it fails:
    // then the memory is not checked.
    unsafe { libc::madvise(start, len as usize, POPULATE_READ) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_gone_is_not_read() {
        let len = 4 * PAGE as usize;
        // SAFETY: new memory, unknown to other code.
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
        assert!(Done.read(address + 100, &mut room) && room == [0; 64]);
        // SAFETY: no other code uses the last two pages.
        unsafe { libc::mprotect(memory.add(2 * PAGE as usize), PAGE as usize, libc::PROT_NONE) };
        // SAFETY: as above.
        unsafe { libc::munmap(memory.add(3 * PAGE as usize), PAGE as usize) };
        assert!(Done.read(address, &mut room) && Done.read(address + PAGE, &mut room));
        for (gone, why) in [(2 * PAGE - 8, "it may not be read"), (3 * PAGE, "it is not there")] {
            assert!(!Done.read(address + gone, &mut room), "{why}");
            assert!(!Done.read_all(&[(address, 32), (address + gone, 32)], &mut room), "{why}");
            assert!(!copy_if_readable(&[(address, 32), (address + gone, 32)], &mut room), "{why}");
        }
        // Several ranges, more than one call reads.
        // SAFETY: no other code uses the first two pages.
        unsafe { memory.cast::<u8>().add(5000).write(7) };
        let spans: Vec<(u64, u64)> = (0..3000).map(|i| (address + if i == 2999 { 5000 } else { i }, 2)).collect();
        let mut room = vec![1; 6000];
        assert!(Done.read_all(&spans, &mut room));
        assert_eq!(room.iter().enumerate().filter(|(_, byte)| **byte != 0).collect::<Vec<_>>(), [(5998, &7)]);
        // SAFETY: no code uses the rest.
        unsafe { libc::munmap(memory, 3 * PAGE as usize) };
    }
    #[test]
    fn memory_that_goes_while_it_is_read_ends_nothing() {
        let len = 16 * PAGE as usize;
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, unknown to other code.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
        let address = memory.expose_provenance() as u64;
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut room = vec![0; len];
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    Done.read(address, &mut room);
                }
            });
            for _ in 0..2000 {
                let memory: *mut libc::c_void = std::ptr::with_exposed_provenance_mut(address as usize);
                for now in [libc::PROT_NONE, rights] {
                    // SAFETY: the memory is used only by system calls.
                    unsafe { libc::mprotect(memory, len, now) };
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        // SAFETY: the memory is not used any more.
        unsafe { libc::munmap(memory, len) };
    }
}
