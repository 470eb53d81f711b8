//! What is done in a scenario. Each is written once, for a requester and a responder; who is who is the scenario's matter.

mod collective;
mod datagrams;
mod errors;
mod lossy;
mod many;
mod sdr;
mod windows;

use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::negotiation::{Choice, FallbackReason};
use softnic_nic::transports::{SendOp, Status, WcOpcode};

use super::session::Session;
use super::setup::{Done, Queue, Setup, Side};
use crate::guest::Error;

/// An operation, or something that goes wrong with one.
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Whether the short set has it with every IP version and MTU, not with one alone.
    pub(super) basic: bool,
    /// What is special about the connection.
    pub(super) setup: fn(Setup) -> Setup,
    pub(super) run: fn(&mut Session) -> Result<(), Error>,
}

const fn op(name: &'static str, what: &'static str, run: fn(&mut Session) -> Result<(), Error>) -> Operation {
    Operation { name, what, basic: false, setup: |s| s, run }
}

impl Operation {
    const fn basic(self) -> Operation {
        Operation { basic: true, ..self }
    }

    const fn with(self, setup: fn(Setup) -> Setup) -> Operation {
        Operation { setup, ..self }
    }
}

/// All of them. A new one is a line here; its function may stand in any file.
pub(super) const OPERATIONS: &[Operation] = &[
    op("send", "SENDs of 0, 1, MTU, MTU+1 and 10*MTU+3 bytes", |s| transfers(s, Kind::Send)).basic(),
    op("send-imm", "the same with immediate data", |s| transfers(s, Kind::SendImm)),
    op("write", "WRITEs of these sizes", |s| transfers(s, Kind::Write)).basic(),
    op("write-imm", "the same with immediate data", |s| transfers(s, Kind::WriteImm)),
    op("read", "READs of these sizes", |s| transfers(s, Kind::Read)).basic(),
    op("cmp-swap", "compare and swap, of the value that is there and of another", compare_swap),
    op("fetch-add", "fetch and add, also beyond 2^64", fetch_add).basic(),
    op("outstanding", "sixteen work requests of all kinds at once, with PSNs that wrap", outstanding)
        .with(|s| Setup { psn: 0xff_fff0, ..s }),
    op("reads", "sixteen READs of several packets at once, of which four may be outstanding", many::reads),
    op(
        "window",
        "WRITE and READ by a memory window's key, which its owner then invalidates",
        windows::local_invalidate,
    ),
    op("window-bounds", "a WRITE that ends behind the window, though not behind the region", windows::beyond),
    op("send-inv", "a SEND that invalidates a memory window's key", windows::send_invalidate),
    op("srq", "messages of two queue pairs whose receives come from one queue", many::shared_receives)
        .with(|s| Setup { qps: 2, srq: true, ..s }),
    op("many-qps", "a hundred queue pairs at once, each with a WRITE and a SEND", many::queue_pairs)
        .with(|s| Setup { qps: 100, ..s }),
    op("sr-refused", "WRITEs of these sizes, after Selective Repeat was offered and refused", selective_refused)
        .with(|s| Setup { offers_sr: true, ..s }),
    op("sdr-refused", "the same after reliable messages over SDR were offered and refused", sdr::refused),
    op("rnr", "SENDs and a WRITE with immediate whose receives are posted late", receive_late).basic(),
    op("rnr-exceeded", "a SEND whose receive is never posted", errors::receive_never)
        .with(|s| Setup { rnr_retry: 2, ..s }),
    op("bad-rkey-write", "a WRITE with a key that nobody has", |s| errors::bad_key(s, Kind::Write)),
    op("bad-rkey-read", "a READ with a key that nobody has", |s| errors::bad_key(s, Kind::Read)),
    op("bad-rkey-atomic", "a fetch and add with a key that nobody has", errors::bad_key_atomic),
    op("out-of-range", "a WRITE that begins inside the region and ends outside", errors::out_of_range),
    op("mr-no-write", "a WRITE into a region without the right", errors::mr_without_write)
        .with(|s| Setup { mr_access: Access::LOCAL_WRITE | Access::REMOTE_READ, ..s }),
    op("qp-no-read", "a READ from a queue pair without the right", errors::qp_without_read)
        .with(|s| Setup { qp_access: Access::LOCAL_WRITE | Access::REMOTE_WRITE, ..s }),
    op("too-long", "a SEND longer than its receive, of one packet and of several", errors::too_long),
    op("peer-gone", "a WRITE to a queue pair that has been destroyed", errors::peer_gone).with(|s| Setup {
        timeout: 12,
        retry_cnt: 2,
        ..s
    }),
    op("retry-exceeded", "a WRITE on a wire that loses everything", errors::nothing_arrives).with(|s| Setup {
        timeout: 12,
        retry_cnt: 2,
        faults: "loss=1",
        ..s
    }),
    op("loss", "all operations while 3 % of the packets of each direction are lost", lossy::all_kinds)
        .with(|s| Setup { faults: "loss=0.03", ..s }),
    op("reorder", "all operations while 5 % of the packets are overtaken by two later ones", lossy::all_kinds)
        .with(|s| Setup { faults: "reorder=0.05:2", ..s }),
    op("duplicate", "all operations while 5 % of the packets come twice", lossy::all_kinds)
        .with(|s| Setup { faults: "dup=0.05", ..s }),
    op("corrupt", "all operations while a bit is flipped in 3 % of the packets", lossy::all_kinds)
        .with(|s| Setup { faults: "corrupt=0.03", ..s }),
    op("mixed", "all operations with all of these faults", lossy::all_kinds)
        .with(|s| Setup { faults: "loss=0.01,reorder=0.02:2,dup=0.02,corrupt=0.01", ..s }),
    op("many-qps-mixed", "a hundred queue pairs at once with all of these faults", many::queue_pairs).with(|s| Setup {
        qps: 100,
        faults: "loss=0.01,reorder=0.02:2,dup=0.02,corrupt=0.01",
        ..s
    }),
    op("uc-send", "SENDs of all sizes without acknowledgement", |s| transfers(s, Kind::Send)).with(UC),
    op("uc-send-imm", "the same with immediate data", |s| transfers(s, Kind::SendImm)).with(UC),
    op("uc-write", "WRITEs of all sizes without acknowledgement", |s| transfers(s, Kind::Write)).with(UC),
    op("uc-write-imm", "the same with immediate data", |s| transfers(s, Kind::WriteImm)).with(UC),
    op("uc-no-receive", "a SEND that finds no receive is dropped, the next one arrives", datagrams::uc_no_receive)
        .with(UC),
    op("ud-send", "datagrams of 0, 1 and MTU bytes, with their network header", |s| datagrams::all(s, Kind::Send))
        .with(UD),
    op("ud-send-imm", "the same with immediate data", |s| datagrams::all(s, Kind::SendImm)).with(UD),
    op("ud-no-receive", "a datagram that finds no receive is dropped, the next one arrives", datagrams::ud_no_receive)
        .with(UD),
    op(
        "uc-collective",
        "a step of an AllGather over UC, rxe one of its ranks; what is late finds that its key is gone",
        collective::all_gather,
    )
    .with(UC),
    op("sdr", "messages of SDR, a WRITE with immediate for each packet, and packets that are late", sdr::messages)
        .with(sdr::setup),
    op("sdr-reorder", "the same while each packet takes up to 2 ms longer than others", sdr::messages)
        .with(|s| Setup { faults: "jitter=2ms", ..sdr::setup(s) }),
    op(
        "sdr-mixed",
        "messages of SDR while packets are lost, late, damaged or come twice; what is missing is sent again",
        sdr::messages,
    )
    .with(|s| Setup { faults: "loss=0.05,reorder=0.1:2,dup=0.1,corrupt=0.05", ..sdr::setup(s) }),
];

const UC: fn(Setup) -> Setup = |s| Setup { service: QpKind::Uc, ..s };
const UD: fn(Setup) -> Setup = |s| Setup { service: QpKind::Ud, ..s };

/// Nothing that works takes as long.
const LIMIT: Duration = Duration::from_secs(10);
/// Where the data lies at its source.
const FROM: usize = 0;
/// Where it goes at its destination, with room on both sides that must stay as it is.
const TO: usize = 128 << 10;
const MARGIN: usize = 32;
/// What memory holds before anything is written to it.
const UNTOUCHED: u8 = 0xa5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

impl Kind {
    fn uses_receive(self) -> bool {
        matches!(self, Kind::Send | Kind::SendImm | Kind::WriteImm)
    }

    fn imm(self, n: u64) -> Option<u32> {
        matches!(self, Kind::SendImm | Kind::WriteImm).then_some(0x1122_3300 + n as u32)
    }

    fn completes_as(self) -> WcOpcode {
        match self {
            Kind::Send | Kind::SendImm => WcOpcode::Send,
            Kind::Write | Kind::WriteImm => WcOpcode::Write,
            Kind::Read => WcOpcode::Read,
        }
    }

    /// The work request on `addr` and `rkey` of the responder.
    fn op(self, n: u64, remote_addr: u64, rkey: u32) -> SendOp {
        let imm = self.imm(n).unwrap_or(0);
        match self {
            Kind::Send => SendOp::Send,
            Kind::SendImm => SendOp::SendImm { imm },
            Kind::Write => SendOp::Write { remote_addr, rkey },
            Kind::WriteImm => SendOp::WriteImm { remote_addr, rkey, imm },
            Kind::Read => SendOp::Read { remote_addr, rkey },
        }
    }
}

fn fail<T>(why: String) -> Result<T, Error> {
    Err(Error::Failed(why))
}

fn ends(s: &Session) -> (Side, Side) {
    (s.setup.requester, s.setup.requester.other())
}

/// Bytes that differ with `seed` and from each other.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed.wrapping_mul(97)) as u8).collect()
}

/// One completion of the requester, with this status and, where that is success, this opcode.
fn expect_sent(s: &mut Session, wr_id: u64, status: Status, opcode: WcOpcode) -> Result<(), Error> {
    expect_done(s, ends(s).0, wr_id, status, opcode)
}

/// The same of either end's work requests.
fn expect_done(s: &mut Session, side: Side, wr_id: u64, status: Status, opcode: WcOpcode) -> Result<(), Error> {
    let found = s.poll(side, Queue::Send, 1, LIMIT)?;
    let opcode = (status == Status::Success).then_some(opcode);
    match found[..] {
        [d] if (d.wr_id, d.status, d.opcode) == (wr_id, status, opcode) => Ok(()),
        _ => fail(format!("{} should complete {wr_id} with {status}, but has {found:?}", side.name())),
    }
}

/// One completion of the responder's receives.
fn expect_received(s: &mut Session, done: Done) -> Result<(), Error> {
    let (_, to) = ends(s);
    let found = s.poll(to, Queue::Recv, 1, LIMIT)?;
    match found[..] {
        [d] if d == done => Ok(()),
        _ => fail(format!("{} should receive {done:?}, but has {found:?}", to.name())),
    }
}

fn received(kind: Kind, wr_id: u64, len: usize) -> Done {
    let opcode = if kind == Kind::WriteImm { WcOpcode::RecvWriteImm } else { WcOpcode::Recv };
    let (status, imm) = (Status::Success, kind.imm(wr_id));
    Done { wr_id, status, opcode: Some(opcode), len: len as u32, imm, invalidated: None, src_qp: None }
}

/// Makes `len` bytes at [`TO`] and what is around them forget what they were.
fn clear(s: &mut Session, side: Side, len: usize) -> Result<(), Error> {
    s.fill(side, TO - MARGIN, &vec![UNTOUCHED; len + 2 * MARGIN])
}

/// The bytes at [`TO`] are `data`, and those around them untouched.
fn expect_data(s: &mut Session, side: Side, data: &[u8]) -> Result<(), Error> {
    let found = s.read(side, TO - MARGIN, data.len() + 2 * MARGIN)?;
    let (before, rest) = found.split_at(MARGIN);
    let (here, behind) = rest.split_at(data.len());
    if let Some(at) = here.iter().zip(data).position(|(a, b)| a != b) {
        return fail(format!("{}'s memory differs from byte {at} of {}", side.name(), data.len()));
    }
    match before.iter().chain(behind).all(|&b| b == UNTOUCHED) {
        true => Ok(()),
        false => fail(format!("bytes around the data changed in {}'s memory", side.name())),
    }
}

fn transfers(s: &mut Session, kind: Kind) -> Result<(), Error> {
    let mtu = s.setup.mtu.bytes() as usize;
    let longest = if s.small { 3 } else { 10 } * mtu + 3;
    for (n, len) in (1..).zip([0, 1, mtu, mtu + 1, longest]) {
        transfer(s, kind, n, len, Duration::ZERO)?;
    }
    Ok(())
}

/// rxe knows nothing of Selective Repeat, and says so: plain RC is spoken, and nobody waited for silence.
fn selective_refused(s: &mut Session) -> Result<(), Error> {
    transfers(s, Kind::Write)?;
    match s.choice() {
        Some(Choice::Standard(FallbackReason::Refused)) => Ok(()),
        other => Err(Error::Failed(format!("softnic's queue pair ends with {other:?} instead of a refusal"))),
    }
}

/// One message, its completions and its data. Its receive is posted `late` after it.
fn transfer(s: &mut Session, kind: Kind, n: u64, len: usize, late: Duration) -> Result<(), Error> {
    let (from, to) = ends(s);
    let data = pattern(n, len);
    let (source, destination) = if kind == Kind::Read { (to, from) } else { (from, to) };
    s.fill(source, FROM, &data)?;
    clear(s, destination, len)?;
    if kind.uses_receive() && late.is_zero() {
        s.recv(to, n, TO, len + MARGIN)?;
    }
    let (addr, rkey) = s.remote(to, if kind == Kind::Read { FROM } else { TO })?;
    s.send(from, n, kind.op(n, addr, rkey), if kind == Kind::Read { TO } else { FROM }, len)?;
    if !late.is_zero() {
        s.pause(late)?;
        s.recv(to, n, TO, len + MARGIN)?;
    }
    expect_sent(s, n, Status::Success, kind.completes_as())?;
    if kind.uses_receive() {
        expect_received(s, received(kind, n, len))?;
    }
    // Only of a WRITE without acknowledgement nobody says when it has arrived.
    let begin = Instant::now();
    while s.setup.service == QpKind::Uc && kind == Kind::Write && begin.elapsed() < LIMIT {
        if expect_data(s, destination, &data).is_ok() {
            break;
        }
        s.pause(Duration::from_millis(1))?;
    }
    expect_data(s, destination, &data)
}

/// An atomic that finds `before` and leaves `after`.
fn atomic(s: &mut Session, n: u64, op: impl Fn(u64, u32) -> SendOp, before: u64, after: u64) -> Result<(), Error> {
    let (from, to) = ends(s);
    let (addr, rkey) = s.remote(to, FROM)?;
    clear(s, from, 8)?;
    let op = op(addr, rkey);
    s.send(from, n, op, TO, 8)?;
    let opcode = if matches!(op, SendOp::FetchAdd { .. }) { WcOpcode::FetchAdd } else { WcOpcode::CompareSwap };
    expect_sent(s, n, Status::Success, opcode)?;
    // Both ends are little-endian: the value comes back in the host's own order.
    expect_data(s, from, &before.to_le_bytes())?;
    let found = s.read(to, FROM, 8)?;
    match found == after.to_le_bytes() {
        true => Ok(()),
        false => fail(format!("{} should hold {after:#x}, but holds {found:x?}", to.name())),
    }
}

fn compare_swap(s: &mut Session) -> Result<(), Error> {
    let (_, to) = ends(s);
    let (old, new) = (0x1122_3344_5566_7788_u64, 0xdead_beef_cafe_f00d);
    s.fill(to, FROM, &old.to_le_bytes())?;
    let op = |compare, swap| move |remote_addr, rkey| SendOp::CompareSwap { remote_addr, rkey, compare, swap };
    atomic(s, 1, op(old, new), old, new)?;
    atomic(s, 2, op(old, 5), new, new)
}

fn fetch_add(s: &mut Session) -> Result<(), Error> {
    let (_, to) = ends(s);
    let start = u64::MAX - 1;
    s.fill(to, FROM, &start.to_le_bytes())?;
    let op = |add| move |remote_addr, rkey| SendOp::FetchAdd { remote_addr, rkey, add };
    atomic(s, 1, op(1), start, u64::MAX)?;
    atomic(s, 2, op(3), u64::MAX, 2)?;
    atomic(s, 3, op(u64::MAX), 2, 1)
}

fn outstanding(s: &mut Session) -> Result<(), Error> {
    let (from, to) = ends(s);
    let len = 2 * s.setup.mtu.bytes() as usize + 5;
    let data = pattern(7, 4 * len);
    clear(s, to, 4 * len)?;
    s.fill(from, FROM, &data)?;
    let counter = 64 << 10;
    s.fill(to, counter, &[0; 8])?;
    for n in 0..4 {
        s.recv(to, n, TO + n as usize * len, len)?;
    }
    let (counter_addr, rkey) = s.remote(to, counter)?;
    let scratch = counter;
    for n in 0..4 {
        let part = n as usize * len;
        let (addr, _) = s.remote(to, TO + part)?;
        s.send(from, 4 * n, SendOp::Write { remote_addr: addr, rkey }, FROM, len)?;
        s.send(from, 4 * n + 1, SendOp::SendImm { imm: n as u32 }, FROM + part, len)?;
        s.send(from, 4 * n + 2, SendOp::Read { remote_addr: addr, rkey }, scratch + 64 + part, len)?;
        s.send(
            from,
            4 * n + 3,
            SendOp::FetchAdd { remote_addr: counter_addr, rkey, add: 1 },
            scratch + 8 * n as usize,
            8,
        )?;
    }
    let found = s.poll(from, Queue::Send, 16, LIMIT)?;
    let ids: Vec<_> = found.iter().map(|d| (d.wr_id, d.status)).collect();
    if ids != (0..16).map(|n| (n, Status::Success)).collect::<Vec<_>>() {
        return fail(format!("{} should complete 16 work requests in order, but has {ids:?}", from.name()));
    }
    for n in 0..4 {
        expect_received(s, Done { imm: Some(n as u32), ..received(Kind::Send, n, len) })?;
    }
    expect_data(s, to, &data)?;
    let read = s.read(from, scratch + 64, 4 * len)?;
    let counts = s.read(from, scratch, 32)?;
    let expected: Vec<u8> = (0..4u64).flat_map(u64::to_le_bytes).collect();
    match (read == data, counts == expected) {
        (true, true) => Ok(()),
        (false, _) => fail("what the READs brought is not what the SENDs before them placed".into()),
        (_, false) => fail(format!("the fetch and adds found {counts:x?}")),
    }
}

fn receive_late(s: &mut Session) -> Result<(), Error> {
    let mtu = s.setup.mtu.bytes() as usize;
    let late = Duration::from_millis(if s.small { 4 } else { 30 });
    transfer(s, Kind::Send, 1, 100, late)?;
    transfer(s, Kind::SendImm, 2, 2 * mtu + 3, late)?;
    transfer(s, Kind::WriteImm, 3, 3 * mtu, late)?;
    // The connection is as good as before.
    transfer(s, Kind::Send, 4, mtu + 1, Duration::ZERO)
}
