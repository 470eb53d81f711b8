//! Copies a file: its blocks are written straight into the receiver's memory, and each tells by immediate data how long it is.
//!
//! ```text
//! cargo run --release --example file_copy -- FROM TO                                          both ends here, a wire in memory
//! cargo run --release --example file_copy -- TO --dev afxdp:eth0 --server                     on one host
//! cargo run --release --example file_copy -- FROM --dev afxdp:eth0 --connect 10.0.0.1         on the other
//! ```

mod common;

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use common::{End, Result, SUM, sum};
use indicatif::{ProgressBar, ProgressStyle};
use softnic_nic::transports::{SendOp, WcOpcode};

const BLOCK: usize = 64 << 10;
/// Blocks that are under way, or not written to the file yet.
const SLOTS: usize = 16;

fn receiver(mut end: End, to: &Path) -> Result<()> {
    let mut file = BufWriter::new(File::create(to)?);
    // Immediate data takes a receive, whose own memory stays as it is.
    for _ in 0..SLOTS {
        end.post_recv(0, 0)?;
    }
    let size: u64 = end.ask()?.parse()?;
    end.tell("ready")?;
    let (mut got, mut checksum, mut slot, mut block) = (0, SUM, 0, vec![0; BLOCK]);
    while got < size {
        let done = end.completion()?;
        let Some(len) = done.imm else { continue };
        let bytes = block.get_mut(..len as usize).ok_or("a block is longer than a block can be")?;
        end.mr.read_at(slot * BLOCK, bytes);
        file.write_all(bytes)?;
        checksum = sum(checksum, bytes);
        got += u64::from(len);
        slot = (slot + 1) % SLOTS;
        // The place is free again: the sender may use it, and finds a receive.
        end.post_recv(0, 0)?;
        end.post(SendOp::SendImm { imm: 0 }, 0, 0)?;
    }
    file.flush()?;
    end.tell(&format!("{got} {checksum:016x}"))?;
    end.ask().map(drop)
}

fn sender(mut end: End, from: &Path) -> Result<String> {
    let mut file = File::open(from)?;
    let size = file.metadata()?.len();
    for _ in 0..SLOTS {
        end.post_recv(0, 0)?;
    }
    end.tell(&size.to_string())?;
    end.ask()?;
    let style = ProgressStyle::with_template("{bar:40} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}")?;
    let bar = ProgressBar::new(size).with_style(style);
    let (mut sent, mut checksum, mut slot, mut free, mut block) = (0, SUM, 0, SLOTS, vec![0; BLOCK]);
    while sent < size {
        while free == 0 {
            // Only the receiver's word makes a place free; that a WRITE is done does not.
            if end.completion()?.opcode == WcOpcode::Recv {
                end.post_recv(0, 0)?;
                free += 1;
            }
        }
        let len = BLOCK.min(usize::try_from(size - sent)?);
        file.read_exact(&mut block[..len])?;
        checksum = sum(checksum, &block[..len]);
        let offset = slot * BLOCK;
        end.mr.write_at(offset, &block[..len]);
        let (remote_addr, rkey) = (end.remote.0 + offset as u64, end.remote.1);
        end.post(SendOp::WriteImm { remote_addr, rkey, imm: len as u32 }, offset, len)?;
        (sent, slot, free) = (sent + len as u64, (slot + 1) % SLOTS, free - 1);
        bar.inc(len as u64);
    }
    let ours = format!("{size} {checksum:016x}");
    // The last blocks leave while the NIC's own thread runs it.
    let theirs = end.ask()?;
    end.tell("done")?;
    bar.finish();
    match theirs == ours {
        true => Ok(format!("{size} bytes, checksum {checksum:016x}")),
        false => Err(format!("sent {ours}, received {theirs}").into()),
    }
}

pub(crate) fn run(args: &[String]) -> Result<String> {
    let mut names = args.iter().take_while(|a| !a.starts_with("--")).map(Path::new);
    let first = names.next().ok_or("which file? Write: file_copy FROM TO")?;
    // With a device there is one name: of the file that this end reads or writes.
    let second = names.next().unwrap_or(first);
    common::run(args, SLOTS * BLOCK, |end| receiver(end, second), |end| sender(end, first))
}

#[allow(clippy::print_stdout)]
fn main() -> Result<()> {
    println!("{}", run(&std::env::args().skip(1).collect::<Vec<_>>())?);
    Ok(())
}
