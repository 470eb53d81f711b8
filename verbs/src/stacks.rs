//! `SOFTNIC_STACKS`: where the threads of a process are that hangs. Each that gets a signal writes its stack, as a line of JSON, to
//! `PID.stacks` in a folder.
//!
//! The signal is SIGRTMAX-3, unless the program has a handler for it. Threads of softnic's own take no signals, so they are left out, and so
//! is a thread of the program that blocks it. The handler allocates nothing: it has memory that is there already, and writes by one write(2).
//! Finding frames and the modules that they are in may take a lock of the loader, which a thread can take twice; a thread that hangs while it
//! loads a library keeps others from telling where they are. Nothing here runs where the variable is not set.

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

/// Frames of a stack.
const DEPTH: usize = 64;
/// Bytes of a line.
const LINE: usize = 16 << 10;
/// The longest name of a file.
const PATH: usize = 4096;
/// Threads that write at the same time.
const SLOTS: usize = 16;

/// Where files go; set when the handler is.
static FOLDER: OnceLock<CString> = OnceLock::new();

/// What a handler works with.
struct Slot {
    is_taken: AtomicBool,
    memory: UnsafeCell<Memory>,
}

struct Memory {
    line: [u8; LINE],
    path: [u8; PATH],
    frames: Frames,
}

// SAFETY: whoever has taken a slot has its memory alone.
unsafe impl Sync for Slot {}

static MEMORY: [Slot; SLOTS] = [const {
    let frames = Frames { from: 0, addresses: [0; DEPTH], len: 0 };
    Slot {
        is_taken: AtomicBool::new(false),
        memory: UnsafeCell::new(Memory { line: [0; LINE], path: [0; PATH], frames }),
    }
}; SLOTS];

/// The addresses of a stack, from the instruction on that was interrupted.
struct Frames {
    from: usize,
    addresses: [usize; DEPTH],
    len: usize,
}

/// The signal.
fn signal() -> c_int {
    libc::SIGRTMAX() - 3
}

/// From now on the signal is taken, where this is wanted and nobody else takes it.
pub(crate) fn watch() {
    let Some(folder) = stacks() else { return };
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let Ok(folder) = CString::new(folder.into_os_string().into_vec()) else { return };
    // SAFETY: zeros are no handler and no signals.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `before` is a place for what there is.
    let is_known = unsafe { libc::sigaction(signal(), std::ptr::null(), &raw mut before) } == 0;
    if !is_known || before.sa_sigaction != libc::SIG_DFL || FOLDER.set(folder).is_err() {
        return;
    }
    // What the unwinder does for the first time it does not do in a handler.
    let mut frames = Frames { from: 0, addresses: [0; DEPTH], len: 0 };
    // SAFETY: the callback has the type that the unwinder calls, and does not unwind.
    unsafe { _Unwind_Backtrace(each, (&raw mut frames).cast()) };
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler has the type of one with SA_SIGINFO, and the library is never unloaded.
    unsafe {
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(signal(), &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn handle(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: of this thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the same.
    let before = unsafe { *errno };
    if let (Some(folder), Some(slot)) = (FOLDER.get(), take_slot()) {
        // SAFETY: it is ours until `is_taken` says otherwise.
        tell(folder, unsafe { &mut *slot.memory.get() }, interrupted_at(context));
        slot.is_taken.store(false, Ordering::Release);
    }
    // SAFETY: the same.
    unsafe { *errno = before };
}

/// Memory that no other thread has. When all is taken for long somebody hangs in here; nobody waits for that.
fn take_slot() -> Option<&'static Slot> {
    const TRIES: u32 = 2000;
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    for _ in 0..TRIES {
        if let Some(slot) = MEMORY.iter().find(|slot| !slot.is_taken.swap(true, Ordering::Acquire)) {
            return Some(slot);
        }
        // SAFETY: a call of the system.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
    None
}

/// The instruction that the thread was at; 0 where this is not known of the machine.
fn interrupted_at(context: *mut c_void) -> usize {
    // SAFETY: the kernel passes one to handlers with SA_SIGINFO.
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
    // SAFETY: whoever unwinds passes its own, which nobody else uses meanwhile.
    let frames = unsafe { &mut *frames.cast::<Frames>() };
    let mut is_itself = 0;
    // SAFETY: the unwinder passes its context, and there is a place for a number.
    let address = unsafe { _Unwind_GetIPInfo(context, &raw mut is_itself) };
    // Frames of the handler come first.
    if frames.len == 0 && frames.from != 0 && address != frames.from {
        return GO_ON;
    }
    if frames.len == DEPTH || address == 0 {
        return STOP;
    }
    // A call lies before the address to which it returns.
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
        // What cannot be unwound is at least somewhere.
        (frames.addresses[0], frames.len) = (at, 1);
    }
    // SAFETY: calls of the system about this process and this thread.
    let (pid, tid) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    let mut name = [0u8; 17];
    // SAFETY: there is room for a name, which has at most sixteen bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    let mut end = Line::new(path);
    if end.bytes(folder.to_bytes()).and_then(|()| write!(end, "/{pid}.stacks\0")).is_err() {
        return;
    }
    // The end must fit whatever comes before it.
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

/// Adds a line to the file with this name.
fn write_line(path: &[u8], line: &[u8]) {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the name ends with zero, and the bytes are those of the line.
    unsafe {
        let file = libc::open(path.as_ptr().cast(), flags, 0o600);
        if file >= 0 {
            libc::write(file, line.as_ptr().cast(), line.len());
            libc::close(file);
        }
    }
}

/// A frame as `softnic check` has it: its address, its module with the address in its file, and the function where the module exports it.
fn frame(line: &mut Line<'_>, place: usize, address: usize) -> fmt::Result {
    let comma = if place > 0 { "," } else { "" };
    write!(line, "{comma}{{\"address\":\"{address:#x}\"")?;
    let mut search = Search { address, line, result: Ok(()) };
    // SAFETY: the callback has the type that the loader calls, and `search` is there as long.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.result?;
    // SAFETY: zeros are NULL pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for, and `info` is a place for the answer.
    let found = unsafe { libc::dladdr(std::ptr::without_provenance(address), &raw mut info) };
    if found != 0 && !info.dli_sname.is_null() {
        line.bytes(b",\"function\":")?;
        // SAFETY: the loader found a name, which stays as long as the module.
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
    // SAFETY: the loader passes its own, and what `frame` gave it.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_, '_>>()) };
    // SAFETY: the loader has so many headers there.
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

/// The program itself has no name there.
fn module(line: &mut Line<'_>, name: *const libc::c_char, offset: u64) -> fmt::Result {
    line.bytes(b",\"module\":")?;
    let name = match name.is_null() {
        true => c"",
        // SAFETY: a string that stays as long as the module.
        false => unsafe { CStr::from_ptr(name) },
    };
    if name.is_empty() {
        let mut own = [0u8; 1024];
        // SAFETY: there is room for so many bytes.
        let len = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), own.as_mut_ptr().cast(), own.len()) };
        line.text(&own[..usize::try_from(len).unwrap_or(0)])?;
    } else {
        line.c_text(name)?;
    }
    write!(line, ",\"offset\":\"{offset:#x}\"")
}
