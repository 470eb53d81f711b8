//! Traces of simulated runs: they have what the counters count, and change nothing.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use softnic_nic::transports::qp::PayloadMode;
use softnic_sim::{Op, Options, Report, Transport, run, run_traced};
use softnic_trace::Trace;

/// A file in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What happened, and the report.
struct Traced {
    records: Vec<Value>,
    report: Report,
}

impl Traced {
    /// The events of a host under this name.
    fn of(&self, host: &'static str, name: &'static str) -> impl Iterator<Item = &Value> {
        let events = self.records.iter().filter(move |r| r["name"] == name);
        events.filter(move |r| r["group_id"].as_str().unwrap().starts_with(host)).map(|r| &r["data"])
    }

    fn resent(&self, reason: &'static str) -> u64 {
        self.of("a", "roce:packet_sent").filter(|p| p["reason"] == reason).count() as u64
    }
}

fn traced(transport: Transport, op: Op, faults: &str) -> Traced {
    let options = Options {
        transport,
        op,
        size: 16 << 10,
        count: 100,
        faults: faults.parse().unwrap(),
        payload: PayloadMode::Real,
        ..Options::default()
    };
    let file = Memory::default();
    let trace = Trace::begin(Box::new(file.clone()), "a test", false).unwrap();
    let report = run_traced(&options, None, Some(&trace), &mut |_| true).unwrap();
    trace.flush().unwrap();
    let untraced = run(&options, None, &mut |_| {}).unwrap();
    assert_eq!(report.digest, untraced.digest, "who is watched does the same");
    let text = String::from_utf8(file.0.lock().unwrap().clone()).unwrap();
    let mut records = text.split_terminator('\n').map(|line| {
        let record = line.strip_prefix('\u{1e}').expect("each record begins with the separator");
        serde_json::from_str::<Value>(record).unwrap()
    });
    assert_eq!(records.next().unwrap()["serialization_format"], "application/qlog+json-seq");
    Traced { records: records.collect(), report }
}

#[test]
fn a_trace_has_every_packet_and_says_which_were_sent_again_and_why() {
    for op in [Op::Send, Op::Write, Op::Read] {
        let traced = traced(Transport::Rc, op, "loss=0.01");
        let (sent, counters) = (traced.of("a", "roce:packet_sent"), traced.report.requester);
        assert_eq!(sent.count() as u64, counters.sent_pkts, "{op:?}");
        assert_eq!(traced.of("b", "roce:packet_received").count() as u64, traced.report.responder.rcvd_pkts, "{op:?}");
        let again = traced.of("a", "roce:packet_sent").filter(|p| p["retransmission"] == true).count() as u64;
        assert_eq!(again, counters.retransmitted_packets, "{op:?}");
        assert!(again > 0);
        // Every one of them has a reason that there was.
        let reasons = ["sequence_nak", "implied_nak", "ack_timeout"].map(|reason| traced.resent(reason));
        assert_eq!(reasons.iter().sum::<u64>(), again, "{op:?}");
        let losses =
            |trigger| traced.of("a", "roce:loss_detected").filter(move |l| l["trigger"] == trigger).count() as u64;
        let of_counters = [counters.packet_seq_err, counters.implied_nak_seq_err, counters.local_ack_timeout_err];
        assert_eq!(["sequence_nak", "implied_nak", "ack_timeout"].map(losses), of_counters, "{op:?}");
    }
}

#[test]
fn posted_work_is_done_by_the_end_of_a_trace_and_states_follow_each_other() {
    let traced = traced(Transport::Rc, Op::Write, "");
    let count = |name| traced.of("a", name).map(|w| w["count"].as_u64().unwrap()).sum::<u64>();
    assert_eq!((count("roce:work_posted"), count("roce:work_completed")), (100, 100));
    let connected: Vec<&Value> = traced.of("a", "roce:connected").collect();
    assert_eq!((connected.len(), &connected[0]["transport"]), (1, &Value::from("rc")));
    assert_eq!(traced.of("a", "roce:state_updated").last().unwrap()["new"], "RTS");
    let sends = self::traced(Transport::Rc, Op::Send, "");
    let count = |name| sends.of("b", name).map(|w| w["count"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(count("roce:receives_completed"), 100);
    assert!(count("roce:receives_posted") >= 100);
    // Time never runs back.
    let times: Vec<f64> = traced.records.iter().map(|r| r["time"].as_f64().unwrap()).collect();
    assert!(times.is_sorted());
}

#[test]
fn a_trace_shows_negotiation_selective_acknowledgements_and_recovered_packets() {
    let selective = traced(Transport::SR, Op::Write, "loss=0.01");
    assert_eq!(selective.of("a", "roce:negotiated").last().unwrap()["outcome"], "agreed");
    assert!(selective.resent("selective_ack") > 0);
    let coded = traced(Transport::LOWAR, Op::Write, "loss=0.01");
    let recovered = coded.of("b", "roce:recovered").map(|r| r["packets"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(recovered, coded.report.responder.lowar_recovered_packets);
    assert!(recovered > 0);
}
