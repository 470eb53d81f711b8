//! Faults on the link, drawn and by scripts, and what a run says of them.

use super::*;

#[test]
fn every_kind_of_fault_is_recovered_from() {
    for fault in ["dup=0.05", "corrupt=0.02", "reorder=0.02:3", "loss=0.01,dup=0.01,corrupt=0.01,reorder=0.01:2"] {
        for op in ["write", "send", "read"] {
            let v = json(&["--op", op, "--size", "20000", "--count", "100", "--rtt", "20us", "--fault", fault]);
            assert_eq!((v["completed"].as_u64(), v["failed"].as_u64()), (Some(100), Some(0)), "{op} with {fault}");
            // A duplicate costs nothing; all the others cost a packet sent again.
            let again = v["retransmitted_packets"].as_u64();
            assert_eq!(again > Some(0), !fault.starts_with("dup"), "{op} with {fault}: {again:?}");
        }
    }
}

#[test]
fn every_property_of_a_link_is_survived_and_shows_in_what_it_should() {
    let run =
        |fault: &str| json(&["--size", "20000", "--count", "200", "--depth", "4", "--rtt", "20us", "--fault", fault]);
    let clean = run("");
    let time = |v: &Value| v["virtual_ms"].as_f64().expect("a time");
    for (fault, resent) in [
        ("burst=1e-2:1:5", true),
        ("burst=1e-2:0.5:~8", true),
        ("jitter=5us", true),
        ("delay=40us", false),
        ("rate=5Gbit", false),
        // Four messages outstanding fit the queue, and are more than half of it.
        ("rate=5Gbit,queue=100K,ecn=20K:40K:0.5", false),
        ("rate=5Gbit,queue=30K", true),
        ("down=1ms+500us/2ms", true),
        // Shorter than the ACK timeout, and longer.
        ("stall=1ms+80us/2ms", false),
        ("stall=1ms+500us/2ms", true),
        ("ab.delay=40us,ba.delay=10us", false),
    ] {
        let v = run(fault);
        assert_eq!((v["completed"].as_u64(), v["failed"].as_u64()), (Some(200), Some(0)), "{fault}");
        assert!(time(&v) > time(&clean), "{fault}");
        assert_eq!(v["retransmitted_packets"].as_u64() > Some(0), resent, "{fault}: {v}");
        assert_eq!(v, run(fault), "{fault}: the same seed, the same run");
    }
    // One message at a time: a round trip more for each 30 µs there and back.
    let one =
        |fault: &str| json(&["--op", "read", "--size", "8", "--count", "1", "--fault", fault])["virtual_ms"].as_f64();
    let [plain, delayed] =
        [one(""), one("ab.delay=10us,ba.delay=20us")].map(|t| (t.expect("a time") * 1e6).round() as u64);
    assert_eq!(delayed - plain, 30_000);
}

#[test]
fn naming_what_never_happens_changes_no_run() {
    let digest = |fault: &str| json(&[&LOSSY[..8], &["--fault", fault]].concat())["digest"].clone();
    assert_eq!(
        digest("burst=0:1:3,loss=1e-3,dup=0,burst=1:0:9,delay=0s,jitter=0s,down=100s+5s,stall=99s+1s"),
        digest("loss=1e-3")
    );
    assert_ne!(digest("loss=1e-3,delay=1ns"), digest("loss=1e-3"));
}

#[test]
fn the_table_tells_what_the_link_did_where_it_was_asked_to() {
    let table = |fault: &str| {
        let out = sim(&["--size", "20000", "--count", "200", "--depth", "4", "--rtt", "20us", "--fault", fault]);
        String::from_utf8(out.stdout).expect("UTF-8")
    };
    let said = table("rate=5Gbit,queue=100K,ecn=20K:20K:0");
    let line = said.lines().find(|l| l.starts_with("on the link")).expect("the link's line");
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    assert!(numbers[..2] == [0, 0] && numbers[2] > 1000, "{line}");
    assert!(!table("").contains("on the link"));
}

/// A script in a file of its own, for `--fault`.
fn script(name: &str, text: &str) -> (PathBuf, String) {
    let path = scratch(name);
    std::fs::write(&path, text).expect("written");
    let spec = format!("@{}", path.to_str().expect("UTF-8"));
    (path, spec)
}

#[test]
fn a_script_drops_the_packet_that_it_names_alone_and_with_other_faults() {
    let run = ["--op", "read", "--size", "8K", "--count", "5", "--depth", "1"];
    let event =
        "[[event]]\naction = \"drop\"\ndirection = \"ba\"\nopcode = \"RC_RDMA_READ_RESPONSE_MIDDLE\"\nnth = 2\n";
    let (path, spec) = script("one.toml", event);
    let v = json(&[&run[..], &["--fault", &spec]].concat());
    assert_eq!((v["completed"].as_u64(), v["tx_packets"].as_u64()), (Some(5), Some(6)), "one READ is asked for again");
    let elided = json(&[&run[..], &["--fault", &spec, "--payload", "none"]].concat());
    assert_eq!(elided["virtual_ms"], v["virtual_ms"], "headers are enough to know the packet by");
    let clean = json(&run);
    assert_eq!((clean["retransmitted_packets"].as_u64(), v["retransmitted_packets"].as_u64()), (Some(0), Some(1)));
    let both = json(&[&run[..], &["--fault", &format!("dup=1,{spec}")]].concat());
    assert_eq!((both["completed"].as_u64(), both["failed"].as_u64()), (Some(5), Some(0)));
    assert!(both["retransmitted_packets"].as_u64() > Some(0), "the script goes before the duplicates");
    std::fs::remove_file(path).expect("removed");
}

#[test]
fn an_event_that_was_for_no_packet_is_named() {
    let text = "[[event]]\naction = \"drop\"\nnth = 2\n[[event]]\naction = \"drop\"\nopcode = \"RC_FETCH_ADD\"\n";
    let (path, spec) = script("unused.toml", text);
    let out = sim(&["--size", "4K", "--count", "2", "--fault", &spec]);
    std::fs::remove_file(path).expect("removed");
    assert!(out.status.success());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(said.trim(), "softnic: event 2 of the script was for no packet of this run");
}

#[test]
fn a_script_that_is_wrong_gets_one_clear_line() {
    let event = "[[event]]\naction = \"drop\"\n";
    for (text, line) in [
        (format!("{event}opcode = \"RC_SND\"\n"), "event 1: opcode: it cannot be \"RC_SND\": write a name"),
        (format!("{event}{event}nth = 0\n"), "event 2: nth: it cannot be 0"),
        (format!("{event}nht = 1\n"), "event 1: there is no key 'nht'"),
        (format!("{event}nth = = 1\n"), "line 3: "),
        (String::new(), "it has no [[event]]"),
    ] {
        let (path, spec) = script("wrong.toml", &text);
        let (code, said) = refusal(&["--fault", &spec]);
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(code, Some(2), "{text}");
        let first = said.lines().next().unwrap_or_default();
        assert!(first.contains(&format!("{}: {line}", path.display())), "{text}: {said}");
        assert_eq!(said.lines().filter(|l| !l.is_empty()).count(), 2, "that line, and where help is: {said}");
    }
    let (code, said) = refusal(&["--fault", "loss=0.1,@/no/such/file.toml"]);
    assert!(code == Some(2) && said.contains("/no/such/file.toml: No such file"), "{said}");
}

#[test]
fn a_dead_link_fails_all_work_and_says_how() {
    let out = sim(&["--count", "20", "--size", "4K", "--fault", "loss=1", "--json"]);
    assert_eq!(out.status.code(), Some(1));
    let v: Value = serde_json::from_slice(&out.stdout).expect("JSON also then");
    assert_eq!((v["completed"].as_u64(), v["failed"].as_u64()), (Some(0), Some(20)));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("20 of 20") && said.contains("retry counter exceeded"), "{said}");
}
