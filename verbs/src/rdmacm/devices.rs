//! The devices used by connections: opened when the first id needs them, and kept until the process ends, so that the last messages are
//! sent.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use softnic_runtime::api::ConnectionManager;

use crate::abi::*;
use crate::c_result::c_list;
use crate::calls::{device_list, open};
use crate::errno::Errno;
use crate::exit;
use crate::message::error;
use crate::objects::context::{Context, ContextPtr};
use crate::objects::device::Device;
use crate::objects::domain::{self, Pd};
use crate::per_process::PerProcess;

/// How long an exiting process waits until its peers are notified.
const FAREWELL: Duration = Duration::from_millis(200);

/// A device with its connection manager.
pub(crate) struct CmDevice {
    context: usize,
    pd: usize,
    pub(crate) manager: ConnectionManager,
}

static OPEN: PerProcess<Mutex<Vec<(usize, &'static CmDevice)>>> = PerProcess::new();

impl CmDevice {
    fn open(device: &'static Device) -> Result<CmDevice, Errno> {
        let context = open::open(device);
        if context.is_null() {
            return Err(Errno::last());
        }
        // SAFETY: the context was just opened, and is never closed.
        let pointer: ContextPtr<'static> = unsafe { ContextPtr::new(context) };
        let pd = domain::alloc(pointer);
        if pd.is_null() {
            return Err(Errno::last());
        }
        let manager = ConnectionManager::new(&pointer.nic().runtime).map_err(|e| {
            error(format_args!("{e}"));
            Errno(libc::ENODEV)
        })?;
        pointer.nic().owners.tell_first_data(manager.first_data());
        Ok(CmDevice { context: context.expose_provenance(), pd: pd.expose_provenance(), manager })
    }

    fn of(device: &'static Device) -> Result<&'static CmDevice, Errno> {
        let mut open = OPEN.get().lock().unwrap_or_else(|p| p.into_inner());
        if let Some((_, found)) = open.iter().find(|(index, _)| *index == device.index) {
            return Ok(found);
        }
        let made: &'static CmDevice = Box::leak(Box::new(CmDevice::open(device)?));
        open.push((device.index, made));
        exit::at(exit::Step::Connections, end_all);
        Ok(made)
    }

    pub(crate) fn as_c(&self) -> *mut ibv_context {
        std::ptr::with_exposed_provenance_mut(self.context)
    }

    pub(crate) fn context(&self) -> ContextPtr<'static> {
        // SAFETY: the context is never closed.
        unsafe { ContextPtr::new(self.as_c()) }
    }

    /// The default protection domain.
    pub(crate) fn pd(&self) -> &'static Pd {
        // SAFETY: the domain is never deallocated.
        unsafe { &*std::ptr::with_exposed_provenance(self.pd) }
    }

    /// The index of an address in the GID table.
    pub(crate) fn gid_index(&self, address: IpAddr) -> Option<usize> {
        let context: &Context = &self.context();
        context.nic().runtime.addresses().iter().position(|&a| a == address)
    }
}

/// All devices that can be opened; an error if there are none.
pub(crate) fn all() -> Result<Vec<&'static CmDevice>, Errno> {
    let mut why = Errno(libc::ENODEV);
    let mut found = Vec::new();
    for device in device_list::devices() {
        match CmDevice::of(device) {
            Ok(device) => found.push(device),
            Err(e) => why = e,
        }
    }
    if found.is_empty() { Err(why) } else { Ok(found) }
}

/// The device that has an address.
pub(crate) fn with_address(address: IpAddr) -> Result<&'static CmDevice, Errno> {
    all()?.into_iter().find(|device| device.gid_index(address).is_some()).ok_or(Errno(libc::EADDRNOTAVAIL))
}

/// The program ends: ends its connections.
fn end_all() {
    // No other thread waits for this lock any more; if it is held, it is never released.
    if let Ok(open) = OPEN.get().try_lock() {
        open.iter().for_each(|(_, device)| device.manager.end_all(FAREWELL));
    }
}

/// `rdma_get_devices`.
pub(crate) extern "C" fn get(count: *mut c_int) -> *mut *mut ibv_context {
    let devices = all().unwrap_or_else(|e| {
        e.set();
        Vec::new()
    });
    // SAFETY: NULL, or a valid location for a number.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = devices.len() as c_int;
    }
    if devices.is_empty() {
        return std::ptr::null_mut();
    }
    c_list(devices.iter().map(|device| device.as_c()))
}

/// `rdma_free_devices`: the devices themselves stay.
pub(crate) extern "C" fn free(list: *mut *mut ibv_context) {
    // SAFETY: the list is from `get`, by the contract of the function.
    unsafe { libc::free(list.cast()) }
}
