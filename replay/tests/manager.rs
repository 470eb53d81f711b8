//! Exchanges of connection managers: real ones are as ours, and one altered number in them is found.

mod common;

use common::{Frame, explain, load, play};
use softnic_replay::Report;
use softnic_wire::mad::cm::{Message, Rej, RejReason, Responded, SidrStatus, TimeoutCode};
use softnic_wire::mad::{Attribute, HEADER_LEN, MAD_LEN};

/// Behind the BTH and the DETH.
const MAD: usize = 20;

fn message(frame: &Frame) -> Option<Message> {
    let layout = softnic_wire::Layout::locate(&frame.data).ok()?;
    let packet = frame.packet().filter(|p| p.bth.dest_qp == softnic_wire::Qpn::GSI)?;
    assert_eq!(packet.bth.opcode, softnic_wire::Opcode::UD_SEND_ONLY);
    Message::parse(&frame.data[layout.bth + MAD..][..MAD_LEN]).ok().map(|(_, m)| m)
}

/// The messages of a capture alone, without data.
fn messages(name: &str) -> Vec<Frame> {
    let frames: Vec<Frame> = load(name).into_iter().filter(|f| message(f).is_some()).collect();
    assert!(!frames.is_empty());
    frames
}

/// Writes another message with the same header into a frame.
fn say(frame: &mut Frame, new: &Message) {
    frame.change(|bth| {
        let mad = &mut bth[MAD..MAD + MAD_LEN];
        let (header, _) = Message::parse(mad).unwrap();
        new.emit(&header, mad);
    });
}

fn same(frames: &[Frame]) -> Report {
    let report = play(frames);
    assert_eq!((report.exit_code(), report.undetermined.len()), (0, 0), "{}", explain(&report));
    report
}

fn found(frames: &[Frame], at: usize, what: &str, change: impl FnOnce(&mut Frame)) {
    let mut altered = frames.to_vec();
    change(&mut altered[at]);
    let report = play(&altered);
    assert_eq!(report.exit_code(), 1, "message {}, {what}: not found\n{}", at + 1, explain(&report));
}

fn flip(at: usize) -> impl Fn(&mut Frame) {
    move |f| f.change(|bth| bth[MAD + at] ^= 1)
}

const TID: usize = 15;
const LOCAL_ID: usize = HEADER_LEN + 3;
const REMOTE_ID: usize = HEADER_LEN + 7;

const CONNECTIONS: [&str; 3] = ["cm_rping_ipv4.pcap", "cm_rping_ipv6.pcap", "cm_ucmatose_ipv4.pcap"];

#[test]
fn exchanges_of_linux_are_as_ours() {
    for name in CONNECTIONS {
        let report = same(&messages(name));
        let counts = report.counts();
        assert_eq!(counts.requests_equal + counts.answers_equal, 5, "{name}");
        assert_eq!((report.flows.len(), report.flows[0].requests + report.flows[0].answers), (1, 5));
    }
    let counts = same(&messages("cm_udaddy_sidr.pcap")).counts();
    assert_eq!((counts.requests_equal, counts.answers_equal), (1, 1));
}

#[test]
fn every_altered_id_transaction_and_queue_pair_of_a_connection_is_found() {
    for name in CONNECTIONS {
        let frames = messages(name);
        for at in 0..frames.len() {
            let message = message(&frames[at]).unwrap();
            let begins = matches!(message, Message::Req(_));
            found(&frames, at, "transaction", flip(TID));
            found(&frames, at, "local id", flip(LOCAL_ID));
            if !begins {
                found(&frames, at, "remote id", flip(REMOTE_ID));
            }
            if let Message::Dreq(_) = message {
                found(&frames, at, "remote QPN", flip(HEADER_LEN + 10));
            }
            if let Message::Req(req) = message {
                let other = |f: &mut Frame| {
                    let mut req = req;
                    req.primary.remote_gid = "fd33::99".parse().unwrap();
                    say(f, &Message::Req(req));
                };
                found(&frames, at, "GID", other);
            }
            // Where the asked side ends it, nothing else names its queue pair.
            if let Message::Rep(rep) = message
                && name != "cm_ucmatose_ipv4.pcap"
            {
                let other = |f: &mut Frame| {
                    say(f, &Message::Rep(softnic_wire::mad::cm::Rep { local_qpn: rep.local_qpn ^ 1, ..rep }))
                };
                found(&frames, at, "QPN of the REP, which the DREQ names", other);
            }
        }
    }
}

#[test]
fn every_altered_answer_to_a_resolution_is_found() {
    let frames = messages("cm_udaddy_sidr.pcap");
    found(&frames, 1, "transaction", flip(TID));
    found(&frames, 1, "request id", flip(LOCAL_ID));
    found(&frames, 1, "service id", flip(HEADER_LEN + 19));
    let mut unsupported = frames.clone();
    let Some(Message::SidrRep(rep)) = message(&frames[1]) else { panic!() };
    say(
        &mut unsupported[1],
        &Message::SidrRep(softnic_wire::mad::cm::SidrRep { status: SidrStatus::UNSUPPORTED, ..rep }),
    );
    same(&unsupported); // nobody listens, that is all
}

fn refusal(local: u32, remote: u32, message: Responded, reason: RejReason) -> Rej {
    Rej {
        local_comm_id: local,
        remote_comm_id: remote,
        message,
        info_len: 0,
        reason,
        info: [0; 72],
        private_data: [7; 148],
    }
}

/// A request that is refused.
fn refused(local: u32, reason: RejReason) -> Vec<Frame> {
    let mut frames = messages("cm_rping_ipv4.pcap");
    frames.truncate(2);
    let Some(Message::Req(req)) = message(&frames[0]) else { panic!() };
    say(&mut frames[1], &Message::Rej(refusal(local, req.local_comm_id, Responded::REQ, reason)));
    frames
}

#[test]
fn a_refused_request_is_as_ours_and_an_altered_refusal_is_found() {
    // The program refuses, or nobody listens; Linux tells its id although it sent no MRA.
    for frames in [
        refused(0, RejReason::CONSUMER_DEFINED),
        refused(0x1234, RejReason::CONSUMER_DEFINED),
        refused(0, RejReason::INVALID_SERVICE_ID),
    ] {
        let counts = same(&frames).counts();
        assert_eq!((counts.requests_equal, counts.answers_equal), (1, 1));
        found(&frames, 1, "remote id", flip(REMOTE_ID));
        found(&frames, 1, "transaction", flip(TID));
        found(&frames, 1, "of the REP", |f| f.change(|bth| bth[MAD + HEADER_LEN + 8] = 0x40));
        for reason in [RejReason::INVALID_TRANSPORT_TYPE, RejReason::INVALID_MTU, RejReason::INVALID_GID] {
            let what = format!("reason {reason}");
            found(&frames, 1, &what, |f| f.change(|bth| bth[MAD + HEADER_LEN + 11] = reason.0 as u8));
        }
    }
    let report = play(&refused(0, RejReason::STALE_CONNECTION));
    assert_eq!((report.exit_code(), report.undetermined.len()), (0, 1), "what was before is not in the capture");
}

#[test]
fn a_refused_reply_is_as_ours() {
    let mut frames = messages("cm_rping_ipv4.pcap");
    frames.truncate(3);
    let Some(Message::Rtu(rtu)) = message(&frames[2]) else { panic!() };
    let rej = refusal(rtu.local_comm_id, rtu.remote_comm_id, Responded::REP, RejReason::CONSUMER_DEFINED);
    say(&mut frames[2], &Message::Rej(rej));
    same(&frames);
    found(&frames, 2, "of the REQ", |f| f.change(|bth| bth[MAD + HEADER_LEN + 8] = 0));
    found(&frames, 2, "local id", flip(LOCAL_ID));
    found(&frames, 2, "remote id", flip(REMOTE_ID));
}

#[test]
fn what_is_sent_again_is_explained() {
    let frames = messages("cm_rping_ipv4.pcap");
    let kinds: Vec<_> = frames.iter().map(|f| message(f).unwrap().attribute()).collect();
    assert_eq!(kinds[..3], [Attribute::CM_REQ, Attribute::CM_REP, Attribute::CM_RTU]);
    for order in [
        &[0, 0, 1, 2, 3, 4][..], // REQ again
        &[0, 1, 0, 1, 2, 3, 4],  // because the REP was lost
        &[0, 1, 2, 1, 2, 3, 4],  // the RTU was lost
        &[0, 1, 2, 3, 3, 4],     // DREQ again
        &[0, 1, 2, 3, 4, 3, 4],  // because the DREP was lost
        &[0, 1, 2, 3],           // the capture ends early
    ] {
        let again: Vec<_> = order.iter().map(|&n| frames[n].clone()).collect();
        same(&again);
    }
    // An RTU that was not captured, or never came: then it was data that told.
    let report = same(&[0, 1, 3, 4].map(|n| frames[n].clone()));
    assert_eq!(report.counts().answers_not_captured, 1);
    let report = play(&[0, 2, 3, 4].map(|n| frames[n].clone()));
    assert_eq!((report.exit_code(), report.undetermined.len() > 0), (0, true), "the REP is missing");
    // Nobody agrees to an end before it was asked for, and nobody confirms twice what was said once.
    let report = play(&[0, 1, 2, 4].map(|n| frames[n].clone()));
    assert!(report.undetermined.iter().any(|u| u.packet == 4), "{}", explain(&report));
    let report = play(&[0, 1, 2, 2, 3, 4].map(|n| frames[n].clone()));
    assert_eq!(report.exit_code(), 1, "{}", explain(&report));
}

#[test]
fn a_request_for_patience_is_as_ours() {
    let mut frames = messages("cm_rping_ipv4.pcap");
    let (Some(Message::Req(req)), Some(Message::Rep(rep))) = (message(&frames[0]), message(&frames[1])) else {
        panic!()
    };
    let mut mra = frames[1].clone();
    let service_timeout = TimeoutCode::new(24);
    let (local_comm_id, remote_comm_id) = (rep.local_comm_id, req.local_comm_id);
    let said = softnic_wire::mad::cm::Mra {
        local_comm_id,
        remote_comm_id,
        message: Responded::REQ,
        service_timeout,
        private_data: [0; 222],
    };
    say(&mut mra, &Message::Mra(said));
    frames.insert(1, mra);
    same(&frames);
    found(&frames, 1, "remote id", flip(REMOTE_ID));
    found(&frames, 1, "of the REP", |f| f.change(|bth| bth[MAD + HEADER_LEN + 8] = 0x40));
}
