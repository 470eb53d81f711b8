//! One packet of XP: copies its bytes from memory into a frame, or from a frame into memory.

use softnic_wire::{ExtHeaders, PacketFields, PathMtu, Template, TxFrame};

use super::fragment::Fragment;
use crate::memory::{Access, AccessError, Memory, PdId, Region};
use crate::message::{self, Gather, Link};
use crate::qp::PayloadMode;
use crate::send_queue::Source;
use crate::wr::{Sge, scatter};

/// The source of a packet's bytes.
pub(super) struct From<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) access: Access,
}

/// Writes a packet: headers, bytes and ICRC.
#[inline(always)] // header fields known to the caller are never written to memory
pub(super) fn write(
    tx: &mut TxFrame<'_>,
    (link, template): (&Link, &Template),
    fields: &PacketFields,
    ext: &ExtHeaders,
    fragment: &Fragment,
    from: &From<'_>,
    host: &impl Memory,
) -> Result<(), AccessError> {
    let Link { qpn, pd, payload, .. } = *link;
    let offset = u64::from(fragment.offset);
    let gather = Gather { qpn, pd, payload, source: from.source, access: from.access, offset };
    if fragment.stride == 1 || payload == PayloadMode::Elided {
        return message::write(tx, template, fields, ext, &gather, host);
    }
    write_strided(tx, (link.mtu, template), fields, ext, fragment, &gather, host)
}

#[inline(never)]
fn write_strided(
    tx: &mut TxFrame<'_>,
    (mtu, template): (PathMtu, &Template),
    fields: &PacketFields,
    ext: &ExtHeaders,
    fragment: &Fragment,
    gather: &Gather<'_>,
    host: &impl Memory,
) -> Result<(), AccessError> {
    let started = template.start(tx, fields, ext).map_err(|_| AccessError::Bounds)?;
    let (a, b) = tx.slices_mut(started.payload, fields.payload_len);
    let in_first = a.len() as u32;
    read_runs(fragment, mtu, 0, gather, a, host)?;
    read_runs(fragment, mtu, in_first, gather, b, host)?;
    template.finish(tx, started);
    Ok(())
}

/// Copies a fragment's bytes, starting with byte `at` of the fragment.
fn read_runs(
    fragment: &Fragment,
    mtu: PathMtu,
    at: u32,
    gather: &Gather<'_>,
    out: &mut [u8],
    host: &impl Memory,
) -> Result<(), AccessError> {
    let runs = fragment.runs(mtu);
    if let Source::Gather([sge]) = gather.source
        && out.len() as u32 == fragment.len
    {
        return host.read_runs(gather.region(sge, fragment.offset.into()), runs, out);
    }
    let (mut at, mut out) = (at, out);
    while !out.is_empty() {
        let (k, within) = (at / runs.run, at % runs.run);
        let n = out.len().min((runs.run - within) as usize);
        let (part, rest) = out.split_at_mut(n);
        read_at(u64::from(fragment.offset + k * runs.step + within), gather, part, host)?;
        (at, out) = (at + n as u32, rest);
    }
    Ok(())
}

/// Copies the bytes of the message from `offset` on.
fn read_at(offset: u64, gather: &Gather<'_>, out: &mut [u8], host: &impl Memory) -> Result<(), AccessError> {
    let sges = match gather.source {
        Source::Gather(sges) => sges,
        Source::Inline(bytes) => {
            out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
            return Ok(());
        }
    };
    let (mut skip, mut out) = (offset, out);
    for sge in *sges {
        if skip >= u64::from(sge.len) {
            skip -= u64::from(sge.len);
            continue;
        }
        let n = out.len().min((u64::from(sge.len) - skip) as usize);
        let (part, rest) = out.split_at_mut(n);
        host.read(gather.region(sge, skip), part)?;
        (skip, out) = (0, rest);
        if out.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Places the bytes of a fragment in the local memory of its message.
#[inline]
pub(super) fn place(
    fragment: &Fragment,
    link: &Link,
    (pd, sges): (PdId, &[Sge]),
    bytes: &[u8],
    host: &impl Memory,
) -> Result<(), AccessError> {
    let region = |sge: &Sge, at: u64| Region {
        qpn: link.qpn,
        pd,
        key: sge.lkey,
        addr: sge.addr.wrapping_add(at),
        access: Access::LOCAL_WRITE,
    };
    // Elided bytes are missing.
    if fragment.stride == 1 || bytes.len() as u32 != fragment.len {
        return scatter(sges, fragment.offset.into(), bytes, |sge, at, part| host.write(region(sge, at), part));
    }
    let runs = fragment.runs(link.mtu);
    if let [sge] = sges {
        return host.write_runs(region(sge, fragment.offset.into()), runs, bytes);
    }
    for (k, run) in (0u32..).zip(bytes.chunks_exact(runs.run as usize)) {
        let offset = u64::from(fragment.offset + k * runs.step);
        scatter(sges, offset, run, |sge, at, part| host.write(region(sge, at), part))?;
    }
    Ok(())
}
