//! Connections and devices without a backup: one line, or one error, says why.

use super::*;

#[test]
fn a_peer_without_a_backup_is_named_once_and_connections_to_it_end_as_ever() {
    let world = World::new(Progress::Inline, 1, [true, false]);
    let mut flows = [Flow::new(&world, Work::Write), Flow::new(&world, Work::Write)];
    let named = || world.lines.lock().unwrap().iter().filter(|line| line.contains("the peer has no backup")).count();
    world.until("the line", || named() > 0);
    flows.iter_mut().for_each(|flow| flow.more(20));
    assert_eq!(named(), 1, "{:?}", world.lines.lock().unwrap());
    world.set(0, LOSES);
    let all = flows[0].last();
    let failed = all.iter().map(|done| done.status).find(|&status| status != Status::Success);
    assert_eq!(failed, Some(Status::RetryExcErr));
    assert_eq!(world.counters()[A], [0; 4]);
}

/// Two hosts whose backups cannot have the connection: one line says so and why, and the program runs.
fn assert_unprotected(change: impl Fn(&mut Port), why: &str) {
    let world = World::with(Progress::Inline, 1, [true, true], Default::default(), change);
    let mut flow = Flow::new(&world, Work::Send);
    let lines = || world.lines.lock().unwrap().iter().filter(|line| line.contains(why)).count();
    // Each host says it.
    world.until(why, || lines() >= 2);
    flow.more(20);
    assert_eq!(lines(), 2, "{:?}", world.lines.lock().unwrap());
    world.set(0, LOSES);
    let failed = flow.last().iter().map(|done| done.status).find(|&status| status != Status::Success);
    assert_eq!((failed, world.counters()), (Some(Status::RetryExcErr), [[0; 4]; 2]));
}

#[test]
fn a_backup_with_a_shorter_path_mtu_is_none() {
    assert_unprotected(|port| port.mtu = PathMtu::B512, "the path MTU of the connection is longer than the backup's");
}

#[test]
fn a_backup_of_another_ip_version_is_none() {
    assert_unprotected(
        |port| port.addresses.retain(std::net::IpAddr::is_ipv6),
        "the backup has no address of the connection's IP version",
    );
}

#[test]
fn a_backup_without_an_address_is_none() {
    assert_unprotected(|port| port.addresses.clear(), "the backup has no address of the connection's IP version");
}

#[test]
fn the_same_device_is_no_backup() {
    let device: DeviceSpec = "shm:failover-test".parse().unwrap();
    let same = |device: &DeviceSpec, backup: &str| {
        let backup = Some(BackupOptions::new(backup.parse().unwrap()));
        let parts = parts(vec![Box::new(MemoryWire::pair().unwrap().0)], OwnAddresses::of_host(1));
        parts.backup(device, &OpenOptions { backup, ..OpenOptions::default() })
    };
    assert!(matches!(same(&device, "shm:failover-test"), Err(OpenError::OwnBackup(_))));
    let device: DeviceSpec = "afxdp:eth7".parse().unwrap();
    for backup in ["afxdp:eth7", "eth7", "shared:eth7"] {
        assert!(matches!(same(&device, backup), Err(OpenError::OwnBackup(name)) if name == "afxdp:eth7"), "{backup}");
    }
}

#[test]
fn two_nics_of_a_process_have_backups_on_another_wire_in_memory() {
    let options = OpenOptions { backup: Some(BackupOptions::new(DeviceSpec::Mem)), ..OpenOptions::default() };
    let [a, b] = Context::open_pair([&options, &options]).unwrap();
    assert_eq!(a.backup_addresses()[0], std::net::IpAddr::from([10, 0, 1, 1]));
    assert_eq!(b.backup_addresses()[0], std::net::IpAddr::from([10, 0, 1, 2]));
    let other = OpenOptions { backup: Some(BackupOptions::new("shm:x".parse().unwrap())), ..OpenOptions::default() };
    assert!(matches!(Context::open_pair([&other, &options]), Err(OpenError::MemBackup(_))));
    let [a, b] = Context::open_pair([&options, &OpenOptions::default()]).unwrap();
    assert!(a.failover_counters().is_some() && b.failover_counters().is_none());
    assert!(b.backup_addresses().is_empty());
}
