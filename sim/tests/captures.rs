//! Captures of networks: every frame on every link that it leaves on, or those of one link.

use std::io;

use softnic_sim::topology::{Capture, Hooks, Topology, TopologyReport, run};

const NET: &str = "kind = \"dumbbell\"\nhosts = 1\n[[flow]]\nfrom = \"h0\"\nto = \"h1\"\nsize = \"10K\"\ncount = 3\n";

/// The names of a pcapng file's interfaces, each with the lengths of its frames.
fn interfaces(mut file: &[u8]) -> Vec<(String, Vec<u32>)> {
    let mut found: Vec<(String, Vec<u32>)> = Vec::new();
    while !file.is_empty() {
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let len = word(4) as usize;
        match word(0) {
            1 => {
                let name = 20..20 + (word(16) >> 16) as usize;
                found.push((String::from_utf8(file[name].to_vec()).unwrap(), Vec::new()));
            }
            6 => found[word(8) as usize].1.push(word(24)),
            _ => {}
        }
        file = &file[len..];
    }
    found
}

fn captured(text: &str, link: Option<&str>) -> (TopologyReport, Vec<(String, Vec<u32>)>) {
    let topology: Topology = text.parse().unwrap();
    let mut out = Vec::new();
    let link = link.map(|name| topology.find_link(name).expect("such a link"));
    let capture = Some(Capture { out: &mut out, link });
    let report = run(&topology, 1, Hooks { capture, ..Hooks::default() }).unwrap();
    (report, interfaces(&out))
}

#[test]
fn a_frame_is_in_the_capture_once_for_each_link_that_it_leaves_on() {
    let (report, links) = captured(NET, None);
    assert_eq!(links.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["h0-s0", "h1-s1", "s0-s1"]);
    let acks = report.ports[0].stats.sent;
    for (name, frames) in &links {
        let long = frames.iter().filter(|len| **len > 1000).count();
        assert_eq!((long, frames.len() as u64), (30, 30 + acks), "{name}");
    }
    let plain = run(&NET.parse().unwrap(), 1, Hooks::default()).unwrap();
    assert_eq!(report.digest, plain.digest, "a capture changes nothing");
}

#[test]
fn one_link_may_be_captured_alone_by_the_names_of_its_ends() {
    let (_, all) = captured(NET, None);
    for name in ["s0-s1", "s1-s0"] {
        assert_eq!(captured(NET, Some(name)).1, [all[2].clone()]);
    }
    let dashes =
        NET.replace("hosts = 1", "hosts = 1\nnames = [\"h0\", \"h-1\"]").replace("to = \"h1\"", "to = \"h-1\"");
    assert_eq!(captured(&dashes, Some("s1-h-1")).1, [("h-1-s1".into(), all[1].1.clone())]);
    let topology: Topology = NET.parse().unwrap();
    assert_eq!(["h0-s1", "h0", "h0-", ""].map(|name| topology.find_link(name)), [None; 4]);
}

#[test]
fn lengths_are_those_on_the_wire_also_without_payload() {
    let (_, real) = captured(NET, Some("s0-s1"));
    let (_, elided) = captured(&format!("payload = \"none\"\n{NET}"), Some("s0-s1"));
    assert_eq!(real, elided);
}

#[test]
fn a_capture_that_cannot_be_written_is_an_error() {
    struct Full(usize);
    impl io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let topology: Topology = NET.parse().unwrap();
    for room in [0, 100, 2000] {
        let capture = Some(Capture { out: &mut Full(room), link: None });
        let error = run(&topology, 1, Hooks { capture, ..Hooks::default() }).unwrap_err();
        assert!(error.to_string().starts_with("cannot write the capture: "), "{error}");
    }
}
