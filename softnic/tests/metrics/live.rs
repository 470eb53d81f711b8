//! Metrics of a wire and of a shared interface, scraped while they run. What needs root and `ip` says on stderr that it was left out without them.

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::namespaces::Namespaces;
use super::{get, serving, strict};

/// Long enough for the slowest machine; no test that passes waits for it.
const LIMIT: Duration = Duration::from_secs(60);

/// A namespace with interfaces `e` and `g`, each with an end of its own behind it.
struct Space(Namespaces);

impl Space {
    fn new() -> Option<Space> {
        let commands = [
            "link add name e netns @n type veth peer name behind-e netns @n",
            "link add name g netns @n type veth peer name behind-g netns @n",
            "-n @n address add 10.78.2.1/24 dev behind-e",
            "-n @n address add 10.78.3.1/24 dev g",
            "-n @n link set lo up",
            "-n @n link set e up",
            "-n @n link set g up",
            "-n @n link set behind-e up",
            "-n @n link set behind-g up",
        ];
        Namespaces::new(&["n"], &commands).map(Space)
    }

    fn softnic(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.inside("n", env!("CARGO_BIN_EXE_softnic"));
        command.args(arguments);
        command
    }

    /// Does something in the namespace: a port of its loopback interface is one of nobody else.
    fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let entered = scope.spawn(|| {
                let file = File::open(format!("/run/netns/{}", self.0.name("n"))).expect("a namespace");
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root");
                work()
            });
            entered.join().expect("no panic")
        })
    }

    /// The samples of a family, once one has at least this value and all of these labels.
    fn wait_for(&self, address: &str, family: &str, labels: &[(&str, &str)], at_least: f64) {
        let begin = Instant::now();
        loop {
            let page = self.within(|| get(address));
            let families = strict::parse(&page).expect("the format's rules");
            let fits = |s: &strict::Sample| {
                s.value >= at_least
                    && labels.iter().all(|(name, value)| s.labels.contains(&(name.to_string(), value.to_string())))
            };
            if families.get(family).is_some_and(|f| f.samples.iter().any(fits)) {
                return;
            }
            assert!(begin.elapsed() < LIMIT, "{family} of {labels:?} is not {at_least}: {page}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_wire_that_runs_serves_its_counters_by_direction() {
    let Some(space) = Space::new() else { return };
    let more = ["--fault", "ab.loss=1", "--all-traffic", "--metrics", "0"];
    let (_wire, address) = serving(space.softnic(&[&["wire", "--a", "e", "--b", "g"][..], &more].concat()));
    let direction = |name| [("a", "e"), ("b", "g"), ("direction", name)];
    space.wait_for(&address, "softnic_wire_rx_frames_total", &direction("ba"), 0.0);
    // The question for its MAC address is a frame.
    let sends = || UdpSocket::bind("10.78.2.1:0").and_then(|socket| socket.send_to(b"x", "10.78.2.2:9"));
    space.within(sends).expect("an interface");
    space.wait_for(&address, "softnic_wire_rx_frames_total", &direction("ab"), 1.0);
    space.wait_for(&address, "softnic_wire_injected_loss_total", &direction("ab"), 1.0);
    space.wait_for(&address, "softnic_wire_own_drops_total", &direction("ab"), 0.0);
}

#[test]
fn a_shared_interface_serves_the_counters_of_each_client() {
    let Some(space) = Space::new() else { return };
    let (_share, address) = serving(space.softnic(&["share", "--dev", "afxdp:g", "--metrics", "0"]));
    let interface = ("interface", "g");
    space.wait_for(&address, "softnic_share_clients", &[interface], 0.0);
    space.wait_for(&address, "softnic_share_nobody_total", &[interface], 0.0);
    let mut client =
        space.softnic(&["perf", "--server", "--dev", "shared:g"]).stderr(Stdio::null()).spawn().expect("softnic runs");
    let pid = client.id().to_string();
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        space.wait_for(&address, "softnic_share_clients", &[interface], 1.0);
        space.wait_for(&address, "softnic_share_rx_frames_total", &[interface, ("pid", &pid), ("uid", "0")], 0.0);
    }));
    client.kill().expect("it runs");
    client.wait().expect("a child");
    seen.expect("both are served");
}
