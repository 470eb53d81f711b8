//! Frames that pass through a switch.

use std::net::Ipv4Addr;

use softnic_wire::ext::Reth;
use softnic_wire::{Addresses, ExtHeaders, MacAddr, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame, bth};

/// A WRITE of one packet, and who it is for.
#[derive(Debug, Clone, Copy)]
pub struct Write {
    /// The sender's address.
    pub src: Ipv4Addr,
    /// The destination's.
    pub dst: Ipv4Addr,
    /// The destination's MAC address, or that of a router.
    pub dst_mac: MacAddr,
    /// The destination's queue pair.
    pub dest_qp: Qpn,
    /// Where it writes to.
    pub va: u64,
    /// With which key.
    pub rkey: u32,
    /// Bytes of payload.
    pub size: usize,
}

impl Write {
    /// The frame.
    ///
    /// # Panics
    /// When the payload is longer than any path MTU.
    pub fn frame(&self) -> Vec<u8> {
        let path = Path {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: self.dst_mac,
            tags: [None, None],
            addresses: Addresses::V4 { src: self.src, dst: self.dst },
            traffic_class: 2,
            flow_label: 0,
            hop_limit: 64,
            src_port: 0xc001,
        };
        let reth = Reth { va: self.va, rkey: self.rkey, len: self.size as u32 };
        let fields = PacketFields {
            opcode: Opcode::RC_RDMA_WRITE_ONLY,
            psn: Psn::new(0),
            ack_req: true,
            solicited: false,
            becn: false,
            payload_len: self.size,
        };
        let payload: Vec<u8> = (0..self.size).map(|i| (i * 7) as u8).collect();
        let mut room = vec![0; 8192];
        let mut tx = TxFrame::new(&mut room);
        let ext = ExtHeaders { reth: Some(reth), ..ExtHeaders::default() };
        let built = Template::new(&path, self.dest_qp, bth::DEFAULT_PKEY).build(&mut tx, &fields, &ext, &payload);
        assert_eq!(built, Ok(()), "room for a frame");
        tx.segments().0.to_vec()
    }
}
