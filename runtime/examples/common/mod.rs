//! What the examples share: their arguments, and two ends that are connected once they told each other where they are.
#![allow(dead_code)] // each example uses its own part of this

use std::error::Error;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Completion, Data, RecvWr, SendFlags, SendOp, SendWr, Status, Transport};
use softnic_runtime::api::{CompletionQueue, Connection, Context, MemoryRegion, OpenOptions, QpOptions, QueuePair};
use softnic_wire::{PathMtu, Psn, Qpn};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The kernel's TCP port by which two processes find each other.
const PORT: u16 = 18515;
/// The first packet sequence number. Real programs draw one at random, so that packets of an earlier connection are not taken for theirs.
const PSN: Psn = Psn::new(1000);

/// A connection by which the ends tell each other what they must know: kernel TCP, or a pair of sockets within a process.
pub(crate) trait Control: Read + Write + Send {}
impl<T: Read + Write + Send> Control for T {}

/// One end: a connected queue pair, memory that the peer may use, and what is known of the peer's.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) mr: MemoryRegion,
    /// Address and key of the peer's memory.
    pub(crate) remote: (u64, u32),
    control: Box<dyn Control>,
}

/// Runs both ends. `--dev DEVICE --server` and `--dev DEVICE --connect ADDR` run one of them in this process; without a device both run
/// here, in two threads with a wire in memory between them. Each has `memory` bytes. What the client returns, if it ran, is the result.
pub(crate) fn run(
    args: &[String],
    memory: usize,
    server: impl FnOnce(End) -> Result<()> + Send,
    client: impl FnOnce(End) -> Result<String>,
) -> Result<String> {
    run_over(Transport::Rc, args, memory, server, client)
}

/// The same over another transport.
pub(crate) fn run_over(
    transport: Transport,
    args: &[String],
    memory: usize,
    server: impl FnOnce(End) -> Result<()> + Send,
    client: impl FnOnce(End) -> Result<String>,
) -> Result<String> {
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|at| args.get(at + 1));
    let options = OpenOptions::default();
    let Some(device) = value("--dev") else {
        let [a, b] = Context::open_pair([&options, &options])?;
        let (control_a, control_b) = UnixStream::pair()?;
        return std::thread::scope(|scope| {
            let server = scope.spawn(move || server(End::new(&a, transport, memory, Box::new(control_a))?));
            let result = client(End::new(&b, transport, memory, Box::new(control_b))?)?;
            server.join().map_err(|_| "the server panicked")??;
            Ok(result)
        });
    };
    let context = Context::open(&device.parse()?, &options)?;
    eprintln!("{}", context.description());
    match value("--connect") {
        Some(address) => {
            let control = TcpStream::connect((address.parse::<IpAddr>()?, PORT))?;
            client(End::new(&context, transport, memory, Box::new(control))?)
        }
        None if args.iter().any(|a| a == "--server") => {
            let (control, from) = TcpListener::bind(("::", PORT))?.accept()?;
            server(End::new(&context, transport, memory, Box::new(control))?)?;
            Ok(format!("served {from}"))
        }
        None => Err("with --dev, say --server or --connect ADDR".into()),
    }
}

impl End {
    fn new(context: &Context, transport: Transport, memory: usize, mut control: Box<dyn Control>) -> Result<End> {
        let pd = context.alloc_pd();
        let cq = context.create_cq(1024)?;
        let mr = pd.alloc_mr(memory, Access::LOCAL_WRITE | Access::REMOTE)?;
        let qp = pd.create_qp(&QpOptions { transport, ..QpOptions::new(QpKind::Rc, &cq) })?;
        // Receives can be posted from now on: before the peer knows of us.
        qp.init(Access::LOCAL_WRITE | Access::REMOTE)?;
        let address = *context.addresses().first().ok_or("the interface has no address")?;
        let mtu = context.port().mtu.bytes();
        writeln!(control, "{address} {} {} {} {mtu}", qp.qpn().value(), mr.addr(), mr.rkey())?;
        let line = read_line(&mut control)?;
        let [address, qpn, addr, rkey, mtu] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("the peer says `{line}`").into());
        };
        let path = context.path_to(address.parse()?, qp.qpn().value())?;
        let mut connection = Connection::new(path, Qpn::new(qpn.parse()?), PSN, PSN);
        // What both bear.
        let theirs = PathMtu::from_bytes(mtu.parse()?).ok_or("the peer's MTU is none of RDMA's")?;
        connection.mtu = connection.mtu.min(theirs);
        qp.connect(&connection)?;
        let mut end = End { qp, cq, mr, remote: (addr.parse()?, rkey.parse()?), control };
        // Nobody sends before both are connected.
        end.tell("connected")?;
        end.ask()?;
        Ok(end)
    }

    /// Tells the peer a line, beside the RDMA connection.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.control, "{line}")?)
    }

    /// The next line that the peer tells.
    pub(crate) fn ask(&mut self) -> Result<String> {
        read_line(&mut self.control)
    }

    /// Posts a work request whose data lies at `offset` of our memory.
    pub(crate) fn post(&self, op: SendOp, offset: usize, len: usize) -> Result<()> {
        let sge = [self.mr.sge(offset, len)];
        let (data, flags) = (Data::Gather(&sge), SendFlags::default());
        Ok(self.qp.post_send(&SendWr { wr_id: offset as u64, op, data, flags, best_effort: None, to: None })?)
    }

    /// Posts a receive at `offset` of our memory.
    pub(crate) fn post_recv(&self, offset: usize, len: usize) -> Result<()> {
        let sges = [self.mr.sge(offset, len)];
        Ok(self.qp.post_recv(&RecvWr { wr_id: offset as u64, sges: &sges, best_effort: None })?)
    }

    /// The next completion. Polls for a while, which is fast, and then sleeps, which leaves the core to others.
    pub(crate) fn completion(&self) -> Result<Completion> {
        loop {
            for _ in 0..1000 {
                match self.cq.poll_one()? {
                    Some(done) if done.status == Status::Success => return Ok(done),
                    Some(done) => return Err(format!("work request {}: {}", done.wr_id, done.status).into()),
                    None => std::hint::spin_loop(),
                }
            }
            self.cq.wait(Duration::from_secs(1))?;
        }
    }
}

/// Byte by byte: what follows the line is for somebody else.
fn read_line(control: &mut Box<dyn Control>) -> Result<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    loop {
        control.read_exact(&mut byte).map_err(|e| format!("the peer is gone: {e}"))?;
        match byte {
            [b'\n'] => return Ok(String::from_utf8(line)?),
            [other] => line.push(other),
        }
    }
}

/// A checksum (FNV-1a): continue with the one before, begin with [`SUM`].
pub(crate) fn sum(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Of nothing.
pub(crate) const SUM: u64 = 0xcbf2_9ce4_8422_2325;
