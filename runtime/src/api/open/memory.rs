//! The two ends of a wire in memory.

use softnic_fault_injector::Spec;
use softnic_nic::Port;
use softnic_wire::PathMtu;

use super::{BackupOptions, MEMORY_RATE, Neighbourhood, OpenError, OpenOptions, OwnAddresses, Parts, link_mtu_of};
use crate::engine::Io;
use crate::{Faulty, MemoryWire};

impl Parts {
    /// The two ends of a wire in memory, with faults for both directions on the first. A wire of several queues is several wires side by
    /// side: what an engine sends comes in at the engine of the same number.
    pub(in crate::api) fn pair(options: &OpenOptions) -> Result<[Parts; 2], OpenError> {
        Parts::wire(options, options.fault.as_ref(), OwnAddresses::of_host)
    }

    /// The same wire once more, for backups: with faults and addresses of its own.
    pub(super) fn backup_pair(options: &OpenOptions, backup: &BackupOptions) -> Result<[Parts; 2], OpenError> {
        Parts::wire(options, backup.faults.as_ref(), OwnAddresses::of_backup)
    }

    fn wire(
        options: &OpenOptions,
        faults: Option<&Spec>,
        own: impl Fn(u8) -> OwnAddresses,
    ) -> Result<[Parts; 2], OpenError> {
        faults.map_or(Ok(()), Spec::check_no_places)?;
        let mut ends: [Vec<Io>; 2] = Default::default();
        for queue in 0..options.queues.unwrap_or(1).max(1) {
            let (a, b) = MemoryWire::pair()?;
            ends[0].push(match faults {
                Some(spec) => Box::new(Faulty::new(a, spec, options.seed.wrapping_add(queue.into()))),
                None => Box::new(a),
            });
            ends[1].push(Box::new(b));
        }
        let one = |n: u8, ios: Vec<Io>| {
            let own = own(n);
            let port = Port { mac: own.mac, addresses: own.addresses, mtu: PathMtu::B4096 };
            let (description, link_mtu) = (format!("mem, end {n}"), link_mtu_of(ios[0].max_frame()));
            let (neighbourhood, company) = (Neighbourhood::Own(None), None);
            Parts { ios, port, neighbourhood, company, description, rate: MEMORY_RATE, link_mtu, own_stack: None }
        };
        let [a, b] = ends;
        Ok([one(1, a), one(2, b)])
    }
}
