//! What is written is what is read, for any packets.

use proptest::prelude::*;
use softnic_pcaps::{Direction, Error, LinkType, MAX_CAPTURED, PcapWriter, PcapngWriter, Precision, Reader, Timestamp};
use std::io::{self, ErrorKind, Write};

/// An owned frame: time, link type, bytes, original length.
type Packet = (Timestamp, LinkType, Vec<u8>, u32);

fn read(file: &[u8]) -> Result<Vec<Packet>, Error> {
    let mut reader = Reader::new(file)?;
    let mut packets = Vec::new();
    while let Some(f) = reader.next_frame()? {
        packets.push((f.time, f.link, f.data.to_vec(), f.original_len));
        assert_eq!(f.number, packets.len() as u64);
    }
    Ok(packets)
}

fn frames() -> impl Strategy<Value = Vec<(u32, u32, Vec<u8>, u32, usize)>> {
    let data = prop_oneof![9 => prop::collection::vec(any::<u8>(), 0..200), 1 => Just(vec![0xa5; 70_000])];
    prop::collection::vec((any::<u32>(), 0u32..1_000_000_000, data, any::<u32>(), any::<usize>()), 0..20)
}

proptest! {
    #[test]
    fn pcap(frames in frames(), link: u16, micros: bool) {
        let link = LinkType::from_value(link);
        let (precision, unit) = if micros { (Precision::Micros, 1000) } else { (Precision::Nanos, 1) };
        let mut writer = PcapWriter::with_precision(Vec::new(), link, precision).unwrap();
        let mut expected = Vec::new();
        for (secs, nanos, data, original, cut) in &frames {
            let (head, tail) = data.split_at(cut % (data.len() + 1));
            writer.write_segments(Timestamp::new((*secs).into(), *nanos), &[head, tail], *original).unwrap();
            expected.push((Timestamp::new((*secs).into(), nanos / unit * unit), link, data.clone(), *original));
        }
        prop_assert_eq!(read(&writer.into_inner()).unwrap(), expected);
    }

    #[test]
    fn pcapng(frames in frames(), links: [u16; 3], name in "[a-z0-9]{0,9}") {
        let mut writer = PcapngWriter::new(Vec::new()).unwrap();
        let ids = links.map(|l| writer.add_interface(LinkType::from_value(l), &name).unwrap());
        let mut expected = Vec::new();
        for (secs, nanos, data, original, cut) in &frames {
            let (head, tail) = data.split_at(cut % (data.len() + 1));
            let (time, i) = (Timestamp::new((*secs).into(), *nanos), cut % links.len());
            match cut % 2 {
                0 => writer.write_segments(ids[i], time, &[head, tail], *original).unwrap(),
                _ => writer.write_directed(ids[i], time, &[head, tail], *original, Direction::Outbound).unwrap(),
            }
            expected.push((time, LinkType::from_value(links[i]), data.clone(), *original));
        }
        prop_assert_eq!(read(&writer.into_inner()).unwrap(), expected);
    }
}

#[test]
fn the_largest_packet() {
    let frame = vec![7; MAX_CAPTURED];
    let mut pcap = PcapWriter::new(Vec::new(), LinkType::Ethernet).unwrap();
    pcap.write(Timestamp::EPOCH, &frame, 1).unwrap();
    assert_eq!(read(&pcap.into_inner()).unwrap()[0].2.len(), MAX_CAPTURED);
    let mut ng = PcapngWriter::new(Vec::new()).unwrap();
    let id = ng.add_interface(LinkType::Ethernet, "").unwrap();
    ng.write(id, Timestamp::EPOCH, &frame, 1).unwrap();
    assert_eq!(read(&ng.into_inner()).unwrap()[0].2.len(), MAX_CAPTURED);
}

#[test]
fn what_a_file_cannot_hold_is_refused_and_leaves_the_file_whole() {
    let mut pcap = PcapWriter::new(Vec::new(), LinkType::Ethernet).unwrap();
    let (late, early) = (Timestamp::new(1 << 32, 0), Timestamp::from_nanos(-1));
    for time in [late, early] {
        assert_eq!(pcap.write(time, &[1], 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let long = vec![0; MAX_CAPTURED];
    let refused = pcap.write_segments(Timestamp::EPOCH, &[&long, &[0]], 1).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert_eq!(read(&pcap.into_inner()).unwrap(), []);

    let mut other = PcapngWriter::new(Vec::new()).unwrap();
    let foreign = other.add_interface(LinkType::Ethernet, "eth0").unwrap();
    let mut ng = PcapngWriter::new(Vec::new()).unwrap();
    assert_eq!(ng.write(foreign, Timestamp::EPOCH, &[1], 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    let id = ng.add_interface(LinkType::Ethernet, "eth0").unwrap();
    assert_eq!(ng.write(id, early, &[1], 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(ng.write(id, Timestamp::new(1 << 40, 0), &[1], 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(ng.add_interface(LinkType::Ethernet, &"x".repeat(70_000)).is_err());
    assert_eq!(read(&ng.into_inner()).unwrap(), []);
}

/// A disk with room for so many bytes.
#[derive(Debug)]
struct Full(usize);

impl Write for Full {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let n = data.len().min(self.0);
        self.0 -= n;
        if n == 0 { Err(ErrorKind::StorageFull.into()) } else { Ok(n) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(ErrorKind::BrokenPipe.into())
    }
}

#[test]
fn errors_are_passed_on() {
    assert_eq!(PcapWriter::new(Full(23), LinkType::Ethernet).unwrap_err().kind(), ErrorKind::StorageFull);
    let mut writer = PcapWriter::new(Full(24 + 16), LinkType::Ethernet).unwrap();
    assert_eq!(writer.write(Timestamp::EPOCH, &[1], 1).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(writer.flush().unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(PcapngWriter::new(Full(27)).unwrap_err().kind(), ErrorKind::StorageFull);
}
