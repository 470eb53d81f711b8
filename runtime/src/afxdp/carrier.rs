//! The carrier of a device that is opened: drivers reset the NIC when a program is attached or goes (seen with igb), and the link is away for a
//! moment. Opening waits for that, so that nobody takes it for a failure.

use std::thread;
use std::time::{Duration, Instant};

use super::device::Device;
use super::error::AfXdpError;
use crate::host_network::Interface;

/// How long a link that was there may take to come back: autonegotiation of 1000BASE-T takes some 3 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one that was not there before is waited for: the last user may just have closed the device. More often there is no cable.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);
/// How often to look.
const PAUSE: Duration = Duration::from_millis(5);

/// The link of a device before it is opened.
pub(super) struct Carrier {
    had_link: bool,
}

/// Whether packets pass; `None` where the device is not even switched on, or nobody can tell.
fn link(device: &Device) -> Option<bool> {
    Interface::by_index(device.ifindex).ok().filter(|at| at.admin_up).map(|at| at.up)
}

impl Carrier {
    /// Looks before anything is attached.
    pub(super) fn before(device: &Device) -> Carrier {
        Carrier { had_link: link(device) == Some(true) }
    }

    /// Waits until the device has its link again.
    pub(super) fn wait(&self, device: &Device) -> Result<(), AfXdpError> {
        let (begin, patience) = (Instant::now(), if self.had_link { PATIENCE } else { SHORT_PATIENCE });
        while link(device) == Some(false) {
            match begin.elapsed() >= patience {
                true if self.had_link => {
                    return Err(AfXdpError::NoCarrier { interface: device.name.clone(), seconds: patience.as_secs() });
                }
                true => break,
                false => thread::sleep(PAUSE),
            }
        }
        Ok(())
    }
}
