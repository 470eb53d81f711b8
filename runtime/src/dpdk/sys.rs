//! The shim over DPDK: its functions as C has them, and the safe face that the rest of the backend uses.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use rustix::fs::{Mode, OFlags};

/// Frames that are taken or given at a time, at most; the shim has arrays of so many.
pub(super) const BURST: usize = 64;

/// A frame in a buffer of DPDK's.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Frame {
    mbuf: *mut c_void,
    data: *mut u8,
    len: u32,
    room: u32,
}

// SAFETY: a frame belongs to whoever has it, and DPDK's buffers may be freed and sent by any thread.
unsafe impl Send for Frame {}

impl Frame {
    /// A frame that came in.
    #[inline]
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the driver wrote `len` bytes there, and the buffer is ours alone until it is freed.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len as usize) }
    }

    /// Where a frame is written that is to leave.
    #[inline]
    pub(super) fn room(&mut self) -> &mut [u8] {
        // SAFETY: the buffer has `room` bytes behind `data`, is ours alone, and its pool's memory was written when it was mapped.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.room as usize) }
    }

    /// So many bytes of it are written.
    #[inline]
    pub(super) fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.room as usize);
        self.len = len as u32;
    }
}

/// What a port says of itself.
#[repr(C)]
#[derive(Debug, Clone)]
pub(super) struct PortInfo {
    driver: [c_char; 32],
    pub(super) mac: [u8; 6],
    pub(super) max_queues: u16,
    pub(super) mtu: u16,
    pub(super) max_mtu: u16,
    /// Of the line, in Mbit/s; 0 where nobody knows.
    pub(super) speed: u32,
    is_pci: u8,
}

impl PortInfo {
    pub(super) fn driver(&self) -> String {
        let bytes: Vec<u8> = self.driver.iter().map(|&c| c as u8).take_while(|&b| b != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(super) fn is_pci(&self) -> bool {
        self.is_pci != 0
    }
}

/// How a port is opened.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct PortSetup {
    pub(super) queues: u16,
    pub(super) rx_slots: u16,
    pub(super) tx_slots: u16,
    /// 0: as it is.
    pub(super) mtu: u16,
    pub(super) interrupts: u8,
}

unsafe extern "C" {
    fn softnic_dpdk_said(out: *mut c_char, len: usize);
    fn softnic_dpdk_start(argc: c_int, argv: *mut *mut c_char, verbose: c_int) -> c_int;
    fn softnic_dpdk_enter_thread() -> c_int;
    fn softnic_dpdk_leave_thread();
    fn softnic_dpdk_attach(devargs: *const c_char, port: *mut u16) -> c_int;
    fn softnic_dpdk_info(port: u16, out: *mut PortInfo) -> c_int;
    fn softnic_dpdk_is_up(port: u16) -> c_int;
    fn softnic_dpdk_pool(name: *const c_char, count: c_uint, room: u16) -> *mut c_void;
    fn softnic_dpdk_free_pool(pool: *mut c_void);
    fn softnic_dpdk_open(port: u16, setup: *const PortSetup, pools: *mut *mut c_void) -> c_int;
    fn softnic_dpdk_restart(port: u16) -> c_int;
    fn softnic_dpdk_close(port: u16, by_interrupt_thread: c_int) -> c_int;
    fn softnic_dpdk_receive(
        port: u16,
        queue: u16,
        pool: *mut c_void,
        out: *mut Frame,
        limit: u16,
        copied: *mut u64,
        lost: *mut u64,
    ) -> u16;
    fn softnic_dpdk_free(frames: *mut Frame, count: u16);
    fn softnic_dpdk_take(pool: *mut c_void, out: *mut Frame, count: u16) -> c_int;
    fn softnic_dpdk_send(port: u16, queue: u16, frames: *const Frame, count: u16) -> u16;
    fn softnic_dpdk_interrupt_fd(port: u16, queue: u16) -> c_int;
    fn softnic_dpdk_arm(port: u16, queue: u16) -> c_int;
    fn softnic_dpdk_disarm(port: u16, queue: u16);
    fn softnic_dpdk_lost(port: u16) -> u64;
    fn softnic_dpdk_all_groups(port: u16) -> c_int;
    fn softnic_dpdk_groups(port: u16, macs: *mut [u8; 6], count: u32) -> c_int;
}

/// The result of a call, with what DPDK logged about it.
fn check(result: c_int) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        error => Err(failed(error)),
    }
}

fn failed(error: c_int) -> io::Error {
    let mut text = [0 as c_char; 256];
    // SAFETY: the shim writes at most so many bytes, and a zero behind them.
    let said = unsafe {
        softnic_dpdk_said(text.as_mut_ptr(), text.len());
        CStr::from_ptr(text.as_ptr())
    };
    let system = io::Error::from_raw_os_error(error.unsigned_abs() as i32);
    match said.to_string_lossy().trim() {
        "" => system,
        said => io::Error::new(system.kind(), format!("{said} ({system})")),
    }
}

/// Starts DPDK, once a process. Its words must live as long as the process: they are leaked.
pub(super) fn start(words: &[String], verbose: bool) -> io::Result<()> {
    let mut argv = Vec::new();
    for word in words {
        argv.push(CString::new(word.as_str())?.into_raw());
    }
    let count = argv.len() as c_int;
    argv.push(std::ptr::null_mut());
    let argv = argv.leak();
    // SAFETY: as many strings as said, which nobody frees, and the array is leaked as well.
    check(unsafe { softnic_dpdk_start(count, argv.as_mut_ptr(), c_int::from(verbose)) })
}

/// A thread that is known to DPDK: its buffers come from a cache of its own. It is forgotten when the thread ends.
struct Entered(bool);

impl Entered {
    fn new() -> Entered {
        // SAFETY: concerns the calling thread alone. There are places for 128 threads: one that has none is slower.
        Entered(unsafe { softnic_dpdk_enter_thread() } != 0)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: the thread was entered, and ends.
            unsafe { softnic_dpdk_leave_thread() };
        }
    }
}

/// The calling thread polls.
#[inline]
pub(super) fn enter_thread() {
    thread_local! {
        static ENTERED: Entered = Entered::new();
    }
    // A thread that is about to end has left already.
    let _ = ENTERED.try_with(|_| ());
}

/// Buffers of one queue.
#[derive(Debug)]
pub(super) struct Pool(NonNull<c_void>);

// SAFETY: DPDK's pools are made for many threads.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    pub(super) fn new(name: &str, count: u32, room: u16) -> io::Result<Pool> {
        let name = CString::new(name)?;
        // SAFETY: the name is read during the call.
        let pool = unsafe { softnic_dpdk_pool(name.as_ptr(), count, room) };
        NonNull::new(pool).map(Pool).ok_or_else(|| failed(-libc::ENOMEM))
    }

    /// Fills `frames` with `count` empty ones; false where there are not so many.
    #[inline]
    pub(super) fn take(&self, frames: &mut Vec<Frame>, count: usize) -> bool {
        let count = count.min(BURST);
        let start = frames.len();
        frames.reserve(count);
        // SAFETY: there is room for so many behind the last; the shim writes all of them or none.
        unsafe {
            let taken = softnic_dpdk_take(self.0.as_ptr(), frames.as_mut_ptr().add(start), count as u16) != 0;
            if taken {
                frames.set_len(start + count);
            }
            taken
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: whoever had buffers of it has given them back: the port is closed before its pools go.
        unsafe { softnic_dpdk_free_pool(self.0.as_ptr()) };
    }
}

/// Gives buffers back.
#[inline]
pub(super) fn free(frames: &mut Vec<Frame>) {
    for some in frames.chunks_mut(BURST) {
        // SAFETY: they are ours, and forgotten below.
        unsafe { softnic_dpdk_free(some.as_mut_ptr(), some.len() as u16) };
    }
    frames.clear();
}

/// A port of DPDK's, attached. Its methods may be called by any thread; a queue is one thread's at a time.
#[derive(Debug)]
pub(super) struct Port(u16);

impl Port {
    /// Finds the device and gives it to its driver.
    pub(super) fn attach(devargs: &str) -> io::Result<Port> {
        let devargs = CString::new(devargs)?;
        let mut port = 0;
        // SAFETY: the text is read during the call, and the number written.
        check(unsafe { softnic_dpdk_attach(devargs.as_ptr(), &mut port) })?;
        Ok(Port(port))
    }

    pub(super) fn info(&self) -> io::Result<PortInfo> {
        let mut info = std::mem::MaybeUninit::zeroed();
        // SAFETY: all bytes zero are a valid structure, and the shim fills it.
        unsafe {
            check(softnic_dpdk_info(self.0, info.as_mut_ptr()))?;
            Ok(info.assume_init())
        }
    }

    pub(super) fn is_up(&self) -> bool {
        // SAFETY: reads the state of a port that is attached as long as we live.
        unsafe { softnic_dpdk_is_up(self.0) != 0 }
    }

    /// Opens its queues, a pool for each.
    pub(super) fn open(&self, setup: &PortSetup, pools: &[Pool]) -> io::Result<()> {
        assert_eq!(pools.len(), usize::from(setup.queues));
        let mut pools: Vec<*mut c_void> = pools.iter().map(|pool| pool.0.as_ptr()).collect();
        // SAFETY: as many pools as queues, which outlive the port: see `Drop` of the device.
        check(unsafe { softnic_dpdk_open(self.0, setup, pools.as_mut_ptr()) })
    }

    /// Appends the frames that came in. `counted` counts those that were copied together, and those that were too long for that.
    #[inline]
    pub(super) fn receive(
        &self,
        queue: u16,
        pool: &Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
        counted: &mut [u64; 2],
    ) {
        let limit = limit.min(BURST);
        let start = frames.len();
        frames.reserve(limit);
        let [copied, lost] = counted;
        // SAFETY: there is room for `limit` frames behind the last, and the shim says how many it wrote.
        unsafe {
            let out = frames.as_mut_ptr().add(start);
            let count = softnic_dpdk_receive(self.0, queue, pool.0.as_ptr(), out, limit as u16, copied, lost);
            frames.set_len(start + usize::from(count));
        }
    }

    /// Sends the first frames, as many as the driver takes; says how many. These are the driver's now, and must be forgotten.
    #[inline]
    pub(super) fn send(&self, queue: u16, frames: &mut Vec<Frame>) -> usize {
        let count = frames.len().min(BURST);
        // SAFETY: the frames are ours, and those that the driver took are forgotten here.
        let sent = unsafe { softnic_dpdk_send(self.0, queue, frames.as_ptr(), count as u16) };
        frames.drain(..usize::from(sent));
        usize::from(sent)
    }

    /// The descriptor of a queue's interrupt, where there is one. It stays the driver's.
    pub(super) fn interrupt_fd(&self, queue: u16) -> Option<RawFd> {
        // SAFETY: reads the state of an attached port.
        let fd = unsafe { softnic_dpdk_interrupt_fd(self.0, queue) };
        (fd >= 0).then_some(fd)
    }

    /// Lets the queue's interrupt come; `false` where a frame is there already.
    pub(super) fn arm(&self, queue: u16) -> io::Result<bool> {
        // SAFETY: concerns the state of an attached port's queue.
        let armed = unsafe { softnic_dpdk_arm(self.0, queue) };
        check(armed).map(|()| armed == 0)
    }

    /// The queue's interrupt comes no more.
    pub(super) fn disarm(&self, queue: u16) {
        // SAFETY: as above.
        unsafe { softnic_dpdk_disarm(self.0, queue) };
    }

    pub(super) fn lost(&self) -> u64 {
        // SAFETY: reads counters of an attached port.
        unsafe { softnic_dpdk_lost(self.0) }
    }

    /// Frames to all groups come in.
    pub(super) fn take_all_multicast(&self) -> io::Result<()> {
        // SAFETY: sets the state of an attached port.
        check(unsafe { softnic_dpdk_all_groups(self.0) })
    }

    /// Frames to these groups come in; to others, too, where it fails.
    pub(super) fn take_groups(&self, macs: &mut [[u8; 6]]) -> io::Result<()> {
        // SAFETY: as many addresses as said, six bytes each, which DPDK copies.
        check(unsafe { softnic_dpdk_groups(self.0, macs.as_mut_ptr(), macs.len() as u32) })
    }

    /// Stops it and starts it again. Until that went well nothing comes in and nothing leaves.
    pub(super) fn restart(&self) -> io::Result<()> {
        // SAFETY: the shim waits for whoever polls, and lets nobody poll meanwhile.
        check(unsafe { softnic_dpdk_restart(self.0) })
    }

    /// Stops it and gives the device back; by DPDK's own thread where the driver does things there at any time.
    pub(super) fn close(&self, by_interrupt_thread: bool) -> io::Result<()> {
        // SAFETY: its queues are gone: whoever has one keeps the device.
        check(unsafe { softnic_dpdk_close(self.0, c_int::from(by_interrupt_thread)) })
    }
}

/// Attaches to the tap of this name, which is made where there is none and goes with its last descriptor. Reading and writing never wait.
pub(super) fn attach_tap(name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    // SAFETY: all bytes zero are a valid structure: numbers, and a name that is empty.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays a zero: a name that is too long is refused when the device's name is read.
    for (to, &from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.as_bytes()) {
        *to = from as c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
    // SAFETY: a descriptor of ours, and a structure of the kind that the request is for, which lives during the call.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } {
        0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A tap has a signal, or has none.
pub(super) fn set_tap_carrier(tap: impl AsFd, up: bool) -> io::Result<()> {
    let up = c_int::from(up);
    // SAFETY: the kernel reads one number, which lives during the call.
    match unsafe { libc::ioctl(tap.as_fd().as_raw_fd(), libc::TUNSETCARRIER, &raw const up) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
