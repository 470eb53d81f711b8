//! Which glibc a program or library needs: the versions of its symbols, read from the ELF file.

/// The type of the section that lists needed versions.
const GNU_VERNEED: u32 = 0x6fff_fffe;

/// The newest `GLIBC_x.y` that a 64-bit little-endian ELF file asks for.
pub(super) fn glibc_needed(file: &[u8]) -> Result<(u32, u32), String> {
    let reader = Reader(file);
    if file.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Err("this is no 64-bit little-endian ELF file".into());
    }
    let (sections, size, count) = (reader.u64(0x28)?, reader.u16(0x3a)? as usize, reader.u16(0x3c)? as usize);
    let header = |n: usize| sections + n * size;
    let mut newest = (0, 0);
    for n in 0..count {
        if reader.u32(header(n) + 4)? != GNU_VERNEED {
            continue;
        }
        let (mut need, needs) = (reader.u64(header(n) + 0x18)?, reader.u32(header(n) + 0x2c)?);
        let strings = reader.u64(header(reader.u32(header(n) + 0x28)? as usize) + 0x18)?;
        for _ in 0..needs {
            let (names, mut aux) = (reader.u16(need + 2)?, need + reader.u32(need + 8)? as usize);
            for _ in 0..names {
                let name = reader.text(strings + reader.u32(aux + 8)? as usize)?;
                if let Some(version) = name.strip_prefix("GLIBC_").and_then(parsed) {
                    newest = newest.max(version);
                }
                aux += reader.u32(aux + 12)? as usize;
            }
            need += reader.u32(need + 12)? as usize;
        }
    }
    Ok(newest)
}

/// `2.31` or `2.2.5`; names as `GLIBC_PRIVATE` are none.
fn parsed(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// Numbers and texts at places of a file.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> Result<[u8; N], String> {
        let bytes = at.checked_add(N).and_then(|end| self.0.get(at..end));
        bytes.and_then(|b| b.try_into().ok()).ok_or_else(|| format!("the ELF file ends before byte {at}"))
    }

    fn u16(&self, at: usize) -> Result<u16, String> {
        self.bytes(at).map(u16::from_le_bytes)
    }

    fn u32(&self, at: usize) -> Result<u32, String> {
        self.bytes(at).map(u32::from_le_bytes)
    }

    fn u64(&self, at: usize) -> Result<usize, String> {
        self.bytes(at).map(|bytes| u64::from_le_bytes(bytes) as usize)
    }

    fn text(&self, at: usize) -> Result<&str, String> {
        let rest = self.0.get(at..).unwrap_or_default();
        let end = rest.iter().position(|&b| b == 0).ok_or("a name without an end")?;
        std::str::from_utf8(&rest[..end]).map_err(|_| "a name that is not UTF-8".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test itself was linked here, so it needs a glibc, and none newer than any that there will be.
    #[test]
    fn the_glibc_that_a_program_needs_is_read_from_its_symbols() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let newest = glibc_needed(&own).unwrap();
        // statx, which the standard library uses where there is one, came with 2.28.
        assert!(((2, 28)..(3, 0)).contains(&newest), "{newest:?}");
        assert!(glibc_needed(&own[..200]).is_err());
        assert!(glibc_needed(b"#!/bin/sh").is_err());
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parsed("2.2.5"), Some((2, 2)));
        assert!(parsed("2.4") < parsed("2.31"));
        assert_eq!(parsed("PRIVATE"), None);
    }
}
