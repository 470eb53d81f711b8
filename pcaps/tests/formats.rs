//! Files made by hand, byte by byte: every variant of the two formats that our own writer does not make.

use std::io::{self, Read};

use softnic_pcaps::{Error, Frame, LinkType, Payload, Reader, Timestamp};

/// Both byte orders with one spelling.
#[derive(Clone, Copy)]
enum Order {
    Little,
    Big,
}
use Order::{Big, Little};

impl Order {
    fn u16(self, v: u16) -> [u8; 2] {
        if matches!(self, Big) { v.to_be_bytes() } else { v.to_le_bytes() }
    }

    fn u32(self, v: u32) -> [u8; 4] {
        if matches!(self, Big) { v.to_be_bytes() } else { v.to_le_bytes() }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| self.u32(*w)).collect()
    }

    fn pcap(self, magic: u32, link: u32) -> Vec<u8> {
        let mut file = self.u32(magic).to_vec();
        file.extend(self.u16(2));
        file.extend(self.u16(4));
        file.extend(self.words(&[0, 0, 65535, link]));
        file
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let len = 12 + body.len().next_multiple_of(4);
        let mut block = self.words(&[kind, len as u32]);
        block.extend(body);
        block.resize(len - 4, 0);
        block.extend(self.u32(len as u32));
        block
    }

    fn section(self) -> Vec<u8> {
        let mut body = self.u32(0x1a2b_3c4d).to_vec();
        body.extend(self.u16(1));
        body.extend(self.u16(0));
        body.extend([0xff; 8]);
        self.block(0x0a0d_0d0a, &body)
    }

    fn interface(self, link: u16, snap_len: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = self.u16(link).to_vec();
        body.extend(self.u16(0));
        body.extend(self.u32(snap_len));
        for (code, value) in options {
            body.extend(self.u16(*code));
            body.extend(self.u16(value.len() as u16));
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(1, &body)
    }

    fn enhanced(self, interface: u32, ticks: u64, data: &[u8], original: u32) -> Vec<u8> {
        let mut body = self.words(&[interface, (ticks >> 32) as u32, ticks as u32, data.len() as u32, original]);
        body.extend(data);
        self.block(6, &body)
    }

    fn simple(self, data: &[u8], original: u32) -> Vec<u8> {
        let mut body = self.u32(original).to_vec();
        body.extend(data);
        self.block(3, &body)
    }
}

/// Number, nanoseconds, link type, bytes and original length of each packet.
fn read(file: &[u8]) -> Vec<(u64, i128, LinkType, Vec<u8>, u32)> {
    let mut reader = Reader::new(file).unwrap();
    let mut frames = Vec::new();
    while let Some(Frame { number, time, link, data, original_len, .. }) = reader.next_frame().unwrap() {
        frames.push((number, time.nanos(), link, data.to_vec(), original_len));
    }
    frames
}

fn fault(file: &[u8]) -> Error {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(e) => return e,
    };
    loop {
        match reader.next_frame() {
            Ok(frame) => assert!(frame.is_some(), "no fault was found"),
            Err(e) => return e,
        }
    }
}

#[test]
fn pcap_in_both_orders_and_units() {
    for order in [Little, Big] {
        for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            let mut file = order.pcap(magic, 1);
            file.extend(order.words(&[5, 999_999, 3, 1500]));
            file.extend(b"abc");
            file.extend(order.words(&[u32::MAX, 7, 0, 0]));
            let second = 1_000_000_000;
            let expected = vec![
                (1, 5 * second + 999_999 * unit, LinkType::Ethernet, b"abc".to_vec(), 1500),
                (2, u32::MAX as i128 * second + 7 * unit, LinkType::Ethernet, vec![], 0),
            ];
            assert_eq!(read(&file), expected);
        }
    }
}

#[test]
fn modified_pcap_has_longer_record_headers() {
    let mut file = Little.pcap(0xa1b2_cd34, 1);
    file.extend(Little.words(&[1, 2, 3, 4, 0x1111_1111, 0x2222_2222]));
    file.extend(b"abc");
    assert_eq!(read(&file), [(1, 1_000_002_000, LinkType::Ethernet, b"abc".to_vec(), 4)]);
}

#[test]
fn a_header_without_packets_is_a_capture() {
    assert_eq!(read(&Little.pcap(0xa1b2_c3d4, 1)), []);
    assert_eq!(read(&Big.section()), []);
    assert_eq!(read(&[Big.section(), Big.interface(1, 0, &[])].concat()), []);
}

#[test]
fn link_types_by_number() {
    let kinds = [
        (1, LinkType::Ethernet),
        (12, LinkType::RawIp),
        (14, LinkType::RawIp),
        (101, LinkType::RawIp),
        (113, LinkType::LinuxSll),
        (228, LinkType::Ipv4),
        (229, LinkType::Ipv6),
        (276, LinkType::LinuxSll2),
        (127, LinkType::Other(127)),
        (0x2400_0001, LinkType::Ethernet), // with a frame check sequence of four bytes
    ];
    for (number, link) in kinds {
        let mut file = Big.pcap(0xa1b2_c3d4, number);
        file.extend(Big.words(&[0, 0, 0, 0]));
        assert_eq!(read(&file)[0].2, link);
    }
}

#[test]
fn cooked_and_raw_packets_lead_to_ip() {
    let v1 = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x81, 0, 0, 5, 0x08, 0][..], &[0x45]].concat();
    let v2 = [&[0x86, 0xdd, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0][..], &[0x60]].concat();
    for (number, packet, ethertype, offset) in
        [(113, v1, 0x0800, 20), (276, v2, 0x86dd, 20), (12, vec![0x60], 0x86dd, 0)]
    {
        let mut file = Little.pcap(0xa1b2_3c4d, number);
        file.extend(Little.words(&[0, 0, packet.len() as u32, packet.len() as u32]));
        file.extend(&packet);
        let (_, _, link, data, _) = &read(&file)[0];
        assert_eq!(softnic_pcaps::payload(*link, data), Ok(Payload::Network { ethertype, offset }));
    }
}

#[test]
fn pcapng_interfaces_have_their_own_links_and_clocks() {
    for order in [Little, Big] {
        let hour = if matches!(order, Big) { 3600i64.to_be_bytes() } else { 3600i64.to_le_bytes() };
        let file = [
            order.section(),
            order.interface(1, 0, &[(2, b"eth0")]),
            order.interface(113, 0, &[(9, &[9]), (14, &hour), (0, &[]), (9, &[0])]),
            order.interface(228, 0, &[(9, &[0x80 | 10])]),
            order.enhanced(1, 1_700_000_000_123_456_789, b"nanoseconds", 11),
            order.enhanced(0, 1_700_000_000_123_456, b"micro", 99),
            order.enhanced(2, 3 << 9, b"1024ths", 7),
        ];
        let expected = vec![
            (1, 1_700_003_600_123_456_789, LinkType::LinuxSll, b"nanoseconds".to_vec(), 11),
            (2, 1_700_000_000_123_456_000, LinkType::Ethernet, b"micro".to_vec(), 99),
            (3, 1_500_000_000, LinkType::Ipv4, b"1024ths".to_vec(), 7),
        ];
        assert_eq!(read(&file.concat()), expected);
    }
}

#[test]
fn simple_packets_are_cut_at_the_snap_length() {
    let file = [
        Little.section(),
        Little.interface(101, 6, &[]),
        Little.interface(1, 0, &[]),
        Little.simple(b"five!", 5),
        Little.simple(b"longer", 1500),
    ];
    let epoch = Timestamp::EPOCH.nanos();
    let expected =
        vec![(1, epoch, LinkType::RawIp, b"five!".to_vec(), 5), (2, epoch, LinkType::RawIp, b"longer".to_vec(), 1500)];
    assert_eq!(read(&file.concat()), expected);
}

#[test]
fn obsolete_packet_blocks() {
    for order in [Little, Big] {
        let mut body = order.u16(1).to_vec();
        body.extend(order.u16(0xffff));
        body.extend(order.words(&[0, 8, 3, 60]));
        body.extend(b"old");
        let file = [order.section(), order.interface(1, 0, &[]), order.interface(229, 0, &[]), order.block(2, &body)];
        assert_eq!(read(&file.concat()), [(1, 8_000, LinkType::Ipv6, b"old".to_vec(), 60)]);
    }
}

#[test]
fn sections_start_over() {
    let file = [
        Little.section(),
        Little.interface(1, 0, &[]),
        Little.enhanced(0, 1, b"one", 3),
        Big.section(),
        Big.interface(113, 0, &[(9, &[9])]),
        Big.enhanced(0, 1, b"two", 3),
    ];
    let expected =
        vec![(1, 1_000, LinkType::Ethernet, b"one".to_vec(), 3), (2, 1, LinkType::LinuxSll, b"two".to_vec(), 3)];
    assert_eq!(read(&file.concat()), expected);
    let stale = [&file[..4], &[Big.enhanced(0, 1, b"two", 3)]].concat().concat();
    assert!(matches!(fault(&stale), Error::Damaged { packets: 1, .. }));
}

#[test]
fn other_blocks_are_skipped_and_numbered_as_tshark_does() {
    let packet = Little.enhanced(0, 0, b"x", 1);
    let start = [Little.section(), Little.interface(1, 0, &[])].concat();
    let cases = [
        (Little.block(0x777, b"unknown"), 2),
        (Little.block(4, b"broken names"), 2),
        (Little.block(5, &[0; 12]), 2),
        (Little.block(9, b"MESSAGE=journal\n"), 3),
        (Little.block(0xbad, &[0; 8]), 3),
        (Little.block(0x4000_0bad, &[0; 8]), 3),
    ];
    for (block, number) in cases {
        let frames = read(&[&start[..], &packet, &block, &packet].concat());
        assert_eq!(frames.iter().map(|f| f.0).collect::<Vec<_>>(), [1, number]);
    }
}

#[test]
fn what_is_no_capture_is_called_by_its_name() {
    assert!(matches!(fault(b""), Error::EmptyFile));
    assert!(matches!(fault(b"GIF89a"), Error::NotACapture { magic: [b'G', b'I', b'F', b'8'] }));
    assert!(matches!(fault(&[0x1f, 0x8b, 8, 0]), Error::Compressed { with: "gzip" }));
    assert_eq!(fault(b"\x7fELF").to_string(), "not a pcap or pcapng capture: it begins with the bytes 7f 45 4c 46");
    let mut old = Little.pcap(0xa1b2_c3d4, 1);
    old[6] = 1;
    assert!(matches!(fault(&old), Error::UnsupportedVersion { format: "pcap", major: 2, minor: 1 }));
    let mut new = Little.section();
    new[12] = 9;
    assert!(matches!(fault(&new), Error::UnsupportedVersion { format: "pcapng", major: 9, minor: 0 }));
}

/// Hands out one chunk a call and fails with `WouldBlock` where a chunk is `None`: a pipe seen from the reader.
struct Pipe(Vec<Option<Vec<u8>>>);

impl Read for Pipe {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match (!self.0.is_empty()).then(|| self.0.remove(0)) {
            None => Ok(0),
            Some(None) => Err(io::ErrorKind::WouldBlock.into()),
            Some(Some(chunk)) => {
                out[..chunk.len()].copy_from_slice(&chunk);
                Ok(chunk.len())
            }
        }
    }
}

#[test]
fn a_packet_is_there_with_its_last_byte() {
    let ng = |i: u8| Big.enhanced(0, 0, &[i; 33], 33);
    let old = |i: u8| [Big.words(&[0, 0, 33, 33]), vec![i; 33]].concat();
    let ng = ([Big.section(), Big.interface(1, 0, &[])].concat(), [ng(0), ng(1)]);
    let old = (Big.pcap(0xa1b2_c3d4, 1), [old(0), old(1)]);
    for (header, packets) in [ng, old] {
        let half = packets[1].len() / 2;
        let (head, tail) = packets[1].split_at(half);
        let chunks =
            [Some(header), Some(packets[0].clone()), None, Some(head.to_vec()), None, Some(tail.to_vec()), None];
        let mut reader = Reader::new(Pipe(chunks.to_vec())).unwrap();
        // Any read beyond what a packet needs would meet the `WouldBlock` behind it.
        assert_eq!(reader.next_frame().unwrap().unwrap().data, [0; 33]);
        assert!(matches!(reader.next_frame(), Err(Error::Io(_))));
        assert!(matches!(reader.next_frame(), Err(Error::Io(_))));
        assert_eq!(reader.next_frame().unwrap().unwrap().data, [1; 33]);
        assert!(matches!(reader.next_frame(), Err(Error::Io(_))));
        assert!(reader.next_frame().unwrap().is_none());
    }
}

#[test]
fn the_header_of_a_live_capture_is_enough_to_begin() {
    for header in [Little.pcap(0xa1b2_c3d4, 1), Little.section()] {
        assert!(Reader::new(Pipe(vec![Some(header), None])).is_ok());
    }
}
