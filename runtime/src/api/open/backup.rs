//! The second NIC of a NIC that has a backup: how it is opened, and its place behind the first.

mod words;

use softnic_fault_injector::Spec;
use softnic_nic::Generator;
use softnic_nic::Nic;
use softnic_shift::{Config, DualNic, Store, Times};

use super::{DeviceSpec, OpenError, OpenOptions, Parts};
use crate::OsRandom;
use crate::driver::DriverPort;
use crate::engine::Io;
use crate::failover::kv::Kv;
use crate::failover::list::LineSink;

pub use words::{MUTUAL, mutual_backups, parse_backup, parse_failover, parse_kv, parse_probe};

/// The backup of a NIC. Reliable connections without a shared receive queue, whose peer has a backup, too, go on there when the NIC, its link,
/// its switch or the peer's NIC fails, and return when that is over.
#[derive(Debug, Clone)]
pub struct BackupOptions {
    /// Its device.
    pub device: DeviceSpec,
    /// Faults on its wire, as [`OpenOptions::fault`] has them.
    pub faults: Option<Spec>,
    /// How long connections wait for what.
    pub times: Times,
    /// Where it finds the backups of peers; they need the same.
    pub store: Kv,
    /// Who is told of each change; by default stderr.
    pub on_change: Option<LineSink>,
}

impl BackupOptions {
    /// A backup on a device, with the usual times.
    pub fn new(device: DeviceSpec) -> BackupOptions {
        BackupOptions { device, faults: None, times: Times::default(), store: Kv::Peer, on_change: None }
    }

    /// Whether it can be the backup of this device, as far as can be told without opening either.
    ///
    /// # Errors
    /// When it fails together with the device, or only one of them is a wire in memory.
    pub fn check(&self, device: &DeviceSpec) -> Result<(), OpenError> {
        let mem = |device: &DeviceSpec| *device == DeviceSpec::Mem;
        let same_interface = interface(device).is_some() && interface(device) == interface(&self.device);
        match (mem(device), mem(&self.device)) {
            (true, true) => Ok(()),
            (true, false) => Err(OpenError::MemBackup(self.device.to_string())),
            (false, true) => Err(OpenError::Mem),
            _ if same_interface || *device == self.device => Err(OpenError::OwnBackup(device.to_string())),
            _ => Ok(()),
        }
    }
}

/// How all engines of a NIC protect their connections: what is drawn for a store is the same for them.
pub(super) fn config_of(options: &OpenOptions) -> Result<Config, OpenError> {
    let Some(backup) = &options.backup else { return Ok(Config::default()) };
    let store = match &backup.store {
        Kv::Peer => Store::Peer,
        Kv::Redis(_) => {
            let mut random = OsRandom::new()?;
            Store::External { region_nonce: std::array::from_fn(|_| (random.next_u32() >> 8) as u8) }
        }
    };
    Ok(Config { times: backup.times, store })
}

/// The interface of a device that has one.
fn interface(device: &DeviceSpec) -> Option<&str> {
    match device {
        DeviceSpec::AfXdp { interface, .. } | DeviceSpec::Shared { interface } => Some(interface),
        DeviceSpec::Mem | DeviceSpec::Shm(_) | DeviceSpec::Dgram { .. } | DeviceSpec::Dpdk(_) => None,
    }
}

impl Parts {
    /// The backup that is asked for, of a NIC on this device.
    pub(super) fn backup(&self, device: &DeviceSpec, options: &OpenOptions) -> Result<Option<Parts>, OpenError> {
        let Some(backup) = &options.backup else { return Ok(None) };
        backup.check(device)?;
        self.backed_by(&backup.device, options).map(Some)
    }

    /// A device as the backup of this one.
    fn backed_by(&self, device: &DeviceSpec, options: &OpenOptions) -> Result<Parts, OpenError> {
        let fault = options.backup.as_ref().and_then(|backup| backup.faults.clone());
        let options = OpenOptions { fault, queues: Some(self.ios.len() as u32), ..options.clone() };
        let parts = Parts::of(device, &options)?;
        match parts.ios.len() == self.ios.len() {
            true => Ok(parts),
            false => Err(OpenError::BackupQueues {
                backup: device.to_string(),
                ours: self.ios.len(),
                theirs: parts.ios.len(),
            }),
        }
    }

    /// The backups of two NICs with a wire in memory between them: another such wire, with the faults of the first that asks for it.
    pub(super) fn backups(options: [&OpenOptions; 2]) -> Result<[Option<Parts>; 2], OpenError> {
        let asked = options.map(|options| options.backup.as_ref());
        let ([Some(first), _] | [None, Some(first)]) = asked else { return Ok([None, None]) };
        asked.into_iter().flatten().try_for_each(|backup| backup.check(&DeviceSpec::Mem))?;
        let [a, b] = Parts::backup_pair(options[0], first)?;
        Ok([asked[0].map(|_| a), asked[1].map(|_| b)])
    }

    /// Puts the backup's NIC of one engine behind the first, with its wire.
    pub(super) fn behind(
        &self,
        (nic, io): (Nic, Io),
        index: u32,
        bits: u32,
        config: Config,
    ) -> Result<(DualNic, Vec<DriverPort<Io>>), OpenError> {
        let (mut backup, owner) = self.nic(index, bits)?;
        backup.set_owner(owner);
        let node = DualNic::new(nic, backup, config, Box::new(OsRandom::new()?));
        let port = DriverPort { number: DualNic::BACKUP, io, stack: self.stack(index as usize)? };
        Ok((node, vec![port]))
    }
}

#[cfg(test)]
mod tests;
