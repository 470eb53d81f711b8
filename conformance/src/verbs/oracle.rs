//! The C tests on Linux Soft-RoCE: whether they ask for what another implementation of verbs does, too.
//!
//! Not all of it is: the kernel's rxe has faults and gaps of its own, so this decides nothing. It is for whoever writes a test.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Bench;
use super::c_tests::CTest;
use super::ends::{End, OnRxe};
use super::rxe::{MTU, TAP};
use crate::guest::{Error, Guest, Image, Link, Machine, SOFT_ROCE, Space, create_folder, interrupted};

/// Emulated it is slower than anything that the tests themselves wait for.
const LIMIT: Duration = Duration::from_secs(120);
/// MiB, for the programs and what they register.
const MEMORY: u32 = 768;

fn nap() -> Result<(), Error> {
    std::thread::sleep(Duration::from_millis(20));
    Ok(())
}

/// Runs them in a guest, and prints how each ended.
pub(super) fn run(tests: &[&CTest], bench: &Bench) -> Result<(), Error> {
    let space = Space::new("verbs-oracle")?;
    let image = Image::of(&SOFT_ROCE)?;
    space.add_tap(TAP, "02:00:00:36:00:01", MTU, &["10.36.0.1/24"])?;
    let folder = bench.scratch.0.join("oracle");
    create_folder(&folder)?;
    let inside = |test: &CTest| format!("tests/{}", test.name);
    let built = |test: &&CTest| Ok((inside(test), test.compile(&bench.scratch.0)?));
    let link = Link::Tap { namespace: space.name().into(), tap: TAP.into() };
    let machine = Machine {
        memory: MEMORY,
        programs: tests.iter().map(built).collect::<Result<_, Error>>()?,
        ..Machine::new(link, "02:00:00:36:00:02", &["10.36.0.2/24"], MTU)
    };
    println!("verbs: booting the guest");
    let guest = Guest::boot(&image, &folder, &machine, &mut nap)?;
    let mut end = OnRxe { guest, address: String::new(), text: String::new() };
    for test in tests {
        end.text.clear();
        end.call(json!({"do": "start", "argv": [format!("/{}", inside(test))]}))?;
        let begin = Instant::now();
        let ended = loop {
            match end.ended()? {
                Some(ended) => break ended,
                None if begin.elapsed() > LIMIT || interrupted() => break end.stop()?,
                None => nap()?,
            }
        };
        let seconds = begin.elapsed().as_secs_f64();
        let lines: Vec<&str> = ended.text.lines().collect();
        // The part that it was in, and what was wrong there.
        let last = lines[lines.len().saturating_sub(2)..].join(" | ");
        match ended.code {
            Some(0) => println!("verbs: {:24} as here  {seconds:5.1} s", test.name),
            code => println!("verbs: {:24} otherwise {seconds:5.1} s  {code:?}: {last}", test.name),
        }
    }
    Ok(())
}
