//! Randomness of the operating system: on a real wire nobody may guess a key or a queue pair number.

use std::io;

pub use softnic_nic::Generator;

/// Numbers from the operating system's cryptographic generator.
#[derive(Debug)]
pub struct OsRandom(());

impl OsRandom {
    /// Asks the system for a first number, so that one which has none to give is found out here.
    pub fn new() -> io::Result<OsRandom> {
        match getrandom::u32() {
            Ok(_) => Ok(OsRandom(())),
            Err(e) => Err(io::Error::other(format!("the operating system gives no random numbers: {e}"))),
        }
    }
}

impl Generator for OsRandom {
    /// # Panics
    /// When the system, which gave numbers before, stops to: a guessable key must never be handed out instead.
    fn next_u32(&mut self) -> u32 {
        getrandom::u32().expect("the operating system gave random numbers before")
    }
}
