//! The speed that a port reports. Programs use it to divide work among ports.
//!
//! It has no effect on the NIC: transports use the link rate known to the runtime.

use softnic_runtime::afxdp;

use crate::environment::environment;

/// The speed without an interface, or with a software interface: such a link is as fast as the processor, and the speed that drivers report
/// for it is not meaningful (veth: 10 Gbit/s).
const SOFTWARE: u64 = 100_000_000_000;
/// The speed of interfaces that report none.
const UNKNOWN: u64 = 10_000_000_000;

/// Drivers of pure software interfaces.
const SOFTWARE_DRIVERS: [&str; 1] = ["veth"];

/// A speed in the codes of verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkSpeed {
    /// Number of lanes.
    pub(crate) width: u8,
    /// Speed of a lane.
    pub(crate) speed: u8,
    /// The text in /sys, as the kernel writes it.
    pub(crate) text: &'static str,
}

impl LinkSpeed {
    /// The speed for an interface, or without one.
    pub(crate) fn of(interface: Option<&str>) -> LinkSpeed {
        let told = environment().ok().and_then(|environment| environment.link_speed);
        let rate = told.unwrap_or_else(|| match interface {
            None => SOFTWARE,
            Some(interface) => match afxdp::Device::find(interface) {
                Ok(device) if device.driver.as_deref().is_some_and(|d| SOFTWARE_DRIVERS.contains(&d)) => SOFTWARE,
                Ok(device) => device.rate.unwrap_or(UNKNOWN),
                Err(_) => UNKNOWN,
            },
        });
        LinkSpeed::of_rate(rate)
    }

    /// The width and speed that together give a rate in bits per second, as Linux reports them for RoCE: the next available combination.
    fn of_rate(rate: u64) -> LinkSpeed {
        const X1: u8 = 1;
        const X4: u8 = 2;
        const X2: u8 = 16;
        const SDR: u8 = 1;
        const FDR10: u8 = 8;
        const EDR: u8 = 32;
        const HDR: u8 = 64;
        const NDR: u8 = 128;
        let (width, speed, text) = match rate.div_ceil(1_000_000) {
            0..=1_000 => (X1, SDR, "2.5 Gb/sec (1X SDR)"),
            1_001..=10_000 => (X1, FDR10, "10 Gb/sec (1X FDR10)"),
            10_001..=25_000 => (X1, EDR, "25 Gb/sec (1X EDR)"),
            25_001..=40_000 => (X4, FDR10, "40 Gb/sec (4X FDR10)"),
            40_001..=50_000 => (X2, EDR, "50 Gb/sec (2X EDR)"),
            50_001..=100_000 => (X4, EDR, "100 Gb/sec (4X EDR)"),
            100_001..=200_000 => (X4, HDR, "200 Gb/sec (4X HDR)"),
            _ => (X4, NDR, "400 Gb/sec (4X NDR)"),
        };
        LinkSpeed { width, speed, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_those_that_linux_knows() {
        for (gbit, text) in [(1, "2.5 Gb/sec (1X SDR)"), (10, "10 Gb/sec (1X FDR10)"), (25, "25 Gb/sec (1X EDR)")] {
            assert_eq!(LinkSpeed::of_rate(gbit * 1_000_000_000).text, text);
        }
        let hundred = LinkSpeed { width: 2, speed: 32, text: "100 Gb/sec (4X EDR)" };
        assert_eq!(LinkSpeed::of_rate(100_000_000_000), hundred);
        assert_eq!(LinkSpeed::of_rate(u64::MAX).text, "400 Gb/sec (4X NDR)");
    }

    #[test]
    fn what_has_no_interface_is_as_fast_as_software() {
        assert_eq!(LinkSpeed::of(None).text, "100 Gb/sec (4X EDR)");
    }
}
