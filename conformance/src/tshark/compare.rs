//! The comparison itself: each frame is RoCE for both sides or for none, and then all fields are the same.

use std::fs::File;
use std::path::Path;

use softnic_pcaps::decode::{self, Dissection, IcrcVerdict};
use softnic_pcaps::{Frame, Payload, Reader};

use super::fields::{FIELDS, ICRC, Row};
use super::{Report, gaps};

/// Compares one capture with tshark's rows of it; returns a line for each difference.
pub(super) fn file(path: &Path, rows: &[Row], report: &mut Report) -> Result<Vec<String>, String> {
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let name = path.file_name().unwrap_or_default().display();
    let mut reader = Reader::new(File::open(path).map_err(|e| named(&e))?).map_err(|e| named(&e))?;
    let mut differences = Vec::new();
    let mut rows = rows.iter();
    while let Some(f) = reader.next_frame().map_err(|e| named(&e))? {
        let Some(row) = rows.next() else {
            return Err(named(&format_args!("tshark ends before frame {}", f.number)));
        };
        report.frames += 1;
        frame(&f, row, report, |what| differences.push(format!("{name} frame {}: {what}", f.number)));
    }
    if rows.next().is_some() {
        return Err(named(&"tshark reads more frames than we do"));
    }
    report.files += 1;
    Ok(differences)
}

fn frame(frame: &Frame<'_>, row: &Row, report: &mut Report, mut differ: impl FnMut(String)) {
    let theirs = row.values.contains_key(FIELDS[0].name);
    let ours = match dissect(frame) {
        None if theirs => return differ("RoCE for tshark, not for us".into()),
        // ARP, NDP and the like.
        None if row.malformed => return differ("malformed for tshark".into()),
        None => return,
        // Damaged, and both say so.
        Some(d) if !theirs && row.malformed && is_broken(&d) => return,
        Some(_) if !theirs => return differ("RoCE for us, not for tshark".into()),
        Some(d) => d,
    };
    report.packets += 1;
    let broken = is_broken(&ours);
    if row.malformed && !broken && gaps::called_malformed(&ours).is_none() {
        differ(format!("malformed for tshark, not for us: {ours:?}"));
    }
    let gap = ours.opcode.and_then(gaps::without_headers).is_some();
    report.gaps += u64::from(gap);
    // Where a length was damaged, tshark goes by the UDP header's, we by the IP header's: it may show what lies behind our end.
    let one_end = ours.layout.end == ours.layout.udp_end;
    for field in FIELDS {
        let (us, them) = ((field.ours)(&ours), row.values.get(field.name).copied());
        if gap && field.extension && them.is_none() || us.is_none() && !one_end {
            continue;
        }
        report.fields += u64::from(us.is_some() || them.is_some());
        if us != them {
            let opcode = ours.opcode.map(|o| o.to_string()).unwrap_or_default();
            differ(format!("{opcode} {} is {them:x?} for tshark, {us:x?} for us", field.name));
        }
    }
    if let (Some(&them), Some(us)) = (row.values.get(ICRC).filter(|_| one_end), icrc(frame.data, &ours)) {
        report.fields += 1;
        if us != them {
            differ(format!("the ICRC is {them:#010x} for tshark, {us:#010x} for us"));
        }
    }
}

/// Whether a packet is not whole as it was sent.
fn is_broken(d: &Dissection<'_>) -> bool {
    d.problem.is_some() || d.icrc != IcrcVerdict::Ok
}

fn dissect<'a>(frame: &Frame<'a>) -> Option<Dissection<'a>> {
    match softnic_pcaps::payload(frame.link, frame.data).ok()? {
        Payload::Ethernet(data) => decode::decode_ethernet(data).ok(),
        Payload::Network { ethertype, offset } => decode::decode_network(frame.data, ethertype, offset).ok(),
        Payload::Unsupported(_) => None,
    }
}

/// The ICRC as tshark shows it: a big-endian number.
fn icrc(frame: &[u8], d: &Dissection<'_>) -> Option<u64> {
    let bytes = frame.get(d.layout.end.checked_sub(4)?..d.layout.end)?;
    Some(bytes.iter().fold(0, |v, &b| v << 8 | u64::from(b)))
}

#[cfg(test)]
mod tests {
    use softnic_pcaps::{LinkType, Timestamp};

    use super::*;

    /// An RC FETCH_ADD over IPv6, 52 bytes of UDP; a flipped bit makes the IP header's length 20, so for us the ICRC begins inside the BTH.
    #[test]
    fn what_tshark_reads_behind_the_end_that_a_damaged_ip_length_says_is_no_difference() {
        let mut data = vec![2, 0, 0, 0x33, 0, 1, 2, 0, 0, 0x33, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 17, 64];
        for host in [2, 1] {
            data.extend([0xfd, 0x33, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        data.extend([0xd5, 0x78, 0x12, 0xb7, 0, 52, 0, 0]);
        data.extend([0x14, 0, 0xff, 0xff, 0, 0x33, 0x18, 0xb5, 0x80, 0, 0, 0xc4]);
        data.extend([0; 32]);
        let frame_of = |data| Frame {
            number: 1,
            time: Timestamp::EPOCH,
            interface: None,
            link: LinkType::Ethernet,
            data,
            original_len: 106,
        };
        // tshark shows all of the BTH.
        let mut row = Row { malformed: true, ..Row::default() };
        let ours = dissect(&frame_of(&data)).unwrap();
        for field in FIELDS {
            row.values.extend((field.ours)(&ours).map(|value| (field.name, value)));
        }
        row.values.extend([("infiniband.bth.a", 1), ("infiniband.bth.psn", 0xc4)]);
        let mut differences = Vec::new();
        frame(&frame_of(&data), &row, &mut Report::default(), |what| differences.push(what));
        assert_eq!(differences, [] as [&str; 0]);
        row.values.insert("infiniband.bth.p_key", 1);
        frame(&frame_of(&data), &row, &mut Report::default(), |what| differences.push(what));
        assert_eq!(differences.len(), 1, "what both have is compared: {differences:?}");
    }
}
