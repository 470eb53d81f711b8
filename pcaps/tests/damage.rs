//! Cut, damaged and senseless files: what can be read is read, then comes an error that says where; never a panic.

use softnic_pcaps::fuzz::fuzz_reader;
use softnic_pcaps::{Error, LinkType, PcapWriter, PcapngWriter, Reader, Timestamp};

const PACKETS: [&[u8]; 4] = [b"first", b"", b"the third", b"x"];

/// A small file, and where each of its packets ends.
fn pcap() -> (Vec<u8>, Vec<usize>) {
    let mut file = Vec::new();
    let mut ends = Vec::new();
    PcapWriter::new(&mut file, LinkType::Ethernet).unwrap();
    for data in PACKETS {
        let mut record = PcapWriter::new(Vec::new(), LinkType::Ethernet).unwrap();
        record.write(Timestamp::new(1, 2), data, 60).unwrap();
        file.extend(&record.into_inner()[24..]);
        ends.push(file.len());
    }
    (file, ends)
}

fn pcapng() -> (Vec<u8>, Vec<usize>) {
    let mut writer = PcapngWriter::new(Vec::new()).unwrap();
    let id = writer.add_interface(LinkType::Ethernet, "eth0").unwrap();
    let mut ends = Vec::new();
    for i in 0..PACKETS.len() {
        let mut upto = PcapngWriter::new(Vec::new()).unwrap();
        upto.add_interface(LinkType::Ethernet, "eth0").unwrap();
        PACKETS[..=i].iter().for_each(|p| upto.write(id, Timestamp::new(1, 2), p, 60).unwrap());
        ends.push(upto.into_inner().len());
    }
    PACKETS.iter().for_each(|p| writer.write(id, Timestamp::new(1, 2), p, 60).unwrap());
    (writer.into_inner(), ends)
}

/// The packets that can be read, and the error after them.
fn read(file: &[u8]) -> (Vec<Vec<u8>>, Option<Error>) {
    let mut packets = Vec::new();
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(e) => return (packets, Some(e)),
    };
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => packets.push(frame.data.to_vec()),
            Ok(None) => return (packets, None),
            Err(e) => return (packets, Some(e)),
        }
    }
}

#[test]
fn cut_at_every_byte() {
    // pcapng may end after any block: behind the section header (28 bytes) and the interface (40) too.
    for ((file, ends), clean) in [(pcap(), vec![24]), (pcapng(), vec![28, 28 + 40])] {
        let clean: Vec<usize> = [clean, ends.clone()].concat();
        for cut in 0..=file.len() {
            let (packets, error) = read(&file[..cut]);
            let whole = ends.iter().filter(|e| **e <= cut).count();
            assert_eq!(packets, PACKETS[..whole], "cut at {cut}");
            match error {
                None => assert!(clean.contains(&cut), "cut at {cut} went unnoticed"),
                Some(Error::EmptyFile) => assert_eq!(cut, 0),
                Some(Error::TruncatedFile { packets, offset }) => {
                    assert_eq!(packets, whole as u64);
                    let before = clean.iter().copied().filter(|c| *c <= cut).max().unwrap_or(0);
                    assert_eq!(offset, before as u64, "cut at {cut}");
                    assert!(!clean.contains(&cut));
                }
                Some(e) => panic!("cut at {cut}: {e}"),
            }
        }
    }
}

#[test]
fn a_record_that_claims_2_gib_is_not_believed() {
    let (mut file, ends) = pcap();
    file[ends[0] + 8..][..4].copy_from_slice(&(2u32 << 30).to_le_bytes());
    let (packets, error) = read(&file);
    assert_eq!(packets, PACKETS[..1]);
    let expected = ends[0] as u64;
    assert!(
        matches!(error, Some(Error::UnreasonableLength { packets: 1, offset, length }) if offset == expected && length == 2 << 30)
    );

    let (mut file, ends) = pcapng();
    file[ends[0] + 4..][..4].copy_from_slice(&(2u32 << 30).to_le_bytes());
    let (packets, error) = read(&file);
    assert_eq!(packets, PACKETS[..1]);
    let expected = ends[0] as u64;
    assert!(matches!(error, Some(Error::UnreasonableLength { packets: 1, offset, .. }) if offset == expected));
}

#[test]
fn lengths_that_disagree_end_a_pcapng_file() {
    let (file, ends) = pcapng();
    let block = ends[1];
    // The block's length, the interface, the captured length, the length at the end.
    for (at, flip) in [(block + 4, 4), (block + 8, 0x40), (block + 20, 0x40), (ends[2] - 4, 0x40)] {
        let mut file = file.clone();
        file[at] ^= flip;
        let (packets, error) = read(&file);
        assert_eq!(packets, PACKETS[..2]);
        assert!(
            matches!(error, Some(Error::Damaged { packets: 2, offset, .. }) if offset == block as u64),
            "byte {at}: {error:?}"
        );
    }
}

#[test]
fn a_length_beyond_the_snap_length_is_read() {
    let (mut file, _) = pcap();
    file[16..20].copy_from_slice(&2u32.to_le_bytes());
    assert!(matches!(read(&file), (packets, None) if packets == PACKETS));
}

/// A small generator (xorshift), so that a failure comes back with its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

#[test]
fn every_bit_flipped() {
    for (mut file, _) in [pcap(), pcapng()] {
        for bit in 0..8 * file.len() {
            file[bit / 8] ^= 1 << (bit % 8);
            fuzz_reader(&file);
            file[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn many_changes_at_once() {
    for seed in 1..=3000u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut file, _) = if seed % 2 == 0 { pcap() } else { pcapng() };
        for _ in 0..=random.below(8) {
            let at = random.below(file.len());
            match random.below(4) {
                0 => file[at] = random.next() as u8,
                1 => file[at] = [0, 1, 3, 4, 0x7f, 0x80, 0xff][random.below(7)],
                2 => drop(file.remove(at)),
                _ => file.insert(at, random.next() as u8),
            }
        }
        fuzz_reader(&file);
    }
}

#[test]
fn garbage() {
    let heads: [&[u8]; 7] = [
        b"",
        b"\xd4\xc3\xb2\xa1\x02\0\x04\0",
        b"\xa1\xb2\x3c\x4d\0\x02\0\x04",
        b"\x34\xcd\xb2\xa1\x02\0\x04\0",
        b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\0\0\0\0\0\0\0\0\x1c\0\0\0",
        b"\x0a\x0d\x0d\x0a\0\0\0\x1c\x1a\x2b\x3c\x4d\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\x1c",
        b"\x0a\x0d\x0d\x0a",
    ];
    for seed in 1..=3000u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut file = heads[random.below(heads.len())].to_vec();
        // Mostly small words: large ones are refused at once and reach nothing.
        for _ in 0..random.below(100) {
            let word = if random.below(4) == 0 { random.next() as u32 } else { random.below(40) as u32 };
            file.extend(if random.below(2) == 0 { word.to_le_bytes() } else { word.to_be_bytes() });
        }
        fuzz_reader(&file);
    }
}

#[test]
fn the_kept_corpus_of_the_fuzzer() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/capture_file");
    for file in std::fs::read_dir(folder).unwrap() {
        fuzz_reader(&std::fs::read(file.unwrap().path()).unwrap());
    }
}
