//! A comparison of RC over DPDK, RC over AF_XDP and Linux Soft-RoCE on the same pair of emulated igb NICs, in turns.

use std::path::Path;

use serde_json::Value;

use super::bench::{Bench, FAR, one_line};
use super::dpdk;
use super::scenarios::{ADD_RXE, MTU, PATIENT, READY, expect, failed};
use crate::guest::{Error, Guest, catch_interrupts};
use crate::tshark::Scratch;

/// The driver. Its pair is the first in the guest.
const DRIVER: &str = "igb";
/// The workloads. The path MTU is the longest one with zero-copy, for all of them.
const WRITES: &str = "write_bw --mtu 2048 -s 65536 -t 16 -D";
const PINGS: &str = "write_lat --mtu 2048 -s 64 -n 300";
/// The length of a turn: the guest is emulated.
const SECONDS: u32 = 3;

/// A contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Racer {
    /// softnic over DPDK at both ends.
    Dpdk,
    /// softnic over AF_XDP in zero-copy at both ends.
    Afxdp,
    /// Linux Soft-RoCE at both ends, under perftest.
    Rxe,
}

impl Racer {
    /// All contenders, in the order of their turns.
    pub const ALL: [Racer; 3] = [Racer::Dpdk, Racer::Afxdp, Racer::Rxe];
}

/// The result of a turn.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// The contender.
    pub racer: Racer,
    /// Bandwidth of WRITEs of 64 KiB in Gbit/s.
    pub bandwidth: f64,
    /// Half the round trip of WRITEs of 64 bytes in microseconds.
    pub latency: f64,
}

/// Runs `rounds` turns of each contender with this build of softnic, which includes DPDK. Returns the guest's kernel version.
pub fn race(softnic: &Path, rounds: u32, tell: &mut dyn FnMut(&Turn)) -> Result<String, Error> {
    catch_interrupts();
    let scratch = Scratch::new("nic-race").map_err(Error::Failed)?;
    let (mut guest, kernel) = super::boot(softnic, vec![], &super::models()[..1], &scratch)?;
    for _ in 0..rounds {
        for racer in Racer::ALL {
            let [bandwidth, latency] = turn(racer, &mut guest)?;
            tell(&Turn { racer, bandwidth, latency });
        }
    }
    Ok(kernel)
}

fn turn(racer: Racer, guest: &mut Guest) -> Result<[f64; 2], Error> {
    match racer {
        Racer::Dpdk => {
            let mut bench = Bench::for_dpdk(guest, DRIVER, 0)?;
            bench.bind_far("vfio-pci")?;
            let devices = [dpdk::near_device(&bench), dpdk::far_device(&bench)];
            let figures = softnic(&mut bench, &devices, "net_e1000_igb")?;
            bench.end_dpdk()?;
            Ok(figures)
        }
        Racer::Afxdp => {
            let mut bench = Bench::new(guest, DRIVER, 0)?;
            bench.set_mtu(MTU)?;
            let devices = [&bench.near, &bench.far].map(|nic| format!("afxdp:{nic},mode=zero-copy"));
            let figures = softnic(&mut bench, &devices, "zero-copy")?;
            bench.end()?;
            Ok(figures)
        }
        Racer::Rxe => {
            let mut bench = Bench::new(guest, DRIVER, 0)?;
            bench.set_mtu(MTU)?;
            let figures = soft_roce(&mut bench)?;
            bench.end()?;
            Ok(figures)
        }
    }
}

/// softnic's figures between these devices, whose description must contain `word`.
fn softnic(bench: &mut Bench<'_>, [near, far]: &[String; 2], word: &str) -> Result<[f64; 2], Error> {
    let mut run = |words: &str, place: &str| {
        let server = bench.serve(&format!("softnic perf --server --dev {far}"), READY)?.map_err(Error::Failed)?;
        let client = bench.near(&format!("softnic perf {words} {PATIENT} --json --connect {FAR} --dev {near}"))?;
        if client.status != 0 {
            bench.kill(server)?;
        }
        let served = bench.finish(server)?;
        let text = client.well().or_else(|why| failed(format!("{words}: {why}; {}", one_line(&served.text))))?;
        figure(&text, place).map_or_else(|| failed(format!("no {place} in: {}", one_line(&text))), Ok)
    };
    let figures = [run(&format!("{WRITES} {SECONDS}"), "/bw_avg_gbps")?, run(PINGS, "/lat_us/typical")?];
    expect(&bench.must(&format!("softnic devinfo --dev {near}"))?, &[word])?;
    Ok(figures)
}

/// A number in the last line of JSON that has it.
fn figure(text: &str, place: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    values.filter_map(|value| value.pointer(place)?.as_f64()).next_back()
}

/// perftest's figures, on Soft-RoCE at both NICs.
fn soft_roce(bench: &mut Bench<'_>) -> Result<[f64; 2], Error> {
    let (near, far) = (bench.near.clone(), bench.far.clone());
    bench.must(&format!("{ADD_RXE} {near}"))?;
    bench.far(&format!("rdma link add rxe1 type rxe netdev {far}"))?.well().or_else(failed)?;
    let mut run = |words: &str, column: usize| {
        // The first GID is the link-local address.
        let words = format!("{words} -x 1 -m 2048 -F");
        let begun = bench.serve(&format!("/bb/sh -c 'echo started; exec {words} -d rxe1'"), "started")?;
        let server = begun.map_err(Error::Failed)?;
        // The server does not report when it listens.
        let script = format!("for n in $(seq 40); do {words} -d rxe0 {FAR} && exit 0; sleep 0.25; done; exit 1");
        let client = bench.near(&script)?;
        if client.status != 0 {
            bench.kill(server)?;
        }
        bench.finish(server)?;
        let text = client.well().or_else(|why| failed(format!("{words}: {why}")))?;
        perftest_figure(&text, column).map_or_else(|| failed(format!("no figures in: {}", one_line(&text))), Ok)
    };
    // The average in MB of 2^20 bytes per second, and the typical latency.
    let bandwidth =
        run(&format!("ib_write_bw -s 65536 -t 16 -D {SECONDS}"), 3).map(|mib| mib * 1_048_576.0 * 8.0 / 1e9);
    let figures = bandwidth.and_then(|bandwidth| Ok([bandwidth, run("ib_write_lat -s 64 -n 300", 4)?]));
    bench.must("rdma link delete rxe0; rdma link delete rxe1")?;
    figures
}

/// A column of perftest's line of figures, which is the line with numbers only.
fn perftest_figure(text: &str, column: usize) -> Option<f64> {
    let numbers = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    text.lines().filter_map(numbers).find(|numbers| numbers.len() > column)?.get(column).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_what_the_programs_print() {
        let json = "a notice\n{\"bw_avg_gbps\":1.5,\"lat_us\":{\"typical\":21.5}}\n";
        assert_eq!(figure(json, "/bw_avg_gbps"), Some(1.5));
        assert_eq!(figure(json, "/lat_us/typical"), Some(21.5));
        assert_eq!(figure("waiting\n", "/bw_avg_gbps"), None);
        let perftest = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 65536      400              0.00               12.50              0.0002\n";
        assert_eq!(perftest_figure(perftest, 3), Some(12.5));
        assert_eq!(perftest_figure("Couldn't connect\n", 3), None);
    }
}
