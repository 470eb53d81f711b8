//! The files that RDMA devices have in /dev and /sys, for programs that read them there: the kernel has none for this device.
//!
//! UCX uses a device only if it has a device file that it may read and write, and takes a GID for RoCEv1 unless its attributes say
//! otherwise. libsoftnic_preload.so hears of it when a program looks for them, and asks here.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::IntoRawFd;

use rustix::fs::{MemfdFlags, OFlags, memfd_create};

use crate::abi::*;
use crate::objects::device::Device;

/// A function that opens such a file by its path and flags.
type Opener = extern "C" fn(*const c_char, c_int) -> c_int;

/// Has `open` answer, if the library that asks is loaded.
pub(crate) fn answer(open: Opener) {
    // SAFETY: it is a name.
    let register = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"softnic_preload_opener".as_ptr()) };
    // SAFETY: that is the function's type; NULL is none.
    let register = unsafe { std::mem::transmute::<*mut c_void, Option<extern "C" fn(Opener)>>(register) };
    if let Some(register) = register {
        register(open);
    }
}

/// Opens such a file of one of the devices: a descriptor, or -1.
pub(crate) fn open(path: &CStr, flags: c_int, devices: &[Device]) -> c_int {
    let content = path.to_str().ok().and_then(|path| Content::of(path, devices));
    let close_on_exec = OFlags::from_bits_retain(flags as u32).contains(OFlags::CLOEXEC);
    let opened = content.map(|content| content.open(close_on_exec));
    opened.and_then(Result::ok).map_or(-1, IntoRawFd::into_raw_fd)
}

/// What is in a file.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    /// A character device. What goes there is lost: verbs do not go that way here.
    Device,
    Text(String),
}

impl Content {
    fn of(path: &str, devices: &[Device]) -> Option<Content> {
        if let Some(name) = path.strip_prefix("/dev/infiniband/") {
            return devices.iter().any(|device| device.file_name() == name).then_some(Content::Device);
        }
        let (name, attribute) = path.strip_prefix("/sys/class/infiniband/")?.split_once('/')?;
        let device = devices.iter().find(|device| device.name() == name)?;
        let (attribute, index) = attribute.strip_prefix("ports/1/gid_attrs/")?.split_once('/')?;
        let index: usize = index.parse().ok()?;
        // Programs ask when they have opened it.
        let nics = device.opened()?;
        device.nic(&nics).runtime.addresses().get(index)?;
        match attribute {
            "types" => Some(Content::Text("RoCE v2\n".into())),
            "ndevs" => device.interface().map(|name| Content::Text(format!("{name}\n"))),
            _ => None,
        }
    }

    fn open(&self, close_on_exec: bool) -> io::Result<File> {
        let text = match self {
            Content::Device => return File::options().read(true).write(true).open("/dev/null"),
            Content::Text(text) => text,
        };
        let flags = if close_on_exec { MemfdFlags::CLOEXEC } else { MemfdFlags::empty() };
        let mut file = File::from(memfd_create("softnic", flags)?);
        file.write_all(text.as_bytes())?;
        file.rewind()?;
        Ok(file)
    }
}
