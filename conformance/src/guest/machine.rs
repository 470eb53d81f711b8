//! The guest at work: QEMU as a child process, and the agent in it at the other end of a control port.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use softnic_runtime::DgramSpec;

use super::image::Image;
use super::{Error, failed, interrupted};

/// What answers at the control port.
const AGENT: &str = include_str!("agent.py");
/// What it can do with rxe0.
const VERBS: &str = include_str!("verbs.py");
/// QEMU's own socket for commands.
const MONITOR: &str = "monitor";
/// It takes seven seconds where nothing else runs; longer than this and it is not coming.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// No command of the agent takes longer, but for what it is told to wait for.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Offloads of a virtio_net would put frames on the wire that no link carries.
pub(crate) const NO_OFFLOADS: &str = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,\
guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off";

/// What the guest's network device is attached to.
pub(crate) enum Link {
    /// A frame in each datagram. The sockets as QEMU sees them: `local` is QEMU's.
    Dgram(DgramSpec),
    /// A tap in a network namespace: see [`Space::add_tap`](super::Space::add_tap).
    Tap { namespace: String, tap: String },
    /// Nothing: the guest has no network device, and no rxe0.
    None,
    /// PCI NICs of these models, in QEMU's words: two of each, wired to each other. They have neither addresses nor rxe0. With an IOMMU the
    /// kernel's own drivers do without: only what is given to vfio is behind it.
    Nics { models: Vec<String>, iommu: bool },
}

/// What a guest is made with.
pub(crate) struct Machine {
    pub(crate) link: Link,
    pub(crate) mac: &'static str,
    /// With the lengths of their prefixes.
    pub(crate) addresses: &'static [&'static str],
    /// MTU of the link.
    pub(crate) mtu: u32,
    /// Memory in MiB; less than the default is too little.
    pub(crate) memory: u32,
    /// Programs that it has beside the image: their names there, and where they are here.
    pub(crate) programs: Vec<(String, PathBuf)>,
}

impl Machine {
    /// With a link of that MTU.
    pub(crate) fn new(link: Link, mac: &'static str, addresses: &'static [&'static str], mtu: u32) -> Machine {
        Machine { link, mac, addresses, mtu, memory: 384, programs: Vec::new() }
    }
}

/// A running guest. It ends when this is dropped; should this process be killed, it ends by itself, with its control port.
pub(crate) struct Guest {
    qemu: Child,
    control: UnixStream,
    /// Where QEMU takes commands.
    monitor: PathBuf,
    /// The file that its kernel and its init print to.
    pub(crate) console: PathBuf,
    received: Vec<u8>,
    /// How long it took until the agent answered.
    pub(crate) boot: Duration,
}

impl Drop for Guest {
    fn drop(&mut self) {
        end(&mut self.qemu);
    }
}

fn end(qemu: &mut Child) {
    // It has nothing to save; that it is gone already is just as well.
    let _ = qemu.kill();
    let _ = qemu.wait();
}

impl Guest {
    /// Boots a guest; `folder` is its own, for sockets and its console. `idle` is called while there is nothing to do but wait.
    pub(crate) fn boot(
        image: &Image,
        folder: &Path,
        machine: &Machine,
        idle: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Guest, Error> {
        let begin = Instant::now();
        let (socket, console) = (folder.join("control"), folder.join("console.log"));
        let mut qemu = qemu(image, machine, &socket, &console, folder)?;
        let mut connect = || loop {
            if let Some(status) = qemu.try_wait().map_err(failed(folder))? {
                return Err(Error::Failed(format!("QEMU ended ({status}): {}", last_line(&folder.join("qemu.log")))));
            }
            match UnixStream::connect(&socket) {
                Ok(control) => return Ok(control),
                Err(_) if begin.elapsed() < BOOT_LIMIT && !interrupted() => idle()?,
                Err(e) => return Err(failed(&socket)(e)),
            }
        };
        let control = match connect() {
            Ok(control) => control,
            Err(e) => {
                end(&mut qemu);
                return Err(e);
            }
        };
        let monitor = folder.join(MONITOR);
        let mut guest = Guest { qemu, control, monitor, console, received: Vec::new(), boot: Duration::ZERO };
        let verbs = if matches!(machine.link, Link::None | Link::Nics { .. }) { "" } else { VERBS };
        let hello = format!("{}\n{verbs}{AGENT}", verbs.len() + AGENT.len());
        guest.control.write_all(hello.as_bytes()).map_err(failed(&socket))?;
        guest.control.set_nonblocking(true).map_err(failed(&socket))?;
        guest.answer(BOOT_LIMIT, idle)?;
        guest.boot = begin.elapsed();
        Ok(guest)
    }

    /// Plugs the cable of the n-th NIC in, or pulls it.
    pub(crate) fn set_link(&self, nic: usize, up: bool) -> Result<(), Error> {
        let failed = failed(&self.monitor);
        let ask = || {
            let mut monitor = UnixStream::connect(&self.monitor)?;
            monitor.set_read_timeout(Some(ANSWER_LIMIT))?;
            let link = json!({"execute": "set_link", "arguments": {"name": format!("wire{nic}"), "up": up}});
            writeln!(monitor, "{}\n{link}", json!({"execute": "qmp_capabilities"}))?;
            // A greeting, and an answer to each of the two.
            BufReader::new(monitor).lines().take(3).collect::<io::Result<Vec<String>>>()
        };
        let answers = ask().map_err(failed)?;
        match answers.last() {
            Some(last) if answers.len() == 3 && !last.contains("error") => Ok(()),
            last => Err(Error::Failed(format!("QEMU did not set the link: {last:?}"))),
        }
    }

    /// Gives the agent a command and returns its answer; `idle` is called while it takes its time.
    pub(crate) fn call(
        &mut self,
        command: &Value,
        idle: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Value, Error> {
        let line = format!("{command}\n");
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match self.control.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => idle()?,
                Err(e) => return Err(self.lost(&e)),
            }
        }
        let wait = Duration::from_millis(command["ms"].as_u64().unwrap_or(0));
        self.answer(ANSWER_LIMIT + wait, idle).map_err(|e| match e {
            Error::Refused(why) => Error::Failed(format!("the agent's `{}`: {why}", command["do"])),
            e => e,
        })
    }

    fn answer(&mut self, limit: Duration, idle: &mut dyn FnMut() -> Result<(), Error>) -> Result<Value, Error> {
        let begin = Instant::now();
        let mut room = [0; 65536];
        loop {
            if let Some(end) = self.received.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                let mut answer: Value = serde_json::from_slice(&line)
                    .map_err(|e| Error::Failed(format!("the agent says what is no JSON: {e}")))?;
                return match answer.get("error") {
                    Some(error) => Err(Error::Refused(error.as_str().unwrap_or("no reason given").to_owned())),
                    None => Ok(answer["answer"].take()),
                };
            }
            match self.control.read(&mut room) {
                Ok(0) => return Err(self.lost(&"it hung up")),
                Ok(n) => self.received.extend(&room[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    if interrupted() {
                        return Err(Error::Failed("interrupted".into()));
                    }
                    if begin.elapsed() > limit {
                        return Err(self.lost(&format_args!("no answer in {} s", limit.as_secs())));
                    }
                    idle()?;
                }
                Err(e) => return Err(self.lost(&e)),
            }
        }
    }

    fn lost(&self, why: &dyn std::fmt::Display) -> Error {
        Error::Failed(format!("the guest is lost: {why}; its console ends with: {}", last_line(&self.console)))
    }
}

fn last_line(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("nothing").trim().to_owned()
}

/// Starts QEMU.
fn qemu(image: &Image, machine: &Machine, control: &Path, console: &Path, folder: &Path) -> Result<Child, Error> {
    let tree = image.host_tree();
    let Machine { mac, addresses, mtu, memory, .. } = machine;
    // Memory of vfio is locked page by page, which takes an emulated machine seconds where pages are small.
    let of_nics = match machine.link {
        Link::Nics { iommu: true, .. } => "transparent_hugepage_shmem=always intel_iommu=on iommu=pt",
        Link::Nics { .. } => "transparent_hugepage_shmem=always",
        _ => "",
    };
    let options = format!("softnic.mtu={mtu} softnic.ip={} {of_nics}", addresses.join(","));
    let quick = "mitigations=off audit=0 selinux=0 apparmor=0 cryptomgr.notests nokaslr tsc=reliable no_timer_check";
    let mut c = tree.command("usr/bin/qemu-system-x86_64")?;
    if let Link::Tap { namespace, .. } = &machine.link {
        let inner = std::mem::replace(&mut c, Command::new("ip"));
        c.args(["netns", "exec", namespace]).arg(inner.get_program()).args(inner.get_args());
    }
    for data in ["usr/share/qemu", "usr/share/seabios"] {
        c.arg("-L").arg(tree.path(data));
    }
    c.env("QEMU_MODULE_DIR", tree.path("usr/lib/x86_64-linux-gnu/qemu"));
    let (model, processors) = match machine.link {
        // Each igb needs a PCI Express port, and has a queue for each processor.
        Link::Nics { .. } => ("q35", "2"),
        // With one possible processor QEMU leaves out the guest's memory barriers, and virtio loses a kick sooner or later.
        _ => ("pc", "1,maxcpus=2"),
    };
    c.args(["-M", &format!("{model},accel=tcg,usb=off,vmport=off"), "-cpu", "max", "-m", &memory.to_string()]);
    c.args(["-smp", processors]);
    c.args(["-nodefaults", "-display", "none", "-no-reboot"]);
    c.arg("-kernel").arg(image.kernel()).arg("-initrd").arg(image.initrd_with(&machine.programs, folder)?);
    c.args(["-append", &format!("console=ttyS0 quiet panic=-1 net.ifnames=0 random.trust_cpu=on {quick} {options}")]);
    c.arg("-serial").arg(format!("file:{}", console.display()));
    if let Some(netdev) = netdev(&machine.link) {
        let device =
            format!("virtio-net-pci,netdev=wire,mac={mac},host_mtu={mtu},romfile=,mrg_rxbuf=off,{NO_OFFLOADS}");
        c.args(["-netdev", &netdev.to_string(), "-device", &device]);
    }
    if let Link::Nics { models, iommu } = &machine.link {
        if *iommu {
            c.args(["-device", "intel-iommu,intremap=on,caching-mode=on,device-iotlb=on"]);
        }
        c.arg("-qmp").arg(format!("unix:{},server=on,wait=off", folder.join(MONITOR).display()));
        for (n, model) in models.iter().flat_map(|model| [model; 2]).enumerate() {
            c.args(nic(n, model));
        }
    }
    c.args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
    c.arg("-chardev").arg(format!("socket,id=control,path={},server=on,wait=off", control.display()));
    c.args(["-device", "virtserialport,chardev=control,name=softnic.control"]);
    let log = folder.join("qemu.log");
    let out = File::create(&log).map_err(failed(&log))?;
    let errors = out.try_clone().map_err(failed(&log))?;
    c.stdin(Stdio::null()).stdout(out).stderr(errors);
    c.spawn().map_err(|e: io::Error| Error::Failed(format!("QEMU cannot be started: {e}")))
}

/// The n-th NIC, in QEMU's words; each is wired to its neighbour, by a hub: sockets would have QEMU spin in their place, and the guest stand
/// still, as soon as one of the NICs is sent frames while nobody has it open.
fn nic(n: usize, model: &str) -> [String; 6] {
    let wire = format!("hubport,id=wire{n},hubid={}", n / 2);
    let port = format!("pcie-root-port,id=port{n},chassis={}", n + 1);
    let nic = format!("{model},netdev=wire{n},bus=port{n},mac=02:00:00:37:00:{:02x},romfile=", n + 1);
    ["-netdev", &wire, "-device", &port, "-device", &nic].map(str::to_owned)
}

/// The link in QEMU's words.
fn netdev(link: &Link) -> Option<Value> {
    let unix = |path: &Path| json!({"type": "unix", "path": path});
    match link {
        Link::Dgram(wire) => {
            Some(json!({"type": "dgram", "id": "wire", "local": unix(&wire.local), "remote": unix(&wire.remote)}))
        }
        Link::Tap { tap, .. } => Some(json!({
            "type": "tap", "id": "wire", "ifname": tap, "script": "no", "downscript": "no", "vhost": false,
        })),
        Link::None | Link::Nics { .. } => None,
    }
}
