//! The carrier of a device that is opened. Some drivers reset the NIC when a program is attached or detached (seen with igb), and the link
//! is down for a moment. Opening waits for the link, so that the interruption is not taken for a failure.

use std::thread;
use std::time::{Duration, Instant};

use super::device::Device;
use super::drivers;
use super::error::AfXdpError;
use crate::host_network::Interface;

/// How long to wait for a link that was up before: autonegotiation of 1000BASE-T takes about 3 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait for a link that was not up before. Its last user may just have closed the device, after which the driver resets the NIC
/// too; more often there is no cable.
const SHORT_PATIENCE: Duration = Duration::from_secs(5);
/// Interval between checks of the link.
const PAUSE: Duration = Duration::from_millis(5);

/// The state of a device's link before the device is opened.
pub(super) struct Carrier {
    had_link: bool,
    /// How long to wait for the link.
    patience: Duration,
}

/// Whether the link is up; `None` if the interface is administratively down, or if its state is unknown.
fn link(device: &Device) -> Option<bool> {
    Interface::by_index(device.ifindex).ok().filter(|at| at.admin_up).map(|at| at.up)
}

impl Carrier {
    /// Reads the link state before a program is attached.
    pub(super) fn before(device: &Device) -> Carrier {
        Carrier::of(link(device) == Some(true), drivers::keeps_link(device))
    }

    fn of(had_link: bool, keeps_link: bool) -> Carrier {
        let patience = match (had_link, keeps_link) {
            (true, _) => PATIENCE,
            (false, false) => SHORT_PATIENCE,
            (false, true) => Duration::ZERO,
        };
        Carrier { had_link, patience }
    }

    /// Waits until the device has its link again.
    pub(super) fn wait(&self, device: &Device) -> Result<(), AfXdpError> {
        let begin = Instant::now();
        let came = self.wait_with(|| link(device), || begin.elapsed(), || thread::sleep(PAUSE));
        if came || !self.had_link {
            return Ok(());
        }
        Err(AfXdpError::NoCarrier { interface: device.name.clone(), seconds: self.patience.as_secs() })
    }

    /// As `wait`, with a link and a clock supplied by the caller; returns whether the link is up.
    fn wait_with(
        &self,
        link: impl Fn() -> Option<bool>,
        elapsed: impl Fn() -> Duration,
        mut pause: impl FnMut(),
    ) -> bool {
        while link() == Some(false) {
            if elapsed() >= self.patience {
                return false;
            }
            pause();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Waits for a link that comes up at `comes_at`, if it does; returns whether it came up, and how long that took.
    fn waited(carrier: &Carrier, comes_at: Option<Duration>) -> (bool, Duration) {
        let now = Cell::new(Duration::ZERO);
        let link = || Some(comes_at.is_some_and(|at| now.get() >= at));
        let came = carrier.wait_with(link, || now.get(), || now.set(now.get() + PAUSE));
        (came, now.get())
    }

    #[test]
    fn a_link_that_goes_when_a_device_is_opened_or_was_closed_is_waited_for() {
        let reset = Duration::from_millis(3500);
        for had_link in [true, false] {
            assert_eq!(waited(&Carrier::of(had_link, false), Some(reset)), (true, reset));
            assert_eq!(waited(&Carrier::of(had_link, false), Some(Duration::ZERO)), (true, Duration::ZERO));
        }
    }

    #[test]
    fn a_link_that_stays_away_is_waited_for_some_seconds() {
        for (had_link, keeps_link, patience) in [
            (true, false, PATIENCE),
            (true, true, PATIENCE),
            (false, false, SHORT_PATIENCE),
            (false, true, Duration::ZERO),
        ] {
            assert_eq!(waited(&Carrier::of(had_link, keeps_link), None), (false, patience));
        }
    }

    #[test]
    fn a_device_that_is_switched_off_is_not_waited_for() {
        assert!(Carrier::of(false, false).wait_with(
            || None,
            || Duration::ZERO,
            || panic!("it does not come up by itself")
        ));
    }
}
