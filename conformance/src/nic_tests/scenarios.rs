//! The tests on a pair of NICs.

use std::thread;
use std::time::{Duration, Instant};

use super::bench::{Bench, FAR, FAR_V6, NEAR, one_line};
use crate::guest::Error;

/// A test.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// The drivers of the test in the short form: mostly one driver for each test, so that the short form takes no longer than 90 s.
    pub(super) short: &'static [&'static str],
    /// The drivers that the test supports.
    pub(super) drivers: &'static [&'static str],
    /// Runs the test. Returns a remark for the report.
    pub(super) run: fn(&mut Bench<'_>) -> Result<String, Error>,
}

const NONE: &[&str] = &[];
const BOTH: &[&str] = &["igb", "virtio_net"];
const IGB: &[&str] = &["igb"];
const VIRTIO: &[&str] = &["virtio_net"];

/// All tests, in the order in which they run.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "reliable", short: VIRTIO, drivers: BOTH, run: reliable },
    Scenario { name: "unreliable", short: VIRTIO, drivers: BOTH, run: unreliable },
    Scenario { name: "path-mtus", short: NONE, drivers: BOTH, run: path_mtus },
    Scenario { name: "ipv6", short: NONE, drivers: BOTH, run: ipv6 },
    Scenario { name: "copy", short: VIRTIO, drivers: BOTH, run: copy },
    Scenario { name: "longest-mtu", short: VIRTIO, drivers: BOTH, run: longest_mtu },
    Scenario { name: "opened-again", short: NONE, drivers: IGB, run: opened_again },
    Scenario { name: "few-chunks", short: IGB, drivers: BOTH, run: few_chunks },
    Scenario { name: "long-ring", short: NONE, drivers: IGB, run: long_ring },
    Scenario { name: "queues", short: NONE, drivers: IGB, run: queues },
    Scenario { name: "killed", short: VIRTIO, drivers: BOTH, run: killed },
    Scenario { name: "link", short: NONE, drivers: BOTH, run: link },
    Scenario { name: "mtu-changed", short: NONE, drivers: BOTH, run: mtu_changed },
    Scenario { name: "slow-receiver", short: NONE, drivers: BOTH, run: slow_receiver },
    Scenario { name: "raw-copied", short: NONE, drivers: VIRTIO, run: raw_copied },
    Scenario { name: "rxe", short: VIRTIO, drivers: BOTH, run: rxe },
    Scenario { name: "rxe-client", short: NONE, drivers: BOTH, run: rxe_client },
];

/// The MTU at which tests run: path MTU 2048 in zero-copy on both drivers.
pub(super) const MTU: u32 = 3000;
/// An MTU above every driver's limit for zero-copy: path MTU 4096.
const LONG_MTU: u32 = 4200;
/// The output of `softnic perf --server` when clients can connect.
pub(super) const READY: &str = "waiting for a client";
/// The guest may get little processor time: 4.096 us * 2^17, seven times, are 3.8 s.
pub(super) const PATIENT: &str = "--timeout 17";
/// Part of the line that the client prints after each interval of work.
pub(super) const RUNNING: &str = " - ";

pub(super) fn failed<T>(why: String) -> Result<T, Error> {
    Err(Error::Failed(why))
}

fn server(far: &str, device: &str) -> String {
    format!("softnic perf --server --dev afxdp:{far}{device}")
}

/// One run of `softnic perf` between the two NICs. Returns the client's output.
fn perf(bench: &mut Bench<'_>, device: &str, words: &str) -> Result<String, Error> {
    perf_to(bench, FAR, device, words)
}

fn perf_to(bench: &mut Bench<'_>, address: &str, device: &str, words: &str) -> Result<String, Error> {
    let (near, far) = (bench.near.clone(), bench.far.clone());
    let server = bench.serve(&server(&far, device), READY)?.map_err(Error::Failed)?;
    let client =
        bench.near(&format!("softnic perf {words} {PATIENT} --connect {address} --dev afxdp:{near}{device}"))?;
    let served = bench.finish(server)?;
    let the_server = one_line(&served.text);
    let printed = client.well().or_else(|why| failed(format!("{words}: {why}; the server: {the_server}")))?;
    served.well().or_else(|why| failed(format!("{words}: the server: {why}")))?;
    Ok(printed)
}

/// Checks that the output contains these words.
pub(super) fn expect(printed: &str, words: &[&str]) -> Result<(), Error> {
    match words.iter().find(|word| !printed.contains(**word)) {
        None => Ok(()),
        Some(word) => failed(format!("`{word}` is not in: {}", one_line(printed))),
    }
}

/// The mode that the description must name.
fn zero_copy(bench: &Bench<'_>) -> &'static str {
    if bench.driver == "igb" { "native XDP, zero-copy, 2 queues" } else { "native XDP, zero-copy, 1 queue" }
}

/// Does all of these runs in zero-copy, with the data compared.
fn all_in_zero_copy(bench: &mut Bench<'_>, runs: &[&str]) -> Result<(), Error> {
    let mode = zero_copy(bench);
    for words in runs {
        expect(&perf(bench, "", &format!("{words} --verify"))?, &[mode])?;
    }
    Ok(())
}

fn reliable(bench: &mut Bench<'_>) -> Result<String, Error> {
    // With two queue pairs both queues have work.
    let runs = [
        "write_bw -q 2 -n 100 -s 20000",
        "send_bw -q 2 -n 100 -s 20000",
        "read_bw -n 100 -s 20000",
        "atomic_bw -n 200",
    ];
    all_in_zero_copy(bench, &runs).map(|()| "WRITE, SEND, READ, atomics over rc".into())
}

fn unreliable(bench: &mut Bench<'_>) -> Result<String, Error> {
    let runs = [
        "write_bw --transport uc -n 100 -s 4000 -t 16",
        "send_bw --transport uc -n 100 -s 4000 -t 16",
        "send_bw --transport ud -n 100 -s 2048 -t 16",
    ];
    all_in_zero_copy(bench, &runs).map(|()| "WRITE and SEND over uc, SEND over ud".into())
}

fn path_mtus(bench: &mut Bench<'_>) -> Result<String, Error> {
    for mtu in [256, 512, 1024, 2048] {
        let run = |op: &str| format!("{op} -n 50 -s 10001 --mtu {mtu}");
        let ud = format!("send_bw --transport ud -n 50 -t 16 -s {mtu} --mtu {mtu}");
        let uc = format!("write_bw --transport uc -n 50 -t 16 -s 4000 --mtu {mtu}");
        all_in_zero_copy(bench, &[&run("write_bw"), &run("send_bw"), &run("read_bw"), &uc, &ud])?;
    }
    Ok("256 to 2048".into())
}

fn ipv6(bench: &mut Bench<'_>) -> Result<String, Error> {
    let mode = zero_copy(bench);
    for words in ["write_bw -n 100 --verify", "send_bw --transport ud -n 100 -s 2048 -t 16 --verify"] {
        expect(&perf_to(bench, FAR_V6, "", words)?, &[mode])?;
    }
    Ok(String::new())
}

/// Copy mode where requested: at an MTU that would allow zero-copy, and at one that does not.
fn copy(bench: &mut Bench<'_>) -> Result<String, Error> {
    for (mtu, path) in [(MTU, "2048"), (LONG_MTU, "4096")] {
        bench.set_mtu(mtu)?;
        let printed = perf(bench, ",mode=copy", "write_bw -n 50 --verify")?;
        expect(&printed, &["copy mode", path])?;
        if printed.contains("for zero-copy") {
            return failed(format!("advice that nobody asked for: {}", one_line(&printed)));
        }
    }
    Ok("path MTU 2048 and 4096".into())
}

/// The longest MTU with zero-copy is the one that the messages name: with a byte more, zero-copy is refused in one line.
fn longest_mtu(bench: &mut Bench<'_>) -> Result<String, Error> {
    let (near, driver) = (bench.near.clone(), bench.driver);
    let devinfo = |mode: &str| format!("softnic devinfo --dev afxdp:{near}{mode}");
    bench.set_mtu(LONG_MTU)?;
    let refused = bench.must(&devinfo(",mode=zero-copy"))?;
    let line = refused.lines().find(|line| line.contains("cannot be opened")).unwrap_or_default();
    expect(line, &["no zero-copy", driver, "4200", "ip link set dev"])?;
    let longest = line.split("mtu ").nth(1).and_then(|rest| rest.split('`').next()?.parse::<u32>().ok());
    let Some(longest) = longest else { return failed(format!("no MTU in: {line}")) };
    // auto keeps the path MTU, and reports its cost.
    let advice = format!("for zero-copy: `ip link set dev {near} mtu {longest}` (path MTU 2048)");
    expect(&bench.must(&devinfo(""))?, &["zero-copy no", &advice])?;
    bench.set_mtu(longest + 1)?;
    expect(&bench.must(&devinfo(",mode=zero-copy"))?, &["cannot be opened", "no zero-copy"])?;
    bench.set_mtu(longest)?;
    expect(&perf(bench, ",mode=zero-copy", "write_bw -n 50 --verify")?, &[zero_copy(bench)])?;
    Ok(format!("up to {longest}"))
}

/// A driver resets the NIC when a program is attached or detached: the next process that opens the NIC finds the link up.
fn opened_again(bench: &mut Bench<'_>) -> Result<String, Error> {
    let near = bench.near.clone();
    let server = bench.serve(&server(&bench.far.clone(), ""), READY)?.map_err(Error::Failed)?;
    let count = 3;
    for _ in 0..count {
        // `devinfo` shows the link as it was before the attachment. Here, each run directly follows the attachment and detachment of the last.
        bench.must(&format!("softnic devinfo --dev afxdp:{near}"))?;
    }
    let words = "write_bw -n 20 --verify";
    let printed = bench.near(&format!("softnic perf {words} --connect {FAR} --dev afxdp:{near}"))?;
    let printed = printed.well().or_else(failed)?;
    bench.finish(server)?.well().or_else(failed)?;
    expect(&printed, &[zero_copy(bench)])?;
    Ok(format!("{count} times, then data"))
}

/// The least number of chunks, and a receiver that is stopped: more frames arrive than there are chunks. The driver must not run out of chunks,
/// because igb would then report old frames as new.
fn few_chunks(bench: &mut Bench<'_>) -> Result<String, Error> {
    meanwhile(bench, ",mode=zero-copy,chunks=64", "-D 8 -i 0.5 -s 20000", |bench, running| {
        for _ in 0..2 {
            bench.pause(running.server, Duration::from_millis(700))?;
            progress(bench, running.client)?;
        }
        Ok(())
    })?;
    Ok("paused twice".into())
}

/// A NIC's full ring is supported: there are chunks for all of its slots, and for frames that wait.
fn long_ring(bench: &mut Bench<'_>) -> Result<String, Error> {
    let near = bench.near.clone();
    bench.on_both("ethtool -G {} rx 4096")?;
    let run = |bench: &mut Bench<'_>| {
        let printed = perf(bench, ",mode=zero-copy", "write_bw -n 200 -s 20000 --verify")?;
        expect(&printed, &[zero_copy(bench), "2 queues), "])?;
        // A request for fewer chunks is raised to what the ring needs.
        let few = bench.must(&format!("softnic devinfo --dev afxdp:{near},chunks=64"))?;
        match few.contains("chunks are few") {
            true => failed(one_line(&few)),
            false => Ok(()),
        }
    };
    let result = run(bench);
    bench.on_both("ethtool -G {} rx 256")?;
    result.map(|()| "4096 places".into())
}

/// One of two queues, more queues than there are, and two contradicting numbers.
fn queues(bench: &mut Bench<'_>) -> Result<String, Error> {
    let near = bench.near.clone();
    let refused = bench.must(&format!("softnic devinfo --dev afxdp:{near},queues=3"))?;
    expect(&refused, &["cannot be opened", "has 2 receive queues, not 3"])?;
    let words = format!("softnic perf write_bw --connect {FAR} --queues 1 --dev afxdp:{near},queues=2");
    match bench.near(&words)?.well() {
        Ok(printed) => return failed(format!("two numbers of queues: {}", one_line(&printed))),
        Err(why) => expect(&why, &["asks for 2 queues, and --queues for 1"])?,
    }
    // Frames that arrive at the other queue would go to the kernel.
    bench.on_both("ethtool -L {} combined 1")?;
    let printed = perf(bench, ",queues=1", "write_bw -n 50 --verify");
    bench.on_both("ethtool -L {} combined 2")?;
    expect(&printed?, &["native XDP, zero-copy, 1 queue)"])?;
    Ok("1 of 2".into())
}

/// The number of pinned pages, and whether a program is attached to the near NIC.
fn held(bench: &mut Bench<'_>) -> Result<(i64, bool), Error> {
    let near = bench.near.clone();
    let script = format!("grep nr_foll_pin /proc/vmstat; /bin/ip -details link show {near}");
    let shown = bench.must(&script)?;
    let number = |name: &str| {
        let value = shown.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<i64>().ok());
        value.unwrap_or(0)
    };
    Ok((number("nr_foll_pin_acquired") - number("nr_foll_pin_released"), shown.contains("prog/xdp")))
}

/// SIGKILL: the program and the pages are released, and the NIC can be used again at once.
fn killed(bench: &mut Bench<'_>) -> Result<String, Error> {
    let before = held(bench)?;
    let (near, far) = (bench.near.clone(), bench.far.clone());
    let server_number = bench.serve(&server(&far, ""), READY)?.map_err(Error::Failed)?;
    let words = format!("softnic perf write_bw -D 60 -i 0.5 --connect {FAR} --dev afxdp:{near}");
    let client = bench.start_near(&words, RUNNING)?.map_err(Error::Failed)?;
    let during = held(bench)?;
    if !during.1 || during.0 <= before.0 {
        return failed(format!("nothing is held while it runs: {during:?}, before {before:?}"));
    }
    bench.kill(client)?;
    bench.finish(server_number)?;
    let begin = Instant::now();
    loop {
        match held(bench)? {
            after if after == before => break,
            after if begin.elapsed() > Duration::from_secs(20) => {
                return failed(format!("{} pages and program {} are held still", after.0 - before.0, after.1));
            }
            _ => thread::sleep(Duration::from_millis(100)),
        }
    }
    let printed = perf(bench, "", "write_bw -n 20 --verify")?;
    expect(&printed, &[zero_copy(bench)])?;
    Ok(format!("{} pages were pinned", during.0 - before.0))
}

/// Running programs.
struct Running {
    client: u64,
    server: u64,
}

/// Runs RC with these arguments, and calls `act` meanwhile. Afterwards the run must continue, and end well with the data intact.
fn meanwhile(
    bench: &mut Bench<'_>,
    device: &str,
    work: &str,
    act: fn(&mut Bench<'_>, &Running) -> Result<(), Error>,
) -> Result<String, Error> {
    let (near, far) = (bench.near.clone(), bench.far.clone());
    let server = bench.serve(&server(&far, device), READY)?.map_err(Error::Failed)?;
    // 4.096 us * 2^18, seven times: 7.5 s.
    let words =
        format!("softnic perf write_bw {work} --timeout 18 --verify --connect {FAR} --dev afxdp:{near}{device}");
    let client = bench.start_near(&words, RUNNING)?.map_err(Error::Failed)?;
    let done = act(bench, &Running { client, server }).and_then(|()| progress(bench, client));
    let (client, served) = (bench.finish(client)?, bench.finish(server)?);
    done.map_err(|e| match e {
        Error::Failed(why) => Error::Failed(format!("{why}; then: {}", one_line(&client.text))),
        other => other,
    })?;
    let printed = client.well().or_else(failed)?;
    served.well().or_else(failed)?;
    Ok(printed)
}

/// Waits for two intervals in a row with completed messages: the first may have begun before the disturbance.
pub(super) fn progress(bench: &mut Bench<'_>, client: u64) -> Result<(), Error> {
    // begin - end, bytes with their unit, and a rate that is not zero.
    let moves = |line: &str| line.contains(RUNNING) && !line.contains(" 0.000 ");
    bench.hear(client, |text| text.lines().filter(|line| moves(line)).count() >= 2)
}

/// The link goes down and comes back during a run, at each end, and the run continues after each.
fn link(bench: &mut Bench<'_>) -> Result<String, Error> {
    meanwhile(bench, "", "-D 25 -i 0.5 -s 20000", |bench, running| {
        bench.bounce(false, 0.3)?;
        progress(bench, running.client)?;
        bench.bounce(true, 0.3)
    })?;
    Ok("down for 0.3 s at each end".into())
}

/// A changed MTU takes effect when the NIC is next opened. An MTU that the attached program forbids is refused, and the run continues.
fn mtu_changed(bench: &mut Bench<'_>) -> Result<String, Error> {
    if bench.driver == "igb" {
        meanwhile(bench, "", "-D 6 -i 0.5 -s 20000", |bench, _| {
            let near = bench.near.clone();
            match bench.near(&format!("/bin/ip link set {near} mtu {LONG_MTU}"))?.status {
                0 => failed("an MTU that the driver cannot have with a program was accepted".into()),
                _ => Ok(()),
            }
        })?;
    }
    for (mtu, path, mode) in
        [(1500, "1024", zero_copy(bench)), (LONG_MTU, "4096", "copy mode"), (MTU, "2048", zero_copy(bench))]
    {
        bench.set_mtu(mtu)?;
        expect(&perf(bench, "", "write_bw -n 50 --verify")?, &[path, mode])?;
    }
    Ok("1500, 4200, 3000".into())
}

/// A receiver that is stopped for longer than the client's timeout, with more outstanding than its ring and chunks can hold: RC retransmits the
/// frames that were dropped.
fn slow_receiver(bench: &mut Bench<'_>) -> Result<String, Error> {
    let printed = meanwhile(bench, "", "-D 8 -i 0.5 -s 20000 --depth 512 --cc none", |bench, running| {
        bench.pause(running.server, Duration::from_millis(2500))
    })?;
    expect(&printed, &["local_ack_timeout_err", "retransmitted_packets"])?;
    // Frames that the NIC dropped, by the kernel's count. An emulated wire may also hold frames back until there is room.
    let far = bench.far.clone();
    let missed = bench.far(&format!("cd /sys/class/net/{far}/statistics; cat rx_missed_errors rx_dropped"))?;
    let missed: u64 = missed.text.lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum();
    Ok(format!("paused for 2.5 s, {missed} frames missed by the NIC"))
}

/// Frames without a protocol in copy mode: every frame that does not arrive is counted as lost.
fn raw_copied(bench: &mut Bench<'_>) -> Result<String, Error> {
    bench.set_mtu(LONG_MTU)?;
    let printed = perf(bench, ",mode=copy", "raw -n 20000 -s 4096 --json")?;
    let count = |name: &str| {
        let after = printed.split(&format!("\"{name}\":")).nth(1)?;
        after.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let (messages, frames) = (count("lost_messages").unwrap_or(0), count("lost_frames").unwrap_or(0));
    match messages > frames {
        true => failed(format!("{messages} of 20000 frames were lost, and {frames} counted")),
        false => Ok(format!("{messages} of 20000 lost, {frames} counted")),
    }
}

/// Linux Soft-RoCE at the near NIC.
pub(super) const ADD_RXE: &str = "rdma link add rxe0 type rxe netdev";

/// softnic as the client of Soft-RoCE; the data is compared.
fn rxe(bench: &mut Bench<'_>) -> Result<String, Error> {
    let (near, far, mode) = (bench.near.clone(), bench.far.clone(), zero_copy(bench));
    bench.must(&format!("{ADD_RXE} {near}"))?;
    let peer = bench.start_near("python3 /usr/bin/perf_peer.py rxe0", "waiting for clients")?.map_err(Error::Failed)?;
    let mut run = || {
        // Short runs: Python prepares the data of all READs in advance, on an emulated machine.
        for words in ["write_bw -n 20 -s 5000", "send_bw -n 20 -s 5000", "read_bw -n 20 -s 2500", "atomic_bw -n 20"] {
            let words =
                format!("softnic perf {words} --timeout 17 --retry 6 --verify --connect {NEAR} --dev afxdp:{far}");
            expect(&bench.far(&words)?.well().or_else(failed)?, &[mode])?;
        }
        Ok("WRITE, SEND, READ, atomics to it".into())
    };
    let result = run();
    bench.kill(peer)?;
    bench.must("rdma link delete rxe0")?;
    result
}

/// Soft-RoCE as the client of softnic; the data is compared.
fn rxe_client(bench: &mut Bench<'_>) -> Result<String, Error> {
    let (near, far) = (bench.near.clone(), bench.far.clone());
    bench.must(&format!("{ADD_RXE} {near}"))?;
    let mut run = || {
        for op in ["write_bw", "send_bw", "read_bw", "atomic_bw"] {
            let server = bench.serve(&server(&far, ",mode=zero-copy"), READY)?.map_err(Error::Failed)?;
            let words =
                format!("python3 /usr/bin/perf_peer.py rxe0 {op} {FAR} --iters 50 --size 5000 --verify --timeout 17");
            bench.near(&words)?.well().or_else(failed)?;
            bench.finish(server)?.well().or_else(failed)?;
        }
        Ok("WRITE, SEND, READ, atomics by it".into())
    };
    let result = run();
    bench.must("rdma link delete rxe0")?;
    result
}
