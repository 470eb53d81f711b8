//! What a NIC says of itself: paths from a given address, captures while it runs, descriptors.

use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use softnic_nic::QpKind;
use softnic_pcaps::Reader;
use softnic_runtime::api::{Context, OpenOptions, PathError, Progress, QpOptions};

use crate::world::{LIMIT, SIZE, completion, connect, contents, filled, side, world, write};

#[test]
fn a_path_begins_where_it_is_told_to() {
    let [a, b] = world([Progress::Inline; 2]);
    let (mine, theirs) = (a.context.addresses(), b.context.addresses());
    for (index, from) in mine.iter().enumerate() {
        for &to in &theirs {
            match a.context.path_from(index, to, 1) {
                Ok(path) => assert_eq!((path.attr.sgid_index, path.attr.dgid), (index, to)),
                Err(PathError::Versions { from: f, peer }) => {
                    assert_eq!((f, peer), (*from, to));
                    assert_ne!(f.is_ipv4(), peer.is_ipv4());
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    let mapped = match theirs[0] {
        IpAddr::V4(ip) => IpAddr::from(ip.to_ipv6_mapped()),
        ip => ip,
    };
    assert_eq!(a.context.path_from(0, mapped, 1).unwrap().attr.dgid, theirs[0], "as a GID has it");
    let count = mine.len();
    let wrong = a.context.path_from(count, theirs[0], 1);
    assert!(matches!(wrong, Err(PathError::NoSuchGid { index, count: c }) if index == count && c == count));
    assert_eq!(a.pd.context().addresses(), mine);
}

/// How many frames a capture holds; none if it is not whole yet.
fn frames(path: &Path) -> Option<u64> {
    let mut reader = Reader::new(File::open(path).ok()?).ok()?;
    let mut count = 0;
    while reader.next_frame().ok()?.is_some() {
        count += 1;
    }
    Some(count)
}

#[test]
fn a_capture_is_in_its_file_though_the_nic_is_never_closed() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let file = std::env::temp_dir().join(format!("softnic-api-{}-{progress:?}.pcap", std::process::id()));
        let options = OpenOptions { progress: Some(progress), ..OpenOptions::default() };
        let recorded = OpenOptions { pcap: Some(file.clone()), ..options.clone() };
        let [a, b] = Context::open_pair([&recorded, &options]).unwrap();
        let [a, b] = [side(a), side(b)];
        connect(&a, &b);
        let exchange = |wr_id| {
            write(&a, &b, wr_id, 8).unwrap();
            completion(&a, || {
                b.context.progress();
            });
        };
        exchange(1);
        a.context.flush_capture().unwrap();
        assert!(frames(&file).unwrap() >= 2, "the request and its answer");
        let before = frames(&file).unwrap();
        exchange(2);
        // By itself, and also though the program polls all the time.
        let start = Instant::now();
        while frames(&file).is_none_or(|n| n < before + 2) {
            assert!(start.elapsed() < LIMIT, "they are not written");
            a.context.progress();
        }
        drop((a, b));
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn the_descriptors_of_a_nic_are_open_and_each_is_there_once() {
    let [a, _b] = world([Progress::Inline; 2]);
    let before = a.context.descriptors();
    let _qp = a.pd.create_qp(&QpOptions::new(QpKind::Rc, &a.cq)).unwrap();
    assert_eq!(a.context.descriptors(), before, "objects have none of them");
    assert!(before.is_sorted_by(|x, y| x < y), "{before:?}");
    for fd in before {
        assert!(std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok(), "{fd}");
    }
}

/// The signals that a thread of this process blocks, as /proc says it.
fn blocked(thread: &std::path::Path) -> Option<u64> {
    let status = std::fs::read_to_string(thread.join("status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[test]
fn all_signals_are_blocked_in_the_threads_of_a_nic_and_those_of_the_program_stay_as_they_are() {
    let before = blocked(std::path::Path::new("/proc/thread-self"));
    let options = OpenOptions::default();
    let [a, _b] = Context::open_pair([&options; 2]).unwrap();
    let _manager = softnic_runtime::api::ConnectionManager::new(&a).unwrap();
    assert_eq!(blocked(std::path::Path::new("/proc/thread-self")), before);
    // All but SIGKILL, SIGSTOP, and the two that the C library keeps for itself.
    let all = !(1u64 << 8 | 1 << 18 | 1 << 31 | 1 << 32);
    let mut seen = 0;
    for thread in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = thread.unwrap().path();
        // It may have ended since.
        let Ok(name) = std::fs::read_to_string(path.join("comm")) else { continue };
        if name.starts_with("softnic")
            && let Some(blocked) = blocked(&path)
        {
            assert_eq!(blocked & all, all, "{}", name.trim());
            seen += 1;
        }
    }
    assert!(seen >= 4, "an engine, its counters, the connection manager and its paths: {seen}");
}

#[test]
fn what_a_fault_holds_back_arrives_although_its_sender_has_settled_and_ended() {
    let slow = OpenOptions { fault: Some("ab.delay=30ms".parse().unwrap()), ..OpenOptions::default() };
    let [a, b] = Context::open_pair([&slow, &OpenOptions::default()]).unwrap().map(side);
    connect(&a, &b);
    let bytes = filled(&a, 1);
    write(&a, &b, 1, 4096).unwrap();
    a.context.settle();
    drop(a);
    let start = Instant::now();
    while contents(&b)[..4096] != bytes[..4096] {
        assert!(start.elapsed() < LIMIT, "the WRITE never came");
        b.context.progress();
        std::thread::yield_now();
    }
    assert_eq!(contents(&b)[4096..], vec![0; SIZE - 4096]);
}
