//! What tshark reads in a capture: the table of fields that are asked for, and its answers as numbers.

use std::collections::BTreeMap;
use std::path::Path;

use softnic_pcaps::decode::Dissection;
use softnic_wire::Qpn;

use crate::steps::command;

/// One field that both sides read.
pub(super) struct Field {
    /// Its name in tshark.
    pub(super) name: &'static str,
    /// Whether it is in every packet, or in an extension header, which tshark may not know.
    pub(super) extension: bool,
    /// Our value.
    pub(super) ours: fn(&Dissection<'_>) -> Option<u64>,
}

const fn base(name: &'static str, ours: fn(&Dissection<'_>) -> Option<u64>) -> Field {
    Field { name, extension: false, ours }
}

const fn ext(name: &'static str, ours: fn(&Dissection<'_>) -> Option<u64>) -> Field {
    Field { name, extension: true, ours }
}

/// Every field that is compared. tshark names the address and key of an atomic as it does those of a RETH.
pub(super) const FIELDS: &[Field] = &[
    base("infiniband.bth.opcode", |d| d.opcode.map(|o| o.0.into())),
    base("infiniband.bth.se", |d| d.solicited.map(Into::into)),
    base("infiniband.bth.m", |d| d.mig_req.map(Into::into)),
    base("infiniband.bth.padcnt", |d| d.pad.map(Into::into)),
    base("infiniband.bth.p_key", |d| d.pkey.map(Into::into)),
    base("infiniband.bth.destqp", |d| d.dest_qp.map(number)),
    base("infiniband.bth.a", |d| d.ack_req.map(Into::into)),
    base("infiniband.bth.psn", |d| d.psn.map(|p| p.value().into())),
    ext("infiniband.deth.q_key", |d| d.ext.deth.map(|h| h.qkey.into())),
    ext("infiniband.deth.srcqp", |d| d.ext.deth.map(|h| number(h.src_qp))),
    ext("infiniband.reth.va", |d| d.ext.reth.map(|h| h.va).or(d.ext.atomic.map(|h| h.va))),
    ext("infiniband.reth.r_key", |d| d.ext.reth.map(|h| h.rkey).or(d.ext.atomic.map(|h| h.rkey)).map(Into::into)),
    ext("infiniband.reth.dmalen", |d| d.ext.reth.map(|h| h.len.into())),
    ext("infiniband.atomiceth.swapdt", |d| d.ext.atomic.map(|h| h.swap_add)),
    ext("infiniband.atomiceth.cmpdt", |d| d.ext.atomic.map(|h| h.compare)),
    ext("infiniband.aeth.syndrome", |d| d.ext.aeth.map(|h| h.syndrome.to_byte().into())),
    ext("infiniband.aeth.msn", |d| d.ext.aeth.map(|h| h.msn.into())),
    ext("infiniband.atomicacketh.origremdt", |d| d.ext.atomic_ack),
    ext("infiniband.immdt", |d| d.ext.imm.map(Into::into)),
    ext("infiniband.ieth", |d| d.ext.ieth.map(Into::into)),
];

/// Where each side sees the end of the packet: the four bytes before it.
pub(super) const ICRC: &str = "infiniband.invariant.crc";
const MALFORMED: &str = "_ws.malformed";
const NUMBER: &str = "frame.number";

fn number(qp: Qpn) -> u64 {
    qp.value().into()
}

/// A frame as tshark reads it.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) values: BTreeMap<&'static str, u64>,
    pub(super) malformed: bool,
}

/// Lets tshark dissect a capture; a row for each frame, in order.
pub(super) fn dissect(file: &Path, scratch: &Path) -> Result<Vec<Row>, String> {
    let file = std::path::absolute(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let names: Vec<&str> = [NUMBER, MALFORMED, ICRC].into_iter().chain(FIELDS.iter().map(|f| f.name)).collect();
    let mut tshark = command(&["tshark", "-n", "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
    // The settings of whoever runs this must not change what is compared.
    tshark.env("WIRESHARK_CONFIG_DIR", scratch.join("no-settings"));
    // Its heuristic takes any short SEND for RPC over RDMA and then calls it malformed (seen in 4.0).
    tshark.args(["--disable-protocol", "rpcordma"]);
    // It takes a datagram whose first two bits are set for Ethernet over InfiniBand, however short it is.
    tshark.args(["--disable-protocol", "infiniband.eoib"]);
    for name in &names {
        tshark.args(["-e", name]);
    }
    let out = tshark
        .arg("-r")
        .arg(&file)
        .output()
        .map_err(|e| format!("tshark cannot be started, `cargo xtask setup` installs it: {e}"))?;
    if !out.status.success() {
        let error = String::from_utf8_lossy(&out.stderr);
        let why = error.lines().rfind(|l| !l.is_empty()).unwrap_or("no reason given");
        return Err(format!("tshark cannot read {}: {why}", file.display()));
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let rows = text.lines().enumerate().map(|(i, line)| row(&names, line, i + 1));
    rows.collect::<Result<_, _>>().map_err(|why| format!("{}: {why}", file.display()))
}

fn row(names: &[&'static str], line: &str, frame: usize) -> Result<Row, String> {
    let mut row = Row::default();
    for (&name, cell) in names.iter().zip(line.split('|')) {
        if cell.is_empty() {
            continue;
        }
        if name == MALFORMED {
            row.malformed = true;
            continue;
        }
        let value = parse(name, cell).ok_or_else(|| format!("tshark prints {name} of frame {frame} as {cell:?}"))?;
        if name == NUMBER && value != frame as u64 {
            return Err(format!("tshark counts frame {frame} as {value}"));
        }
        row.values.insert(name, value);
    }
    Ok(row)
}

/// tshark prints numbers in decimal or as 0x…, flags as 1 or True, and fields of type bytes as bare digits.
fn parse(name: &str, cell: &str) -> Option<u64> {
    if matches!(name, "infiniband.immdt" | "infiniband.ieth") {
        return u64::from_str_radix(&cell.replace(':', ""), 16).ok();
    }
    match cell.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if cell.eq_ignore_ascii_case("true") => Some(1),
        None if cell.eq_ignore_ascii_case("false") => Some(0),
        None => cell.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_in_which_tshark_prints_numbers() {
        assert_eq!(parse("infiniband.bth.psn", "10018850"), Some(10_018_850));
        assert_eq!(parse("infiniband.bth.destqp", "0x00003d"), Some(0x3d));
        assert_eq!(parse("infiniband.bth.a", "True"), Some(1));
        assert_eq!(parse("infiniband.immdt", "44:33:22:11"), Some(0x4433_2211));
        assert_eq!(parse("infiniband.ieth", "080002c3"), Some(0x0800_02c3));
        assert_eq!(parse("infiniband.bth.psn", "x"), None);
    }
}
