//! The options of a NIC's backup, which several commands take: what goes beside its device.

use softnic_fault_injector::Spec;
use softnic_runtime::api::{BackupOptions, parse_backup, parse_failover, parse_kv, parse_probe};

/// What is said of backups beside their devices, as it was written.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct FailoverArgs {
    /// How connections go on by the backup [default: shift]
    #[arg(long, value_name = "shift", help_heading = "Failover")]
    pub(crate) failover: Option<String>,
    /// Where the backup of a peer is found: peer asks the peer itself [default], or
    /// redis://[USER:PASSWORD@]HOST:PORT[/DB][?prefix=P], the same server for both ends. A password is safer in SOFTNIC_KV
    #[arg(long, value_name = "STORE", help_heading = "Failover")]
    pub(crate) kv: Option<String>,
    /// Time between two probes of the device, while its backup is used [default: 100ms]
    #[arg(long, value_name = "T", help_heading = "Failover")]
    pub(crate) probe: Option<String>,
    /// What goes wrong on the backup's wire, as --fault has it
    #[arg(long, value_name = "SPEC", help_heading = "Failover")]
    pub(crate) backup_fault: Option<String>,
}

impl FailoverArgs {
    /// The options that are given, by name.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        let FailoverArgs { failover, kv, probe, backup_fault } = self;
        let all = [("--failover", failover), ("--kv", kv), ("--probe", probe), ("--backup-fault", backup_fault)];
        all.into_iter().filter(|(_, text)| text.is_some()).map(|(name, _)| name)
    }

    /// Refuses options of a backup where there is none.
    pub(crate) fn check_unused(&self) -> Result<(), String> {
        match self.given().next() {
            Some(name) => Err(format!("{name} is about a backup: name one by --backup DEVICE")),
            None => Ok(()),
        }
    }

    /// The backup on a device.
    pub(crate) fn options(&self, device: &str) -> Result<BackupOptions, String> {
        let mut options = BackupOptions::new(parse_backup(device).map_err(|e| format!("--backup: {e}"))?);
        if let Some(mode) = &self.failover {
            parse_failover(mode).map_err(|e| format!("--failover: {e}"))?;
        }
        if let Some(kv) = &self.kv {
            options.store = parse_kv(kv).map_err(|e| format!("--kv: {e}"))?;
        }
        if let Some(probe) = &self.probe {
            options.times.probe = parse_probe(probe).map_err(|e| format!("--probe: {e}"))?;
        }
        let faults = self.backup_fault.as_deref().map(str::parse::<Spec>).transpose();
        options.faults = faults.map_err(|e| format!("--backup-fault: {e}"))?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_wrong_is_said_with_the_name_of_its_option() {
        let args = FailoverArgs { probe: Some("20ms".into()), ..FailoverArgs::default() };
        assert_eq!(args.options("mem").unwrap().times.probe, Duration::from_millis(20));
        assert!(args.options("mutual").unwrap_err().starts_with("--backup: `mutual`"));
        assert!(args.check_unused().unwrap_err().contains("--probe"));
        let args = FailoverArgs { kv: Some("redis://:secret@h:1".into()), ..FailoverArgs::default() };
        assert_eq!(args.options("mem").unwrap().store.to_string(), "redis://:***@h:1");
        let args = FailoverArgs { kv: Some("redis://secret@h:1".into()), ..FailoverArgs::default() };
        let why = args.options("mem").unwrap_err();
        assert!(why.starts_with("--kv: ") && !why.contains("secret"), "{why}");
        let args = FailoverArgs { backup_fault: Some("loss=2".into()), ..FailoverArgs::default() };
        assert!(args.options("mem").unwrap_err().starts_with("--backup-fault: "));
        assert_eq!(FailoverArgs::default().check_unused(), Ok(()));
    }
}
