//! The fuzz body of this crate: any text as a SPEC with a script, and a link made of what was understood.
//!
//! A plain function, so that the same body runs under `cargo test` on seeds and under cargo-fuzz on what it finds.

use std::fmt::Display;
use std::sync::LazyLock;

use softnic_wire::{Addresses, ExtHeaders, Instant, MacAddr, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame};

use crate::link::{EmulatedLink, Offered};
use crate::{Direction, Script, Spec};

/// Frames that a link may keep, and the bytes of each: few, so that what does not fit is met too.
const SLOTS: usize = 6;
const MAX_LEN: usize = 128;
/// How many frames are sent over each link.
const FRAMES: u64 = 40;
/// These frames.
static SENT: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..FRAMES).map(frame).collect());

/// A SPEC up to the first `@`, then the text of a script. So no file is ever read, and an input can be read by people.
pub fn fault_spec(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (spec, script) = text.split_once('@').map_or((text, None), |(spec, script)| (spec, Some(script)));
    let mut spec = match spec.parse::<Spec>() {
        Ok(spec) => spec,
        Err(e) => return one_line(&e),
    };
    match script.map(Script::parse) {
        Some(Ok(script)) => {
            assert!(!script.events.is_empty(), "a script without events is refused");
            spec.script = script;
        }
        Some(Err(e)) => one_line(&e),
        None => {}
    }
    match spec.check_link() {
        Ok(()) => [Direction::Ab, Direction::Ba].into_iter().for_each(|way| same_twice(&spec, way)),
        Err(e) => one_line(&e),
    }
    match spec.for_device() {
        Ok(ways) => ways.iter().for_each(|spec| same_twice(spec, Direction::Ab)),
        Err(e) => one_line(&e),
    }
}

/// What is wrong is said in one line.
fn one_line(e: &dyn Display) {
    let said = e.to_string();
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// The same SPEC and seed do the same to the same frames.
fn same_twice(spec: &Spec, direction: Direction) {
    assert!(spec.shape(direction).longest() >= spec.shape(direction).delay);
    assert_eq!(arrivals(spec, direction), arrivals(spec, direction), "{spec:?}");
}

/// Sends frames over a link and waits for them: when each arrived, and its bytes.
fn arrivals(spec: &Spec, direction: Direction) -> Vec<(Instant, Vec<u8>)> {
    let mut link = EmulatedLink::new(spec, direction, 7, SLOTS, MAX_LEN);
    let mut arrived = Vec::new();
    let mut now = Instant::from_nanos(0);
    for (n, frame) in (0..FRAMES).zip(&*SENT) {
        let mut frame = frame.clone();
        if link.offer(now, &mut frame) == Offered::Pass {
            arrived.push((now, frame));
        }
        // Some come together, some long after the others.
        if n % 4 != 0 {
            now = Instant::from_nanos(now.as_nanos() + (300 << (n % 32)));
        }
        take(&mut link, now, &mut arrived);
    }
    while let Some(due) = link.next_due() {
        assert!(due > now, "what is due has been taken");
        now = due;
        take(&mut link, now, &mut arrived);
    }
    let (lost, copies) = (link.stats().lost, FRAMES);
    assert!(lost <= FRAMES + copies && arrived.len() as u64 + lost <= FRAMES + copies, "more than there were");
    assert!(link.applied().all(|(place, times)| place < spec.script.events.len() && times <= FRAMES));
    arrived
}

fn take(link: &mut EmulatedLink, now: Instant, arrived: &mut Vec<(Instant, Vec<u8>)>) {
    while let Some(frame) = link.poll(now) {
        assert!(frame.len() <= MAX_LEN);
        arrived.push((now, frame.to_vec()));
        assert!(arrived.len() as u64 <= 2 * FRAMES, "each comes twice at most");
    }
}

/// RoCE packets of a few queue pairs, opcodes and PSNs, some of them sent again; between them other things.
fn frame(n: u64) -> Vec<u8> {
    match n % 8 {
        6 => return vec![0xa5; n as usize],
        7 => return vec![0; MAX_LEN + n as usize % 2],
        _ => {}
    }
    let path = Path {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        tags: [None; 2],
        addresses: Addresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() },
        traffic_class: 2,
        flow_label: 0,
        hop_limit: 64,
        src_port: 0xc000,
    };
    let fields = PacketFields {
        // SEND only, SEND middle, READ response middle: none has a header of its own.
        opcode: [Opcode(0x04), Opcode(0x01), Opcode(0x0e)][n as usize % 3],
        psn: Psn::new(0xff_fffe_u32.wrapping_add(n as u32 / 3)),
        ack_req: false,
        solicited: false,
        becn: false,
        payload_len: 16,
    };
    let mut room = [0; MAX_LEN];
    let mut tx = TxFrame::new(&mut room);
    let template = Template::new(&path, Qpn::new(0x1234 + n as u32 % 2), 0xffff);
    assert_eq!(template.build(&mut tx, &fields, &ExtHeaders::default(), &[3; 16]), Ok(()));
    tx.segments().0.to_vec()
}
