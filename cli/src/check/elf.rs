//! Functions of an ELF file, by its symbol tables.

use std::fs;
use std::path::Path;

/// Functions by their addresses.
#[derive(Debug, Default)]
pub(super) struct Functions {
    /// First address, size and name, in the order of addresses.
    all: Vec<(u64, u64, String)>,
}

/// Sections with symbols, and the type of a symbol that is a function.
const SYMTAB: u32 = 2;
const DYNSYM: u32 = 11;
const FUNCTION: u8 = 2;

impl Functions {
    /// Of a file; none where it cannot be read, or is no ELF file of 64 bits.
    pub(super) fn read(path: &Path) -> Functions {
        fs::read(path).ok().and_then(|bytes| Functions::parse(&bytes)).unwrap_or_default()
    }

    fn parse(bytes: &[u8]) -> Option<Functions> {
        // 64 bits, little-endian.
        if bytes.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let table = number::<8>(bytes, 0x28)?;
        let (size, count) = (number::<2>(bytes, 0x3a)?, number::<2>(bytes, 0x3c)?);
        let section = |index: u64| {
            let at = index.checked_mul(size)?.checked_add(table)?;
            let (kind, link) = (number::<4>(bytes, at + 4)?, number::<4>(bytes, at + 0x28)?);
            let (from, len) = (number::<8>(bytes, at + 0x18)?, number::<8>(bytes, at + 0x20)?);
            let contents = bytes.get(usize::try_from(from).ok()?..)?.get(..usize::try_from(len).ok()?);
            Some((kind as u32, link, contents.unwrap_or(&[])))
        };
        let mut all = Vec::new();
        for index in 0..count {
            let Some((SYMTAB | DYNSYM, link, symbols)) = section(index) else { continue };
            let Some((_, _, names)) = section(link) else { continue };
            all.extend(symbols.chunks_exact(24).filter_map(|symbol| function(symbol, names)));
        }
        // The longer table first among equals: the same names.
        all.sort();
        all.dedup_by_key(|(address, ..)| *address);
        Some(Functions { all })
    }

    /// The function that an address is in.
    pub(super) fn at(&self, address: u64) -> Option<&str> {
        let before = self.all.partition_point(|(from, ..)| *from <= address).checked_sub(1)?;
        let (from, size, name) = &self.all[before];
        (address - from < (*size).max(1)).then_some(name)
    }
}

fn function(symbol: &[u8], names: &[u8]) -> Option<(u64, u64, String)> {
    let is_defined = number::<2>(symbol, 6)? != 0;
    if symbol.get(4)? & 0xf != FUNCTION || !is_defined {
        return None;
    }
    let name = names.get(number::<4>(symbol, 0)? as usize..)?.split(|byte| *byte == 0).next()?;
    Some((number::<8>(symbol, 8)?, number::<8>(symbol, 16)?, String::from_utf8_lossy(name).into_owned()))
}

/// A number of N bytes.
fn number<const N: usize>(bytes: &[u8], at: u64) -> Option<u64> {
    let bytes = bytes.get(usize::try_from(at).ok()?..)?.get(..N)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_this_very_program_are_found() {
        let functions = Functions::read(&std::env::current_exe().unwrap());
        let (address, size, name) = functions.all.iter().find(|(.., name)| name == "main").unwrap();
        assert_eq!(functions.at(address + size - 1), Some(&name[..]));
        assert_eq!(functions.at(0), None);
    }

    #[test]
    fn what_is_no_elf_file_or_is_cut_has_no_functions() {
        assert!(Functions::parse(b"#!/bin/sh").is_none());
        let whole = fs::read(std::env::current_exe().unwrap()).unwrap();
        for len in [6, 0x30, 0x40, whole.len() / 2] {
            assert!(Functions::parse(&whole[..len]).is_none_or(|functions| functions.all.is_empty()), "{len}");
        }
        assert!(Functions::read(Path::new("/nonexistent")).all.is_empty());
    }
}
