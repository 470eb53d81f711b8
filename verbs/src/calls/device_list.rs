//! The devices of the process: `softnic0`, `softnic1`, … in the order of the environment.

use std::sync::OnceLock;

use crate::abi::*;
use crate::c_result::c_list;
use crate::environment::{environment, files};
use crate::message::error;
use crate::objects::device::Device;
use crate::{exit, fork};

/// All devices. If there are none, the reason is printed once.
pub(crate) fn devices() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        if let Some(folder) = files() {
            // `softnic run` detects by this open that the library was loaded.
            let _ = std::fs::File::open(folder);
        }
        let environment = match environment() {
            Ok(environment) => environment,
            Err(why) => {
                error(format_args!("{why}"));
                return Vec::new();
            }
        };
        fork::watch();
        let mut devices = Vec::new();
        for (i, spec) in environment.devices.iter().enumerate() {
            devices.extend(Device::all_of(spec, environment.backups.get(i), devices.len()));
        }
        exit::at(exit::Step::Nics, settle_all);
        devices
    })
}

/// The process ends: open NICs send their pending frames.
fn settle_all() {
    let first_of_group = devices().iter().filter(|device| device.is_first_of_group());
    let open: Vec<_> = first_of_group.filter_map(Device::opened).collect();
    open.iter().for_each(|nics| nics.settle());
}

/// `ibv_get_device_list`.
pub(crate) extern "C" fn get_list(count: *mut c_int) -> *mut *mut ibv_device {
    let devices = devices();
    // SAFETY: NULL, or a valid location for a number.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = devices.len() as c_int;
    }
    c_list(devices.iter().map(Device::as_c))
}

/// `ibv_free_device_list`: the devices themselves stay.
pub(crate) extern "C" fn free_list(list: *mut *mut ibv_device) {
    // SAFETY: the list is from `get_list`, by the contract of the verb.
    unsafe { libc::free(list.cast()) }
}
