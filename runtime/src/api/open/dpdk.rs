//! A NIC on a device that DPDK drives.

use super::{OpenError, Parts};
use crate::dpdk::DpdkSpec;

impl Parts {
    #[cfg(not(feature = "dpdk"))]
    pub(super) fn dpdk(spec: &DpdkSpec, _queues: u32) -> Result<Parts, OpenError> {
        Err(crate::dpdk::DpdkError::NotBuilt(spec.to_string()).into())
    }

    #[cfg(feature = "dpdk")]
    pub(super) fn dpdk(spec: &DpdkSpec, queues: u32) -> Result<Parts, OpenError> {
        use super::{Neighbourhood, OwnStack, USUAL_RATE, link_mtu_of, mtu_of};
        use crate::dpdk::{Dpdk, DpdkLine};
        use crate::engine::Io;
        use crate::io::PacketIo;
        use softnic_nic::Port;

        spec.check()?;
        let (device, queues) = Dpdk::open(spec, queues)?;
        let longest = queues.iter().map(PacketIo::max_frame).min().unwrap_or_default();
        let mtu = mtu_of(longest).ok_or(OpenError::TooShort(longest))?;
        let line = Box::new(DpdkLine::new(&device, spec));
        let parts = Parts {
            ios: queues.into_iter().map(|queue| Box::new(queue) as Io).collect(),
            port: Port { mac: device.mac(), addresses: spec.own_addresses(), mtu },
            neighbourhood: Neighbourhood::Here,
            company: None,
            description: format!("{spec} ({})", device.description()),
            rate: device.rate().unwrap_or(USUAL_RATE),
            link_mtu: link_mtu_of(longest),
            own_stack: None,
        };
        match &spec.tap {
            Some(name) => parts.with_tap(name, spec, line),
            None => {
                let own_stack = Some(OwnStack { links: spec.links(), vlan: spec.vlan, filter: Some(device) });
                Ok(Parts { neighbourhood: Neighbourhood::Own(Some(line)), own_stack, ..parts })
            }
        }
    }

    /// The kernel has all that is no RoCE, by a tap, and knows the network.
    #[cfg(feature = "dpdk")]
    fn with_tap(self, name: &str, spec: &DpdkSpec, line: Box<dyn super::Line>) -> Result<Parts, OpenError> {
        use super::{HostNetwork, Neighbourhood};
        use crate::dpdk::{Tap, Tapped};

        let tap = Tap::open(name, self.port.mac, self.link_mtu, &spec.addresses)?;
        let host = HostNetwork::open(name)?;
        let host = spec.vlan.into_iter().fold(host, HostNetwork::in_vlan);
        let mut port = host.port()?;
        port.mtu = port.mtu.min(self.port.mtu);
        let ios = Tapped::among(self.ios, tap, line, spec.vlan)?;
        let description = format!("{}, tap {name}", self.description);
        Ok(Parts { ios, port, neighbourhood: Neighbourhood::Kernel(Box::new(host)), description, ..self })
    }
}
