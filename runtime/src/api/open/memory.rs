//! The two ends of a wire in memory.

use softnic_nic::Port;
use softnic_wire::PathMtu;

use super::{MEMORY_RATE, Neighbourhood, OpenError, OpenOptions, OwnAddresses, Parts, link_mtu_of};
use crate::engine::Io;
use crate::{Faulty, MemoryWire};

impl Parts {
    /// The two ends of a wire in memory, with faults for both directions on the first. A wire of several queues is several wires side by
    /// side: what an engine sends comes in at the engine of the same number.
    pub(in crate::api) fn pair(options: &OpenOptions) -> Result<[Parts; 2], OpenError> {
        let mut ends: [Vec<Io>; 2] = Default::default();
        for queue in 0..options.queues.unwrap_or(1).max(1) {
            let (a, b) = MemoryWire::pair()?;
            ends[0].push(match &options.fault {
                Some(spec) => Box::new(Faulty::new(a, spec, options.seed.wrapping_add(queue.into()))),
                None => Box::new(a),
            });
            ends[1].push(Box::new(b));
        }
        let one = |n: u8, ios: Vec<Io>| {
            let own = OwnAddresses::of_host(n);
            let port = Port { mac: own.mac, addresses: own.addresses, mtu: PathMtu::B4096 };
            let (description, link_mtu) = (format!("mem, end {n}"), link_mtu_of(ios[0].max_frame()));
            let (neighbourhood, company) = (Neighbourhood::Own, None);
            Parts { ios, port, neighbourhood, company, description, rate: MEMORY_RATE, link_mtu }
        };
        let [a, b] = ends;
        Ok([one(1, a), one(2, b)])
    }
}
