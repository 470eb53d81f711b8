//! Where decisions come from: a seed, or the bytes of a fuzzer.

use std::collections::VecDeque;

use crate::common::generator;

pub enum Numbers {
    /// Any number of them.
    Seed(Box<dyn FnMut() -> u32>),
    /// As many as there are bytes for; then zeros.
    Input(VecDeque<u8>),
}

impl Numbers {
    pub fn of_seed(seed: u32) -> Numbers {
        Numbers::Seed(Box::new(generator(seed)))
    }

    pub fn of_input(data: &[u8]) -> Numbers {
        Numbers::Input(data.iter().copied().collect())
    }

    /// Whether there are more than zeros to come.
    pub fn are_left(&self) -> bool {
        match self {
            Numbers::Seed(_) => true,
            Numbers::Input(bytes) => !bytes.is_empty(),
        }
    }

    /// Any number of so many bytes, from an input; a seed has all at the same price.
    fn draw(&mut self, bytes: usize) -> u32 {
        match self {
            Numbers::Seed(next) => next(),
            Numbers::Input(input) => (0..bytes).fold(0, |n, _| n << 8 | u32::from(input.pop_front().unwrap_or(0))),
        }
    }

    pub fn any(&mut self) -> u32 {
        self.draw(4)
    }

    pub fn below(&mut self, n: u32) -> u32 {
        let bytes = match n {
            ..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 4,
        };
        self.draw(bytes) % n
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}
