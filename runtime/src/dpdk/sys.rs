//! Bindings of the C shim over DPDK: its functions as C declares them, and the safe interface that the rest of the backend uses.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use rustix::fs::{Mode, OFlags};

/// The largest number of frames per call. The shim has arrays of this size.
pub(super) const BURST: usize = 64;

/// A frame in a DPDK buffer.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Frame {
    mbuf: *mut c_void,
    data: *mut u8,
    len: u32,
    room: u32,
}

// SAFETY: a frame has one owner, and DPDK's buffers may be freed and sent by any thread.
unsafe impl Send for Frame {}

impl Frame {
    /// The bytes of a received frame.
    #[inline]
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the driver wrote `len` bytes there, and this frame is the only owner of the buffer until it is freed.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len as usize) }
    }

    /// Where to write a frame that is to be sent.
    #[inline]
    pub(super) fn room(&mut self) -> &mut [u8] {
        // SAFETY: the buffer has `room` bytes behind `data`, this frame is its only owner, and its pool's memory was written when it was mapped.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.room as usize) }
    }

    /// Sets the number of bytes written.
    #[inline]
    pub(super) fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.room as usize);
        self.len = len as u32;
    }
}

/// Properties of a port.
#[repr(C)]
#[derive(Debug, Clone)]
pub(super) struct PortInfo {
    driver: [c_char; 32],
    pub(super) mac: [u8; 6],
    pub(super) max_queues: u16,
    pub(super) mtu: u16,
    pub(super) max_mtu: u16,
    /// Link speed in Mbit/s; 0 if it is unknown.
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

/// How to open a port.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct PortSetup {
    pub(super) queues: u16,
    pub(super) rx_slots: u16,
    pub(super) tx_slots: u16,
    /// 0: keep the present MTU.
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

/// Converts the result of a call; the error includes the messages that DPDK logged.
fn check(result: c_int) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        error => Err(failed(error)),
    }
}

fn failed(error: c_int) -> io::Error {
    let mut text = [0 as c_char; 256];
    // SAFETY: the shim writes at most `text.len()` bytes, including a terminating zero.
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

/// Starts DPDK, once a process. The arguments must live as long as the process: they are leaked.
pub(super) fn start(words: &[String], verbose: bool) -> io::Result<()> {
    let mut argv = Vec::new();
    for word in words {
        argv.push(CString::new(word.as_str())?.into_raw());
    }
    let count = argv.len() as c_int;
    argv.push(std::ptr::null_mut());
    let argv = argv.leak();
    // SAFETY: the array has `count` strings, which are never freed, and the array is leaked as well.
    check(unsafe { softnic_dpdk_start(count, argv.as_mut_ptr(), c_int::from(verbose)) })
}

/// A thread that is registered with DPDK: its buffers come from a cache of its own. The thread is unregistered when it ends.
struct Entered(bool);

impl Entered {
    fn new() -> Entered {
        // SAFETY: affects the calling thread alone. There are 128 places: a thread without one is slower.
        Entered(unsafe { softnic_dpdk_enter_thread() } != 0)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: the thread is registered, and it is ending.
            unsafe { softnic_dpdk_leave_thread() };
        }
    }
}

/// Registers the calling thread, which is going to poll.
#[inline]
pub(super) fn enter_thread() {
    thread_local! {
        static ENTERED: Entered = Entered::new();
    }
    // A thread that is ending has been unregistered already.
    let _ = ENTERED.try_with(|_| ());
}

/// The buffers of one queue.
#[derive(Debug)]
pub(super) struct Pool(NonNull<c_void>);

// SAFETY: DPDK's pools may be used by several threads.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    pub(super) fn new(name: &str, count: u32, room: u16) -> io::Result<Pool> {
        let name = CString::new(name)?;
        // SAFETY: the name is only read during the call.
        let pool = unsafe { softnic_dpdk_pool(name.as_ptr(), count, room) };
        NonNull::new(pool).map(Pool).ok_or_else(|| failed(-libc::ENOMEM))
    }

    /// Appends `count` empty frames to `frames`; false if the pool has fewer.
    #[inline]
    pub(super) fn take(&self, frames: &mut Vec<Frame>, count: usize) -> bool {
        let count = count.min(BURST);
        let start = frames.len();
        frames.reserve(count);
        // SAFETY: `frames` has room for `count` more; the shim writes all of them or none.
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
        // SAFETY: all buffers of the pool have been returned: the port is closed before its pools are dropped.
        unsafe { softnic_dpdk_free_pool(self.0.as_ptr()) };
    }
}

/// Returns buffers to their pools.
#[inline]
pub(super) fn free(frames: &mut Vec<Frame>) {
    for some in frames.chunks_mut(BURST) {
        // SAFETY: this vector owns the frames, and they are forgotten below.
        unsafe { softnic_dpdk_free(some.as_mut_ptr(), some.len() as u16) };
    }
    frames.clear();
}

/// An attached DPDK port. Any thread may call its methods; a queue is used by one thread at a time.
#[derive(Debug)]
pub(super) struct Port(u16);

impl Port {
    /// Finds the device and attaches its driver.
    pub(super) fn attach(devargs: &str) -> io::Result<Port> {
        let devargs = CString::new(devargs)?;
        let mut port = 0;
        // SAFETY: the text is only read during the call, and the number is written.
        check(unsafe { softnic_dpdk_attach(devargs.as_ptr(), &mut port) })?;
        Ok(Port(port))
    }

    pub(super) fn info(&self) -> io::Result<PortInfo> {
        let mut info = std::mem::MaybeUninit::zeroed();
        // SAFETY: all-zero bytes are a valid structure, and the shim fills it.
        unsafe {
            check(softnic_dpdk_info(self.0, info.as_mut_ptr()))?;
            Ok(info.assume_init())
        }
    }

    pub(super) fn is_up(&self) -> bool {
        // SAFETY: reads the state of a port that stays attached as long as this value lives.
        unsafe { softnic_dpdk_is_up(self.0) != 0 }
    }

    /// Opens the port's queues, with one pool each.
    pub(super) fn open(&self, setup: &PortSetup, pools: &[Pool]) -> io::Result<()> {
        assert_eq!(pools.len(), usize::from(setup.queues));
        let mut pools: Vec<*mut c_void> = pools.iter().map(|pool| pool.0.as_ptr()).collect();
        // SAFETY: there are as many pools as queues, and they outlive the port: see `Drop` of the device.
        check(unsafe { softnic_dpdk_open(self.0, setup, pools.as_mut_ptr()) })
    }

    /// Appends received frames. `counted` counts the frames that were joined by copying, and those that were too long for that.
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
        // SAFETY: there is room for `limit` frames behind the last, and the shim returns how many it wrote.
        unsafe {
            let out = frames.as_mut_ptr().add(start);
            let count = softnic_dpdk_receive(self.0, queue, pool.0.as_ptr(), out, limit as u16, copied, lost);
            frames.set_len(start + usize::from(count));
        }
    }

    /// Sends the first frames, as many as the driver accepts. Returns their number. They belong to the driver now, and are forgotten here.
    #[inline]
    pub(super) fn send(&self, queue: u16, frames: &mut Vec<Frame>) -> usize {
        let count = frames.len().min(BURST);
        // SAFETY: this vector owns the frames, and those that the driver took are forgotten here.
        let sent = unsafe { softnic_dpdk_send(self.0, queue, frames.as_ptr(), count as u16) };
        frames.drain(..usize::from(sent));
        usize::from(sent)
    }

    /// The descriptor of a queue's interrupt, if it has one. The driver keeps the descriptor.
    pub(super) fn interrupt_fd(&self, queue: u16) -> Option<RawFd> {
        // SAFETY: reads the state of an attached port.
        let fd = unsafe { softnic_dpdk_interrupt_fd(self.0, queue) };
        (fd >= 0).then_some(fd)
    }

    /// Arms the queue's interrupt; `false` if a frame is there already.
    pub(super) fn arm(&self, queue: u16) -> io::Result<bool> {
        // SAFETY: affects the state of an attached port's queue.
        let armed = unsafe { softnic_dpdk_arm(self.0, queue) };
        check(armed).map(|()| armed == 0)
    }

    /// Disarms the queue's interrupt.
    pub(super) fn disarm(&self, queue: u16) {
        // SAFETY: affects the state of an attached port's queue.
        unsafe { softnic_dpdk_disarm(self.0, queue) };
    }

    pub(super) fn lost(&self) -> u64 {
        // SAFETY: reads counters of an attached port.
        unsafe { softnic_dpdk_lost(self.0) }
    }

    /// Makes the port receive frames to all groups.
    pub(super) fn take_all_multicast(&self) -> io::Result<()> {
        // SAFETY: sets the state of an attached port.
        check(unsafe { softnic_dpdk_all_groups(self.0) })
    }

    /// Makes the port receive frames to these groups; on failure, to all groups.
    pub(super) fn take_groups(&self, macs: &mut [[u8; 6]]) -> io::Result<()> {
        // SAFETY: the array has `macs.len()` addresses of six bytes each, which DPDK copies.
        check(unsafe { softnic_dpdk_groups(self.0, macs.as_mut_ptr(), macs.len() as u32) })
    }

    /// Stops and starts the port. Until that succeeds no frames are received or sent.
    pub(super) fn restart(&self) -> io::Result<()> {
        // SAFETY: the shim waits for threads that poll, and lets none poll meanwhile.
        check(unsafe { softnic_dpdk_restart(self.0) })
    }

    /// Stops the port and releases the device; on DPDK's own thread if the driver does work there at any time.
    pub(super) fn close(&self, by_interrupt_thread: bool) -> io::Result<()> {
        // SAFETY: the queues of the port are gone: each queue keeps the device alive.
        check(unsafe { softnic_dpdk_close(self.0, c_int::from(by_interrupt_thread)) })
    }
}

/// Attaches to the tap of this name. The kernel creates it if necessary, and removes it with its last descriptor. Reads and writes do not block.
pub(super) fn attach_tap(name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    // SAFETY: all-zero bytes are a valid structure of numbers and an empty name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero: a name that is too long is rejected when the device's name is parsed.
    for (to, &from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.as_bytes()) {
        *to = from as c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
    // SAFETY: the descriptor is owned here, and the structure is of the kind that the request expects and lives during the call.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } {
        0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets whether a tap has a carrier.
pub(super) fn set_tap_carrier(tap: impl AsFd, up: bool) -> io::Result<()> {
    let up = c_int::from(up);
    // SAFETY: the kernel reads one number, which lives during the call.
    match unsafe { libc::ioctl(tap.as_fd().as_raw_fd(), libc::TUNSETCARRIER, &raw const up) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
