//! `--metrics` as Prometheus uses it: what is served while something runs can be read by the format's rules.

mod live;
#[path = "../common/namespaces.rs"]
mod namespaces;
mod strict;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it, and reads where its metrics are.
fn serving(mut command: Command) -> (Running, String) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("softnic runs");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let running = Running(child);
    let line =
        lines.find(|line| line.as_ref().is_ok_and(|l| l.contains("metrics at"))).expect("a line").expect("UTF-8");
    let address = line.split("http://").nth(1).and_then(|rest| rest.strip_suffix("/metrics")).expect("an address");
    // Whoever writes to stderr may go on.
    std::thread::spawn(move || lines.for_each(drop));
    (running, address.to_string())
}

fn get(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer.split_once("\r\n\r\n").expect("a body").1.to_string()
}

/// The samples of a family by device, once there are some of all.
fn value(address: &str, family: &str, device: &str, at_least: f64) -> f64 {
    for _ in 0..600 {
        let families = strict::parse(&get(address)).expect("the format's rules");
        assert!(families.values().all(|f| !f.help.is_empty() && ["counter", "gauge"].contains(&f.kind.as_str())));
        let is_of = |s: &&strict::Sample| s.labels.contains(&("device".to_string(), device.to_string()));
        match families.get(family).and_then(|f| f.samples.iter().find(is_of)) {
            Some(sample) if sample.value >= at_least => return sample.value,
            _ => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    }
    panic!("{family} of {device} is not at least {at_least}: {}", get(address));
}

#[test]
fn a_measurement_serves_the_counters_of_its_nics() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
    command.args(["perf", "write_bw", "--size", "4K", "--duration", "60", "--interval", "0", "--metrics", "0"]);
    let (_running, address) = serving(command);
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let first = value(&address, "node_infiniband_port_packets_transmitted_total", "softnic0", 100.0);
    value(&address, "node_infiniband_port_packets_transmitted_total", "softnic0", first + 100.0);
    value(&address, "softnic_rx_write_requests_total", "softnic1", 100.0);
    assert_eq!(value(&address, "node_infiniband_state_id", "softnic1", 1.0), 4.0);
}

#[test]
fn a_program_serves_the_sum_over_its_processes() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("metrics-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    // A link: a copy that is written while another test forks is "busy" in its child, and cannot be started.
    std::fs::hard_link(env!("CARGO_BIN_EXE_softnic"), folder.join("softnic")).expect("a link");
    std::fs::write(folder.join("libsoftnic_verbs.so"), "stands in for a library that reads SOFTNIC_DEV")
        .expect("a file");
    let line = |pid| {
        format!(
            "{{\"device\":\"softnic0\",\"pid\":{pid},\"description\":\"mem\",\"counters\":{{\"sent_pkts\":{pid}}}}}"
        )
    };
    let script = format!(
        "echo '{}' > $SOFTNIC_COUNTERS/a; echo '{}' > $SOFTNIC_COUNTERS/b; exec sleep 1000",
        line(30),
        line(12)
    );
    let mut command = Command::new(folder.join("softnic"));
    command.args(["run", "--dev", "mem", "--metrics", "0", "--", "sh", "-c", &script]).env("TMPDIR", &folder);
    let (running, address) = serving(command);
    assert_eq!(value(&address, "softnic_sent_pkts_total", "softnic0", 42.0), 42.0);
    assert_eq!(value(&address, "softnic_processes", "softnic0", 2.0), 2.0);
    drop(running);
    std::fs::remove_dir_all(&folder).expect("nothing holds it");
}

#[test]
fn a_taken_or_wrong_address_is_told_before_anything_starts() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    for (address, words) in
        [(port.as_str(), "another process listens"), ("192.0.2.1:9400", "no address of this machine")]
    {
        for command in [
            &["perf", "write_bw", "--iters", "10"][..],
            &["wire", "--a", "no-such-a", "--b", "no-such-b"],
            &["switch", "--config", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/switch/two-ports.toml")],
            &["share", "--dev", "afxdp:no-such-if"],
        ] {
            let mut words_of = Command::new(env!("CARGO_BIN_EXE_softnic"));
            let out = words_of.args(command).args(["--metrics", address]).output().expect("softnic runs");
            let said = String::from_utf8_lossy(&out.stderr);
            assert_eq!((out.status.code(), out.stdout.len()), (Some(1), 0), "{said}");
            assert!(said.starts_with("softnic: --metrics: ") && said.contains(words), "{said}");
        }
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
    let out = command.args(["perf", "write_bw", "--metrics", "x"]).output().expect("softnic runs");
    assert_eq!(out.status.code(), Some(2), "{out:?}");
}
