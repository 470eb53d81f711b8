//! The tests of DPDK on PCI NICs. DPDK drives the near NIC. DPDK in another process, or the kernel with Linux Soft-RoCE, drives the far NIC.

use std::time::Duration;

use super::bench::{Bench, FAR, FAR_V6, NEAR, one_line};
use super::scenarios::{ADD_RXE, PATIENT, READY, RUNNING, Scenario, expect, failed, progress};
use crate::guest::Error;

const NONE: &[&str] = &[];
const IGB: &[&str] = &["igb"];
const ALL: &[&str] = &["igb", "virtio_net", "e1000e", "vmxnet3"];

/// All tests, in the order in which they run. Before the first test, the kernel drives the NICs.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "refused", short: IGB, drivers: IGB, run: refused },
    Scenario { name: "rxe", short: NONE, drivers: IGB, run: rxe },
    Scenario { name: "rxe-client", short: NONE, drivers: IGB, run: rxe_client },
    Scenario { name: "cm", short: NONE, drivers: IGB, run: cm },
    Scenario { name: "path-mtus", short: NONE, drivers: IGB, run: path_mtus },
    Scenario { name: "killed", short: IGB, drivers: IGB, run: killed },
    Scenario { name: "link", short: NONE, drivers: IGB, run: link },
    Scenario { name: "queues", short: NONE, drivers: IGB, run: queues },
    Scenario { name: "reliable", short: NONE, drivers: ALL, run: reliable },
    Scenario { name: "unreliable", short: NONE, drivers: ALL, run: unreliable },
    Scenario { name: "programs", short: NONE, drivers: IGB, run: programs },
    Scenario { name: "groups", short: NONE, drivers: IGB, run: groups },
    Scenario { name: "tap", short: NONE, drivers: IGB, run: tap },
    Scenario { name: "uio", short: NONE, drivers: IGB, run: uio },
    Scenario { name: "beside-afxdp", short: NONE, drivers: IGB, run: beside_afxdp },
];

/// The options of softnic in the device names.
const NEAR_PORT: &str = "ip=10.37.0.1/24,ip=fd37::1/64";
const FAR_PORT: &str = "ip=10.37.0.2/24,ip=fd37::2/64";

pub(super) fn near_device(bench: &Bench<'_>) -> String {
    format!("dpdk:{},{NEAR_PORT}", bench.near_pci)
}

pub(super) fn far_device(bench: &Bench<'_>) -> String {
    format!("dpdk:{},{FAR_PORT}", bench.far_pci)
}

fn server(bench: &Bench<'_>, further: &str) -> String {
    format!("softnic perf --server --dev {}{further}", far_device(bench))
}

/// One run of `softnic perf` between the two NICs, both driven by DPDK. Returns the client's output.
fn perf(bench: &mut Bench<'_>, further: &str, address: &str, words: &str) -> Result<String, Error> {
    bench.bind_far("vfio-pci")?;
    let near = near_device(bench);
    let server = server(bench, further);
    let server = bench.serve(&server, READY)?.map_err(Error::Failed)?;
    let client = format!("softnic perf {words} {PATIENT} --verify --connect {address} --dev {near}{further}");
    let client = bench.near(&client)?;
    if client.status != 0 {
        // A server without a client would wait for ever.
        bench.kill(server)?;
    }
    let served = bench.finish(server)?;
    let printed =
        client.well().or_else(|why| failed(format!("{words}: {why}; the server: {}", one_line(&served.text))))?;
    served.well().or_else(|why| failed(format!("{words}: the server: {why}")))?;
    Ok(printed)
}

/// DPDK's name of the driver, and how its queues sleep.
fn driver(bench: &Bench<'_>) -> (&'static str, &'static str) {
    match bench.driver {
        "igb" => ("driver net_e1000_igb, no huge pages", "interrupts"),
        "e1000e" => ("driver net_e1000_em, no huge pages", ""),
        "virtio_net" => ("driver net_virtio, no huge pages", "naps"),
        _ => ("driver net_vmxnet3, no huge pages", ""),
    }
}

fn all_of(bench: &mut Bench<'_>, further: &str, runs: &[&str]) -> Result<(), Error> {
    let (name, sleep) = driver(bench);
    runs.iter().try_for_each(|words| expect(&perf(bench, further, FAR, words)?, &[name, sleep]))
}

fn reliable(bench: &mut Bench<'_>) -> Result<String, Error> {
    let runs = ["write_bw -n 50 -s 20000", "send_bw -n 50 -s 20000", "read_bw -n 50 -s 20000", "atomic_bw -n 50"];
    all_of(bench, "", &runs).map(|()| "WRITE, SEND, READ, atomics over rc".into())
}

fn unreliable(bench: &mut Bench<'_>) -> Result<String, Error> {
    let runs = [
        "write_bw --transport uc -n 50 -s 4000 -t 8",
        "send_bw --transport uc -n 50 -s 4000 -t 8",
        "send_bw --transport ud -n 50 -s 2048 -t 8",
    ];
    all_of(bench, "", &runs).map(|()| "WRITE and SEND over uc, SEND over ud".into())
}

fn queues(bench: &mut Bench<'_>) -> Result<String, Error> {
    // Four queue pairs, so that each queue has some.
    all_of(bench, ",queues=2", &["write_bw -q 4 -n 50 -s 20000"])?;
    // More queues than the NIC has, and more than the guest has memory for: without a check, the kernel would kill the program.
    for (count, words) in [(17, "has 16 queues, not 17"), (64, "MiB of memory for 64 queues, and")] {
        let refused = bench.near(&format!("softnic devinfo --dev {},queues={count}", near_device(bench)))?;
        expect(&refused.text, &[words])?;
    }
    Ok("2, more than there are, and more than there is memory for".into())
}

fn path_mtus(bench: &mut Bench<'_>) -> Result<String, Error> {
    for mtu in [1024, 4096] {
        for address in [FAR, FAR_V6] {
            let printed = perf(bench, "", address, &format!("write_bw -n 50 -s 20000 --mtu {mtu}"))?;
            expect(&printed, &[&format!("mtu {mtu}")])?;
        }
    }
    Ok("1024 and 4096, IPv4 and IPv6".into())
}

/// SIGKILL of either end: the NIC can be opened again at once.
fn killed(bench: &mut Bench<'_>) -> Result<String, Error> {
    bench.bind_far("vfio-pci")?;
    let (near, served) = (near_device(bench), server(bench, ""));
    let server = bench.serve(&served, READY)?.map_err(Error::Failed)?;
    let words = format!("softnic perf write_bw -D 60 -i 0.5 --connect {FAR} --dev {near}");
    let client = bench.start_near(&words, RUNNING)?.map_err(Error::Failed)?;
    let second = bench.near(&format!("softnic devinfo --dev {near}"))?;
    expect(&second.text, &["is in use: a process has /dev/vfio/"])?;
    bench.kill(client)?;
    bench.kill(server)?;
    perf(bench, "", FAR, "write_bw -n 20").map(|_| "both ends, and two processes on one NIC".into())
}

/// The cable is pulled during a run and plugged in again: RC continues.
fn link(bench: &mut Bench<'_>) -> Result<String, Error> {
    bench.bind_far("vfio-pci")?;
    let (near, served) = (near_device(bench), server(bench, ""));
    let server = bench.serve(&served, READY)?.map_err(Error::Failed)?;
    let words =
        format!("softnic perf write_bw -D 20 -i 0.5 -s 20000 --timeout 18 --verify --connect {FAR} --dev {near}");
    let client = bench.start_near(&words, RUNNING)?.map_err(Error::Failed)?;
    let done = bench.pull_near(Duration::from_secs(1)).and_then(|()| progress(bench, client));
    let (client, served) = (bench.finish(client)?, bench.finish(server)?);
    done.and_then(|()| client.well().or_else(failed))?;
    served.well().or_else(failed).map(|_| "without a cable for 1 s".into())
}

/// rping at both ends, connected by softnic's connection manager and the kernel's: an unmodified program, without a kernel network on softnic's
/// side.
fn cm(bench: &mut Bench<'_>) -> Result<String, Error> {
    const COUNT: &str = "-C 5 -v -S 3000";
    bench.bind_far("igb")?;
    let (near, far) = (near_device(bench), bench.far.clone());
    bench.must(&format!("{ADD_RXE} {far}"))?;
    let mut run = || {
        for (address, softnic_serves) in [(FAR, false), (NEAR, true), (FAR_V6, false)] {
            let ours = format!("softnic run --dev {near} -- rping -a {address} {COUNT}");
            let theirs = format!("rping -a {address} {COUNT}");
            let (client, server) = if softnic_serves { (theirs, ours) } else { (ours, theirs) };
            // rping does not report when it listens: the client retries until the server does.
            let server = bench.start_near(&format!("/bb/sh -c 'echo started; exec {server} -s'"), "started")?;
            let server = server.map_err(Error::Failed)?;
            let ended = bench.near(&format!("for n in $(seq 15); do {client} -c && exit 0; sleep 1; done; exit 1"))?;
            if ended.status != 0 {
                bench.kill(server)?;
            }
            let served = bench.finish(server)?;
            let printed = ended.well().or_else(failed)?;
            expect(&printed, &["ping data: rdma-ping-4"])?;
            served.well().or_else(|why| failed(format!("the server: {why}")))?;
        }
        Ok("rping to it, IPv4 and IPv6, and from it".into())
    };
    let result = run();
    bench.must("rdma link delete rxe0")?;
    result
}

/// softnic's message for a device that it does not open: one line.
fn refusal(bench: &mut Bench<'_>, before: &str, device: &str, says: &[&str]) -> Result<String, Error> {
    let ended = bench.near(&format!("{before} softnic devinfo --dev {device}"))?;
    match ended.text.lines().count() {
        1 if ended.status != 0 => expect(&ended.text, says).map(|()| ended.text),
        n => failed(format!("{device}: {n} lines, exit status {}: {}", ended.status, one_line(&ended.text))),
    }
}

/// The command that a refusal names.
fn command(refusal: &str) -> Result<String, Error> {
    let command = refusal.split('`').nth(1).filter(|command| command.contains("drivers_probe"));
    command.map(Into::into).ok_or_else(|| Error::Failed(format!("no command in: {refusal}")))
}

/// Bad input: each is refused in one line, and the commands in these lines have the described effect.
fn refused(bench: &mut Bench<'_>) -> Result<String, Error> {
    bench.bind_near("igb")?;
    let (pci, near) = (bench.near_pci.clone(), near_device(bench));
    refusal(bench, "", "dpdk:0000:7f:00.0,ip=10.37.0.1/24", &["there is no PCI device 0000:7f:00.0"])?;
    refusal(bench, "", &near, &["belongs to the kernel's driver igb", "vfio-pci"])?;
    bench.must(&format!(
        "n=$(ls /sys/bus/pci/devices/{pci}/net); /bin/ip link set $n up; /bin/ip address add 10.38.0.1/24 dev $n; \
         /bin/ip route add default via 10.38.0.2"
    ))?;
    refusal(bench, "", &near, &["which has the default route", "`force`"])?;
    let forced = refusal(bench, "", &format!("{near},force"), &["belongs to the kernel's driver igb"])?;
    // The guest has no `modprobe`, and all modules are loaded.
    bench.near(&format!("echo {pci} > /sys/bus/pci/devices/{pci}/driver/unbind"))?;
    let unbound = refusal(bench, "", &near, &["has no driver"])?;
    bench.near(&command(&unbound)?)?;
    // By its path: the shell's own `setpriv` has fewer options.
    let nobody = "/usr/bin/setpriv --reuid 1000 --clear-groups";
    refusal(bench, nobody, &near, &["no permission for /dev/vfio/", "chown"])?;
    bench.must(&format!("chown 1000 /dev/vfio/$(basename \"$(readlink /sys/bus/pci/devices/{pci}/iommu_group)\")"))?;
    refusal(bench, &format!("ulimit -l 64; {nobody}"), &near, &["MiB of locked memory, and 64 KiB are allowed"])?;
    // Back to the kernel's driver, then to vfio by the other command.
    bench.bind_near("igb")?;
    bench.near(&command(&forced)?)?;
    let opened = bench.must(&format!("softnic devinfo --dev {near}"))?;
    expect(&opened, &["net_e1000_igb", "link up", "path mtu 4096"])?;
    bench.note_bound_near();
    Ok("8 of them".into())
}

/// Without an IOMMU: runs with huge pages, and is refused without them.
fn uio(bench: &mut Bench<'_>) -> Result<String, Error> {
    bench.bind_near("uio_pci_generic")?;
    bench.bind_far("vfio-pci")?;
    let near = near_device(bench);
    refusal(bench, "", &near, &["MiB of huge pages, and 0 are free"])?;
    bench.must("echo 96 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")?;
    let run = |bench: &mut Bench<'_>| {
        let printed = perf(bench, "", FAR, "write_bw -n 50 -s 20000")?;
        expect(&printed, &["driver net_e1000_igb, huge pages", "naps"])
    };
    let result = run(bench);
    bench.must("echo 0 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")?;
    bench.bind_near("vfio-pci")?;
    result.map(|()| "96 huge pages, and none".into())
}

/// C tests of the library, which are built beforehand: the device is opened again by name in the same process, and no child process inherits
/// what DPDK opened.
fn programs(bench: &mut Bench<'_>) -> Result<String, Error> {
    let near = near_device(bench);
    for program in super::C_PROGRAMS {
        let ended = bench.near(&format!("softnic run --dev {near} -- {program}"))?;
        ended.well().or_else(|why| failed(format!("{program}: {why}")))?;
    }
    Ok("opened again in a process, and inherited by nobody".into())
}

/// The NIC's filter passes frames to a group that a queue pair joined.
fn groups(bench: &mut Bench<'_>) -> Result<String, Error> {
    const MCKEY: &str = "mckey -m 239.1.2.3 -C 2";
    bench.bind_far("vfio-pci")?;
    let (near, far) = (near_device(bench), far_device(bench));
    let receiver = format!("/bb/sh -c 'echo started; exec softnic run --dev {near} -- {MCKEY} -b {NEAR}'");
    let receiver = bench.start_near(&receiver, "started")?.map_err(Error::Failed)?;
    // The receiver does not report when it has joined, and datagrams may be lost: send until the receiver has ended.
    let sender = format!(
        "for n in $(seq 12); do softnic run --dev {far} -- {MCKEY} -b {FAR} -s || exit 1; \
         pidof mckey >/dev/null || exit 0; done; echo it receives nothing; exit 1"
    );
    let sent = bench.near(&sender)?;
    if sent.status != 0 {
        bench.kill(receiver)?;
    }
    let received = bench.finish(receiver)?;
    sent.well().or_else(|why| failed(format!("the sender: {why}; the receiver: {}", one_line(&received.text))))?;
    expect(&received.well().or_else(failed)?, &["return status 0"])?;
    Ok("datagrams to a group".into())
}

/// `tap=`: the kernel's TCP uses the NIC, for `perf` and for unmodified programs that exchange their parameters over TCP.
fn tap(bench: &mut Bench<'_>) -> Result<String, Error> {
    bench.bind_far("igb")?;
    let (near, far) = (format!("{},tap=nic0", near_device(bench)), format!("afxdp:{}", bench.far));
    bench.separate()?;
    let mut run = || {
        let server = bench.serve(&format!("softnic perf --server --dev {far}"), READY)?.map_err(Error::Failed)?;
        let words = format!("softnic perf write_bw -n 50 -s 20000 {PATIENT} --verify --connect {FAR} --dev {near}");
        let client = bench.near(&words)?;
        if client.status != 0 {
            bench.kill(server)?;
        }
        bench.finish(server)?;
        expect(&client.well().or_else(failed)?, &["net_e1000_igb", "tap nic0"])?;
        // perftest does not report when it listens.
        let program = "ib_write_bw -u 18 -n 50 -s 20000 -F";
        let server = format!("/bb/sh -c 'echo started; exec softnic run --dev {far} -- {program}'");
        let server = bench.serve(&server, "started")?.map_err(Error::Failed)?;
        let client = format!("softnic run --dev {near} -- {program} {FAR}");
        let client = bench.near(&format!("for n in $(seq 10); do {client} && exit 0; sleep 1; done; exit 1"))?;
        if client.status != 0 {
            bench.kill(server)?;
        }
        bench.finish(server)?;
        expect(&client.well().or_else(failed)?, &["20000 "])?;
        Ok("perf and ib_write_bw by the kernel's TCP".into())
    };
    let result = run();
    bench.unite()?;
    result
}

/// softnic over AF_XDP at the far NIC.
fn beside_afxdp(bench: &mut Bench<'_>) -> Result<String, Error> {
    bench.bind_far("igb")?;
    let (near, far) = (near_device(bench), bench.far.clone());
    let server = bench.serve(&format!("softnic perf --server --dev afxdp:{far}"), READY)?.map_err(Error::Failed)?;
    let client = format!("softnic perf write_bw -n 50 -s 20000 {PATIENT} --verify --connect {FAR} --dev {near}");
    let client = bench.near(&client)?;
    if client.status != 0 {
        bench.kill(server)?;
    }
    bench.finish(server)?;
    client.well().or_else(failed).map(|_| String::new())
}

/// softnic as the client of Soft-RoCE; the data is compared.
fn rxe(bench: &mut Bench<'_>) -> Result<String, Error> {
    bench.bind_far("igb")?;
    let (near, far) = (near_device(bench), bench.far.clone());
    bench.must(&format!("{ADD_RXE} {far}"))?;
    let peer = bench.start_near("python3 /usr/bin/perf_peer.py rxe0", "waiting for clients")?.map_err(Error::Failed)?;
    let mut run = || {
        for (address, words) in [
            (FAR, "write_bw -n 20 -s 9000"),
            (FAR, "send_bw -n 20 -s 9000 --mtu 1024"),
            (FAR_V6, "read_bw -n 20 -s 2500"),
            (FAR_V6, "atomic_bw -n 20"),
        ] {
            let words =
                format!("softnic perf {words} --timeout 17 --retry 6 --verify --connect {address} --dev {near}");
            expect(&bench.near(&words)?.well().or_else(failed)?, &["net_e1000_igb"])?;
        }
        Ok("WRITE, SEND, READ, atomics to it, path MTU 4096 and 1024, IPv4 and IPv6".into())
    };
    let result = run();
    bench.kill(peer)?;
    bench.must("rdma link delete rxe0")?;
    result
}

/// Soft-RoCE as the client of softnic; the data is compared.
fn rxe_client(bench: &mut Bench<'_>) -> Result<String, Error> {
    bench.bind_far("igb")?;
    let (near, far) = (near_device(bench), bench.far.clone());
    bench.must(&format!("{ADD_RXE} {far}"))?;
    let mut run = || {
        for op in ["write_bw", "send_bw", "read_bw", "atomic_bw"] {
            let server = format!("softnic perf --server --dev {near}");
            let server = bench.start_near(&server, READY)?.map_err(Error::Failed)?;
            let words =
                format!("python3 /usr/bin/perf_peer.py rxe0 {op} {NEAR} --iters 20 --size 5000 --verify --timeout 17");
            let client = bench.near(&words)?;
            if client.status != 0 {
                bench.kill(server)?;
            }
            let served = bench.finish(server)?;
            client.well().or_else(failed)?;
            served.well().or_else(failed)?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok("WRITE, SEND, READ, atomics by it".into())
    };
    let result = run();
    bench.must("rdma link delete rxe0")?;
    result
}
