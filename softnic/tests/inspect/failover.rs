//! MADs of failover in captures: backups that are introduced, regions that are asked for.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};
use softnic_wire::mad::failover::{BackupQp, Hello, Mode, Readiness, RegionAnswer, RegionQuery, VERSION};
use softnic_wire::mad::vendor::Kind;
use softnic_wire::mad::{MAD_LEN, Status};
use softnic_wire::{PathMtu, Psn, Qpn};

use super::program::{ethernet, mad_frame, objects, run_with_input};

const ENDS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];
const QPNS: [Qpn; 2] = [Qpn::new(0x100), Qpn::new(0x200)];
const ANSWER: Kind = Kind::Answer(Status::SUCCESS);

fn hello(from: usize, kind: Kind, backup: Option<BackupQp>) -> Vec<u8> {
    let hello = Hello {
        transaction_id: 5,
        kind,
        version: VERSION,
        sender_qpn: QPNS[from],
        receiver_qpn: QPNS[1 - from],
        mode: Mode::Shift,
        readiness: if backup.is_some() { Readiness::Ready } else { Readiness::NotYet },
        nonce: [0xab; 16],
        backup,
    };
    let mut mad = [0; MAD_LEN];
    hello.emit(&mut mad);
    mad_frame(ENDS[from], ENDS[1 - from], &mad)
}

fn region(from: usize, kind: Kind, answer: Option<RegionAnswer>, pending: bool) -> Vec<u8> {
    let (sender_qpn, receiver_qpn) = (QPNS[from], QPNS[1 - from]);
    let query = RegionQuery {
        transaction_id: 6,
        kind,
        version: VERSION,
        sender_qpn,
        receiver_qpn,
        rkey: 0x1234,
        answer,
        pending,
    };
    let mut mad = [0; MAD_LEN];
    query.emit(&mut mad);
    mad_frame(ENDS[from], ENDS[1 - from], &mad)
}

/// A hello, its answer, a question for a region, and its two answers.
fn capture() -> Vec<u8> {
    let backup = BackupQp {
        gid: Ipv4Addr::new(10, 1, 0, 1).to_ipv6_mapped(),
        qpn: Qpn::new(0x101),
        psn: Psn::new(77),
        mtu: PathMtu::B4096,
        control_addr: 0x7000,
        control_keys: [0x11, 0x22],
    };
    let told = RegionAnswer { addr: 0x10_0000, len: 4096, backup_rkey: 0x5678 };
    ethernet(&[
        hello(0, Kind::Offer, Some(backup)),
        hello(1, ANSWER, None),
        region(0, Kind::Offer, None, false),
        region(1, ANSWER, None, true),
        region(1, ANSWER, Some(told), false),
    ])
}

#[test]
fn mads_of_failover_are_told_in_words() {
    let out = run_with_input(&[], &capture()).well();
    let expected = [
        "softnic failover offer tid 0x0000000000000005 qpn 0x000100 > 0x000200 mode shift ready \
         nonce abababababababababababababababab backup gid ::ffff:10.1.0.1 qpn 0x000101 psn 77 mtu 4096 \
         control 0x7000 rkeys 0x00000011,0x00000022",
        "softnic failover answer tid 0x0000000000000005 qpn 0x000200 > 0x000100 mode shift not-yet \
         nonce abababababababababababababababab",
        "softnic region offer tid 0x0000000000000006 qpn 0x000100 > 0x000200 rkey 0x00001234",
        "softnic region answer tid 0x0000000000000006 qpn 0x000200 > 0x000100 rkey 0x00001234 pending",
        "softnic region answer tid 0x0000000000000006 qpn 0x000200 > 0x000100 rkey 0x00001234 \
         addr 0x100000 len 4096 backup rkey 0x00005678",
    ];
    let lines = out.packets();
    assert_eq!(lines.len(), expected.len(), "{}", out.stdout);
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.contains(&format!(", {expected}, icrc ok")), "{line}");
    }
}

#[test]
fn mads_of_failover_have_names_in_json() {
    let out = run_with_input(&["--json"], &capture()).well();
    let packets = objects(&out.stdout);
    let ext = |i: usize, name: &str| packets[i]["ext"][name].clone();
    let of = |from: usize, kind: &str, status: Value| {
        json!({
            "type": kind, "status": status, "version": 1,
            "sender_qpn": QPNS[from].value(), "receiver_qpn": QPNS[1 - from].value(),
        })
    };
    let with = |mut value: Value, more: Value| {
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        value
    };
    let nonce = "ab".repeat(16);
    let backup = json!({
        "gid": "::ffff:10.1.0.1", "qpn": 0x101, "psn": 77, "mtu": 4096, "control_addr": 0x7000,
        "control_rkeys": [0x11, 0x22],
    });
    let ready = json!({ "tid": 5, "mode": "shift", "readiness": "ready", "nonce": nonce, "backup": backup });
    assert_eq!(ext(0, "failover"), with(of(0, "offer", Value::Null), ready));
    let not_yet = json!({ "tid": 5, "mode": "shift", "readiness": "not-yet", "nonce": nonce, "backup": null });
    assert_eq!(ext(1, "failover"), with(of(1, "answer", 0.into()), not_yet));
    let regions = [
        (2, of(0, "offer", Value::Null), false, Value::Null),
        (3, of(1, "answer", 0.into()), true, Value::Null),
        (4, of(1, "answer", 0.into()), false, json!({ "addr": 0x10_0000, "len": 4096, "backup_rkey": 0x5678 })),
    ];
    for (i, ends, pending, region) in regions {
        let rest = json!({ "tid": 6, "rkey": 0x1234, "pending": pending, "region": region });
        assert_eq!(ext(i, "failover_region"), with(ends, rest));
        assert_eq!((ext(i, "failover"), ext(i, "negotiation")), (Value::Null, Value::Null));
    }
}
