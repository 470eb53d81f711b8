//! The environment variables that configure the devices of a program which does not know softnic.

use std::env;
use std::path::PathBuf;
use std::sync::OnceLock;

use softnic_runtime::api::call_faults::CallFaults;
use softnic_runtime::api::{
    BackupOptions, Cc, DeviceSpec, FailoverTimes, FaultSpec, Kv, LinkDown, LogLevel, MUTUAL, OpenOptions, Secret,
    Transport, mutual_backups, parse_backup, parse_cc, parse_failover, parse_kv, parse_log_level, parse_probe,
    parse_rate, read_key_file,
};

/// The settings in the environment.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) devices: Vec<DeviceSpec>,
    /// The backups of the first devices, in order.
    pub(crate) backups: Vec<BackupOptions>,
    pub(crate) options: OpenOptions,
    /// The transport of RC queue pairs, unless the program chooses one.
    pub(crate) transport: Transport,
    /// The congestion control of RC queue pairs, unless the program chooses one.
    pub(crate) cc: Cc,
    /// The secret by which RC queue pairs authenticate their peers, unless the program sets one.
    pub(crate) secret: Option<Secret>,
    /// The speed that ports report, in bits per second, instead of that of their interface.
    pub(crate) link_speed: Option<u64>,
    /// The folder for the counters of the process's NICs.
    pub(crate) counters: Option<PathBuf>,
    /// Faults of the calls that the program makes.
    pub(crate) call_faults: CallFaults,
}

/// The environment at the first call of a verb.
pub(crate) fn environment() -> Result<&'static Environment, &'static str> {
    static ENVIRONMENT: OnceLock<Result<Environment, String>> = OnceLock::new();
    ENVIRONMENT.get_or_init(Environment::read).as_ref().map_err(String::as_str)
}

/// The default transport of RC queue pairs.
pub(crate) fn usual_transport() -> Transport {
    environment().map_or(Transport::default(), |environment| environment.transport)
}

/// Whether the program has more rights than the user that started it (setuid, file capabilities). Then the environment must not determine
/// which files are written and which devices are opened.
fn is_privileged() -> bool {
    // SAFETY: only reads a number that the kernel passed to the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A folder for the library's files, created and removed by `softnic run`, which detects by an open of it that the program uses verbs.
pub(crate) fn files() -> Option<PathBuf> {
    env::var_os("SOFTNIC_FILES").filter(|name| !name.is_empty() && !is_privileged()).map(Into::into)
}

/// The destination of findings about misuse: a file, or a folder with one file per process.
pub(crate) fn checks() -> Option<PathBuf> {
    env::var_os("SOFTNIC_CHECK").filter(|name| !name.is_empty() && !is_privileged()).map(Into::into)
}

/// A folder for the records of processes.
pub(crate) fn seen() -> Option<PathBuf> {
    env::var_os("SOFTNIC_SEEN").filter(|name| !name.is_empty() && !is_privileged()).map(Into::into)
}

/// A folder for the stacks of hanging threads.
pub(crate) fn stacks() -> Option<PathBuf> {
    env::var_os("SOFTNIC_STACKS").filter(|name| !name.is_empty() && !is_privileged()).map(Into::into)
}

/// Which messages the library prints on stderr by itself: those that `SOFTNIC_LOG` permits, by default warnings.
pub(crate) fn said() -> Option<LogLevel> {
    match variable("SOFTNIC_LOG") {
        Ok(Some(level)) if !is_privileged() => parse_log_level(&level).unwrap_or(Some(LogLevel::Warn)),
        _ => Some(LogLevel::Warn),
    }
}

/// A variable with a non-empty value.
fn variable(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(format!("{name} is not text")),
    }
}

impl Environment {
    fn read() -> Result<Environment, String> {
        if is_privileged() {
            return Err("the variables SOFTNIC_* are ignored in a program with the rights of another user".into());
        }
        let devices = match variable("SOFTNIC_DEV")? {
            Some(names) => names
                .split(';')
                .filter(|name| !name.trim().is_empty())
                .map(|name| name.trim().parse().map_err(|e| format!("SOFTNIC_DEV: {e}")))
                .collect::<Result<Vec<_>, _>>()?,
            None => {
                return Err(
                    "SOFTNIC_DEV names no device: set it, as in SOFTNIC_DEV=afxdp:eth0, or use `softnic run`".into()
                );
            }
        };
        let backups = backups(&devices)?;
        let transport = match variable("SOFTNIC_TRANSPORT")? {
            Some(name) => Transport::parse_rc(&name).map_err(|e| format!("SOFTNIC_TRANSPORT: {e}"))?,
            None => Transport::default(),
        };
        let cc = match variable("SOFTNIC_CC")? {
            Some(name) => parse_cc(&name).map_err(|e| format!("SOFTNIC_CC: {e}"))?,
            None => Cc::Window,
        };
        let mut spec = match variable("SOFTNIC_FAULT")? {
            Some(spec) => spec.parse::<FaultSpec>().map_err(|e| format!("SOFTNIC_FAULT: {e}"))?,
            None => FaultSpec::default(),
        };
        // Faults of calls are handled by the library, the others by its NICs.
        let call_faults = std::mem::take(&mut spec.calls);
        let count = devices.iter().map(|device| if *device == DeviceSpec::Mem { 2 } else { 1 }).sum();
        spec.check_devices(count).map_err(|e| format!("SOFTNIC_FAULT: {e}"))?;
        let fault = Some(spec).filter(|spec| *spec != FaultSpec::default());
        let seed = match variable("SOFTNIC_SEED")? {
            Some(seed) => seed.parse().map_err(|_| format!("SOFTNIC_SEED: `{seed}` is no number"))?,
            None => 0,
        };
        let cpus = match variable("SOFTNIC_CPUS")? {
            Some(list) => cpus(&list)?,
            None => Vec::new(),
        };
        let link_down = match variable("SOFTNIC_LINK_DOWN")? {
            Some(name) => name.parse().map_err(|e| format!("SOFTNIC_LINK_DOWN: {e}"))?,
            None => LinkDown::default(),
        };
        let link_speed = match variable("SOFTNIC_LINK_SPEED")? {
            Some(speed) => Some(parse_rate(&speed).map_err(|e| format!("SOFTNIC_LINK_SPEED: {e}"))?),
            None => None,
        };
        let pcap = env::var_os("SOFTNIC_PCAP").filter(|name| !name.is_empty()).map(Into::into);
        let trace = env::var_os("SOFTNIC_TRACE").filter(|name| !name.is_empty()).map(Into::into);
        let log = match variable("SOFTNIC_LOG")? {
            Some(level) => parse_log_level(&level).map_err(|e| format!("SOFTNIC_LOG: {e}"))?,
            None => None,
        };
        let options = OpenOptions { cpus, fault, seed, pcap, trace, log, link_down, ..OpenOptions::default() };
        let secret = match env::var_os("SOFTNIC_KEY_FILE").filter(|name| !name.is_empty()) {
            Some(name) => Some(read_key_file(name.as_ref()).map_err(|e| format!("SOFTNIC_KEY_FILE: {e}"))?),
            None => None,
        };
        let counters = env::var_os("SOFTNIC_COUNTERS").filter(|name| !name.is_empty()).map(Into::into);
        Ok(Environment { devices, backups, options, transport, cc, secret, link_speed, counters, call_faults })
    }
}

/// The backups of the first devices.
fn backups(devices: &[DeviceSpec]) -> Result<Vec<BackupOptions>, String> {
    let Some(names) = variable("SOFTNIC_BACKUP")? else { return Ok(Vec::new()) };
    if let Some(mode) = variable("SOFTNIC_FAILOVER")? {
        parse_failover(&mode).map_err(|e| format!("SOFTNIC_FAILOVER: {e}"))?;
    }
    let store = match variable("SOFTNIC_KV")? {
        Some(kv) => parse_kv(&kv).map_err(|e| format!("SOFTNIC_KV: {e}"))?,
        None => Kv::Peer,
    };
    let mut times = FailoverTimes::default();
    if let Some(probe) = variable("SOFTNIC_PROBE")? {
        times.probe = parse_probe(&probe).map_err(|e| format!("SOFTNIC_PROBE: {e}"))?;
    }
    let faults = match variable("SOFTNIC_BACKUP_FAULT")? {
        Some(spec) => Some(spec.parse().map_err(|e| format!("SOFTNIC_BACKUP_FAULT: {e}"))?),
        None => None,
    };
    let of_device =
        |device| BackupOptions { device, faults: faults.clone(), times, store: store.clone(), on_change: None };
    if names.trim() == MUTUAL {
        let mutual = mutual_backups(devices).map_err(|e| format!("SOFTNIC_BACKUP: {e}"))?;
        return Ok(mutual.into_iter().map(of_device).collect());
    }
    let one = |name: &str| parse_backup(name.trim()).map(of_device).map_err(|e| format!("SOFTNIC_BACKUP: {e}"));
    let names = names.split(';').filter(|name| !name.trim().is_empty());
    let backups = names.map(one).collect::<Result<Vec<_>, String>>()?;
    match backups.len() > devices.len() {
        true => Err(format!("SOFTNIC_BACKUP has {} devices, and SOFTNIC_DEV {}", backups.len(), devices.len())),
        false => Ok(backups),
    }
}

/// Parses a list such as `0,2-3`.
fn cpus(list: &str) -> Result<Vec<usize>, String> {
    let wrong = || format!("SOFTNIC_CPUS: `{list}` is no list of cores; write 0,2-3");
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) =
            (first.trim().parse().map_err(|_| wrong())?, last.trim().parse().map_err(|_| wrong())?);
        if first > last || last >= 1 << 16 {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores() {
        assert_eq!(cpus("0,2-4"), Ok(vec![0, 2, 3, 4]));
        for wrong in ["", "a", "3-1", "1,", "0-99999999"] {
            assert!(cpus(wrong).is_err(), "{wrong}");
        }
    }
}
