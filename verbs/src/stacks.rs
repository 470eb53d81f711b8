//! `SOFTNIC_STACKS`: the stacks of a hanging process. Each thread that gets a signal writes its stack, as a line of JSON, to `PID.stacks`
//! in a folder.
//!
//! The signal is SIGRTMAX-3, unless the program has a handler for it. softnic's own threads block all signals, so they are not included,
//! and neither is a thread of the program that blocks this signal. The handler allocates nothing: it uses static memory, and writes by one
//! write(2). Finding frames and their modules may take a lock of the loader, which a thread can take twice; a thread that hangs while it
//! loads a library prevents others from writing their stacks. Nothing here runs if the variable is not set.

mod line;

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::environment::stacks;
use crate::unwind::{_Unwind_Backtrace, _Unwind_GetIPInfo, GO_ON, STOP};
use line::Line;

/// Maximum number of frames of a stack.
const DEPTH: usize = 64;
/// Maximum length of a line in bytes.
const LINE: usize = 16 << 10;
/// Maximum length of a file name.
const PATH: usize = 4096;
/// Maximum number of threads that write at the same time.
const SLOTS: usize = 16;

/// The folder for the files; set together with the handler.
static FOLDER: OnceLock<CString> = OnceLock::new();

/// The memory of a handler.
struct Slot {
    is_taken: AtomicBool,
    memory: UnsafeCell<Memory>,
}

struct Memory {
    line: [u8; LINE],
    path: [u8; PATH],
    frames: Frames,
}

// SAFETY: the thread that has taken a slot uses its memory alone.
unsafe impl Sync for Slot {}

static MEMORY: [Slot; SLOTS] = [const {
    let frames = Frames { from: 0, addresses: [0; DEPTH], len: 0 };
    Slot {
        is_taken: AtomicBool::new(false),
        memory: UnsafeCell::new(Memory { line: [0; LINE], path: [0; PATH], frames }),
    }
}; SLOTS];

/// The addresses of a stack, starting with the interrupted instruction.
struct Frames {
    from: usize,
    addresses: [usize; DEPTH],
    len: usize,
}

/// The number of the signal.
fn signal() -> c_int {
    libc::SIGRTMAX() - 3
}

/// Installs the handler, if this is requested and the signal has no handler yet.
pub(crate) fn watch() {
    let Some(folder) = stacks() else { return };
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let Ok(folder) = CString::new(folder.into_os_string().into_vec()) else { return };
    // SAFETY: zeros are no handler and no signals.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `before` has room for the current action.
    let is_known = unsafe { libc::sigaction(signal(), std::ptr::null(), &raw mut before) } == 0;
    if !is_known || before.sa_sigaction != libc::SIG_DFL || FOLDER.set(folder).is_err() {
        return;
    }
    // The unwinder's one-time initialisation is done here, so that it does not happen in a handler.
    let mut frames = Frames { from: 0, addresses: [0; DEPTH], len: 0 };
    // SAFETY: the callback has the type that the unwinder calls, and does not unwind.
    unsafe { _Unwind_Backtrace(each, (&raw mut frames).cast()) };
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler has the type required with SA_SIGINFO, and the library is never unloaded.
    unsafe {
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(signal(), &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn handle(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: errno of this thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    if let (Some(folder), Some(slot)) = (FOLDER.get(), take_slot()) {
        // SAFETY: the slot belongs to this thread until `is_taken` is cleared.
        tell(folder, unsafe { &mut *slot.memory.get() }, interrupted_at(context));
        slot.is_taken.store(false, Ordering::Release);
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Takes memory that no other thread uses. If all slots are taken for long, a thread hangs in here; the search then gives up.
fn take_slot() -> Option<&'static Slot> {
    const TRIES: u32 = 2000;
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    for _ in 0..TRIES {
        if let Some(slot) = MEMORY.iter().find(|slot| !slot.is_taken.swap(true, Ordering::Acquire)) {
            return Some(slot);
        }
        // SAFETY: a system call.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
    None
}

/// The interrupted instruction of the thread; 0 if unknown on this architecture.
fn interrupted_at(context: *mut c_void) -> usize {
    // SAFETY: the kernel passes a context to handlers with SA_SIGINFO.
    let Some(context) = (unsafe { context.cast::<libc::ucontext_t>().as_ref() }) else { return 0 };
    #[cfg(target_arch = "x86_64")]
    return context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    return context.uc_mcontext.pc as usize;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = context;
        0
    }
}

extern "C" fn each(context: *mut c_void, frames: *mut c_void) -> c_int {
    // SAFETY: the unwinding code passes its own value, which no other code uses meanwhile.
    let frames = unsafe { &mut *frames.cast::<Frames>() };
    let mut is_itself = 0;
    // SAFETY: the unwinder passes its context, and there is room for a number.
    let address = unsafe { _Unwind_GetIPInfo(context, &raw mut is_itself) };
    // The frames of the handler come first, and are skipped.
    if frames.len == 0 && frames.from != 0 && address != frames.from {
        return GO_ON;
    }
    if frames.len == DEPTH || address == 0 {
        return STOP;
    }
    // A call instruction is before its return address.
    frames.addresses[frames.len] = if is_itself != 0 { address } else { address - 1 };
    frames.len += 1;
    GO_ON
}

/// Writes the line of this thread.
fn tell(folder: &CStr, memory: &mut Memory, at: usize) {
    let Memory { line: room, path, frames } = memory;
    (frames.from, frames.len) = (at, 0);
    // SAFETY: as in `watch`.
    unsafe { _Unwind_Backtrace(each, (&raw mut *frames).cast()) };
    if frames.len == 0 {
        // If the stack cannot be unwound, the interrupted instruction is at least known.
        (frames.addresses[0], frames.len) = (at, 1);
    }
    // SAFETY: system calls about this process and this thread.
    let (pid, tid) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    let mut name = [0u8; 17];
    // SAFETY: there is room for a name, which has at most sixteen bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    let mut end = Line::new(path);
    if end.bytes(folder.to_bytes()).and_then(|()| write!(end, "/{pid}.stacks\0")).is_err() {
        return;
    }
    // Room for the end is reserved, whatever comes before it.
    let room_of_end = b"]}\n";
    let len = room.len() - room_of_end.len();
    let mut line = Line::new(&mut room[..len]);
    if head(&mut line, pid, tid, name).is_err() {
        return;
    }
    for (place, &address) in frames.addresses[..frames.len].iter().enumerate() {
        if !line.try_add(|line| frame(line, place, address)) {
            break;
        }
    }
    let len = line.as_bytes().len();
    room[len..len + room_of_end.len()].copy_from_slice(room_of_end);
    write_line(path, &room[..len + room_of_end.len()]);
}

fn head(line: &mut Line<'_>, pid: c_int, tid: i64, name: &CStr) -> fmt::Result {
    write!(line, "{{\"pid\":{pid},\"tid\":{tid},\"name\":")?;
    line.c_text(name)?;
    line.bytes(b",\"stack\":[")
}

/// Appends a line to the file with this name.
fn write_line(path: &[u8], line: &[u8]) {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the name is terminated by a zero byte, and the pointer and length are those of the line.
    unsafe {
        let file = libc::open(path.as_ptr().cast(), flags, 0o600);
        if file >= 0 {
            libc::write(file, line.as_ptr().cast(), line.len());
            libc::close(file);
        }
    }
}

/// A frame in the form of `softnic check`: its address, its module with the address in the file, and the function if the module exports it.
fn frame(line: &mut Line<'_>, place: usize, address: usize) -> fmt::Result {
    let comma = if place > 0 { "," } else { "" };
    write!(line, "{comma}{{\"address\":\"{address:#x}\"")?;
    let mut search = Search { address, line, result: Ok(()) };
    // SAFETY: the callback has the type that the loader calls, and `search` lives long enough.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.result?;
    // SAFETY: zeros are NULL pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be looked up, and `info` has room for the result.
    let found = unsafe { libc::dladdr(std::ptr::without_provenance(address), &raw mut info) };
    if found != 0 && !info.dli_sname.is_null() {
        line.bytes(b",\"function\":")?;
        // SAFETY: the loader found a name, which lives as long as the module.
        line.c_text(unsafe { CStr::from_ptr(info.dli_sname) })?;
    }
    line.bytes(b"}")
}

struct Search<'a, 'b> {
    address: usize,
    line: &'a mut Line<'b>,
    result: fmt::Result,
}

extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes its own data, and the pointer given by `frame`.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_, '_>>()) };
    // SAFETY: the loader has this number of headers there.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr;
    let is_in = |header: &&libc::Elf64_Phdr| {
        let from = base.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD && (search.address as u64).wrapping_sub(from) < header.p_memsz
    };
    if headers.iter().find(is_in).is_none() {
        return 0;
    }
    search.result = module(search.line, info.dlpi_name, (search.address as u64).wrapping_sub(base));
    1
}

/// Writes the name of a module. The program itself has no name in the loader.
fn module(line: &mut Line<'_>, name: *const libc::c_char, offset: u64) -> fmt::Result {
    line.bytes(b",\"module\":")?;
    let name = match name.is_null() {
        true => c"",
        // SAFETY: a string that lives as long as the module.
        false => unsafe { CStr::from_ptr(name) },
    };
    if name.is_empty() {
        let mut own = [0u8; 1024];
        // SAFETY: there is room for this number of bytes.
        let len = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), own.as_mut_ptr().cast(), own.len()) };
        line.text(&own[..usize::try_from(len).unwrap_or(0)])?;
    } else {
        line.c_text(name)?;
    }
    write!(line, ",\"offset\":\"{offset:#x}\"")
}
