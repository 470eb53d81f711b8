//! What posting, polling and a round of the engine cost a program, one message at a time, on a wire in memory: both ends in one thread, so
//! that nothing is waited for. With a device (`-- afxdp:eth0`) only what polling in vain costs there.
#![allow(missing_docs, clippy::print_stdout)]

use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Completion, Data, SendFlags, SendOp, SendWr};
use softnic_runtime::api::{
    CompletionQueue, Connection, Context, MemoryRegion, OpenOptions, Progress, QpOptions, QueuePair,
};
use softnic_wire::Psn;

const ROUNDS: usize = 200_000;
const LEN: usize = 64;
const PSN: Psn = Psn::new(1000);

struct End {
    context: Context,
    cq: CompletionQueue,
    mr: MemoryRegion,
    qp: QueuePair,
}

impl End {
    fn new(context: Context) -> End {
        let cq = context.create_cq(256).unwrap();
        let pd = context.alloc_pd();
        let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        let qp = pd.create_qp(&QpOptions::new(QpKind::Rc, &cq)).unwrap();
        End { context, cq, mr, qp }
    }

    fn connect(&self, peer: &End) {
        let path = self.context.path_to(peer.context.addresses()[0], 0).unwrap();
        self.qp.connect(&Connection::new(path, peer.qp.qpn(), PSN, PSN)).unwrap();
    }

    fn post(&self, peer: &End) {
        let op = SendOp::Write { remote_addr: peer.mr.addr(), rkey: peer.mr.rkey() };
        let sges = [self.mr.sge(0, LEN)];
        let (data, flags) = (Data::Gather(&sges), SendFlags::default());
        self.qp.post_send(&SendWr { wr_id: 1, op, data, flags, best_effort: None, to: None }).unwrap();
    }
}

/// Times of one step, of which the median counts.
struct Row(&'static str, Vec<Duration>);

impl Row {
    fn time(&mut self, clock: Duration, step: impl FnOnce()) {
        let start = Instant::now();
        step();
        self.1.push(start.elapsed().saturating_sub(clock));
    }

    fn show(&mut self) {
        self.1.sort_unstable();
        let at = |part: usize| self.1.get(self.1.len() * part / 100).map_or(0, Duration::as_nanos);
        println!("{:48} {:5} {:7} {:7}", self.0, at(10), at(50), at(90));
    }
}

fn poll(end: &End, done: &mut Vec<Completion>) {
    end.cq.poll(done, 16).unwrap();
}

/// Polls in vain, again and again, as a program does that waits.
fn idle(end: &End) {
    const POLLS: u32 = 1000;
    let mut done = Vec::new();
    let mut times: Vec<f64> = Vec::new();
    for _ in 0..1000 {
        let start = Instant::now();
        for _ in 0..POLLS {
            poll(end, &mut done);
        }
        times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(POLLS));
    }
    times.sort_unstable_by(f64::total_cmp);
    let at = |part: usize| times[times.len() * part / 100];
    println!("{:48} {:5.0} {:7.0} {:7.0}", "poll, nothing to do for long", at(10), at(50), at(90));
}

fn main() {
    let options = OpenOptions { progress: Some(Progress::Inline), ..OpenOptions::default() };
    // Cargo's own word for a benchmark is no device.
    if let Some(device) = std::env::args().skip(1).find(|word| !word.starts_with("--")) {
        let device = device.parse().unwrap_or_else(|why| panic!("{device}: {why}"));
        let context = Context::open(&device, &options).unwrap_or_else(|why| panic!("{why}"));
        println!("{}", context.description());
        idle(&End::new(context));
        return;
    }
    let [a, b] = Context::open_pair([&options, &options]).unwrap().map(End::new);
    a.connect(&b);
    b.connect(&a);
    let clock = (0..10_000).map(|_| Instant::now().elapsed()).min().unwrap_or_default();
    let names = [
        "poll, nothing to do, just after something was",
        "post_send, WRITE of 64 bytes",
        "poll: the WRITE leaves",
        "poll of the peer: it arrives, and is placed",
        "poll of the peer: its ACK leaves",
        "poll: the ACK arrives, its completion is taken",
    ];
    let mut rows = names.map(|name| Row(name, Vec::with_capacity(ROUNDS)));
    let mut done: Vec<Completion> = Vec::with_capacity(16);
    for _ in 0..ROUNDS {
        let [idle, post, send, arrive, ack, complete] = &mut rows;
        idle.time(clock, || poll(&a, &mut done));
        post.time(clock, || a.post(&b));
        send.time(clock, || poll(&a, &mut done));
        arrive.time(clock, || poll(&b, &mut done));
        ack.time(clock, || poll(&b, &mut done));
        complete.time(clock, || poll(&a, &mut done));
        // An engine's own thread may have looked at just that moment, and kept us from it.
        while done.is_empty() {
            poll(&a, &mut done);
            poll(&b, &mut done);
        }
        done.clear();
    }
    println!("{:48} {:>5} {:>7} {:>7}", "nanoseconds, percentile", 10, 50, 90);
    rows.iter_mut().for_each(Row::show);
    idle(&a);
}
