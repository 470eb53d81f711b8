//! Two NICs of the guest that are wired to each other, the far one in a network namespace, and programs at both ends.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::guest::{Error, Guest};

/// Time limit of one command in the guest, which is emulated and may share the machine with ten other programs.
const LIMIT: Duration = Duration::from_secs(120);
/// The namespace of the far NIC.
const NAMESPACE: &str = "far";
/// Addresses of the near NIC and the far NIC; the same numbers in IPv4 and IPv6.
pub(super) const NEAR: &str = "10.37.0.1";
pub(super) const FAR: &str = "10.37.0.2";
pub(super) const FAR_V6: &str = "fd37::2";

/// The result of a program: its output, stdout and stderr together, and its exit status.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) text: String,
    pub(super) status: i64,
}

impl Ended {
    /// The output, if the program succeeded.
    pub(super) fn well(self) -> Result<String, String> {
        match self.status {
            0 => Ok(self.text),
            status => Err(format!("exit status {status}: {}", one_line(&self.text))),
        }
    }
}

/// The end of a text, in one line.
pub(super) fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}

/// A pair of NICs in a guest.
pub(super) struct Bench<'a> {
    guest: &'a mut Guest,
    /// The index of the pair.
    number: usize,
    /// The driver of both NICs.
    pub(super) driver: &'static str,
    /// The names of their interfaces.
    pub(super) near: String,
    pub(super) far: String,
    /// Their PCI addresses, and the drivers that they are bound to.
    pub(super) near_pci: String,
    pub(super) far_pci: String,
    near_bound: String,
    far_bound: String,
    /// Whether the far NIC is in the namespace.
    apart: bool,
    next: u64,
    /// Whether to show the output of programs.
    pub(super) verbose: bool,
}

/// The PCI address of the n-th NIC: each is alone behind its own port, and the ports come first.
fn pci_address(n: usize) -> String {
    format!("0000:{:02x}:00.0", n + 1)
}

/// The kernel's PCI driver: for virtio, it is a layer below the network driver.
fn kernel_driver(driver: &str) -> &str {
    if driver == "virtio_net" { "virtio-pci" } else { driver }
}

/// A script that binds a device to a driver.
fn bind(address: &str, driver: &str) -> String {
    let device = format!("/sys/bus/pci/devices/{address}");
    format!(
        "echo {driver} > {device}/driver_override
[ -e {device}/driver ] && echo {address} > {device}/driver/unbind
echo {address} > /sys/bus/pci/drivers_probe
[ -e /sys/bus/pci/drivers/{driver}/{address} ]"
    )
}

/// The end of a script: waits for the carrier of a NIC.
fn carrier(nic: &str) -> String {
    format!(
        "for n in $(seq 200); do /bin/ip link show {nic} | grep -q LOWER_UP && exit 0; sleep 0.05; done
echo no carrier after 10 s; exit 1"
    )
}

fn nap() -> Result<(), Error> {
    std::thread::sleep(Duration::from_millis(10));
    Ok(())
}

impl<'a> Bench<'a> {
    fn of_pair(guest: &'a mut Guest, driver: &'static str, n: usize) -> Bench<'a> {
        let [near, far] = [2 * n, 2 * n + 1].map(|n| format!("eth{n}"));
        let [near_pci, far_pci] = [2 * n, 2 * n + 1].map(pci_address);
        let bound = kernel_driver(driver).to_owned();
        let (near_bound, far_bound) = (bound.clone(), bound);
        let (next, verbose, apart) = (1, false, false);
        Bench { guest, number: n, driver, near, far, near_pci, far_pci, near_bound, far_bound, apart, next, verbose }
    }

    /// The `n`-th pair for DPDK: the near NIC is bound to vfio, and no namespace is needed.
    pub(super) fn for_dpdk(guest: &'a mut Guest, driver: &'static str, n: usize) -> Result<Bench<'a>, Error> {
        let mut bench = Bench::of_pair(guest, driver, n);
        bench.bind_near("vfio-pci")?;
        Ok(bench)
    }

    /// Binds the near NIC to another driver.
    pub(super) fn bind_near(&mut self, driver: &str) -> Result<(), Error> {
        if self.near_bound != driver {
            self.must(&bind(&self.near_pci, driver))?;
            self.near_bound = driver.into();
        }
        Ok(())
    }

    /// Records that a test has bound the near NIC to vfio.
    pub(super) fn note_bound_near(&mut self) {
        self.near_bound = "vfio-pci".into();
    }

    /// Binds the far NIC to another driver. Under the kernel's driver it gets addresses, and the MTU that path MTU 4096 needs.
    pub(super) fn bind_far(&mut self, driver: &str) -> Result<(), Error> {
        let is_ready = driver == "vfio-pci" || self.far_addressed();
        if self.far_bound != driver {
            self.must(&bind(&self.far_pci, driver))?;
            self.far_bound = driver.into();
        } else if is_ready {
            return Ok(());
        }
        if driver != "vfio-pci" {
            // Interfaces are named in the order in which they appear.
            let name = self.must(&format!("ls /sys/bus/pci/devices/{}/net", self.far_pci))?;
            self.far = name.trim().into();
            let script = format!(
                "set -e; far={}; for a in accept_dad accept_ra; do echo 0 > /proc/sys/net/ipv6/conf/$far/$a; done
/bin/ip link set $far mtu 4200 up; /bin/ip address replace 10.37.0.2/24 dev $far
/bin/ip address replace fd37::2/64 dev $far nodad\n{}",
                self.far,
                carrier("$far")
            );
            self.must(&script)?;
        }
        Ok(())
    }

    /// Moves the far NIC, which the kernel drives, to the namespace, so that frames to it use the wire. Call `unite` before the end.
    pub(super) fn separate(&mut self) -> Result<(), Error> {
        let far = self.far.clone();
        let script = format!(
            "set -e; /bin/ip netns add {NAMESPACE}; /bin/ip link set {far} netns {NAMESPACE}
/bin/ip -n {NAMESPACE} link set lo up; /bin/ip -n {NAMESPACE} link set {far} mtu 4200 up
/bin/ip -n {NAMESPACE} address add {FAR}/24 dev {far}
/bin/ip netns exec {NAMESPACE} /bb/sh -c '{}'",
            carrier(&far)
        );
        self.must(&script)?;
        self.apart = true;
        Ok(())
    }

    /// Moves the far NIC back.
    pub(super) fn unite(&mut self) -> Result<(), Error> {
        self.apart = false;
        let far = self.far.clone();
        self.must(&format!("/bin/ip -n {NAMESPACE} link set {far} netns 1; /bin/ip netns delete {NAMESPACE}")).map(drop)
    }

    fn far_addressed(&mut self) -> bool {
        let shown = self.near(&format!("/bin/ip address show dev {}", self.far));
        shown.is_ok_and(|shown| shown.text.contains(FAR))
    }

    /// Binds both NICs to the kernel's driver, the near one first: interfaces are named in the order in which they appear.
    pub(super) fn end_dpdk(mut self) -> Result<(), Error> {
        let driver = kernel_driver(self.driver);
        if self.far_bound == driver {
            self.must(&bind(&self.far_pci, "vfio-pci"))?;
        }
        self.must(&bind(&self.near_pci.clone(), driver))?;
        self.must(&bind(&self.far_pci.clone(), driver)).map(drop)
    }

    /// The `n`-th pair, with its addresses; both NICs are up.
    pub(super) fn new(guest: &'a mut Guest, driver: &'static str, n: usize) -> Result<Bench<'a>, Error> {
        let mut bench = Bench::of_pair(guest, driver, n);
        bench.apart = true;
        let Bench { near, far, .. } = &bench;
        let script = format!(
            "set -e
ethtool -i {near} | grep -q '^driver: {driver}$'
/bin/ip netns add {NAMESPACE}
/bin/ip link set {far} netns {NAMESPACE}
for place in '{near} 1' '{far} 2'; do
    set -- $place
    run=; [ $1 = {far} ] && run='/bin/ip netns exec {NAMESPACE}'
    $run sh -c \"echo 0 >/proc/sys/net/ipv6/conf/$1/accept_dad; echo 0 >/proc/sys/net/ipv6/conf/$1/accept_ra\"
    $run /bin/ip link set lo up
    $run /bin/ip link set $1 up
    $run /bin/ip address add 10.37.0.$2/24 dev $1
    $run /bin/ip address add fd37::$2/64 dev $1 nodad
done"
        );
        bench.must(&script)?;
        Ok(bench)
    }

    /// Returns the far NIC to the guest's own namespace.
    pub(super) fn end(mut self) -> Result<(), Error> {
        let Bench { near, far, .. } = &self;
        let script = format!(
            "/bin/ip -n {NAMESPACE} link set {far} netns 1; /bin/ip netns delete {NAMESPACE}; \
             /bin/ip address flush dev {near}; /bin/ip link set {near} down"
        );
        self.must(&script).map(drop)
    }

    /// Starts a shell with this script in the namespace of the near or the far NIC. Returns the number of the program.
    fn start(&mut self, script: &str, far: bool) -> Result<u64, Error> {
        let number = self.next;
        self.next += 1;
        // The shell of busybox has an `ip` of its own with fewer options, so scripts use /bin/ip.
        let mut argv = vec!["/bb/sh", "-c", script];
        if far && self.apart {
            argv = [&["ip", "netns", "exec", NAMESPACE], &argv[..]].concat();
        }
        if self.verbose {
            println!("  $ {script}");
        }
        let env = json!({"RUST_BACKTRACE": "1"});
        self.guest.call(&json!({"do": "start", "number": number, "argv": argv, "env": env}), &mut nap)?;
        Ok(number)
    }

    /// Waits until a program ends. After the time limit, it is killed.
    pub(super) fn finish(&mut self, number: u64) -> Result<Ended, Error> {
        self.read_until(number, |_| false).map(|(text, status)| match status {
            Some(status) => Ended { text, status },
            None => Ended { text: text + &format!("\nnot done after {} s", LIMIT.as_secs()), status: -9 },
        })
    }

    /// Reads the output of a program until `enough` accepts it or the program ends.
    fn read_until(&mut self, number: u64, enough: impl Fn(&str) -> bool) -> Result<(String, Option<i64>), Error> {
        let (begin, mut text) = (Instant::now(), String::new());
        loop {
            let answer = self.guest.call(&json!({"do": "output", "number": number}), &mut nap)?;
            let more = answer["text"].as_str().unwrap_or_default();
            text += more;
            if self.verbose {
                print!("{more}");
            }
            match &answer["status"] {
                _ if enough(&text) => return Ok((text, None)),
                Value::Null if begin.elapsed() < LIMIT => nap()?,
                Value::Null => {
                    self.guest.call(&json!({"do": "stop", "number": number}), &mut nap)?;
                    return Ok((text, None));
                }
                status => return Ok((text, Some(status.as_i64().unwrap_or(-1)))),
            }
        }
    }

    /// Runs a script at the near NIC to its end.
    pub(super) fn near(&mut self, script: &str) -> Result<Ended, Error> {
        let number = self.start(script, false)?;
        self.finish(number)
    }

    /// Runs a script at the far NIC to its end.
    pub(super) fn far(&mut self, script: &str) -> Result<Ended, Error> {
        let number = self.start(script, true)?;
        self.finish(number)
    }

    /// Runs a setup script, which must succeed.
    pub(super) fn must(&mut self, script: &str) -> Result<String, Error> {
        self.near(script)?.well().map_err(Error::Failed)
    }

    /// Starts a program at the near NIC in the background, and waits until it prints `ready`.
    pub(super) fn start_near(&mut self, script: &str, ready: &str) -> Result<Result<u64, String>, Error> {
        self.start_until(script, ready, false)
    }

    /// Starts a program at the far NIC in the background, and waits until it prints `ready`.
    pub(super) fn serve(&mut self, script: &str, ready: &str) -> Result<Result<u64, String>, Error> {
        self.start_until(script, ready, true)
    }

    fn start_until(&mut self, script: &str, ready: &str, far: bool) -> Result<Result<u64, String>, Error> {
        let number = self.start(&format!("exec {script}"), far)?;
        let (text, status) = self.read_until(number, |text| text.contains(ready))?;
        Ok(match (text.contains(ready), status) {
            (true, None) => Ok(number),
            (_, status) => Err(format!("`{script}` is not ready ({status:?}): {}", one_line(&text))),
        })
    }

    /// Waits until the further output of a running program is enough.
    pub(super) fn hear(&mut self, number: u64, enough: impl Fn(&str) -> bool) -> Result<(), Error> {
        let (text, status) = self.read_until(number, &enough)?;
        match (enough(&text), status) {
            (true, _) => Ok(()),
            (false, Some(status)) => Err(Error::Failed(format!("it ended with status {status}: {}", one_line(&text)))),
            (false, None) => Err(Error::Failed(format!("it did not go on: {}", one_line(&text)))),
        }
    }

    /// Takes a NIC down for this many seconds, and waits for its carrier. Restores the IPv6 addresses, which an interface loses when it goes down.
    pub(super) fn bounce(&mut self, far: bool, seconds: f32) -> Result<(), Error> {
        let (nic, n) = if far { (&self.far, 2) } else { (&self.near, 1) };
        let script = format!(
            "/bin/ip link set {nic} down; sleep {seconds}; /bin/ip link set {nic} up
/bin/ip address replace fd37::{n}/64 dev {nic} nodad
{}",
            carrier(nic)
        );
        let ended = if far { self.far(&script)? } else { self.near(&script)? };
        ended.well().map(drop).map_err(Error::Failed)
    }

    /// Pulls the near NIC's cable for a while.
    pub(super) fn pull_near(&mut self, time: Duration) -> Result<(), Error> {
        let nic = 2 * self.number;
        self.guest.set_link(nic, false)?;
        std::thread::sleep(time);
        self.guest.set_link(nic, true)
    }

    /// Stops a running program for a while (SIGSTOP).
    pub(super) fn pause(&mut self, number: u64, time: Duration) -> Result<(), Error> {
        let mut signal =
            |name: &str| self.guest.call(&json!({"do": "signal", "number": number, "name": name}), &mut nap).map(drop);
        signal("SIGSTOP")?;
        std::thread::sleep(time);
        signal("SIGCONT")
    }

    /// Kills a running program with SIGKILL.
    pub(super) fn kill(&mut self, number: u64) -> Result<(), Error> {
        self.guest.call(&json!({"do": "stop", "number": number}), &mut nap).map(drop)
    }

    /// Runs a command at both ends, with `{}` replaced by the NIC's name. The command may reset the NIC, so waits for the carriers.
    pub(super) fn on_both(&mut self, command: &str) -> Result<(), Error> {
        let [near, far] =
            [&self.near, &self.far].map(|nic| format!("{}\n{}", command.replace("{}", nic), carrier(nic)));
        self.must(&near)?;
        self.far(&far)?.well().map(drop).map_err(Error::Failed)?;
        self.must(&carrier(&self.near.clone())).map(drop)
    }

    /// Sets the MTU of both NICs.
    pub(super) fn set_mtu(&mut self, mtu: u32) -> Result<(), Error> {
        let Bench { near, far, .. } = &self;
        let script = format!("/bin/ip link set {near} mtu {mtu} && /bin/ip -n {NAMESPACE} link set {far} mtu {mtu}");
        self.must(&script).map(drop)
    }
}
