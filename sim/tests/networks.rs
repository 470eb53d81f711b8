//! Networks with software of a test's own on their hosts, beside the flows of the topology.

use std::time::Duration;

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::Caps;
use softnic_nic::transports::{Data, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_nic::{Buffer, QpInit};
use softnic_sim::topology::{Capture, Connecting, Network, Topology};
use softnic_sim::{Time, Transport};

const NET: &str = "kind = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts = 2\nrate = \"25Gbit\"\n";
const LEN: usize = 100_000;

/// A WRITE from the first host to the last, posted at 50 µs: when it completes, and the digest of the run.
fn write(text: &str, transport: Transport) -> (Time, u64, Vec<u64>) {
    let topology = Topology::of_network(text).expect("a topology");
    let mut frames = Vec::new();
    let mut network = Network::new(&topology, 7).expect("a network");
    network.capture(Capture { out: &mut frames, link: Some(0) }).expect("a capture");
    let caps = Caps { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let hosts = [0, 3];
    let (mut qpns, mut memory) = (Vec::new(), Vec::new());
    let mut cqs = Vec::new();
    for (i, host) in hosts.into_iter().enumerate() {
        let nic = network.nic(host);
        let (pd, cq) = (nic.alloc_pd(), nic.create_cq(16));
        let init = QpInit { transport, ..QpInit::new(transport.kind(), pd, cq, cq, caps) };
        qpns.push(nic.create_qp(&init).expect("a queue pair"));
        let buffer = Buffer::new(0x1000_0000, LEN);
        let key = nic.reg_mr(pd, &buffer, Access::LOCAL_WRITE | Access::REMOTE_WRITE).expect("memory");
        buffer.write_at(0, &[1 + i as u8; LEN]);
        memory.push((buffer, key));
        cqs.push(cq);
    }
    network.connect(hosts, [qpns[0], qpns[1]], &Connecting { dscp: 26, ..Connecting::default() }).expect("connected");
    let at = Time::default().after(Duration::from_micros(50));
    network.wake_at(at, 0);
    let (mut posted, mut done) = (false, None);
    // What xp sends may arrive when its sender is done.
    while let Some(host) = network.step().expect("a step") {
        if host == 0 && !posted && network.now() >= at {
            let sges = [Sge { addr: 0x1000_0000, len: LEN as u32, lkey: memory[0].1 }];
            let wr = SendWr {
                wr_id: 1,
                op: SendOp::Write { remote_addr: 0x1000_0000, rkey: memory[1].1 },
                data: Data::Gather(&sges),
                flags: SendFlags { signaled: true, solicited: false, fence: false },
                best_effort: None,
                to: None,
            };
            let now = network.now().instant();
            network.nic(0).post_send(now, qpns[0], &wr).expect("posted");
            network.touch(0);
            posted = true;
        }
        if host == 0
            && let Some(c) = network.nic(0).poll_cq(cqs[0]).expect("a queue")
        {
            assert_eq!(c.status, Status::Success);
            done = Some(network.now());
        }
    }
    assert!(network.flows_are_done());
    let mut came = vec![0; LEN];
    memory[1].0.read_at(0, &mut came);
    assert!(came.iter().all(|byte| *byte == 1), "all of it came");
    let report = network.report().expect("a report");
    assert!(frames.len() > LEN, "the first host's link is captured");
    (done.expect("it completes"), report.digest, report.flows.iter().map(|f| f.completed).collect())
}

#[test]
fn a_caller_has_queue_pairs_of_any_connected_transport_on_the_hosts() {
    for transport in ["rc", "sr", "lowar", "xp"] {
        let transport: Transport = transport.parse().expect("a transport");
        let (done, digest, flows) = write(NET, transport);
        assert_eq!(write(NET, transport), (done, digest, flows.clone()), "{transport}: the same calls, the same run");
        assert!(flows.is_empty() && done > Time::default().after(Duration::from_micros(80)), "{transport}: {done:?}");
    }
}

#[test]
fn flows_of_the_topology_run_beside_it() {
    let flow = "[[flow]]\nfrom = \"h1\"\nto = \"h3\"\nsize = \"64K\"\ncount = 20\n";
    let (alone, ..) = write(NET, Transport::Rc);
    let (beside, _, flows) = write(&[NET, flow].concat(), Transport::Rc);
    assert_eq!(flows, [20]);
    assert!(beside > alone, "they share the link to the last host: {beside:?} and {alone:?}");
}

#[test]
fn a_network_needs_no_flows_where_a_run_does() {
    assert!(Topology::of_network(NET).is_ok());
    assert!(NET.parse::<Topology>().unwrap_err().to_string().starts_with("flow: there is none"));
    let wrong = Topology::of_network("kind = \"star\"\nhosts = 1").unwrap_err().to_string();
    assert_eq!(wrong, "hosts: a star has at least 2");
}
