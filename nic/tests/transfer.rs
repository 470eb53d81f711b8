//! Messages that arrive: how they are cut, what is placed where, and what completes.

use crate::common::*;
use softnic_nic::Nic;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::transports::{
    BestEffort, Completion, Data, PostError, RecvWr, SendFlags, SendOp, SendWr, Sge, Status, WcOpcode,
};
use softnic_wire::opcode::Service;
use softnic_wire::segment::{MessageKind, Segmentation};
use softnic_wire::{Layout, MacAddr, Node, PathMtu, Psn, RoceHeaders, TxFrame};

const IMM: u32 = 0x0102_0304;
/// Where the bytes of a test begin in a buffer, so that a byte too early would be seen.
const AT: usize = 64;

fn kinds(w: &World) -> [(MessageKind, SendOp); 4] {
    [
        (MessageKind::Send, SendOp::Send),
        (MessageKind::SendImm, SendOp::SendImm { imm: IMM }),
        (MessageKind::Write, w.write_to(B, AT)),
        (MessageKind::WriteImm, w.write_imm_to(B, AT, IMM)),
    ]
}

/// Checks that `len` bytes at `AT` are `data`, and that those around them were left alone.
fn assert_placed(w: &World, data: &[u8], why: &str) {
    assert!(w.read(B, AT, data.len()) == data, "{why}: the bytes are not those that were sent");
    assert_eq!(w.read(B, 0, AT), vec![UNTOUCHED; AT], "{why}: bytes before the message");
    assert_eq!(w.read(B, AT + data.len(), 64), vec![UNTOUCHED; 64], "{why}: bytes behind the message");
}

fn assert_completed(w: &mut World, kind: MessageKind, len: usize, why: &str) {
    let write = matches!(kind, MessageKind::Write | MessageKind::WriteImm);
    let ok = Completion {
        wr_id: 7,
        status: Status::Success,
        opcode: if write { WcOpcode::Write } else { WcOpcode::Send },
        byte_len: len as u32,
        imm: None,
        invalidated: None,
        src_qp: None,
        src_mac: MacAddr::default(),
        over_ipv6: false,
        qpn: w.hosts[A].qpn,
        solicited: false,
        message_len: 0,
        partial: None,
    };
    assert_eq!(w.sent(A), [ok], "{why}");
    let received = Completion {
        wr_id: 8,
        opcode: if write { WcOpcode::RecvWriteImm } else { WcOpcode::Recv },
        imm: matches!(kind, MessageKind::SendImm | MessageKind::WriteImm).then_some(IMM),
        qpn: w.hosts[B].qpn,
        ..ok
    };
    let expected = if kind == MessageKind::Write { vec![] } else { vec![received] };
    assert_eq!(w.received(B), expected, "{why}");
}

#[test]
fn every_operation_size_and_mtu_is_cut_placed_acknowledged_and_completed() {
    for (i, mtu) in PathMtu::ALL.into_iter().enumerate() {
        let m = mtu.bytes() as usize;
        for (j, len) in [0, 1, m - 1, m, m + 1, 3 * m + 5].into_iter().enumerate() {
            for k in 0..4 {
                let psn = FIRST_PSNS[(i + j + k) % FIRST_PSNS.len()];
                let mut w = World::new(Options { mtu, psn, ..Options::default() });
                let (kind, op) = kinds(&w)[k];
                let why = format!("{kind:?} of {len} bytes at MTU {m}");
                let data = pattern(k as u32, len);
                w.fill(A, 1000, &data);
                w.recv(B, 8, AT, len);
                w.send(A, 7, op, 1000, len);
                // Every other world has frames in two pieces.
                let frames = if (i + j + k) % 2 == 0 { w.transmit(A) } else { w.transmit_split(A) };
                let expected = Segmentation::new(Service::Rc, kind, len as u32, mtu, Psn::new(psn)).unwrap();
                assert_eq!(frames.len() as u32, expected.packets(), "{why}");
                for (f, s) in frames.iter().zip(expected.iter()) {
                    let p = w.parse(f);
                    let got = (p.bth.opcode, p.bth.psn, p.payload.len() as u32, p.bth.pad, p.bth.ack_req);
                    assert_eq!(got, (s.opcode, s.psn, s.len, s.pad, s.last), "{why}: only the last packet asks");
                    assert_eq!(p.ext.set(), s.headers(), "{why}");
                    assert_eq!(p.bth.dest_qp, w.hosts[B].qpn);
                    assert!(!p.bth.solicited && p.bth.mig_req);
                }
                w.deliver_all(B, &frames);
                let answer = w.transmit(B);
                let last = expected.packets() - 1;
                let left = u32::from(kind == MessageKind::Write);
                assert_eq!(w.show(&answer), [format!("ACK +{last} credits {left} msn 1")], "{why}");
                assert!(w.sent(A).is_empty(), "{why}: not before the acknowledgement");
                w.deliver_all(A, &answer);
                assert_placed(&w, &data, &why);
                assert_completed(&mut w, kind, len, &why);
                assert_eq!((w.transmit(A).len(), w.transmit(B).len()), (0, 0));
                let (a, b) = (w.counters(A), w.counters(B));
                assert_eq!((a.sent_requests, a.sent_pkts, a.rcvd_pkts), (u64::from(last) + 1, u64::from(last) + 1, 1));
                let write = u64::from(matches!(kind, MessageKind::Write | MessageKind::WriteImm));
                assert_eq!((b.rx_write_requests, b.rx_send_requests), (write, 1 - write), "{why}");
                assert_eq!(a.retransmitted_packets + b.out_of_sequence + b.duplicate_request, 0);
            }
        }
    }
}

#[test]
fn sixteen_and_thirty_two_elements_are_gathered_and_scattered() {
    for n in [16, 32] {
        for send in [true, false] {
            let mut w = World::new(Options::default());
            // Elements of different lengths, some empty, and gaps between them; the other side cuts differently.
            let lens: Vec<usize> = (0..n).map(|i| if i % 5 == 4 { 0 } else { 3 + i * 7 }).collect();
            let total: usize = lens.iter().sum();
            let data = pattern(9, total);
            let (mut at, mut done, mut gather) = (0, 0, Vec::new());
            for &len in &lens {
                w.fill(A, at, &data[done..done + len]);
                gather.push(w.sge(A, at, len));
                (at, done) = (at + len + 11, done + len);
            }
            let (mut at, mut scatter, mut places) = (AT, Vec::new(), Vec::new());
            for &len in lens.iter().rev() {
                scatter.push(w.sge(B, at, len));
                places.push((at, len));
                at += len + 13;
            }
            w.post_recv(B, &RecvWr { wr_id: 8, sges: &scatter, best_effort: None }).unwrap();
            let op = if send { SendOp::Send } else { w.write_to(B, AT) };
            w.post(A, &wr(7, op, Data::Gather(&gather))).unwrap();
            w.run();
            assert_eq!(w.sent_status(A), [(7, Status::Success)]);
            if send {
                let got: Vec<u8> = places.iter().flat_map(|&(at, len)| w.read(B, at, len)).collect();
                assert_eq!(got, data);
                for &(at, len) in &places {
                    assert_eq!(w.read(B, at + len, 13), [UNTOUCHED; 13], "between the elements");
                }
                let c = w.received(B);
                assert_eq!((c.len(), c[0].byte_len), (1, total as u32));
            } else {
                assert_placed(&w, &data, "gathered WRITE");
            }
        }
    }
}

#[test]
fn more_elements_or_inline_data_than_the_queue_pair_was_made_for_are_refused() {
    let mut w = World::new(Options::default());
    let sges = vec![w.sge(A, 0, 1); 33];
    assert_eq!(w.post(A, &wr(1, SendOp::Send, Data::Gather(&sges))), Err(PostError::TooManySges));
    let refused = w.post_recv(A, &RecvWr { wr_id: 1, sges: &sges, best_effort: None });
    assert_eq!(refused, Err(PostError::TooManySges));
    assert_eq!(w.post(A, &wr(1, SendOp::Send, Data::Inline(&[0; 257]))), Err(PostError::InlineTooLong));
    let huge = [Sge { addr: 0, len: 1 << 31, lkey: 1 }, Sge { addr: 0, len: 1, lkey: 1 }];
    assert_eq!(w.post(A, &wr(1, SendOp::Send, Data::Gather(&huge))), Err(PostError::MessageTooLong));
    let work = BestEffort::until(w.now);
    let late = SendWr { best_effort: Some(&work), ..wr(1, SendOp::Send, Data::Inline(&[])) };
    assert_eq!(w.post(A, &late), Err(PostError::NoDeadlines));
    assert!(w.shown(A).is_empty() && w.sent(A).is_empty(), "what was refused leaves no trace");
}

#[test]
fn inline_data_is_taken_when_it_is_posted_and_needs_no_key() {
    let mut w = World::new(Options::default());
    let mut data = pattern(3, 256);
    let op = w.write_to(B, AT);
    w.post(A, &wr(7, op, Data::Inline(&data))).unwrap();
    let sent = data.clone();
    data.fill(0);
    let lost = w.transmit(A);
    assert_eq!(w.show(&lost), ["RDMA_WRITE_ONLY +0 A"]);
    // Sent again it is still the data of the post.
    w.wait_for_timer(A).unwrap();
    w.run();
    assert_placed(&w, &sent, "inline WRITE");
    assert_eq!(w.sent_status(A), [(7, Status::Success)]);
}

#[test]
fn gathered_data_is_read_again_when_it_is_sent_again() {
    let mut w = World::new(Options::default());
    w.fill(A, 0, &[1; 100]);
    let op = w.write_to(B, AT);
    w.send(A, 7, op, 0, 100);
    w.transmit(A);
    w.fill(A, 0, &[2; 100]);
    w.wait_for_timer(A).unwrap();
    w.run();
    assert_placed(&w, &[2; 100], "changed before it was sent again");
}

#[test]
fn unsignaled_work_completes_nothing_and_its_slot_is_free_when_a_later_one_is_done() {
    let caps = softnic_nic::transports::qp::Caps { max_send_wr: 3, ..Options::default().caps };
    let mut w = World::new(Options { caps, ..Options::default() });
    let op = w.write_to(B, 0);
    let unsignaled = |id| SendWr {
        flags: SendFlags { signaled: false, solicited: false, fence: false },
        ..wr(id, op, Data::Inline(b"x"))
    };
    w.post(A, &unsignaled(1)).unwrap();
    w.post(A, &unsignaled(2)).unwrap();
    w.post(A, &wr(3, op, Data::Inline(b"y"))).unwrap();
    assert_eq!(w.post(A, &unsignaled(4)), Err(PostError::QueueFull));
    w.run();
    assert_eq!(w.sent_status(A), [(3, Status::Success)]);
    for id in 4..7 {
        w.post(A, &unsignaled(id)).unwrap();
    }
    assert_eq!(w.post(A, &unsignaled(7)), Err(PostError::QueueFull));
}

#[test]
fn a_queue_pair_that_signals_all_completes_unsignaled_work_too() {
    let mut w = World::new(Options::default());
    let Host { pd, send_cq, recv_cq, .. } = w.hosts[A];
    let caps = w.options.caps;
    let init = softnic_nic::QpInit {
        sig_all: true,
        ..softnic_nic::QpInit::new(softnic_nic::QpKind::Rc, pd, send_cq, recv_cq, caps)
    };
    let qpn = w.hosts[A].nic.create_qp(&init).unwrap();
    w.hosts[A].qpn = qpn;
    w.modify(A, &init_attr(&w.options.clone()));
    let rtr = rtr_attr(&w.options, w.path(A), w.hosts[B].qpn);
    w.modify(A, &rtr);
    w.modify(A, &rts_attr(&w.options.clone()));
    let op = w.write_to(B, 0);
    let flags = SendFlags { signaled: false, solicited: false, fence: false };
    w.post(A, &SendWr { flags, ..wr(1, op, Data::Inline(b"x")) }).unwrap();
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    // B answers to the queue pair that it was connected to; the answer is forged for the new one.
    let ack = w.forge_aeth(A, 0, 0x1f, 1);
    w.deliver(A, &ack);
    assert_eq!(w.sent_status(A), [(1, Status::Success)]);
}

#[test]
fn the_solicited_bit_stands_in_the_last_packet_and_in_the_completion() {
    for (op, solicits) in [(0, true), (1, true), (2, false), (3, true)] {
        let mut w = World::new(Options::default());
        let op = kinds(&w)[op].1;
        w.recv(B, 8, AT, 600);
        let sges = [w.sge(A, 0, 600)];
        let flags = SendFlags { signaled: true, solicited: true, fence: false };
        w.post(A, &SendWr { flags, ..wr(7, op, Data::Gather(&sges)) }).unwrap();
        let frames = w.transmit(A);
        let bits: Vec<bool> = frames.iter().map(|f| w.parse(f).bth.solicited).collect();
        // A WRITE without immediate completes nothing at the peer: there is no event to ask for (IBA 9.2.3).
        assert_eq!(bits, [false, false, solicits], "{op:?}");
        w.deliver_all(B, &frames);
        let received: Vec<bool> = w.received(B).iter().map(|c| c.solicited).collect();
        assert_eq!(received, vec![true; usize::from(solicits)]);
    }
}

#[test]
fn nothing_is_sent_before_the_doorbell() {
    let mut w = World::new(Options::default());
    let op = w.write_to(B, 0);
    for id in 0..3 {
        let Host { nic, qpn, .. } = &mut w.hosts[A];
        nic.write_send(*qpn, &wr(id, op, Data::Inline(b"abc"))).unwrap();
    }
    assert!(w.shown(A).is_empty());
    let (now, qpn) = (w.now, w.hosts[A].qpn);
    w.hosts[A].nic.ring_doorbell(now, qpn);
    let frames = w.transmit(A);
    assert_eq!(w.show(&frames), ["RDMA_WRITE_ONLY +0", "RDMA_WRITE_ONLY +1", "RDMA_WRITE_ONLY +2 A"]);
    // A request without a doorbell behind others that are being sent does not leave with them.
    w.hosts[A].nic.write_send(qpn, &wr(3, op, Data::Inline(b"abc"))).unwrap();
    w.deliver_all(B, &frames);
    w.run();
    assert_eq!(w.sent_status(A), [(0, Status::Success), (1, Status::Success), (2, Status::Success)]);
}

#[test]
fn both_directions_of_a_connection_share_nothing() {
    each_psn(Options::default(), |mut w| {
        let (to_a, to_b) = (w.write_to(A, 5000), w.write_to(B, 5000));
        w.fill(A, 0, &pattern(1, 1000));
        w.fill(B, 0, &pattern(2, 1000));
        w.send(A, 1, to_b, 0, 1000);
        w.send(B, 2, to_a, 0, 1000);
        w.run();
        assert_eq!((w.read(A, 5000, 1000), w.read(B, 5000, 1000)), (pattern(2, 1000), pattern(1, 1000)));
        assert_eq!((w.sent_status(A), w.sent_status(B)), (vec![(1, Status::Success)], vec![(2, Status::Success)]));
    });
}

#[test]
fn a_connection_over_ipv6_works_the_same() {
    for k in 0..4 {
        let mut w = World::new(Options { ipv6: true, mtu: PathMtu::B4096, ..Options::default() });
        let (kind, op) = kinds(&w)[k];
        let data = pattern(2, 9001);
        w.fill(A, 1000, &data);
        w.recv(B, 8, AT, data.len());
        w.send(A, 7, op, 1000, data.len());
        let frames = w.transmit_split(A);
        assert!(frames.iter().all(|f| w.parse(f).layout.carrier == softnic_wire::Carrier::Ipv6));
        w.deliver_all(B, &frames);
        w.run();
        assert_placed(&w, &data, "IPv6");
        assert_completed(&mut w, kind, data.len(), "IPv6");
    }
}

#[test]
fn two_gib_are_cut_right_from_their_first_packet_to_their_last() {
    let mut w = World::new(Options { mtu: PathMtu::B4096, payload: PayloadMode::Elided, ..Options::default() });
    let (pd_a, pd_b) = (w.hosts[A].pd, w.hosts[B].pd);
    let lkey = w.hosts[A].nic.alloc_null_mr(pd_a, Access::NONE).unwrap();
    let rkey = w.hosts[B].nic.alloc_null_mr(pd_b, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let len = 1u32 << 31;
    let sges = [Sge { addr: 0, len, lkey }];
    let op = SendOp::WriteImm { remote_addr: 0x7000_0000_0000, rkey, imm: IMM };
    w.recv(B, 8, 0, 0);
    w.post(A, &wr(7, op, Data::Gather(&sges))).unwrap();
    let expected =
        Segmentation::new(Service::Rc, MessageKind::WriteImm, len, PathMtu::B4096, Psn::new(w.options.psn)).unwrap();
    let (mut buffer, mut n, mut since) = ([0; 256], 0, 0);
    while let Some(s) = expected.get(n) {
        let mut tx = TxFrame::new(&mut buffer);
        assert!(w.hosts[A].nic.poll_transmit(w.now, Nic::WIRE, &mut tx), "packet {n} is missing");
        let end = tx.len();
        let frame = &buffer[..end];
        let asks = RoceHeaders::read_elided(frame, &Layout::locate(frame).unwrap(), |p| {
            assert_eq!((p.bth.opcode, p.bth.psn, p.payload.len() as u32), (s.opcode, s.psn, s.len), "packet {n}");
            assert_eq!(p.ext.reth.map(|r| (r.va, r.rkey, r.len)), s.first.then_some((0x7000_0000_0000, rkey, len)));
            p.bth.ack_req
        });
        since = if asks.unwrap() { 0 } else { since + 1 };
        assert!(since < 64 && (!s.last || since == 0), "packet {n}: an acknowledgement is asked for in time");
        w.hosts[B].nic.handle_frame(w.now, Nic::WIRE, &mut buffer[..end]);
        n += 1;
    }
    assert_eq!(n, 1 << 19);
    let mut tx = TxFrame::new(&mut buffer);
    assert!(!w.hosts[A].nic.poll_transmit(w.now, Nic::WIRE, &mut tx));
    assert!(w.hosts[B].nic.poll_transmit(w.now, Nic::WIRE, &mut tx), "one acknowledgement for all");
    let end = tx.len();
    w.hosts[A].nic.handle_frame(w.now, Nic::WIRE, &mut buffer[..end]);
    assert_eq!(w.sent_status(A), [(7, Status::Success)]);
    let received = w.received(B);
    assert_eq!((received.len(), received[0].byte_len, received[0].imm), (1, len, Some(IMM)));
}
