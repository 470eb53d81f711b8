//! `ucx_perftest`: how it is called, and whether what it moved went over softnic.
//!
//! UCX takes whatever transport it finds, so it is told which, and with the protocols above the transports (UCP) its log must name that one
//! and no other device. Tests of a transport itself (UCT) name it by -x and -d, and end with an error where it is not there.

use super::tools::{Case, PORT, Prints, case};

const PROGRAM: &str = "ucx_perftest";
/// What each of its calls tells UCX.
const ALWAYS: [&str; 2] = ["UCX_NET_DEVICES=softnic0:1", "UCX_LOG_LEVEL=info"];

/// The cases. Options that are variables of the environment stand first.
pub(super) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (options, short) in [
        ("UCX_TLS=rc_v -t tag_bw -n 1000 -w 10", true),
        ("UCX_TLS=ud_v -t tag_bw -n 1000 -w 10", true),
        ("UCX_TLS=rc_v -t ucp_put_bw -s 4096 -n 500 -w 10", true),
        ("UCX_TLS=rc_v -t ucp_put_bw -s 65536 -n 200 -w 10", false),
        ("UCX_TLS=ud_v -t ucp_put_bw -n 500 -w 10", false),
        ("UCX_TLS=rc_v -t ucp_am_lat -n 200 -w 10", true),
        ("UCX_TLS=ud_v -t ucp_am_lat -n 200 -w 10", true),
        ("-x rc_verbs -t am_lat -n 200 -w 10", true),
        ("-x ud_verbs -t am_lat -n 200 -w 10", false),
        ("-x rc_verbs -t am_bw -D bcopy -s 4096 -n 500 -w 10", false),
        ("-x ud_verbs -t am_bw -D bcopy -s 1000 -n 500 -w 10", false),
        ("-x rc_verbs -t put_lat -n 200 -w 10", false),
        ("-x rc_verbs -t put_bw -D zcopy -s 65536 -n 200 -w 10", false),
        ("-x rc_verbs -t get -D zcopy -s 65536 -n 200 -w 10", false),
        // Eager, with a copy and without, and by rendezvous.
        ("UCX_TLS=rc_v -t tag_bw -s 4096 -n 500 -w 10", false),
        ("UCX_TLS=rc_v -t tag_bw -s 65536 -n 200 -w 10", false),
        ("UCX_TLS=rc_v -t tag_bw -s 1000000 -n 50 -w 5", false),
        ("UCX_TLS=ud_v -t tag_bw -s 100000 -n 50 -w 5", false),
        ("UCX_TLS=rc_v -t tag_lat -n 200 -w 10", false),
        ("UCX_TLS=rc_v -t tag_sync_lat -n 200 -w 10", false),
        ("UCX_TLS=rc_v -t tag_lat -E sleep -n 200 -w 10", false),
        ("UCX_TLS=ud_v -t tag_lat -E sleep -n 200 -w 10", false),
        ("UCX_TLS=rc_v -t stream_bw -s 4096 -n 500 -w 10", false),
        ("UCX_TLS=rc_v -t ucp_get -s 65536 -n 200 -w 10", false),
        ("UCX_TLS=rc_v -t ucp_fadd -n 200 -w 10", false),
        ("UCX_TLS=rc_v -t ucp_cswap -n 200 -w 10", false),
        ("UCX_TLS=rc_v -t tag_bw -e -s 65536 -n 200 -w 10", false),
    ] {
        all.push(case(PROGRAM, options, Prints::Ucx, short));
    }
    let lossy = case(PROGRAM, "UCX_TLS=rc_v -t tag_bw -s 65536 -n 200 -w 10", Prints::Ucx, false);
    all.push(Case { fault: Some("loss=1e-3,reorder=1e-3:3"), ..lossy });
    all
}

/// The words of the command.
pub(super) fn words(options: &str, server: Option<&str>) -> Vec<String> {
    let (variables, options): (Vec<&str>, Vec<&str>) = options.split_whitespace().partition(|word| word.contains('='));
    let port = PORT.to_string();
    let device: &[&str] = if options.contains(&"-x") { &["-d", "softnic0:1"] } else { &[] };
    let begin = ["env"].into_iter().chain(ALWAYS).chain(variables).chain([PROGRAM]);
    let all = begin.chain(server).chain(["-p", &port]).chain(device.iter().copied()).chain(options);
    all.map(str::to_owned).collect()
}

/// Whether a client did what it was told, over softnic.
pub(super) fn judge(options: &str, printed: &str) -> Result<(), String> {
    let words: Vec<&str> = options.split_whitespace().collect();
    let after = |name: &str| words.iter().position(|&word| word == name).and_then(|at| words.get(at + 1).copied());
    let count = after("-n").unwrap_or_default();
    let last = printed.lines().find_map(|line| line.strip_prefix("Final:"));
    let fields: Vec<&str> = last.ok_or("the client prints no result")?.split_whitespace().collect();
    let rate: f64 = fields.last().and_then(|rate| rate.parse().ok()).unwrap_or(0.0);
    if fields.first() != Some(&count) || rate <= 0.0 {
        return Err(format!("the client prints {fields:?}, not {count} messages"));
    }
    let transport = words.iter().find_map(|word| word.strip_prefix("UCX_TLS="));
    transport.map_or(Ok(()), |transport| took(transport, printed))
}

/// Whether UCX says that it took this transport of softnic, and no other device.
pub(super) fn took(transport: &str, printed: &str) -> Result<(), String> {
    let expected = match transport {
        "rc_v" => "rc_verbs/softnic0:1",
        _ => "ud_verbs/softnic0:1",
    };
    let configured = printed.lines().filter_map(|line| line.split_once("ep_cfg[")?.1.split_once(": "));
    let lanes: Vec<&str> = configured.flat_map(|(_, what)| lanes(what)).collect();
    // With error handling one of UD's may be there to look after the peer.
    match lanes.iter().find(|lane| !lane.ends_with("/softnic0:1")) {
        Some(other) => Err(format!("UCX took {other}")),
        None if !lanes.contains(&expected) => Err(format!("UCX took {lanes:?}, not {expected}")),
        None => Ok(()),
    }
}

/// The transports of something like `tag(rc_verbs/softnic0:1)`, each with its device.
fn lanes(what: &str) -> impl Iterator<Item = &str> {
    what.split([' ', '(', ')', ';']).filter(|word| word.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[17.4] [vm:19808:0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: tag(rc_verbs/softnic0:1)
Final:                  1000      0.141     6.917     6.917        1.10       1.10      144571      144571
";

    #[test]
    fn another_transport_than_asked_for_is_a_failure() {
        let options = "UCX_TLS=rc_v -t tag_bw -n 1000 -w 10";
        assert_eq!(judge(options, GOOD), Ok(()));
        for (from, to) in [
            ("rc_verbs/softnic0:1", "tcp/v0"),
            ("rc_verbs/softnic0:1)", "rc_verbs/softnic0:1) am(cma/memory)"),
            ("rc_verbs", "ud_verbs"),
            ("ep_cfg", ""),
            ("1000  ", "999  "),
            ("144571\n", "0\n"),
            ("Final", "Stage"),
        ] {
            assert!(judge(options, &GOOD.replace(from, to)).is_err(), "{to} in the place of {from}");
        }
        let transport_alone = "-x rc_verbs -t am_lat -n 1000";
        assert_eq!(judge(transport_alone, GOOD.lines().last().unwrap_or_default()), Ok(()));
    }

    #[test]
    fn variables_stand_before_the_program_and_the_server_behind_it() {
        let words = words("UCX_TLS=ud_v -t tag_bw", Some("10.0.0.1")).join(" ");
        assert!(words.starts_with("env UCX_") && words.contains(" UCX_TLS=ud_v ucx_perftest 10.0.0.1 -p "), "{words}");
    }
}
