//! XP in networks: messages end in time, with the bytes that came, and the report says what is missing.

use softnic_sim::topology::{FlowReport, Hooks, Topology, TopologyReport, run};

fn report(text: &str, seed: u64) -> TopologyReport {
    let topology: Topology = text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"));
    run(&topology, seed, Hooks::default()).expect("data as sent")
}

const NETS: [&str; 2] = [
    "kind = \"dumbbell\"\nhosts = 2\ndelay = \"5us\"\n",
    "kind = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts = 2\nparallel = 2\n",
];

fn flow(op: &str, keys: &str) -> String {
    format!("[[flow]]\nfrom = \"h0\"\nto = \"h3\"\nop = \"{op}\"\nsize = 50000\ncount = 300\n{keys}\n")
}

/// Every message is accounted for, byte by byte. The run itself compares bytes and bitmaps.
fn check(f: &FlowReport, what: &str) {
    let d = f.delivered.expect("of best effort");
    assert_eq!((f.sent, f.failed), (300, 0), "{what}");
    assert_eq!(d.bytes + d.missing_bytes, f.completed * 50_000, "{what}: {d:?}");
    assert!(d.preempted + d.expired <= d.partial && d.partial <= f.completed, "{what}: {d:?}");
    assert!(d.missing_ranges >= d.partial.min(1) && d.missing_bytes >= d.missing_ranges, "{what}: {d:?}");
}

#[test]
fn messages_end_by_their_deadline_with_what_the_loss_leaves() {
    for net in NETS {
        for op in ["write", "send", "read"] {
            for (transport, stride) in [("xp", 1), ("xp:tail=2", 64), ("xp:linger=20us,spray=4", 1)] {
                let keys = format!("transport = \"{transport}\"\nstride = {stride}\ndeadline = \"2ms\"\ndepth = 2");
                let what = format!("{op} of {transport} in {net}");
                let free = report(&[net, &flow(op, &keys)].concat(), 3);
                let d = free.flows[0].delivered.expect("of best effort");
                assert_eq!((free.flows[0].completed, d.bytes, d.missing_bytes), (300, 300 * 50_000, 0), "{what}");
                assert_eq!((d.missing_ranges, d.partial), (0, 0), "{what}");
                // The second copy of a last fragment comes when its message is over.
                let copies = if transport == "xp:tail=2" { 299..=300 } else { 0..=0 };
                assert!(copies.contains(&free.flows[0].late_packets), "{what}: {}", free.flows[0].late_packets);
                let text = [net, "fault = \"loss=0.01\"\n", &flow(op, &keys)].concat();
                let lossy = report(&text, 3);
                let (f, d) = (&lossy.flows[0], lossy.flows[0].delivered.expect("of best effort"));
                check(f, &what);
                assert_eq!(f.completed, 300, "each ends by its deadline: {what}");
                assert!(f.completion_times.max_ms() <= 2.0, "{what}: {} ms", f.completion_times.max_ms());
                // Three or four links lose a packet each in a hundred, and with a READ's request all of it is lost.
                assert!((0.02..0.12).contains(&(d.missing_bytes as f64 / 15e6)), "{what}: {d:?}");
                assert_eq!((lossy.retransmitted_packets, lossy.stalled), (0, false), "{what}");
                assert_eq!(report(&text, 3).digest, lossy.digest, "{what}");
            }
        }
    }
}

#[test]
fn a_message_of_which_nothing_comes_ends_at_its_deadline() {
    for op in ["write", "send", "read"] {
        let keys = "transport = \"xp\"\ndeadline = \"5ms\"";
        let r = report(&[NETS[0], "fault = \"loss=1\"\n", &flow(op, keys)].concat(), 1);
        let d = r.flows[0].delivered.expect("of best effort");
        assert_eq!((r.flows[0].completed, d.bytes, d.expired, r.stalled), (300, 0, 300, false), "{op}: {d:?}");
        // All of a message is one range.
        assert_eq!((d.missing_bytes, d.missing_ranges), (300 * 50_000, 300), "{op}");
        assert_eq!(r.flows[0].goodput_gbps, 0.0, "{op}");
    }
}

#[test]
fn messages_without_a_deadline_end_with_the_next_one() {
    let r = report(&[NETS[1], "fault = \"loss=0.01\"\n", &flow("send", "transport = \"xp\"\ndepth = 4")].concat(), 2);
    let (f, d) = (&r.flows[0], r.flows[0].delivered.expect("of best effort"));
    check(f, "send");
    assert!(d.preempted > 0 && d.expired == 0 && (299..=300).contains(&f.completed), "{d:?}");
}

#[test]
fn late_packets_are_those_of_the_flow_that_they_came_for() {
    // Packets of a flow take up to 50 µs longer than another on the link of h0; nothing happens to those of h1.
    let link = "[[link]]\nbetween = [\"h0\", \"s0\"]\nfault = \"ab.jitter=50us\"\n";
    let a = flow("send", "transport = \"xp\"\ndeadline = \"5ms\"\ndepth = 1");
    let b = a.replace("h0", "h1").replace("h3", "h2");
    let r = report(&[NETS[0], "bottleneck = \"25Gbit\"\n", link, &a, &b].concat(), 1);
    let [a, b] = [0, 1].map(|i| &r.flows[i]);
    assert!(a.late_packets > 100 && b.late_packets == 0, "{} and {}", a.late_packets, b.late_packets);
    assert!(a.delivered.expect("of best effort").missing_bytes > 0);
    assert_eq!(b.delivered.expect("of best effort").missing_bytes, 0);
}

#[test]
fn it_is_beside_rc_with_congestion_control_at_a_bottleneck() {
    let net = "kind = \"dumbbell\"\nhosts = 2\nbottleneck = \"5Gbit\"\nqueue = \"500K\"\necn = \"20K:100K:0.2\"\n";
    for cc in ["dcqcn", "window", "fixed:2Gbit:64K"] {
        let keys = |transport: &str| format!("transport = \"{transport}\"\ncc = \"{cc}\"\ndepth = 8");
        let other = flow("write", &keys("rc")).replace("h0", "h1").replace("h3", "h2");
        let r = report(&[net, &flow("write", &keys("xp")), &other].concat(), 1);
        let (xp, rc) = (&r.flows[0], &r.flows[1]);
        check(xp, cc);
        assert_eq!((rc.completed, rc.delivered), (300, None), "{cc}");
        let share = xp.goodput_gbps / (xp.goodput_gbps + rc.goodput_gbps);
        assert!((0.3..0.7).contains(&share), "{cc}: {share}");
    }
}

#[test]
fn without_payload_it_is_the_same_but_for_the_bytes() {
    let text = include_str!("../../docs/topologies/best-effort.toml");
    let (real, elided) = (report(text, 1), report(&format!("payload = \"none\"\n{text}"), 1));
    assert_eq!((real.virtual_ms, real.tx_packets), (elided.virtual_ms, elided.tx_packets));
    for (a, b) in real.flows.iter().zip(&elided.flows) {
        assert_eq!((a.delivered, a.late_packets), (b.delivered, b.late_packets));
    }
    assert!(real.flows[2].delivered.is_some_and(|d| d.missing_bytes > 0));
}

#[test]
fn what_only_xp_has_is_refused_elsewhere() {
    for (keys, why) in [
        ("deadline = \"1ms\"", "flow 1: deadline: only xp keeps deadlines"),
        ("transport = \"sr\"\ndeadline = \"1ms\"", "flow 1: deadline: only xp keeps deadlines"),
        ("transport = \"uc\"\nstride = 2", "flow 1: stride: only xp has strided packets"),
        ("transport = \"xp\"\nstride = 3", "flow 1: stride: a power of two up to 2048"),
        ("transport = \"xp\"\nstride = 4096", "flow 1: stride: a whole number from 1 to 2048"),
        ("transport = \"xp\"\ndeadline = \"0s\"", "flow 1: deadline: longer than 0"),
        ("transport = \"xp\"\ndeadline = \"soon\"", "flow 1: deadline: 'soon' is no time"),
        ("transport = \"xp:tail=0\"", "flow 1: transport: "),
    ] {
        let said = [NETS[0], &flow("write", keys)].concat().parse::<Topology>().unwrap_err().to_string();
        assert!(said.starts_with(why) && said.lines().count() == 1, "{said}");
    }
    let said = [NETS[0], &flow("atomic", "transport = \"xp\"").replace("50000", "8")].concat();
    let said = said.parse::<Topology>().unwrap_err().to_string();
    assert_eq!(said, "flow 1: op: xp has no atomics: \"write\", \"send\" or \"read\"");
}
