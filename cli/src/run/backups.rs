//! The backups of a program's devices: which, and whether they can be.

use softnic_runtime::api::{BackupOptions, DeviceSpec, MUTUAL, mutual_backups};

use super::devices::Devices;
use super::{Setup, given, with_scripts};
use crate::backup::FailoverArgs;

/// Backups of the first devices in their order, and what is said of them beside, as it was written.
pub(super) struct Backups {
    devices: Option<Devices>,
    /// They are the program's devices, too.
    mutual: bool,
    beside: FailoverArgs,
}

impl Backups {
    /// Whether the devices of the program are to back each other.
    pub(super) fn are_mutual(args: &Setup) -> Result<bool, String> {
        let variable = given(None, "SOFTNIC_BACKUP")?.filter(|_| args.backup.is_empty());
        Ok(args.backup == [MUTUAL] || variable.as_deref() == Some(MUTUAL))
    }

    /// Those of the command line, or of the environment, for these devices.
    pub(super) fn of(args: &Setup, ours: &Devices) -> Result<Backups, String> {
        let text = |option: &Option<String>, variable| given(option.as_deref(), variable);
        let FailoverArgs { failover, kv, probe, backup_fault } = &args.failover;
        let beside = FailoverArgs {
            failover: text(failover, "SOFTNIC_FAILOVER")?,
            kv: text(kv, "SOFTNIC_KV")?,
            probe: text(probe, "SOFTNIC_PROBE")?,
            backup_fault: with_scripts("--backup-fault", text(backup_fault, "SOFTNIC_BACKUP_FAULT")?)?,
        };
        let parse = |name: &str| beside.options(name).map(|options| options.device);
        let mutual = Backups::are_mutual(args)?;
        let devices = match given(None, "SOFTNIC_BACKUP")? {
            _ if mutual => {
                let specs: Vec<DeviceSpec> = ours.specs().cloned().collect();
                let swapped = mutual_backups(&specs).map_err(|e| format!("--backup: {e}"))?;
                let names: Vec<String> = swapped.iter().map(DeviceSpec::to_string).collect();
                Some(Devices::parse_with(names.iter().map(String::as_str), parse)?)
            }
            _ if !args.backup.is_empty() => Some(Devices::parse_with(args.backup.iter().map(String::as_str), parse)?),
            Some(list) => Some(Devices::parse_with(list.split(';'), parse)?),
            None => None,
        };
        if devices.is_none() {
            args.failover.check_unused()?;
        }
        Ok(Backups { devices, mutual, beside })
    }

    /// Whether they can be the backups of these, as far as can be told without opening any.
    pub(super) fn check(&self, devices: &Devices) -> Result<(), String> {
        let Some(backups) = &self.devices else { return Ok(()) };
        let (ours, theirs) = (devices.specs().len(), backups.specs().len());
        if theirs > ours {
            return Err(format!(
                "--backup is given {theirs} times, and there {} {ours} --dev: the n-th is for the n-th",
                if ours == 1 { "is" } else { "are" }
            ));
        }
        for (device, backup) in devices.specs().zip(backups.specs()) {
            BackupOptions::new(backup.clone()).check(device).map_err(|e| format!("--backup: {e}"))?;
            if !self.mutual && devices.specs().any(|other| other == backup && *other != DeviceSpec::Mem) {
                return Err(format!(
                    "--backup {backup} is a --dev, too: a backup is no device of the program, unless two back each other: --backup mutual"
                ));
            }
        }
        let faults = self.beside.backup_fault.as_deref().and_then(|text| text.parse().ok());
        backups.check(faults.as_ref(), ["--backup", "--backup-fault"])
    }

    /// What the library is told.
    pub(super) fn variables(self) -> impl Iterator<Item = (&'static str, Option<String>)> {
        let FailoverArgs { failover, kv, probe, backup_fault } = self.beside;
        let beside = [
            ("SOFTNIC_FAILOVER", failover),
            ("SOFTNIC_KV", kv),
            ("SOFTNIC_PROBE", probe),
            ("SOFTNIC_BACKUP_FAULT", backup_fault),
        ];
        let devices = ("SOFTNIC_BACKUP", self.devices.map(|devices| devices.joined()));
        [devices].into_iter().chain(beside)
    }
}
