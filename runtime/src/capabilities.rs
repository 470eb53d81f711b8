//! The capabilities that AF_XDP asks for, and which of them this process lacks.

/// With their bits.
const NEEDED: [(&str, u32); 3] = [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_BPF", 39)];
const SYS_ADMIN: u32 = 21;
#[cfg(feature = "dpdk")]
const IPC_LOCK: u32 = 14;

/// Those that AF_XDP needs and this process has not in its effective set.
pub fn missing_for_afxdp() -> Vec<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    missing_of(&status)
}

fn effective_of(status: &str) -> Option<u64> {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(effective.trim(), 16).ok()
}

fn missing_of(status: &str) -> Vec<&'static str> {
    let Some(effective) = effective_of(status) else { return Vec::new() };
    let has = |bit: u32| effective >> bit & 1 == 1;
    // As the kernel has it, who may administer the system may load programs.
    let lacks = |(name, bit): &(&'static str, u32)| !(has(*bit) || *name == "CAP_BPF" && has(SYS_ADMIN));
    NEEDED.iter().filter(|needed| lacks(needed)).map(|(name, _)| *name).collect()
}

/// Whether this process may lock more memory than its limit: CAP_IPC_LOCK.
#[cfg(feature = "dpdk")]
pub(crate) fn may_lock_memory() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective_of(&status).is_some_and(|set| set >> IPC_LOCK & 1 == 1)
}

/// What is wrong with the capabilities of a process that was refused something, and what to do.
pub(crate) fn advice() -> String {
    advice_for(&missing_for_afxdp())
}

fn advice_for(missing: &[&str]) -> String {
    let lacks = match missing.is_empty() {
        // Programs of BPF are loaded by the rights in the first user namespace alone.
        true => "this process has them, but in a user namespace of its own, as in a rootless container".to_owned(),
        false => format!("this process lacks {}", missing.join(", ")),
    };
    format!(
        "AF_XDP needs CAP_NET_ADMIN and CAP_NET_RAW in the user namespace that owns the network namespace, and CAP_BPF in the first \
         user namespace; {lacks}. Run as root of the machine, or use `shm`, or `shared:` where `softnic share` serves the interface: \
         they need none"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_capabilities_that_are_missing_and_the_user_namespace() {
        let of = |set: u64| missing_of(&format!("Name:\tx\nCapEff:\t{set:016x}\n"));
        assert_eq!(of(0), ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"]);
        assert_eq!(of(1 << 12 | 1 << 39), ["CAP_NET_RAW"]);
        assert!(of(1 << 12 | 1 << 13 | 1 << 21).is_empty());
        let text = advice_for(&of(1 << 12 | 1 << 39));
        assert!(
            text.contains("lacks CAP_NET_RAW.") && text.contains("user namespace") && text.contains("`shm`"),
            "{text}"
        );
        assert!(advice_for(&[]).contains("rootless container"));
    }
}
