//! Backend `dpdk:DEVARGS`: the queues of a device driven by DPDK in user space, without the kernel.
//!
//! Device names are parsed in every build; the devices themselves need the feature `dpdk`.

#[cfg(feature = "dpdk")]
mod device;
#[cfg(feature = "dpdk")]
mod eal;
mod error;
#[cfg(feature = "dpdk")]
mod inventory;
#[cfg(feature = "dpdk")]
mod nap;
#[cfg(feature = "dpdk")]
mod pci;
#[cfg(feature = "dpdk")]
mod queue;
mod spec;
#[cfg(feature = "dpdk")]
mod sys;
#[cfg(feature = "dpdk")]
mod tap;
#[cfg(feature = "dpdk")]
mod tapped;

#[cfg(feature = "dpdk")]
pub(crate) use device::{Dpdk, DpdkLine};
pub use error::DpdkError;
#[cfg(feature = "dpdk")]
pub use inventory::{PciNic, drivers, pci_nics};
pub use spec::{DpdkSpec, DpdkSpecError};
#[cfg(feature = "dpdk")]
pub(crate) use tap::Tap;
#[cfg(feature = "dpdk")]
pub(crate) use tapped::Tapped;
