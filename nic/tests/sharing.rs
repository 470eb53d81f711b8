//! Whose a frame is, where several NICs are behind one port.

use proptest::prelude::*;
use softnic_nic::sharing::{Addressee, PROCESS_BITS, Process, addressee};
use softnic_nic::transports::QKEY_GSI;
use softnic_nic::transports::negotiation::{self, vendor};
use softnic_wire::ext::Deth;
use softnic_wire::mad::cm::{DATA_LEN, Message};
use softnic_wire::mad::ip_cm::ServiceId;
use softnic_wire::mad::{Attribute, HEADER_LEN, MAD_LEN, Status};
use softnic_wire::{Addresses, ExtHeaders, Layout, MacAddr, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame};

fn path() -> Path {
    let local = std::net::Ipv4Addr::LOCALHOST;
    Path {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        tags: [None; 2],
        addresses: Addresses::V4 { src: local, dst: local },
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        src_port: 50_000,
    }
}

fn frame(qpn: Qpn, opcode: Opcode, ext: &ExtHeaders, payload: &[u8]) -> Vec<u8> {
    let fields = PacketFields {
        opcode,
        psn: Psn::new(1),
        ack_req: false,
        solicited: false,
        becn: false,
        payload_len: payload.len(),
    };
    let mut bytes = [0; 4096];
    let mut tx = TxFrame::new(&mut bytes);
    Template::new(&path(), qpn, 0xffff).build(&mut tx, &fields, ext, payload).unwrap();
    let len = tx.len();
    bytes[..len].to_vec()
}

fn whose(frame: &[u8]) -> Addressee {
    addressee(frame, &Layout::locate(frame).unwrap())
}

fn mad_frame(mad: &[u8; MAD_LEN]) -> Vec<u8> {
    let deth = Deth { qkey: QKEY_GSI, src_qp: Qpn::GSI };
    frame(Qpn::GSI, Opcode::UD_SEND_ONLY, &ExtHeaders { deth: Some(deth), ..ExtHeaders::default() }, mad)
}

/// A message of the connection manager with these bytes behind its header.
fn cm(attribute: Attribute, data: [u8; DATA_LEN]) -> Vec<u8> {
    let message = Message::Other { attribute, data };
    let mut mad = [0; MAD_LEN];
    message.emit(&message.header(7), &mut mad);
    assert_eq!(mad[HEADER_LEN..], data);
    mad_frame(&mad)
}

fn any_process() -> impl Strategy<Value = Process> {
    (Process::FIRST.number()..=Process::LAST.number()).prop_map(|n| Process::new(n).unwrap())
}

proptest! {
    #[test]
    fn a_queue_pair_is_its_processes(process in any_process(), drawn: u32) {
        let qpn = Qpn::new(process.number() << (24 - PROCESS_BITS) | drawn & (0xff_ffff >> PROCESS_BITS));
        prop_assert_eq!(Process::of(qpn), Some(process));
        prop_assert_eq!(whose(&frame(qpn, Opcode::RC_SEND_ONLY, &ExtHeaders::default(), &[1; 8])), Addressee::Process(process));
    }

    #[test]
    fn an_answer_of_the_connection_manager_is_for_who_drew_the_id(process in any_process(), drawn: u32, other: u32) {
        let id = process.comm_id(drawn);
        prop_assert_eq!(Process::of_comm_id(id), Some(process));
        let mut data = [0; DATA_LEN];
        data[..4].copy_from_slice(&other.to_be_bytes());
        data[4..8].copy_from_slice(&id.to_be_bytes());
        let answers = [
            Attribute::CM_MRA, Attribute::CM_REJ, Attribute::CM_REP, Attribute::CM_RTU, Attribute::CM_DREQ, Attribute::CM_DREP,
        ];
        for attribute in answers {
            prop_assert_eq!(whose(&cm(attribute, data)), Addressee::Process(process));
        }
        data[..4].copy_from_slice(&id.to_be_bytes());
        prop_assert_eq!(whose(&cm(Attribute::CM_SIDR_REP, data)), Addressee::Process(process));
    }

    #[test]
    fn a_request_is_for_who_listens(service: u64, rest: u8) {
        let mut data = [rest; DATA_LEN];
        data[8..16].copy_from_slice(&service.to_be_bytes());
        for attribute in [Attribute::CM_REQ, Attribute::CM_SIDR_REQ] {
            prop_assert_eq!(whose(&cm(attribute, data)), Addressee::Service(ServiceId(service)));
        }
    }

    #[test]
    fn what_is_negotiated_is_for_the_queue_pair_that_it_is_about(process in any_process(), drawn: u32, sender: u32) {
        use vendor::{Extensions, Kind, Negotiation, Settings};
        let qpn = process.number() << (24 - PROCESS_BITS) | drawn & (0xff_ffff >> PROCESS_BITS);
        for kind in [Kind::Offer, Kind::Answer(Status::SUCCESS), Kind::Answer(Status::UNSUPPORTED_METHOD_ATTRIB)] {
            let refused = matches!(kind, Kind::Answer(status) if status != Status::SUCCESS);
            let sender = sender & 0xff_ffff;
            let mad = Negotiation {
                transaction_id: 0x1234_5678_9a00_0000 | u64::from(qpn),
                kind,
                version: vendor::VERSION,
                sender_qpn: sender,
                // One who refuses sends back what he got.
                receiver_qpn: if refused { sender } else { qpn },
                extensions: Extensions::SR,
                settings: Settings::NONE, sdr: None,
            };
            let mut bytes = [0; 4096];
            let mut tx = TxFrame::new(&mut bytes);
            prop_assert!(negotiation::write(&mut tx, &Template::new(&path(), Qpn::GSI, 0xffff), &mad));
            let len = tx.len();
            prop_assert_eq!(whose(&bytes[..len]), Addressee::Process(process), "{:?}", kind);
        }
    }

    #[test]
    fn bytes_of_any_kind_are_somebodys_or_nobodys(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), cut in 0usize..400) {
        if let Ok(layout) = Layout::locate(&bytes) {
            addressee(&bytes, &layout);
        }
        // And such as begin like a frame to QP1.
        let mut mad = [0; MAD_LEN];
        for (to, from) in mad.iter_mut().zip(bytes.drain(..)) {
            *to = from;
        }
        mad[1] = 7;
        let frame = mad_frame(&mad);
        let layout = Layout::locate(&frame).unwrap();
        addressee(&frame[..cut.min(frame.len())], &layout);
    }
}

#[test]
fn numbers_of_management_and_of_groups_are_no_processes() {
    for nobody in [0, (1 << PROCESS_BITS) - 1, 1 << PROCESS_BITS] {
        assert_eq!(Process::new(nobody), None);
    }
    assert_eq!((Process::FIRST.number(), Process::LAST.next(), Process::COUNT), (1, Process::FIRST, 1022));
    let plain = |qpn| {
        whose(&frame(
            qpn,
            Opcode::UD_SEND_ONLY,
            &ExtHeaders { deth: Some(Deth { qkey: 1, src_qp: Qpn::new(9) }), ..ExtHeaders::default() },
            &[1; 8],
        ))
    };
    assert_eq!(plain(Qpn::MULTICAST), Addressee::Everybody);
    assert_eq!((plain(Qpn::new(5)), plain(Qpn::GSI)), (Addressee::Nobody, Addressee::Nobody));
}
