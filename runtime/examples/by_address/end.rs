//! What a client and a server both have: a queue pair, memory, and messages that are sent and received.

use std::error::Error;
use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Data, RecvWr, SendFlags, SendOp, SendWr, Status, WcOpcode};
use softnic_runtime::api::{CmConnection, CompletionQueue, Context, MemoryRegion, QpOptions, QueuePair};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How long the peer may take to answer the connection manager.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
/// The longest message, and the length of each of the three places in an end's memory.
pub(crate) const LEN: usize = 1024;
/// Messages leave from here,
const OUT: usize = 0;
/// arrive here,
const IN: usize = LEN;
/// and here is a board that the peer may write to.
pub(crate) const BOARD: usize = 2 * LEN;
/// How often to look whether the peer has ended the connection, while nothing comes.
const LOOK: Duration = Duration::from_millis(50);
/// After so long without a word the peer must show that it is alive.
const SILENCE: Duration = Duration::from_secs(1);

pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) memory: MemoryRegion,
    cq: CompletionQueue,
    /// Sends whose completion has not come.
    under_way: usize,
    /// The length of a message that came and was not looked at.
    came: Option<usize>,
}

impl End {
    /// A queue pair that is not connected yet, with a receive posted: the peer may send as soon as it is.
    pub(crate) fn new(context: &Context) -> Result<End> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let pd = context.alloc_pd();
        let cq = context.create_cq(64)?;
        let memory = pd.alloc_mr(3 * LEN, access)?;
        let qp = pd.create_qp(&QpOptions::new(QpKind::Rc, &cq))?;
        qp.init(access)?;
        let end = End { qp, memory, cq, under_way: 0, came: None };
        end.post_recv()?;
        Ok(end)
    }

    /// Room for one message, where the one before was.
    fn post_recv(&self) -> Result<()> {
        let sges = [self.memory.sge(IN, LEN)];
        Ok(self.qp.post_recv(&RecvWr { wr_id: 0, sges: &sges, best_effort: None })?)
    }

    fn post_send(&mut self, op: SendOp, len: usize) -> Result<()> {
        let (sges, flags) = ([self.memory.sge(OUT, len)], SendFlags::default());
        self.qp.post_send(&SendWr { wr_id: 0, op, data: Data::Gather(&sges), flags, best_effort: None, to: None })?;
        self.under_way += 1;
        Ok(())
    }

    /// Sends bytes by SEND, which takes a receive there, or by RDMA WRITE, which the program there does not notice. Returns when the peer's
    /// NIC has acknowledged them.
    pub(crate) fn send(&mut self, connection: &mut CmConnection<'_>, op: SendOp, bytes: &[u8]) -> Result<()> {
        if bytes.len() > LEN {
            return Err(format!("{} bytes: a message has at most {LEN}", bytes.len()).into());
        }
        self.memory.write_at(OUT, bytes);
        self.post_send(op, bytes.len())?;
        while self.under_way > 0 {
            if !self.wait(connection)? {
                return Err(format!("{} ended the connection too early", connection.peer()).into());
            }
        }
        Ok(())
    }

    /// The next message; `None` when the peer has ended the connection.
    pub(crate) fn receive(&mut self, connection: &mut CmConnection<'_>) -> Result<Option<String>> {
        let mut quiet_since = Instant::now();
        while self.came.is_none() {
            if !self.wait(connection)? {
                return Ok(None);
            }
            if quiet_since.elapsed() > SILENCE && self.under_way == 0 {
                // A peer that died says nothing, and who only receives never finds out. A WRITE of no bytes needs no key and changes
                // nothing, but it is acknowledged, or its retries run out.
                self.post_send(SendOp::Write { remote_addr: 0, rkey: 0 }, 0)?;
                quiet_since = Instant::now();
            }
        }
        let mut bytes = vec![0; self.came.take().unwrap_or(0)];
        self.memory.read_at(IN, &mut bytes);
        self.post_recv()?;
        Ok(Some(String::from_utf8(bytes)?))
    }

    /// Waits a little for a completion; `false` when the peer has ended the connection.
    fn wait(&mut self, connection: &mut CmConnection<'_>) -> Result<bool> {
        if !self.cq.wait(LOOK)? && connection.is_over() {
            return Ok(false);
        }
        while let Some(done) = self.cq.poll_one()? {
            match (done.status, done.opcode) {
                (Status::Success, WcOpcode::Recv) => self.came = Some(done.byte_len as usize),
                (Status::Success, _) => self.under_way -= 1,
                (Status::WrFlushErr, _) if connection.is_over() => return Ok(false),
                (status, _) => return Err(format!("{} is gone or broken: {status}", connection.peer()).into()),
            }
        }
        Ok(true)
    }
}
