//! The mappings of the process, as `/proc/self/maps` lists them.

use std::ops::Range;

/// Whether every page of the range is mapped readable, and, if `writes`, writable. `maps` is the text of the file.
pub(crate) fn allows(maps: &str, range: Range<usize>, writes: bool) -> bool {
    let mut covered = range.start;
    // The lines are in address order.
    for line in maps.lines() {
        let Some((mapping, rights)) = parse(line) else { return false };
        if mapping.end <= covered {
            continue;
        }
        let may = rights.starts_with(if writes { "rw" } else { "r" });
        if covered >= range.end || mapping.start > covered || !may {
            break;
        }
        covered = mapping.end;
    }
    covered >= range.end
}

/// Parses a line such as `7f0000000000-7f0000001000 rw-p …`.
fn parse(line: &str) -> Option<(Range<usize>, &str)> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(start)?..number(end)?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "1000-3000 r--p 00000000 00:00 0 [heap]
3000-4000 rw-p 00000000 fe:01 17 /bin/true
5000-6000 ---p 00000000 00:00 0
6000-8000 rw-s 00000000 00:00 0 /dev/fb0
";

    #[test]
    fn a_range_is_allowed_where_every_page_of_it_is() {
        assert!(allows(MAPS, 0x1000..0x4000, false) && allows(MAPS, 0x3000..0x4000, true));
        assert!(!allows(MAPS, 0x2000..0x4000, true), "the first page may only be read");
        assert!(!allows(MAPS, 0x3000..0x5000, false), "nothing is at its end");
        assert!(!allows(MAPS, 0x0..0x2000, false) && !allows(MAPS, 0x4000..0x5000, false));
        assert!(!allows(MAPS, 0x5000..0x6000, false) && !allows(MAPS, 0x5000..0x7000, false));
        assert!(allows(MAPS, 0x6000..0x8000, true) && !allows(MAPS, 0x7000..0x9000, true));
        assert!(!allows("", 0x1000..0x2000, false));
    }
}
