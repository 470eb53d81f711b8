//! A scheme of one's own that makes SDR messages reliable: all of a message again, until the peer says that it has it.
//!
//! ```text
//! cargo run --release --example own_scheme                    both ends here, a wire in memory that loses every twentieth frame
//! cargo run --release --example own_scheme -- --count 1000    so many messages each way
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant as StdInstant};

use softnic_runtime::api::sdr::{
    Io, LONGEST_CONTROL, Local, Outcome, RecvHandle, Reliability, ReliableError, ReliableQueuePair, SdrAttr,
    SdrContext, SdrError, SdrSettings, SendHandle,
};
use softnic_runtime::api::{Access, Context, MemoryRegion, OpenOptions, PathMtu};
use softnic_wire::Instant;

/// After this time a message is sent again.
const AGAIN: Duration = Duration::from_millis(5);

/// A scheme: all of a message again, until the peer says that it has it.
#[derive(Default)]
struct WholeAgain {
    /// What is sent, each with the time at which it is sent next; and how many messages the peer has.
    writes: VecDeque<(SendHandle, Local, Instant)>,
    peer_has: u64,
    /// Receives that are not whole, how many are, and whether the peer is to be told.
    receives: VecDeque<RecvHandle>,
    whole: u64,
    tell: bool,
    /// Packets that came twice, or late: their sender does not know what is here.
    repeated: u64,
}

impl Reliability for WholeAgain {
    fn write(&mut self, io: &mut Io<'_>, memory: Local) -> Result<u64, SdrError> {
        let handle = io.qp.send_stream_start(io.now, io.nic, memory.len, None)?;
        self.writes.push_back((handle, memory, io.now));
        Ok(handle.number())
    }

    fn receive(&mut self, io: &mut Io<'_>, memory: Local) -> Result<u64, SdrError> {
        let handle = io.qp.recv_post(io.now, io.nic, memory)?;
        self.receives.push_back(handle);
        Ok(handle.number())
    }

    fn progress(&mut self, io: &mut Io<'_>) {
        let mut room = [0; LONGEST_CONTROL];
        while io.take_control(&mut room).is_some() {
            let count = room[8..16].iter().fold(0, |count, &byte| count << 8 | u64::from(byte));
            self.peer_has = self.peer_has.max(count);
        }
        for (handle, memory, next) in &mut self.writes {
            // What has not left yet is not given a second time.
            if *next <= io.now && io.qp.send_stream_poll(*handle) == Ok(true) {
                *next = io.now + AGAIN;
                if let Err(error) = io.qp.send_stream_continue(io.now, io.nic, *handle, 0, *memory) {
                    return io.over(Outcome::Written { id: handle.number(), outcome: Err(error.into()) });
                }
            }
        }
        while let Some(&(handle, ..)) = self.writes.front().filter(|write| write.0.number() < self.peer_has) {
            // The memory is the program's when nothing of it waits to leave.
            let _ = io.qp.send_stream_end(handle);
            if io.qp.send_poll(handle) == Ok(false) {
                break;
            }
            self.writes.pop_front();
            io.over(Outcome::Written { id: handle.number(), outcome: Ok(()) });
        }
        while let Some(&handle) = self.receives.front()
            && io.qp.recv_bitmap_get(handle).is_ok_and(|bitmap| bitmap.is_full())
        {
            self.receives.pop_front();
            let outcome = io.qp.recv_complete(io.nic, handle).map_err(ReliableError::Sdr);
            io.over(Outcome::Received { id: handle.number(), outcome });
            (self.whole, self.tell) = (self.whole + 1, true);
        }
        let counters = io.qp.counters(io.nic);
        let repeated = counters.duplicates + counters.late();
        self.tell |= std::mem::replace(&mut self.repeated, repeated) != repeated;
        if let Some(token) = io.qp.peer_token().filter(|_| self.tell) {
            let [token, whole] = [u64::from(token), self.whole].map(u64::to_be_bytes);
            self.tell = !io.send_control(&[&[1, 128, 0, 0], &token[4..], &whole].concat());
        }
    }

    fn poll_timeout(&mut self, io: &mut Io<'_>) -> Option<Instant> {
        let soon = io.now + Duration::from_micros(100);
        let next = self.writes.iter().map(|&(.., next)| next.max(soon));
        next.chain(self.tell.then_some(soon)).min()
    }

    fn fail(&mut self, io: &mut Io<'_>, why: ReliableError) {
        for (handle, ..) in self.writes.drain(..) {
            io.over(Outcome::Written { id: handle.number(), outcome: Err(why) });
        }
        for handle in self.receives.drain(..) {
            let _ = io.qp.recv_complete(io.nic, handle);
            io.over(Outcome::Received { id: handle.number(), outcome: Err(why) });
        }
    }
}

/// Its name on the wire: numbers from 128 on are for schemes of programs.
const SETTINGS: SdrSettings = SdrSettings { scheme: 128, parameters: [0; 3] };
const LEN: usize = 20_000;
const COUNT: u64 = 200;

struct End {
    qp: ReliableQueuePair,
    memory: MemoryRegion,
}

impl End {
    /// What is sent is in the first half, what comes in the second.
    fn post(&self) -> Result<(), SdrError> {
        self.qp.receive(&self.memory, LEN, LEN)?;
        self.qp.write(&self.memory, 0, LEN).map(drop)
    }
}

fn ends() -> Result<[End; 2], Box<dyn Error>> {
    let lossy = OpenOptions { fault: Some("loss=0.05".parse()?), seed: 3, ..OpenOptions::default() };
    let contexts = Context::open_pair([&lossy, &lossy])?;
    let paths =
        [contexts[0].path_to(contexts[1].addresses()[0], 1)?, contexts[1].path_to(contexts[0].addresses()[0], 1)?];
    let attr = SdrAttr { chunk: 1024, mtu: PathMtu::B1024, max_message: LEN as u64, ..SdrAttr::default() };
    let end = |context: &Context| -> Result<End, Box<dyn Error>> {
        let sdr = SdrContext::new(context)?;
        let qp = sdr.create_reliable_with(&attr, SETTINGS, Box::new(WholeAgain::default()))?;
        Ok(End { qp, memory: sdr.pd().alloc_mr(2 * LEN, Access::LOCAL_WRITE | Access::REMOTE)? })
    };
    let ends = [end(&contexts[0])?, end(&contexts[1])?];
    for (i, path) in paths.iter().enumerate() {
        ends[i].qp.connect(path, &ends[1 - i].qp.info()?)?;
    }
    Ok(ends)
}

/// Sends messages both ways at once, one at a time; what is said in the end.
pub(crate) fn run(args: &[String]) -> Result<String, Box<dyn Error>> {
    let count = match args {
        [] => COUNT,
        [name, count] if name == "--count" => count.parse()?,
        _ => return Err("only --count N".into()),
    };
    let (ends, begin) = (ends()?, StdInstant::now());
    for n in 0..count {
        for (i, end) in ends.iter().enumerate() {
            end.memory.write_at(0, &[(n as u8) << 1 | i as u8; LEN]);
            end.post()?;
        }
        let mut over = 0;
        while over < 4 {
            for (i, end) in ends.iter().enumerate() {
                let (received, outcome) = match end.qp.poll() {
                    None => continue,
                    Some(Outcome::Written { outcome, .. }) => (false, outcome),
                    Some(Outcome::Received { outcome, .. }) => (true, outcome),
                };
                outcome?;
                over += 1;
                let mut found = [0; LEN];
                end.memory.read_at(LEN, &mut found);
                if received && found != [(n as u8) << 1 | (1 - i) as u8; LEN] {
                    return Err(format!("message {n} did not come as it was sent").into());
                }
            }
        }
    }
    let again = ends[0].qp.counters()?.duplicates + ends[1].qp.counters()?.duplicates;
    Ok(format!("{count} messages each way in {:.2?}; {again} packets came more than once", begin.elapsed()))
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    println!("{}", run(&args)?);
    Ok(())
}
