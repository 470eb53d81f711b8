//! Frames for the tests of the programs.

use std::net::{Ipv4Addr, Ipv6Addr};

use softnic_nic::sharing::PROCESS_BITS;
use softnic_nic::transports::QKEY_GSI;
use softnic_wire::ext::Deth;
use softnic_wire::mad::cm::{DATA_LEN, Drep, Dreq, Message, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};
use softnic_wire::mad::ip_cm::ServiceId;
use softnic_wire::mad::vendor::{self, Extensions, Kind, Negotiation, Settings};
use softnic_wire::mad::{Attribute, MAD_LEN, Status};
use softnic_wire::{Addresses, ExtHeaders, MacAddr, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame};

use super::process;

pub(super) const LOCAL_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub(super) const REMOTE_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
pub(super) const GROUP_MAC: MacAddr = MacAddr([1, 0, 0x5e, 1, 2, 3]);
pub(super) const LOCAL_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const LOCAL_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The path from a peer to the shared port.
pub(super) fn inwards(v6: bool) -> Path {
    let addresses = match v6 {
        false => Addresses::V4 { src: Ipv4Addr::new(10, 0, 0, 2), dst: LOCAL_V4 },
        true => Addresses::V6 { src: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2), dst: LOCAL_V6 },
    };
    Path {
        src_mac: REMOTE_MAC,
        dst_mac: LOCAL_MAC,
        tags: [None; 2],
        addresses,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        src_port: 50_000,
    }
}

/// The path from the shared port to `dst_mac`.
pub(super) fn outwards(v6: bool, dst_mac: MacAddr) -> Path {
    let addresses = match inwards(v6).addresses {
        Addresses::V4 { src, dst } => Addresses::V4 { src: dst, dst: src },
        Addresses::V6 { src, dst } => Addresses::V6 { src: dst, dst: src },
    };
    Path { src_mac: LOCAL_MAC, dst_mac, addresses, ..inwards(v6) }
}

pub(super) fn frame(path: &Path, qpn: Qpn, opcode: Opcode, ext: &ExtHeaders, payload: &[u8]) -> Vec<u8> {
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
    Template::new(path, qpn, 0xffff).build(&mut tx, &fields, ext, payload).unwrap();
    let len = tx.len();
    bytes[..len].to_vec()
}

/// The number of a queue pair of a process.
pub(super) fn qp(number: u32) -> Qpn {
    Qpn::new(number << (24 - PROCESS_BITS) | 0x1234)
}

/// The communication id of a connection of a process.
pub(super) fn id(number: u32) -> u32 {
    process(number).comm_id(0x0012_3456)
}

pub(super) fn rc(path: &Path, to: Qpn) -> Vec<u8> {
    frame(path, to, Opcode::RC_SEND_ONLY, &ExtHeaders::default(), &[7; 64])
}

pub(super) fn datagram(path: &Path, to: Qpn, src_qp: Qpn, qkey: u32, payload: &[u8]) -> Vec<u8> {
    let ext = ExtHeaders { deth: Some(Deth { qkey, src_qp }), ..ExtHeaders::default() };
    frame(path, to, Opcode::UD_SEND_ONLY, &ext, payload)
}

pub(super) fn ud(path: &Path, to: Qpn, from: Qpn) -> Vec<u8> {
    datagram(path, to, from, 5, &[7; 64])
}

pub(super) fn mad(path: &Path, mad: &[u8; MAD_LEN]) -> Vec<u8> {
    datagram(path, Qpn::GSI, Qpn::GSI, QKEY_GSI, mad)
}

pub(super) fn cm(path: &Path, message: &Message) -> Vec<u8> {
    let mut bytes = [0; MAD_LEN];
    message.emit(&message.header(7), &mut bytes);
    mad(path, &bytes)
}

/// A message of each kind that has both ids; the last one is of a kind that softnic does not use.
pub(super) fn answers(local: u32, remote: u32) -> Vec<Message> {
    let zeros = [0; DATA_LEN];
    let (local_comm_id, remote_comm_id) = (local, remote);
    let mut lap = zeros;
    lap[..4].copy_from_slice(&local.to_be_bytes());
    lap[4..8].copy_from_slice(&remote.to_be_bytes());
    vec![
        Message::Mra(Mra { local_comm_id, remote_comm_id, ..Mra::parse(&zeros).unwrap() }),
        rej(local, remote),
        Message::Rep(Rep { local_comm_id, remote_comm_id, ..Rep::parse(&zeros).unwrap() }),
        Message::Rtu(Rtu { local_comm_id, remote_comm_id, ..Rtu::parse(&zeros).unwrap() }),
        Message::Dreq(Dreq { local_comm_id, remote_comm_id, ..Dreq::parse(&zeros).unwrap() }),
        Message::Drep(Drep { local_comm_id, remote_comm_id, ..Drep::parse(&zeros).unwrap() }),
        Message::Other { attribute: Attribute::CM_LAP, data: lap },
        Message::Other { attribute: Attribute(0x7777), data: lap },
    ]
}

pub(super) fn rej(local_comm_id: u32, remote_comm_id: u32) -> Message {
    Message::Rej(Rej { local_comm_id, remote_comm_id, ..Rej::parse(&[0; DATA_LEN]).unwrap() })
}

/// Both kinds of requests.
pub(super) fn requests(id: u32, service_id: ServiceId) -> [Message; 2] {
    let zeros = [0; DATA_LEN];
    [
        Message::Req(Req { local_comm_id: id, service_id, ..Req::parse(&zeros).unwrap() }),
        Message::SidrReq(SidrReq { request_id: id, service_id, ..SidrReq::parse(&zeros).unwrap() }),
    ]
}

pub(super) fn sidr_rep(request_id: u32) -> Message {
    Message::SidrRep(SidrRep { request_id, ..SidrRep::parse(&[0; DATA_LEN]).unwrap() })
}

pub(super) fn negotiation(sender: Qpn, receiver: Qpn, kind: Kind) -> [u8; MAD_LEN] {
    let refused = matches!(kind, Kind::Answer(status) if status != Status::SUCCESS);
    let mut bytes = [0; MAD_LEN];
    // A refusal returns the fields of the offer; the transaction id identifies its addressee.
    let (sender_qpn, receiver_qpn) = if refused { (receiver, sender) } else { (sender, receiver) };
    Negotiation {
        transaction_id: 0x1234_5678_9a00_0000 | u64::from(receiver.value()),
        kind,
        version: vendor::VERSION,
        sender_qpn: sender_qpn.value(),
        receiver_qpn: receiver_qpn.value(),
        extensions: Extensions::SR,
        settings: Settings::NONE,
        sdr: None,
    }
    .emit(&mut bytes);
    bytes
}

pub(super) const KINDS: [Kind; 3] =
    [Kind::Offer, Kind::Answer(Status::SUCCESS), Kind::Answer(Status::UNSUPPORTED_METHOD_ATTRIB)];
