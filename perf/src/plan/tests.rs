//! What a plan is refused for.

use super::*;

fn plan() -> Plan {
    Plan { mtu: None, ..Plan::usual(Op::WriteBw, Transport::Rc, 65536, 4096, Amount::Usual) }
}

#[test]
fn a_run_of_sdr_is_refused_what_it_has_not() {
    let sdr = Plan { sdr: Some(SdrPlan::default()), depth: SdrPlan::DEPTH, ..plan() };
    assert_eq!(sdr.check(), Ok(()));
    let said = |plan: Plan| plan.check().unwrap_err();
    assert!(said(Plan { op: Op::WriteLat, ..sdr.clone() }).contains("only write_bw"));
    assert!(said(Plan { qps: 2, ..sdr.clone() }).contains("--channels"));
    assert!(said(Plan { cc: Some("dcqcn".into()), ..sdr.clone() }).contains("--cc"));
    assert!(said(Plan { auth: true, ..sdr.clone() }).contains("--auth"));
    assert!(said(Plan { deadline_ns: Some(1), ..sdr.clone() }).contains("--deadline"));
    let made = |made: SdrPlan| Plan { sdr: Some(made), ..sdr.clone() };
    assert!(said(made(SdrPlan { chunk: 1000, ..SdrPlan::default() })).contains("4096 is"));
    assert!(said(made(SdrPlan { split: [10, 18, 5], ..SdrPlan::default() })).contains("add up to 32"));
    assert!(said(made(SdrPlan { split: [3, 25, 4], ..SdrPlan::default() })).contains("16 receives need 4 bits"));
    assert!(said(made(SdrPlan { channels: 0, ..SdrPlan::default() })).contains("channels"));
}

#[test]
fn what_a_client_asks_for_has_limits() {
    assert_eq!(plan().check(), Ok(()));
    assert_eq!(Plan { qps: MAX_QPS, sizes: vec![64], ..plan() }.check(), Ok(()));
    assert_eq!(Plan { depth: MAX_DEPTH, sizes: vec![1 << 30], ..plan() }.check(), Ok(()));
    let too_much = [
        Plan { qps: 0, ..plan() },
        Plan { qps: u32::MAX, ..plan() },
        Plan { depth: 0, ..plan() },
        Plan { depth: u32::MAX, ..plan() },
        Plan { qps: MAX_QPS, depth: MAX_DEPTH, ..plan() },
        Plan { qps: MAX_QPS, sizes: vec![1 << 30], ..plan() },
        Plan { sizes: vec![], ..plan() },
        Plan { sizes: vec![8; 100_000], ..plan() },
        Plan { sizes: vec![u32::MAX], ..plan() },
        Plan { amount: Amount::Iterations(u64::MAX), ..plan() },
        Plan { amount: Amount::Seconds(f64::NAN), ..plan() },
        Plan { amount: Amount::Seconds(1e300), ..plan() },
        Plan { timeout: 200, ..plan() },
        Plan { retry: 200, ..plan() },
    ];
    for plan in too_much {
        assert!(plan.check().is_err(), "{plan:?}");
    }
}

#[test]
fn a_run_of_reliable_messages_is_read_as_it_is_written_and_refused_what_it_has_not() {
    let reliable = |scheme: &str| Plan {
        reliable: Some(ReliablePlan::usual(scheme.parse().unwrap())),
        depth: SdrPlan::DEPTH,
        ..plan()
    };
    for scheme in ["sdr-sr", "sdr-nack", "sdr-ec:32,8", "sdr-xor:8,2"] {
        let plan = reliable(scheme);
        assert_eq!(plan.check(), Ok(()));
        let text = serde_json::to_string(&plan).unwrap();
        assert!(text.contains(&format!("\"scheme\":\"{scheme}\"")), "{text}");
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        assert!(serde_json::from_str::<Plan>(&text.replace(scheme, "sdr-ec:0,1")).is_err());
        assert_eq!(plan.name(), scheme.split(':').next().unwrap());
        // A gigabyte at a time is bounded by numbers of messages, and is possible.
        assert_eq!(Plan { sizes: vec![1 << 30], depth: 4, ..plan.clone() }.check(), Ok(()));
        let said = |plan: Plan| plan.check().unwrap_err();
        assert!(said(Plan { op: Op::ReadBw, ..plan.clone() }).contains("only write_bw and send_bw"));
        assert!(said(Plan { qps: 2, ..plan.clone() }).contains("--channels"));
        assert!(said(Plan { auth: true, ..plan.clone() }).contains("--auth"));
        let made = |made: ReliablePlan| Plan { reliable: Some(made), ..plan.clone() };
        let usual = plan.reliable.unwrap();
        assert!(said(made(ReliablePlan { chunk: Some(1000), ..usual })).contains("4096 is"));
        assert!(said(made(ReliablePlan { alpha: f64::NAN, ..usual })).contains("α"));
        assert!(said(made(ReliablePlan { channels: 17, ..usual })).contains("channels"));
    }
}
