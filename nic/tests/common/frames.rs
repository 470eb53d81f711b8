//! Frames that a test looks at, changes, or makes although nobody sent them.

use softnic_wire::aeth::Syndrome;
use softnic_wire::{Error, ExtHeaders, Layout, Opcode, PacketFields, Psn, RocePacket, Template, TxFrame, bth, icrc};

use super::World;

/// The ICRC made right again after a test changed something that it covers.
pub fn resign(frame: &mut [u8]) {
    let layout = Layout::locate(frame).expect("still a RoCE packet");
    if let Err(Error::Icrc { expected, .. }) = icrc::verify_shared(frame, &layout) {
        frame[layout.end - icrc::LEN..layout.end].copy_from_slice(&expected.to_le_bytes());
    }
    assert_eq!(icrc::verify_shared(frame, &layout), Ok(()));
}

impl World {
    pub fn parse(&self, frame: &[u8]) -> RocePacket {
        let packet = RocePacket::parse(frame).expect("a RoCE packet");
        assert_eq!(icrc::verify_shared(frame, &packet.layout), Ok(()));
        packet
    }

    /// One line a frame, its PSN counted from the first one: `RDMA_WRITE_LAST +2 A`, `ACK +2 credits 1 msn 1`,
    /// `NAK0 +1 msn 0`, `RNR5 +0 msn 0`. So a test reads the same wherever the PSNs begin.
    pub fn show(&self, frames: &[Vec<u8>]) -> Vec<String> {
        frames.iter().map(|f| self.show_one(f)).collect()
    }

    fn show_one(&self, frame: &[u8]) -> String {
        let p = self.parse(frame);
        // A PSN before the first one reads as negative: an answer before anything came.
        let psn = p.bth.psn.distance(Psn::new(self.options.psn));
        let Some(aeth) = p.ext.aeth else {
            let name = p.bth.opcode.to_string();
            let (a, s) = (if p.bth.ack_req { " A" } else { "" }, if p.bth.solicited { " S" } else { "" });
            return format!("{} {psn:+}{a}{s}", name.trim_start_matches("RC_").trim_start_matches("UC_"));
        };
        assert!(!p.bth.ack_req && !p.bth.solicited, "an answer asks for nothing");
        if p.bth.opcode != Opcode::RC_ACKNOWLEDGE {
            return format!("{} {psn:+} msn {}", p.bth.opcode.to_string().trim_start_matches("RC_"), aeth.msn);
        }
        assert!(p.payload.is_empty());
        let what = match aeth.syndrome {
            Syndrome::Ack(c) => format!("ACK {psn:+} credits {}", c.count().map_or(-1, i64::from)),
            Syndrome::Nak(n) => format!("NAK{} {psn:+}", n.0),
            Syndrome::RnrNak(t) => format!("RNR{} {psn:+}", t.0),
            Syndrome::Reserved(b) => format!("RESERVED{b} {psn:+}"),
        };
        format!("{what} msn {}", aeth.msn)
    }

    /// All that `h` sends now, as [`World::show`] writes it; the frames are lost.
    pub fn shown(&mut self, h: usize) -> Vec<String> {
        let frames = self.transmit(h);
        self.show(&frames)
    }

    /// A right frame as the peer of `to` would send it; `psn` counts from the first one.
    pub fn forge(&self, to: usize, opcode: u8, psn: i32, ack_req: bool, ext: ExtHeaders, payload: &[u8]) -> Vec<u8> {
        let template = Template::new(&self.path(1 - to), self.hosts[to].qpn, bth::DEFAULT_PKEY);
        self.forge_with(&template, opcode, psn, ack_req, ext, payload)
    }

    pub fn forge_with(
        &self,
        template: &Template,
        opcode: u8,
        psn: i32,
        ack_req: bool,
        ext: ExtHeaders,
        payload: &[u8],
    ) -> Vec<u8> {
        let psn = Psn::new(self.options.psn.wrapping_add_signed(psn));
        let fields = PacketFields {
            opcode: Opcode(opcode),
            psn,
            ack_req,
            solicited: false,
            becn: false,
            payload_len: payload.len(),
        };
        let mut buffer = vec![0; 9000];
        let mut tx = TxFrame::new(&mut buffer);
        template.build(&mut tx, &fields, &ext, payload).unwrap();
        tx.segments().0.to_vec()
    }

    /// An answer as the peer of `to` would send it.
    pub fn forge_aeth(&self, to: usize, psn: i32, syndrome: u8, msn: u32) -> Vec<u8> {
        let aeth = softnic_wire::Aeth { syndrome: Syndrome::from_byte(syndrome), msn };
        self.forge(to, 0x11, psn, false, ExtHeaders { aeth: Some(aeth), ..ExtHeaders::default() }, &[])
    }
}
