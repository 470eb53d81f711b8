//! A NIC on a device that DPDK drives.

use super::{OpenError, OpenOptions, Parts};
use crate::dpdk::DpdkSpec;

impl Parts {
    #[cfg(not(feature = "dpdk"))]
    pub(super) fn dpdk(spec: &DpdkSpec, _options: &OpenOptions) -> Result<Parts, OpenError> {
        Err(crate::dpdk::DpdkError::NotBuilt(spec.to_string()).into())
    }

    #[cfg(feature = "dpdk")]
    pub(super) fn dpdk(spec: &DpdkSpec, options: &OpenOptions) -> Result<Parts, OpenError> {
        use super::{Neighbourhood, OwnStack, USUAL_RATE, link_mtu_of, mtu_of};
        use crate::dpdk::{Dpdk, DpdkLine};
        use crate::engine::Io;
        use crate::io::PacketIo;
        use softnic_nic::Port;

        spec.check()?;
        let (device, queues) = Dpdk::open(spec, options.queues)?;
        let longest = queues.iter().map(PacketIo::max_frame).min().unwrap_or_default();
        let mtu = mtu_of(longest).ok_or(OpenError::TooShort(longest))?;
        let addresses = spec.own_addresses();
        let line = DpdkLine::new(&device, spec);
        Ok(Parts {
            ios: queues.into_iter().map(|queue| Box::new(queue) as Io).collect(),
            port: Port { mac: device.mac(), addresses, mtu },
            neighbourhood: Neighbourhood::Own(Some(Box::new(line))),
            company: None,
            description: format!("{spec} ({})", device.description()),
            rate: device.rate().unwrap_or(USUAL_RATE),
            link_mtu: link_mtu_of(longest),
            own_stack: Some(OwnStack { links: spec.links(), vlan: spec.vlan }),
        })
    }
}
