//! Attributes that a program changes, and sends that it drains, while the backup is used.

use std::time::Duration;

use softnic_nic::transports::Event;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::QpState;
use softnic_nic::{Connection, ModifyError, QpAttr, QpInit, QpKind};
use softnic_sim::pair::{A, B};
use softnic_wire::failover::Phase;
use softnic_wire::{MacAddr, Psn};

use crate::traffic::{MS, Traffic, config};

const LONG: Duration = Duration::from_secs(2);

fn to(state: QpState) -> QpAttr {
    QpAttr { state: Some(state), ..QpAttr::default() }
}

fn modify(traffic: &mut Traffic, attr: &QpAttr) -> Result<(), ModifyError> {
    let (qpn, now) = (traffic.qpns[A], traffic.pair.sim.now().instant());
    let done = traffic.pair.host(A).modify_qp(now, qpn, attr);
    traffic.pair.sim.touch(A);
    done
}

fn query(traffic: &mut Traffic) -> (QpState, QpAttr) {
    let qpn = traffic.qpns[A];
    traffic.pair.host(A).query_qp(qpn).unwrap()
}

/// The attributes of both queue pairs of A: of the default NIC, and of the backup.
fn of_both(traffic: &mut Traffic) -> [QpAttr; 2] {
    let qpn = traffic.qpns[A];
    let nic = traffic.pair.host(A);
    let default = nic.nic.query_qp(qpn).unwrap().1;
    let backup = nic.backup().unwrap();
    let shadow = backup.queue_pairs().next().unwrap();
    [default, backup.query_qp(shadow).unwrap().1]
}

fn fall_back(traffic: &mut Traffic) {
    traffic.run_until(MS / 2, |_| false);
    traffic.set_link(A, false);
    assert!(traffic.run_until(20 * MS, |t| t.phase(A) == Some(Phase::Fallback) && t.done[A] > 20));
}

fn come_back(traffic: &mut Traffic) {
    traffic.set_link(A, true);
    let back = |t: &mut Traffic| t.phase(A) == Some(Phase::Default) && t.phase(B) == Some(Phase::Default);
    assert!(traffic.run_until(LONG, back), "{:?}", traffic.notices);
    let done = traffic.done;
    assert!(traffic.run_until(20 * MS, |t| t.done[A] > done[A] + 50 && t.done[B] > done[B] + 50));
    assert_eq!(traffic.errors, [0; 2]);
}

/// What a program may change without draining (IBA 11.2.5.2, RTS to RTS).
#[test]
fn attributes_that_are_changed_in_any_phase_hold_at_both_queue_pairs_and_after_the_return() {
    for phase in [Phase::Default, Phase::Moving, Phase::Fallback] {
        let mut traffic = Traffic::new();
        traffic.run_until(MS / 2, |_| false);
        if phase != Phase::Default {
            traffic.set_link(A, false);
            assert!(traffic.run_until(20 * MS, |t| t.phase(A) == Some(phase)));
        }
        let access = Access::REMOTE_READ;
        let attr = QpAttr { access: Some(access), min_rnr_timer: Some(3), ..to(QpState::ReadyToSend) };
        modify(&mut traffic, &attr).unwrap();
        let shown = |t: &mut Traffic| {
            let (state, attr) = query(t);
            (state, attr.access, attr.min_rnr_timer)
        };
        let expected = (QpState::ReadyToSend, Some(access), Some(3));
        assert_eq!(shown(&mut traffic), expected, "{phase:?}");
        // What a transition does not take is refused as ever.
        let wrong = QpAttr { timeout: Some(9), ..to(QpState::ReadyToSend) };
        assert_eq!(modify(&mut traffic, &wrong), Err(ModifyError::NotAllowed("timeout")), "{phase:?}");
        if phase == Phase::Default {
            traffic.set_link(A, false);
        }
        assert!(traffic.run_until(20 * MS, |t| t.phase(A) == Some(Phase::Fallback)));
        for attr in of_both(&mut traffic) {
            // Statuses are written, too.
            assert_eq!(attr.access, Some(access | Access::REMOTE_WRITE), "{phase:?}");
            assert_eq!(attr.min_rnr_timer, Some(3), "{phase:?}");
        }
        come_back(&mut traffic);
        assert_eq!(shown(&mut traffic), expected, "{phase:?}");
    }
}

#[test]
fn sends_that_are_drained_in_fallback_end_with_an_event_and_none_begins_before_they_are_resumed() {
    let mut traffic = Traffic::new();
    fall_back(&mut traffic);
    let qpn = traffic.qpns[A];
    assert!(traffic.posted[A] > traffic.done[A]);
    modify(&mut traffic, &QpAttr { sqd_notify: Some(true), ..to(QpState::SendQueueDrain) }).unwrap();
    assert_eq!(query(&mut traffic).0, QpState::SendQueueDrain);
    // Not before all that was begun is done.
    let change = QpAttr { timeout: Some(9), retry_cnt: Some(5), ..to(QpState::SendQueueDrain) };
    assert_eq!(modify(&mut traffic, &change), Err(ModifyError::NotDrained));
    let begun = traffic.posted[A];
    let drained = |t: &mut Traffic| {
        let event = t.pair.host(A).poll_event();
        if event.is_some() {
            assert_eq!((event, t.done[A]), (Some(Event::SqDrained(qpn)), begun));
        }
        event.is_some()
    };
    assert!(traffic.run_until(20 * MS, drained));
    // What is posted meanwhile waits, and comes after the return, too, not before it is resumed.
    assert!(traffic.posted[A] > begun);
    modify(&mut traffic, &change).unwrap();
    for (side, attr) in of_both(&mut traffic).into_iter().enumerate() {
        assert_eq!((attr.timeout, attr.retry_cnt), (Some(9), Some(5)), "side {side}");
    }
    traffic.set_link(A, true);
    assert!(traffic.run_until(LONG, |t| t.phase(A) == Some(Phase::Default)));
    assert_eq!((traffic.done[A], query(&mut traffic).0), (begun, QpState::SendQueueDrain));
    assert!(traffic.pair.host(A).poll_event().is_none());
    modify(&mut traffic, &to(QpState::ReadyToSend)).unwrap();
    assert_eq!(query(&mut traffic).0, QpState::ReadyToSend);
    let attr = query(&mut traffic).1;
    assert_eq!((attr.timeout, attr.retry_cnt), (Some(9), Some(5)));
    assert!(traffic.run_until(20 * MS, |t| t.done[A] > begun + 50));
    assert_eq!(traffic.errors, [0; 2]);
}

#[test]
fn sends_that_drain_when_the_default_fails_are_drained_by_the_backup() {
    let mut traffic = Traffic::new();
    traffic.run_until(MS / 2, |_| false);
    let qpn = traffic.qpns[A];
    modify(&mut traffic, &QpAttr { sqd_notify: Some(true), ..to(QpState::SendQueueDrain) }).unwrap();
    traffic.set_link(A, false);
    let mut told = 0;
    assert!(traffic.run_until(20 * MS, |t| {
        let event = t.pair.host(A).poll_event();
        told += u32::from(event == Some(Event::SqDrained(qpn)));
        told > 0
    }));
    let begun = traffic.done[A];
    assert!(traffic.posted[A] > begun, "those that had not begun wait");
    traffic.run_until(20 * MS, |_| false);
    assert_eq!((traffic.done[A], traffic.pair.host(A).poll_event()), (begun, None));
    assert_eq!(query(&mut traffic).0, QpState::SendQueueDrain);
    modify(&mut traffic, &to(QpState::ReadyToSend)).unwrap();
    assert!(traffic.run_until(20 * MS, |t| t.done[A] > begun + 20));
    come_back(&mut traffic);
}

#[test]
fn sends_that_were_drained_before_the_default_failed_wait_until_they_are_resumed() {
    let mut traffic = Traffic::new();
    traffic.run_until(MS / 2, |_| false);
    let qpn = traffic.qpns[A];
    modify(&mut traffic, &QpAttr { sqd_notify: Some(true), ..to(QpState::SendQueueDrain) }).unwrap();
    assert!(traffic.run_until(20 * MS, |t| t.pair.host(A).poll_event() == Some(Event::SqDrained(qpn))));
    let begun = traffic.done[A];
    traffic.set_link(A, false);
    assert!(traffic.run_until(20 * MS, |t| t.phase(A) == Some(Phase::Fallback)));
    traffic.run_until(20 * MS, |_| false);
    assert_eq!((traffic.done[A], traffic.pair.host(A).poll_event()), (begun, None));
    assert!(traffic.posted[A] > begun);
    modify(&mut traffic, &to(QpState::ReadyToSend)).unwrap();
    assert!(traffic.run_until(20 * MS, |t| t.done[A] > begun + 20));
    come_back(&mut traffic);
}

#[test]
fn a_program_that_becomes_ready_to_send_after_a_failover_sends_by_the_backup_and_returns() {
    for phase in [Phase::Moving, Phase::Fallback] {
        let mut ready = None;
        let mut traffic = Traffic::between(config(), |pair| {
            let caps = config().caps;
            let qpns = [A, B].map(|host| {
                let side = pair.sides[host];
                let usual = QpInit::new(QpKind::Rc, side.pd, side.send_cq, side.recv_cq, caps);
                pair.host(host).create_qp(&QpInit { sig_all: true, ..usual }).unwrap()
            });
            for host in [A, B] {
                let (peer, psn) = (2 - host as u8, Psn::new(7));
                let nic = &mut pair.host(host).nic;
                let path = nic.path_to([10, 0, 0, peer].into(), MacAddr([2, 0, 0, 0, 0, peer]), 5);
                let usual = Connection { timeout: 7, retry_cnt: 3, mtu: config().mtu, ..Connection::default() };
                let settings = Connection { path, dest_qp: qpns[1 - host], sq_psn: psn, rq_psn: psn, ..usual };
                let [init, receive, send] = settings.attributes(QpKind::Rc);
                nic.modify_qp(qpns[host], &init).unwrap();
                nic.modify_qp(qpns[host], &receive).unwrap();
                match host {
                    A => ready = Some(send),
                    _ => nic.modify_qp(qpns[host], &send).unwrap(),
                }
            }
            qpns
        });
        // A only answers so far.
        traffic.quiet[A] = true;
        traffic.run_until(MS / 2, |_| false);
        traffic.set_link(A, false);
        let begun = |t: &mut Traffic| t.phase(A) == Some(phase);
        assert!(traffic.run_until(20 * MS, begun), "{phase:?}");
        assert_eq!(query(&mut traffic).0, QpState::ReadyToReceive);
        let attr = QpAttr { timeout: Some(6), ..ready.unwrap() };
        let missing = QpAttr { retry_cnt: None, ..attr };
        assert_eq!(modify(&mut traffic, &missing), Err(ModifyError::Missing("retry_cnt")), "{phase:?}");
        modify(&mut traffic, &attr).unwrap();
        assert_eq!(query(&mut traffic).0, QpState::ReadyToSend);
        assert_eq!(query(&mut traffic).1.timeout, Some(6));
        traffic.quiet[A] = false;
        assert!(traffic.run_until(50 * MS, |t| t.done[A] > 50 && t.phase(A) == Some(Phase::Fallback)), "{phase:?}");
        assert!(of_both(&mut traffic).iter().all(|attr| attr.timeout == Some(6)), "{phase:?}");
        come_back(&mut traffic);
        assert_eq!(query(&mut traffic).0, QpState::ReadyToSend);
    }
}
