//! `softnic perf` with reliable messages over SDR between two namespaces, over AF_XDP on a veth pair. Without root or `ip` it is left out.

use crate::meeting::Running;
use crate::namespaces::Namespaces;
use crate::reliable::{check, of};
use crate::{counter, lines};

/// A client and a server with a veth pair between them.
fn spaces() -> Option<Namespaces> {
    let commands = [
        "link add name e netns @client type veth peer name e netns @server",
        "-n @client address add 10.79.0.1/24 dev e",
        "-n @server address add 10.79.0.2/24 dev e",
        "-n @client link set e up",
        "-n @server link set e up",
    ];
    Namespaces::new(&["client", "server"], &commands)
}

#[test]
fn messages_come_whole_over_af_xdp_through_loss_by_every_scheme() {
    let Some(spaces) = spaces() else { return };
    let perf = |side: &str, args: &[&str]| {
        let mut command = spaces.inside(side, env!("CARGO_BIN_EXE_softnic"));
        command.args(["perf", "--dev", "afxdp:e"]).args(args);
        command
    };
    for scheme in ["sdr-sr", "sdr-nack", "sdr-ec:32,8", "sdr-xor:32,8"] {
        let server = Running::listening(&mut perf("server", &["--server"]));
        let what = ["write_bw", "--transport", scheme, "--size", "300000", "--iters", "40", "--verify", "--json"];
        let wire = ["--connect", "10.79.0.2", "--fault", "loss=1e-2,rx.loss=1e-2"];
        let out = perf("client", &[&what[..], &wire].concat()).output().expect("softnic runs");
        let v = &lines(&out)[0];
        check(v, scheme, 40);
        assert_eq!((of(v, "bytes"), of(v, "chunk")), (300_000, 1024));
        let coded = scheme.contains(':');
        let repaired = of(v, "recovered_packets") > 0;
        assert!(repaired == coded && (of(v, "retransmitted_packets") > 0 || coded), "{v}");
        // What the client's NIC counted is what it sent: 293 chunks of each message.
        assert!(counter(v, "sdr_chunks_sent") >= 40 * 293, "{v}");
        assert_eq!(counter(v, "sdr_retransmitted_packets"), of(v, "retransmitted_packets"), "{v}");
        assert_eq!(counter(v, "sdr_repair_packets"), of(v, "repair_packets"), "{v}");
        assert_eq!(server.end(), (Some(0), String::new()), "{scheme}");
    }
}
