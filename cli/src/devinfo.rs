//! `softnic devinfo`: what a device would be, and what is missing where it cannot be one.

use std::io::{self, ErrorKind, Write};
use std::net::IpAddr;
use std::process::ExitCode;

use serde_json::{Value, json};
use softnic_perf::say;
use softnic_runtime::PacketIo;
use softnic_runtime::afxdp::{AfXdp, Device, Options};
use softnic_runtime::api::{Context, DeviceSpec, OpenOptions, OwnAddresses, SHM_MAC};
use softnic_runtime::capabilities::missing_for_afxdp;
#[cfg(feature = "dpdk")]
use softnic_runtime::dpdk;
use softnic_runtime::host_network::{HostNetwork, Interface, path_mtu};
use softnic_runtime::share::served;

use crate::Common;

/// Show what a device would be: addresses, MTU, queues, how frames get there
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic devinfo                      # the interfaces that could be used, and what is missing
  softnic devinfo --dev afxdp:eth0     # opens it for a moment
  softnic devinfo --dev afxdp:eth0,mode=zero-copy
  softnic devinfo --dev dpdk:net_memif0,role=server,socket=/tmp/m,ip=10.0.0.1/24   # if built with it
  softnic devinfo --dev mem --json")]
pub(crate) struct Args {
    /// The device: mem, shm, shm:NAME, shared:INTERFACE, afxdp:INTERFACE[,mode=zero-copy|copy|auto][,queues=N][,chunks=N], dpdk:DEVICE,ip=ADDR/LEN[,mtu=N][,queues=N] or dgram:OURS,PEERS,ip=ADDR/LEN [default: all interfaces, none of them opened]
    #[arg(long, short = 'd', value_name = "DEVICE")]
    dev: Option<DeviceSpec>,
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let devices = match &args.dev {
        None => all()?,
        Some(DeviceSpec::AfXdp { interface, mode, queues, chunks }) => {
            vec![opened(interface, &Options::for_device(*mode, *queues, *chunks))?]
        }
        Some(DeviceSpec::Shared { interface }) => vec![shared(interface)?],
        Some(DeviceSpec::Mem) => vec![without_interface("mem", &OwnAddresses::of_host(1))],
        Some(device @ DeviceSpec::Shm(spec)) => {
            let addresses = spec.addresses().map_err(|e| e.to_string())?;
            vec![without_interface(&device.to_string(), &OwnAddresses { mac: SHM_MAC, addresses })]
        }
        Some(device @ DeviceSpec::Dgram { own, .. }) => vec![without_interface(&device.to_string(), own)],
        Some(device @ DeviceSpec::Dpdk(_)) => vec![by_dpdk(device)?],
    };
    let others = if args.dev.is_none() { for_dpdk() } else { Vec::new() };
    let mut out = io::stdout().lock();
    for device in devices.iter().chain(&others) {
        let printed = if common.json { writeln!(out, "{device}") } else { print(&mut out, device) };
        match printed {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => return Err(format!("cannot write the output: {e}")),
            _ => {}
        }
    }
    if args.dev.is_none() {
        if devices.is_empty() {
            say!("no Ethernet interface in this network namespace; `--dev mem` needs none");
        }
        if let Some(missing) = missing_privileges() {
            say!("{missing}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// GIDs in their order: RoCEv2 all of them.
fn gids(addresses: &[IpAddr]) -> Value {
    let gid = |(index, address): (usize, &IpAddr)| {
        let gid = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => *v6,
        };
        json!({ "index": index, "gid": gid, "address": address, "type": "RoCE v2" })
    };
    addresses.iter().enumerate().map(gid).collect()
}

fn without_interface(name: &str, own: &OwnAddresses) -> Value {
    json!({
        "device": name, "mac": own.mac.to_string(), "link": "up", "path_mtu": 4096, "queues": 1,
        "gids": gids(&own.addresses),
    })
}

/// A device of DPDK's says what it is once it is open.
fn by_dpdk(device: &DeviceSpec) -> Result<Value, String> {
    let opened = Context::open(device, &OpenOptions::default()).map_err(|e| e.to_string())?;
    let port = opened.port();
    Ok(json!({
        "device": opened.description(), "mac": port.mac.to_string(), "link": if opened.is_up() { "up" } else { "down" },
        "path_mtu": port.mtu.bytes(), "queues": opened.engines(),
        "gids": gids(&port.addresses),
    }))
}

/// The drivers of DPDK's that are built in, and the NICs that they would take.
#[cfg(feature = "dpdk")]
fn for_dpdk() -> Vec<Value> {
    let nic = |nic: &dpdk::PciNic| {
        let (vendor, device) = nic.id;
        let what = match (&nic.bound_to, nic.is_free()) {
            (Some(driver), true) => format!("{driver}: DPDK can open it"),
            (Some(driver), false) => format!("{driver}, the kernel's: bind it to vfio-pci first"),
            (None, _) => "no driver: bind it to vfio-pci first".into(),
        };
        json!({ "device": format!("dpdk:{}", nic.address), "id": format!("{vendor:04x}:{device:04x}"), "bound_to": what })
    };
    let drivers: Vec<&str> = dpdk::drivers().collect();
    let built_in = json!({ "device": "dpdk:…", "drivers": drivers.join(" ") });
    [built_in].into_iter().chain(dpdk::pci_nics().iter().map(nic)).collect()
}

#[cfg(not(feature = "dpdk"))]
fn for_dpdk() -> Vec<Value> {
    Vec::new()
}

/// What can be told of an interface without opening it.
fn known(interface: &str) -> Result<(Value, String), String> {
    let host = HostNetwork::open(interface).map_err(|e| e.to_string())?;
    let bottom = host.bottom().name.clone();
    let device = Device::find(&bottom).map_err(|e| e.to_string())?;
    let at = host.interface();
    let link = match (at.up, at.admin_up, at.carrier) {
        (true, ..) => "up",
        (false, false, _) => "down: `ip link set dev … up`",
        (false, true, false) => "no carrier",
        (false, true, true) => "not running yet",
    };
    let value = json!({
        "device": format!("afxdp:{interface}"),
        "interface": interface,
        "mac": at.mac.to_string(),
        "mtu": at.mtu,
        "path_mtu": path_mtu(at.mtu).map(|mtu| mtu.bytes()),
        "link": link,
        "queues": device.rx_queues,
        "driver": device.driver,
        "gids": gids(host.addresses()),
    });
    Ok((value, bottom))
}

/// The same, and what is in force once it is open.
fn opened(interface: &str, options: &Options) -> Result<Value, String> {
    let (mut value, bottom) = known(interface)?;
    match AfXdp::open(&bottom, options) {
        Err(e) => value["cannot_open"] = json!(e.to_string()),
        Ok(queues) => {
            if let Some(first) = queues.first() {
                value["native"] = json!(first.native());
                value["zero_copy"] = json!(first.zero_copy());
                value["multi_buffer"] = json!(first.multi_buffer());
                value["max_frame"] = json!(first.max_frame());
                value["for_zero_copy"] = json!(first.zero_copy_advice());
                value["few_chunks"] = json!(first.chunks_advice());
            }
        }
    }
    Ok(value)
}

/// What can be told of an interface that a daemon shares.
fn shared(interface: &str) -> Result<Value, String> {
    let (mut value, _) = known(interface)?;
    value["device"] = json!(format!("shared:{interface}"));
    match served(interface) {
        Err(e) => value["cannot_open"] = json!(e.to_string()),
        Ok(served) => value["clients"] = json!(served.clients.len()),
    }
    Ok(value)
}

/// All interfaces that are Ethernet.
fn all() -> Result<Vec<Value>, String> {
    let names = Interface::names().map_err(|e| e.to_string())?;
    Ok(names.iter().filter_map(|name| known(name).ok()).map(|(value, _)| value).collect())
}

/// What keeps this process from opening any of them.
fn missing_privileges() -> Option<String> {
    let missing = missing_for_afxdp();
    match missing.is_empty() {
        true => None,
        false => Some(format!(
            "none of them can be opened by this process: it lacks {} in the user namespace that owns this network namespace; run as \
             root, or use --dev shm, mem or dgram",
            missing.join(", ")
        )),
    }
}

fn print(out: &mut impl Write, d: &Value) -> io::Result<()> {
    let text = |name: &str| d[name].as_str().unwrap_or("?").to_string();
    for (key, what) in [("drivers", "drivers of DPDK that are built in"), ("bound_to", "bound to")] {
        if d[key].is_string() {
            return writeln!(out, "{}: {what}: {}", text("device"), text(key));
        }
    }
    writeln!(out, "{}: {}, link {}", text("device"), text("mac"), text("link"))?;
    let path_mtu = d["path_mtu"].as_u64().map_or("none: raise the interface's MTU".into(), |n| n.to_string());
    match d["mtu"].as_u64() {
        Some(mtu) => writeln!(out, "  mtu {mtu}, path mtu {path_mtu}, receive queues {}", d["queues"])?,
        None => writeln!(out, "  path mtu {path_mtu}, receive queues {}", d["queues"])?,
    }
    if let Some(native) = d["native"].as_bool() {
        let yes = |name: &str| if d[name] == true { "yes" } else { "no" };
        let program = if native { "in the driver (native)" } else { "behind the driver (generic)" };
        writeln!(
            out,
            "  XDP program {program}, zero-copy {}, multi-buffer {}, frames up to {} bytes",
            yes("zero_copy"),
            yes("multi_buffer"),
            d["max_frame"]
        )?;
    }
    if let Some(what) = d["for_zero_copy"].as_str() {
        writeln!(out, "  for zero-copy: {what}")?;
    }
    if let Some(what) = d["few_chunks"].as_str() {
        writeln!(out, "  {what}")?;
    }
    if let Some(why) = d["cannot_open"].as_str() {
        writeln!(out, "  cannot be opened: {why}")?;
    }
    let gids = d["gids"].as_array().map(Vec::as_slice).unwrap_or_default();
    if gids.is_empty() {
        writeln!(out, "  no GID: give the interface an address by `ip address add`")?;
    }
    for gid in gids {
        let field = |name: &str| gid[name].as_str().unwrap_or("?").to_string();
        writeln!(out, "  gid {} {} ({}, {})", gid["index"], field("gid"), field("type"), field("address"))?;
    }
    Ok(())
}
