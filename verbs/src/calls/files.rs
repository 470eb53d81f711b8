//! The files that Linux has for RDMA devices in /sys and /dev, for programs that read them: the kernel does not know these devices.
//!
//! They are ordinary files in a folder, with the paths of /sys and /dev below it. When a program looks for such a file,
//! libsoftnic_preload.so asks this module for its location, and lets the C library open that file. Values that change (state, speed, GIDs,
//! counters) are written again at every access. Files are replaced atomically: processes that share the folder find either the old file or
//! the new one.

mod attributes;
mod counters;
mod folder;

use std::ffi::CStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use crate::abi::*;
use crate::calls::device_list::devices;
use crate::objects::device::Device;
use attributes::{DEVICE_FILE, Links};
use folder::Folder;

/// The location of a file that a program looks for in /sys or /dev. Writes its path, and returns the additional length, which is the length
/// of the folder; -1 if there is no such file.
///
/// # Safety
/// `path` is a string, `out` has room for `size` bytes.
pub(crate) unsafe extern "C" fn locate(path: *const c_char, out: *mut c_char, size: usize) -> c_int {
    // SAFETY: a string, by the contract.
    let path = unsafe { CStr::from_ptr(path) };
    let Some(folder) = path.to_str().ok().and_then(up_to_date) else { return -1 };
    let (folder, path) = (folder.path().as_os_str().as_bytes(), path.to_bytes_with_nul());
    if folder.len() + path.len() > size {
        return -1;
    }
    // SAFETY: there is room for both.
    unsafe {
        std::ptr::copy_nonoverlapping(folder.as_ptr(), out.cast(), folder.len());
        std::ptr::copy_nonoverlapping(path.as_ptr(), out.add(folder.len()).cast(), path.len());
    }
    folder.len() as c_int
}

/// The folder, in which the file at `path` was updated.
fn up_to_date(path: &str) -> Option<&'static Folder> {
    static FOLDER: OnceLock<Option<Folder>> = OnceLock::new();
    let make = || {
        let devices = devices();
        let folder = if devices.is_empty() { None } else { Folder::new() }?;
        devices.iter().try_for_each(|device| lay_down(&folder, device)).ok()?;
        Some(folder)
    };
    let folder = FOLDER.get_or_init(make).as_ref()?;
    if let Some((device, part)) = part_of(path) {
        // A file that cannot be written keeps its contents.
        let _ = refresh(folder, device, &part);
    }
    Some(folder)
}

/// The device that a path belongs to, and the part of the path below the device's port, folder by folder.
fn part_of(path: &str) -> Option<(&'static Device, Vec<&str>)> {
    let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    let port = names.windows(2).position(|pair| pair == ["ports", "1"])?;
    let device = devices().iter().find(|device| port > 0 && device.name() == names[port - 1])?;
    Some((device, names[port + 2..].to_vec()))
}

/// Creates all files of a device.
fn lay_down(folder: &Folder, device: &Device) -> io::Result<()> {
    let node = attributes::node(device);
    for (path, text) in attributes::constant(device) {
        folder.put(&path, &text)?;
    }
    for part in ["gids", "counters", "hw_counters", "state"] {
        refresh(folder, device, &[part])?;
    }
    let Links { device: hardware, interface } = attributes::links(device);
    let (name, file) = (device.name(), device.file_name());
    let classes = [("infiniband", name), ("infiniband_verbs", file)];
    for (class, name) in classes {
        let target = format!("../../{}/{class}/{name}", node.trim_start_matches("sys/"));
        folder.link(&format!("sys/class/{class}/{name}"), Path::new(&target))?;
        folder.link(&format!("{node}/{class}/{name}/device"), &hardware)?;
        let class_folder = format!("../../../../../class/{class}");
        folder.link(&format!("{node}/{class}/{name}/subsystem"), Path::new(&class_folder))?;
    }
    if let Some((name, target)) = interface {
        folder.link(&format!("{node}/net/{name}"), &target)?;
    }
    folder.link(&format!("dev/infiniband/{file}"), Path::new(DEVICE_FILE))
}

/// Updates the variable files of a device's port: one file, or a folder of them.
fn refresh(folder: &Folder, device: &Device, part: &[&str]) -> io::Result<()> {
    let port = attributes::port_folder(device);
    match part {
        ["gids" | "gid_attrs", ..] => attributes::gids(device).into_iter().try_for_each(|(path, text)| match text {
            Some(text) => folder.put(&format!("{port}/{path}"), &text),
            None => folder.remove(&format!("{port}/{path}")),
        }),
        [kind @ ("counters" | "hw_counters"), name @ ..] => {
            let wanted = |file: &str| name.first().is_none_or(|name| *name == file);
            let mut all = counters::files(device, kind).into_iter().filter(|(file, _)| wanted(file));
            all.try_for_each(|(file, text)| folder.put(&format!("{port}/{kind}/{file}"), &text))
        }
        ["state" | "phys_state" | "rate"] => {
            let mut all = attributes::port_state(device).into_iter();
            all.try_for_each(|(file, text)| folder.put(&format!("{port}/{file}"), &text))
        }
        _ => Ok(()),
    }
}
