//! What a process was seen to do, as the library writes it into a file that lies in memory: what is in it survives a crash and SIGKILL.
//!
//! A file is a header of [`HEADER`] bytes, and records of [`RECORD`] bytes each, in the order in which they happened. Whoever writes takes the
//! next place by adding to the count, so threads need no lock; a place that was taken and never written is all zeros, and skipped. The file
//! grows as it is written, and may end before the last place that was taken: on a disk that is full.
//!
//! The file of a process is `PID.seen`; when a process calls exec(2) it is another program's with the same number, and `PID.2.seen` is that one's.

use softnic_fault_injector::calls::{Applied, Side, TableKind, Verb};

/// Bytes of a header.
pub const HEADER: usize = 4096;
/// Bytes of a record.
pub const RECORD: usize = 32;
/// How the names of files end.
pub const EXTENSION: &str = "seen";
/// Records of a file; what comes later is counted alone.
pub const MOST: usize = 1 << 20;
/// Where in the header the number of records is, eight bytes of this machine: also those for which there was no room.
pub const COUNT_AT: usize = 8;

const MAGIC: &[u8; 8] = b"SNSEEN01";
const PID_AT: usize = 16;
const ORDINAL_AT: usize = 20;
const LEN_AT: usize = 24;
const LABEL_AT: usize = 64;
/// Bytes of a label; longer ones are cut.
pub const LONGEST_LABEL: usize = HEADER - LABEL_AT;

/// Whose file it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its command line: the name of the program without its folder, and its arguments, with a space between.
    pub label: String,
    /// The how-manieth of this run with this label that called a verb, from 1.
    pub ordinal: u32,
}

/// Something that happened, with the names by which scripts know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A call of the program, made or not: a fault may decide over it. Its number is its place among those that are alike. Of polls only the
    /// first of the process is there: how many find nothing is another in every run.
    Call {
        /// Of what.
        verb: Verb,
        /// About which queue pair, by order of making, from 1; 0 for none.
        qp: u32,
        /// The first of its work requests.
        wr_id: u64,
        /// How many it posts.
        work_requests: u16,
    },
    /// A completion as the program gets it.
    Completion {
        /// Of which queue.
        side: Side,
        /// Of which queue pair, by order of making.
        qp: u32,
        /// Of which work request.
        wr_id: u64,
        /// Its status, as in the C header.
        status: u8,
    },
    /// An event of the connection manager that the program takes, by its number in the C header. What a function of librdmacm waits for by
    /// itself is none.
    CmEvent(u32),
    /// An asynchronous event, the same.
    AsyncEvent(u32),
    /// A packet that a device sends, before its faults. An event of a script with all of this is for it alone. Packets between queue pairs of
    /// one device meet no faults, and are not there; of a device with several queues each counts by itself.
    Packet {
        /// Which device, from 0.
        device: u8,
        /// Its destination, in the order in which they were seen by this device, from 1; 0 for QP1, which is `qpn = 1`.
        destination: u32,
        /// Its opcode.
        opcode: u8,
        /// Its PSN, counted from the first one for this destination, of requests or of answers as it is one.
        psn: u32,
        /// The how-manieth time that it is sent; 65,535 is that or more.
        iteration: u16,
        /// The whole frame, in bytes.
        len: u16,
    },
    /// A queue pair was told its peer: what connects the names of packets and of calls.
    Connected {
        /// By order of making.
        qp: u32,
        /// Its number.
        number: u32,
        /// The peer's.
        destination: u32,
    },
    /// A rule of the script that decided over a call, a completion or an event, or that happened. Of `[[event]]` the packets say it.
    Applied(Applied),
}

/// The kinds of rules, by their numbers in a record.
const KINDS: [TableKind; 4] = [TableKind::Call, TableKind::Completion, TableKind::Async, TableKind::Cm];

/// When it happened, counted from the process's first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds.
    pub at: u64,
    /// What.
    pub seen: Seen,
}

/// A header without records.
pub fn header(process: &Process) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    let label = process.label.as_bytes();
    let label = &label[..label.len().min(LONGEST_LABEL)];
    out[..8].copy_from_slice(MAGIC);
    out[PID_AT..][..4].copy_from_slice(&process.pid.to_ne_bytes());
    out[ORDINAL_AT..][..4].copy_from_slice(&process.ordinal.to_ne_bytes());
    out[LEN_AT..][..4].copy_from_slice(&(label.len() as u32).to_ne_bytes());
    out[LABEL_AT..][..label.len()].copy_from_slice(label);
    out
}

impl Record {
    /// As four words, which can be written one by one; the first is never 0, and is to be written last.
    pub fn words(&self) -> [u64; RECORD / 8] {
        let (kind, a, b, c, d, e) = match self.seen {
            Seen::Call { verb, qp, wr_id, work_requests } => {
                let verb = Verb::ALL.iter().position(|&v| v == verb).unwrap_or(0);
                (1, verb as u8, work_requests, qp, wr_id, 0)
            }
            Seen::Completion { side, qp, wr_id, status } => {
                (2, u8::from(side == Side::Recv), u16::from(status), qp, wr_id, 0)
            }
            Seen::CmEvent(event) => (3, 0, 0, event, 0, 0),
            Seen::AsyncEvent(event) => (4, 0, 0, event, 0, 0),
            Seen::Packet { device, destination, opcode, psn, iteration, len } => {
                let d = u64::from(psn) << 32 | u64::from(iteration) << 16 | u64::from(len);
                (5, device, u16::from(opcode), destination, d, 0)
            }
            Seen::Connected { qp, number, destination } => {
                (6, 0, 0, qp, u64::from(number) << 32 | u64::from(destination), 0)
            }
            Seen::Applied(Applied { kind, number }) => {
                let kind = KINDS.iter().position(|&known| known == kind).unwrap_or(0);
                (7, kind as u8, 0, number, 0, 0)
            }
        };
        let first = u64::from(kind as u8) | u64::from(a) << 8 | u64::from(b) << 16 | u64::from(c) << 32;
        [first, d, e, self.at]
    }

    /// What four words say; `None` for a place that was never written.
    pub fn of_words([first, d, _, at]: [u64; RECORD / 8]) -> Option<Record> {
        let (a, b, c) = ((first >> 8) as u8, (first >> 16) as u16, (first >> 32) as u32);
        let seen = match first as u8 {
            1 => Seen::Call { verb: *Verb::ALL.get(usize::from(a))?, qp: c, wr_id: d, work_requests: b },
            2 => {
                let side = if a == 0 { Side::Send } else { Side::Recv };
                Seen::Completion { side, qp: c, wr_id: d, status: b as u8 }
            }
            3 => Seen::CmEvent(c),
            4 => Seen::AsyncEvent(c),
            5 => Seen::Packet {
                device: a,
                destination: c,
                opcode: b as u8,
                psn: (d >> 32) as u32,
                iteration: (d >> 16) as u16,
                len: d as u16,
            },
            6 => Seen::Connected { qp: c, number: (d >> 32) as u32, destination: d as u32 },
            7 => Seen::Applied(Applied { kind: *KINDS.get(usize::from(a))?, number: c }),
            _ => return None,
        };
        Some(Record { at, seen })
    }
}

/// All that a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Whose it is.
    pub process: Process,
    /// What happened, in its order.
    pub records: Vec<Record>,
    /// What happened beyond that, for which there was no room.
    pub lost: u64,
}

/// Reads a file; `None` for one of something else, or that was cut short.
pub fn read(bytes: &[u8]) -> Option<File> {
    let (header, records) = bytes.split_at_checked(HEADER)?;
    let number = |at: usize| header.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    if !header.starts_with(MAGIC) {
        return None;
    }
    let label = header.get(LABEL_AT..LABEL_AT + number(LEN_AT)? as usize)?;
    let process = Process {
        pid: number(PID_AT)?,
        label: String::from_utf8_lossy(label).into_owned(),
        ordinal: number(ORDINAL_AT)?,
    };
    let count = u64::from_ne_bytes(header.get(COUNT_AT..COUNT_AT + 8)?.try_into().ok()?);
    let kept = count.min(MOST as u64).min((records.len() / RECORD) as u64);
    let of_bytes = |bytes: &[u8]| {
        let mut words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes));
        Record::of_words([words.next()?, words.next()?, words.next()?, words.next()?])
    };
    let records = records.chunks_exact(RECORD).take(kept as usize).filter_map(of_bytes).collect();
    Some(File { process, records, lost: count - kept })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let all = [
            Seen::Call { verb: Verb::CmGetDevices, qp: 3, wr_id: u64::MAX, work_requests: 9 },
            Seen::Completion { side: Side::Recv, qp: 0xff_ffff, wr_id: 7, status: 12 },
            Seen::CmEvent(8),
            Seen::AsyncEvent(10),
            Seen::Packet { device: 1, destination: 2, opcode: 0x11, psn: 0xff_ffff, iteration: 2, len: 4210 },
            Seen::Connected { qp: 1, number: 0x1234, destination: 0xff_0000 },
            Seen::Applied(Applied { kind: TableKind::Cm, number: 3 }),
        ];
        let process = Process { pid: 17, label: "ib_write_bw localhost".into(), ordinal: 2 };
        let mut bytes = header(&process).to_vec();
        bytes[COUNT_AT..][..8].copy_from_slice(&(all.len() as u64 + 3).to_ne_bytes());
        let records: Vec<Record> = all.iter().zip(5..).map(|(&seen, at)| Record { at, seen }).collect();
        for record in &records {
            record.words().iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        }
        bytes.extend([0; RECORD]); // taken, and never written
        assert_eq!(read(&bytes), Some(File { process, records, lost: 2 }));
        assert_eq!(read(&bytes[..HEADER - 1]), None);
        bytes[0] = 0;
        assert_eq!(read(&bytes), None);
    }
}
