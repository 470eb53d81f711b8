//! A table that clients read without the server doing anything: a key's place follows from its hash, and one READ fetches the bucket.
//!
//! The server changes values all the time, so a READ may see half of a change. A checksum over the bucket tells, and the client reads again.
//!
//! ```text
//! cargo run --release --example key_value                                          both ends here, a wire in memory
//! cargo run --release --example key_value -- --dev afxdp:eth0 --server             on one host
//! cargo run --release --example key_value -- --dev afxdp:eth0 --connect 10.0.0.1   on the other
//! ```

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{End, Result, SUM, sum};
use softnic_nic::transports::SendOp;

const BUCKETS: usize = 1024;
const KEYS: u64 = 300;
const READS: u64 = 20_000;
const VALUE: usize = 232;
/// Key, version, value, checksum.
const BUCKET: usize = 8 + 8 + VALUE + 8;

/// What a bucket holds: a value that follows from key and version, so that the client sees whether it is right.
fn bucket(key: u64, version: u64) -> Vec<u8> {
    let mut bytes = [key.to_be_bytes(), version.to_be_bytes()].concat();
    bytes.extend((0..VALUE as u64).map(|i| (key.wrapping_mul(31) ^ version.wrapping_mul(17) ^ i) as u8));
    bytes.extend(sum(SUM, &bytes).to_be_bytes());
    bytes
}

/// Key and version of a bucket, if it is whole.
fn parse(bytes: &[u8]) -> Option<(u64, u64)> {
    let (body, checksum) = bytes.split_last_chunk::<8>()?;
    let word = |at: usize| body.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_be_bytes);
    (u64::from_be_bytes(*checksum) == sum(SUM, body)).then_some((word(0)?, word(8)?))
}

/// Where a key's search begins; an occupied bucket sends it on to the next.
fn home(key: u64) -> usize {
    sum(SUM, &key.to_be_bytes()) as usize % BUCKETS
}

fn server(mut end: End) -> Result<()> {
    // Keys begin at 1: zeroes are an empty bucket.
    let mut places = vec![0; BUCKETS];
    for key in 1..=KEYS {
        let free = (0..BUCKETS).map(|i| (home(key) + i) % BUCKETS).find(|&at| places[at] == 0);
        places[free.ok_or("the table is full")?] = key;
    }
    let put = |mr: &softnic_runtime::api::MemoryRegion, version| {
        for (at, &key) in places.iter().enumerate().filter(|&(_, &key)| key != 0) {
            mr.write_at(at * BUCKET, &bucket(key, version));
        }
    };
    put(&end.mr, 0);
    end.tell("the table is there")?;
    let (mr, done) = (end.mr.clone(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut version = 0;
            while !done.load(Ordering::Relaxed) {
                version += 1;
                put(&mr, version);
            }
        });
        // This thread sleeps all the time: the NIC answers READs by itself.
        let end = end.ask().map(drop);
        done.store(true, Ordering::Relaxed);
        writer.join().map_err(|_| "the writer panicked")?;
        end
    })
}

/// Looks a key up; its version, and how many READs saw half of a change.
fn look_up(end: &End, key: u64) -> Result<(Option<u64>, u64)> {
    let (mut at, mut torn, mut bytes) = (home(key), 0, [0; BUCKET]);
    loop {
        let remote_addr = end.remote.0 + (at * BUCKET) as u64;
        end.post(SendOp::Read { remote_addr, rkey: end.remote.1 }, 0, BUCKET)?;
        end.completion()?;
        end.mr.read_at(0, &mut bytes);
        match parse(&bytes) {
            Some((found, version)) if found == key => return Ok((Some(version), torn)),
            Some(_) => at = (at + 1) % BUCKETS,
            None if bytes == [0; BUCKET] => return Ok((None, torn)),
            None => torn += 1,
        }
    }
}

fn client(mut end: End) -> Result<String> {
    end.ask()?;
    let (mut versions, mut torn) = (vec![0; KEYS as usize + 1], 0);
    for read in 0..READS {
        let key = 1 + read * 7919 % KEYS;
        let (version, tries) = look_up(&end, key)?;
        let version = version.ok_or_else(|| format!("key {key} is not there"))?;
        let before = std::mem::replace(&mut versions[key as usize], version);
        if version < before {
            return Err(format!("key {key} went back from version {before} to {version}").into());
        }
        torn += tries;
    }
    if look_up(&end, KEYS + 1)?.0.is_some() {
        return Err("a key that nobody put there".into());
    }
    end.tell("done")?;
    Ok(format!(
        "{READS} keys read, up to version {}; {torn} READs saw half of a change",
        versions.iter().max().unwrap_or(&0)
    ))
}

pub(crate) fn run(args: &[String]) -> Result<String> {
    common::run(args, BUCKETS * BUCKET, server, client)
}

#[allow(clippy::print_stdout)]
fn main() -> Result<()> {
    println!("{}", run(&std::env::args().collect::<Vec<_>>())?);
    Ok(())
}
