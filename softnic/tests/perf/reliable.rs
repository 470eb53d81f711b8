//! `softnic perf` with reliable messages over SDR: data comes whole through loss, and a peer that has them not is served by rc.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::Value;

use crate::processes::Pair;
use crate::{counter, json, lines, refusal};

const SCHEMES: [&str; 4] = ["sdr-sr", "sdr-nack", "sdr-ec:16,4", "sdr-xor:8,2"];

pub(crate) fn of(v: &Value, name: &str) -> u64 {
    v[name].as_u64().unwrap_or_else(|| panic!("{name}: {v}"))
}

pub(crate) fn check(v: &Value, scheme: &str, iterations: u64) {
    let name = scheme.split(':').next();
    assert_eq!((v["transport"].as_str(), v["negotiated"].as_str()), (name, name), "{v}");
    assert_eq!(of(v, "iterations"), iterations, "{v}");
    for field in
        ["chunk", "acks_sent", "nacks_sent", "fallbacks", "failed_submessages", "unprotected", "chunk_timeouts"]
    {
        of(v, field);
    }
    for field in ["mean", "p50", "p99", "p999", "max"] {
        assert!(v["fct_ms"][field].as_f64().is_some_and(|ms| ms > 0.0), "{v}");
    }
    assert!(v["decode_us"].is_f64() && v["bw_avg_gbps"].as_f64().is_some_and(|rate| rate > 0.0), "{v}");
}

#[test]
fn messages_come_whole_through_loss_by_every_scheme() {
    for scheme in SCHEMES {
        for op in ["write_bw", "send_bw"] {
            let what = [op, "--transport", scheme, "--size", "100000", "--mtu", "1024", "--iters", "100", "--verify"];
            let v = json(&[&what[..], &["--fault", "loss=0.01,dup=1e-3"]].concat());
            check(&v, scheme, 100);
            let (again, parity) = (of(&v, "retransmitted_packets"), of(&v, "repair_packets"));
            let is_coded = scheme.contains(':');
            assert_eq!(of(&v, "chunk"), 1024);
            assert!(of(&v, "acks_sent") > 0 && (again > 0 || is_coded), "{v}");
            assert_eq!((parity > 0, of(&v, "recovered_packets") > 0), (is_coded, is_coded), "{v}");
            assert_eq!(v["decode_us"].as_f64().is_some_and(|us| us > 0.0), is_coded, "{v}");
            // The client's NIC counts what it sent.
            assert_eq!(["sdr_retransmitted_packets", "sdr_repair_packets"].map(|n| counter(&v, n)), [again, parity]);
            assert!(counter(&v, "sdr_chunks_sent") >= 98 * 100, "{v}");
        }
    }
}

#[test]
fn chunks_channels_and_sizes_are_as_they_are_asked_for() {
    let what =
        ["write_bw", "--transport", "sdr-nack", "--chunk", "16K", "--channels", "2", "--alpha", "4", "--iters", "50"];
    let out = crate::perf(&[&what[..], &["-a", "--verify", "--json", "--fault", "loss=1e-3"]].concat());
    let all = lines(&out);
    assert_eq!(all.len(), 23);
    for (v, bit) in all.iter().zip(1..) {
        check(v, "sdr-nack", 50);
        assert_eq!((of(v, "bytes"), of(v, "chunk")), (1 << bit, 16 << 10));
    }
    let text = crate::perf(&["write_bw", "--transport", "sdr-ec:8,2", "--iters", "50"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("; sdr-ec:8,2, chunks of 4096, 1 channel, alpha 2, mtu 4096, depth 16, 1 queue pair"),
        "{text}"
    );
    assert!(text.contains("   messages took ") && text.contains(" packets of parity, "), "{text}");
}

#[test]
fn a_line_that_cannot_be_full_is_said_where_the_faults_make_one() {
    let run = |chunk, fault| {
        let args = ["write_bw", "--transport", "sdr-ec:2,1", "--mtu", "1024", "--iters", "2", "--size", "20000"];
        let out = crate::perf(&[&args[..], &["--json", "--chunk", chunk, "--fault", fault]].concat());
        check(&lines(&out)[0], "sdr-ec:2,1", 2);
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let said = run("1K", "rate=40Gbit,delay=50ms");
    assert!(said.starts_with("softnic: 67108864 bytes of submessages can be in flight, and the line"), "{said}");
    assert!(said.ends_with(" bytes would fill it\n") && said.lines().count() == 1, "{said}");
    // With these, or where nobody says how fast the line is, there is nothing to say.
    assert_eq!(run("64K", "rate=40Gbit,delay=50ms"), "");
    assert_eq!(run("1K", "delay=50ms"), "");
}

#[test]
fn what_does_not_fit_is_refused_in_a_line() {
    for (args, why) in [
        (&["write_lat", "--transport", "sdr-sr"][..], "sdr-sr has no write_lat: only write_bw and send_bw"),
        (&["write_bw", "--transport", "sdr-ec:32,8", "--qps", "2"], "--channels instead of --qps"),
        (&["write_bw", "--transport", "sdr-nack", "--chunk", "5000"], "sdr-nack: a chunk of 5000 bytes"),
        (&["write_bw", "--transport", "sdr-sr", "--cc", "dcqcn"], "no congestion control"),
        (&["write_bw", "--transport", "sdr-sr", "--alpha", "2000"], "--alpha is from 0 to 1000"),
        (&["write_bw", "--transport", "sdr", "--alpha", "1"], "--alpha is for sdr-sr"),
        (&["write_bw", "--transport", "sdr-ec:0,8"], "sdr-ec:0,8"),
    ] {
        let (code, said) = refusal(args);
        assert!(code.is_some_and(|code| code > 0) && said.contains(why), "{said}");
    }
}

#[test]
fn two_processes_agree_by_their_nics() {
    let pair = Pair::new("reliable");
    for scheme in SCHEMES {
        let server = pair.server(&["--fault", "loss=0.005"]);
        let args = ["write_bw", "--transport", scheme, "--size", "50000", "--iters", "100", "--verify"];
        let out = pair.client(&[&args[..], &["--fault", "loss=0.01"]].concat()).output().expect("softnic runs");
        check(&lines(&out)[0], scheme, 100);
        assert_eq!(server.end(), (Some(0), String::new()));
    }
    let server = pair.server(&["--transport", "sdr-sr"]);
    let out = pair.client(&["write_bw", "--transport", "sdr-nack"]).output().expect("softnic runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("the server has transport sdr-sr, the client sdr-nack"), "{said}");
    assert_eq!(server.end().0, Some(1));
}

/// Passes a connection on to the server, but for what the client's first line says of reliable messages: as a server would that is older than
/// these.
fn pass_on(client: TcpStream, server: TcpStream) {
    let mut from_client = BufReader::new(client.try_clone().expect("a socket"));
    let mut line = String::new();
    from_client.read_line(&mut line).expect("a line");
    let mut hello: Value = serde_json::from_str(&line).expect("an object");
    assert!(hello["hello"]["plan"].as_object_mut().and_then(|plan| plan.remove("reliable")).is_some(), "{hello}");
    let copy = |mut from: Box<dyn Read + Send>, mut to: TcpStream| {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        })
    };
    let mut to_server = server.try_clone().expect("a socket");
    writeln!(to_server, "{hello}").expect("the server listens");
    let threads = [copy(Box::new(from_client), to_server), copy(Box::new(server), client)];
    threads.into_iter().for_each(|thread| thread.join().expect("it copies"));
}

#[test]
fn with_a_peer_that_has_no_such_messages_rc_is_used() {
    let mut pair = Pair::new("older");
    let server = pair.server(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let servers = std::mem::replace(&mut pair.meeting.port, port);
    let passes = std::thread::spawn(move || {
        let (client, _) = listener.accept().expect("the client");
        pass_on(client, TcpStream::connect(format!("127.0.0.1:{servers}")).expect("the server"));
    });
    let args = ["write_bw", "--transport", "sdr-ec:32,8", "--size", "50000", "--iters", "100", "--verify"];
    let out = pair.client(&args).output().expect("softnic runs");
    let v = &lines(&out)[0];
    assert_eq!(String::from_utf8_lossy(&out.stderr), "softnic: the peer does not speak sdr-ec: rc is used\n");
    assert_eq!((v["transport"].as_str(), v["negotiated"].as_str()), (Some("sdr-ec"), Some("rc")), "{v}");
    assert_eq!((of(v, "iterations"), v["chunk"].as_u64()), (100, None), "{v}");
    assert_eq!(server.end(), (Some(0), String::new()));
    passes.join().expect("it ends with the two");
}

/// Of the negotiation nothing gets through, so neither NIC hears that the other has SDR; all else does.
#[test]
fn with_a_peer_whose_nic_says_nothing_of_sdr_rc_is_used() {
    let script = crate::scratch("no-mads.toml");
    std::fs::write(&script, "[[event]]\naction = \"drop\"\nopcode = \"UD_SEND_ONLY\"\n").expect("written");
    let fault = format!("@{}", script.display());
    let args = ["write_bw", "--transport", "sdr-ec:32,8", "--size", "50000", "--iters", "100", "--verify", "--json"];
    let out = crate::perf(&[&args[..], &["--fault", &fault]].concat());
    std::fs::remove_file(script).expect("it was written");
    let v = &lines(&out)[0];
    assert_eq!(String::from_utf8_lossy(&out.stderr), "softnic: the peer does not speak sdr-ec: rc is used\n");
    assert_eq!((v["negotiated"].as_str(), of(v, "iterations")), (Some("rc"), 100), "{v}");
    assert_eq!((counter(v, "sdr_packets"), counter(v, "sdr_chunks_sent")), (0, 0), "{v}");
}
