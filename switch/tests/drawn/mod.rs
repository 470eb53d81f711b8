//! Tables and frames that are drawn from bytes, and what must hold whatever they are: the body of the fuzz target `switch`.

use softnic_switch::group::MergeSpec;
use softnic_switch::{GroupReport, NextHop, Prefix, Switch};
use softnic_wire::ext::Reth;
use softnic_wire::{Instant, MacAddr, Opcode, Psn, Qpn, RocePacket, icrc};

use crate::hostile::{KEY, MC_ID, OWN, PORTS, Says, VIRTUAL, group, ip, mac, pass, switch};

/// The longest frame of the switch's own.
const OWN_ANSWER: usize = 128;

/// Bytes as decisions.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn below(&mut self, n: usize) -> Option<usize> {
        self.byte().map(|b| usize::from(b) % n)
    }

    fn word(&mut self) -> Option<u64> {
        (0..8).try_fold(0, |word, _| Some(word << 8 | u64::from(self.byte()?)))
    }

    /// A number near a place, or far from it.
    fn near(&mut self, place: u64) -> Option<u64> {
        match self.byte()? {
            b @ 0..=199 => Some(place.wrapping_add(u64::from(b)).wrapping_sub(16)),
            _ => self.word(),
        }
    }
}

/// Tables and frames drawn from bytes: nothing panics, nothing leaves more often than there are branches, nothing wrong becomes right.
pub(crate) fn fuzz(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut switch = switch();
    let mut branches = 0;
    let mut frames = 0u32;
    while let Some(what) = bytes.byte() {
        let frame = match what {
            0..=31 => {
                branches = branches.max(tables(&mut switch, &mut bytes).unwrap_or(0));
                continue;
            }
            32..=63 => {
                let len = bytes.below(200).unwrap_or(0).min(bytes.0.len());
                let (frame, rest) = bytes.0.split_at(len);
                bytes.0 = rest;
                frame.to_vec()
            }
            _ => match says(&mut bytes) {
                Some(frame) => frame,
                None => break,
            },
        };
        let port = usize::from(what) % PORTS;
        frames += 1;
        let before = switch.counters().flooded;
        let out = pass(&mut switch, port, &frame);
        let flooded = switch.counters().flooded > before;
        let most = if flooded { PORTS - 1 } else { branches.max(1) };
        assert!(out.len() <= most, "{} frames of one, and {branches} branches", out.len());
        let is_right = |frame: &[u8]| RocePacket::parse(frame).map(|p| icrc::verify_shared(frame, &p.layout).is_ok());
        for (_, sent) in &out {
            assert!(sent.len() <= frame.len().max(OWN_ANSWER), "{} bytes of {}", sent.len(), frame.len());
            let answers = RocePacket::parse(sent).is_ok_and(|p| p.bth.opcode == Opcode::RC_ACKNOWLEDGE);
            if is_right(&frame) == Ok(false) && !answers {
                assert_ne!(is_right(sent), Ok(true), "a damaged packet was made right");
            }
        }
    }
    let reports: Vec<GroupReport> = switch.groups(Instant::ZERO).collect();
    assert_eq!(reports.len(), switch.fill().groups);
    for report in reports {
        assert!(report.counters.copies <= u64::from(frames) * branches as u64, "{report:?}");
        assert!(report.counters.acks_out <= u64::from(frames), "{report:?}");
    }
}

/// Changes tables; the branches of a group that is new.
fn tables(switch: &mut Switch, bytes: &mut Bytes<'_>) -> Option<usize> {
    let mut spec = group(1 + bytes.below(4)?);
    spec.mc_id = Qpn::new(MC_ID.value() + bytes.below(3)? as u32);
    match bytes.below(6)? {
        0 => {
            let _ = switch.remove_group(spec.sender, spec.mc_id);
            return None;
        }
        1 => switch.set_neighbour(ip(bytes.below(PORTS)?), Some(mac(bytes.below(PORTS + 2)?))),
        2 => {
            let next = [NextHop::Direct, NextHop::Via(ip(bytes.below(PORTS)?))];
            switch.set_route(Prefix { addr: ip(bytes.below(PORTS)?), len: 32 }, next.to_vec());
            let _ = switch.take_wanted();
        }
        _ => {}
    }
    for receiver in &mut spec.receivers {
        let how = bytes.byte()?;
        receiver.mac = receiver.mac.filter(|_| how & 1 == 0);
        receiver.branch = (how & 2 != 0).then_some(u32::from(how >> 4));
        receiver.qpn = Qpn::new(receiver.qpn.value() + u32::from(how >> 6));
    }
    if bytes.byte()? & 1 != 0 {
        spec.merge = None;
    } else {
        spec.merge =
            Some(MergeSpec { qpn: Qpn::new(0x1111 + bytes.below(3)? as u32), psn: Psn::new(bytes.word()? as u32) });
    }
    for range in &mut spec.ranges {
        (range.start, range.len) = (bytes.near(VIRTUAL)?, bytes.near(1 << 16)?);
        range.targets.truncate(bytes.below(6)?);
    }
    let branches = spec.receivers.len();
    switch.add_group(spec).ok().map(|()| branches)
}

/// A packet that a group may take for its own.
fn says(bytes: &mut Bytes<'_>) -> Option<Vec<u8>> {
    let opcodes = [
        Opcode::RC_RDMA_WRITE_ONLY,
        Opcode::RC_RDMA_WRITE_MIDDLE,
        Opcode::RC_ACKNOWLEDGE,
        Opcode::RC_ACKNOWLEDGE,
        Opcode::RC_RDMA_READ_REQUEST,
        Opcode::CNP,
    ];
    let how = bytes.byte()?;
    let says = if how & 1 == 0 { Says::write(0) } else { Says::answer(bytes.below(PORTS)?, 0, bytes.byte()?) };
    let opcode = match bytes.below(10)? {
        n @ 0..=5 => opcodes[n],
        6 => Opcode(bytes.byte()?),
        _ => says.opcode,
    };
    let says = Says {
        src: if how & 2 == 0 { says.src } else { ip(bytes.below(PORTS)?) },
        dst: if how & 4 == 0 { says.dst } else { ip(bytes.below(PORTS)?) },
        dst_mac: if how & 8 == 0 { says.dst_mac } else { [OWN, mac(3), MacAddr([9; 6])][bytes.below(3)?] },
        dest_qp: if how & 16 == 0 { says.dest_qp } else { Qpn::new(says.dest_qp.value() + bytes.below(3)? as u32) },
        opcode,
        psn: Psn::new(bytes.near(16)? as u32),
        reth: Reth { va: bytes.near(VIRTUAL)?, rkey: KEY, len: bytes.near(64)? as u32 },
        payload: bytes.below(200)?,
        ..says
    };
    let mut frame = says.frame();
    if how & 32 != 0 {
        // Something is wrong with it: a byte, or its end.
        let at = bytes.word()? as usize % frame.len().max(1);
        match bytes.byte()? {
            0..=200 => frame.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << (how & 7)),
            _ => frame.truncate(at),
        }
    }
    Some(frame)
}
