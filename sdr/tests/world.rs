//! Two NICs with an SDR queue pair each, and frames between them that the test carries by hand.

use std::net::Ipv4Addr;
use std::sync::Arc;

use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::{Buffer, Nic, NicConfig, Port};
use softnic_sdr::{Counters, Local, QpAttr, RecvHandle, SdrQp, SendHandle, Split};
use softnic_wire::{Instant, MacAddr, Node, Path, PathMtu, TxFrame};

/// The end that sends, and the one that receives.
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
pub(crate) const MTU: usize = 256;

/// Small messages of chunks of two packets.
pub(crate) fn attr() -> QpAttr {
    QpAttr {
        max_message: 16 * MTU as u64,
        chunk: 2 * MTU as u32,
        split: Split::PAPER,
        slots: 8,
        mtu: PathMtu::B256,
        send_depth: 64,
        ..QpAttr::default()
    }
}

pub(crate) struct World {
    pub(crate) nics: [Nic; 2],
    pub(crate) qps: [SdrQp; 2],
    pub(crate) pds: [PdId; 2],
    pub(crate) now: Instant,
    /// What is sent, and where it is received.
    pub(crate) memory: [Arc<Buffer>; 2],
    pub(crate) keys: [u32; 2],
}

pub(crate) const ROOM: usize = 1 << 16;
/// Where memory begins, by the addresses of work requests.
pub(crate) const BASE: u64 = 0x10_0000;

pub(crate) fn nic(side: usize) -> Nic {
    let port = Port { mac: mac(side), addresses: vec![ip(side).into()], mtu: PathMtu::B256 };
    let mut n = 0x1357_9bdfu32.wrapping_mul(side as u32 + 3);
    let random = move || {
        n = n.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
        n ^ n >> 15
    };
    Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random))
}

fn ip(side: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8)
}

fn mac(side: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, 1 + side as u8])
}

pub(crate) fn path(nic: &Nic, to: usize) -> Path {
    nic.path_to(ip(to).into(), mac(to), 7).expect("a path")
}

impl World {
    /// Both ends with these attributes, connected.
    pub(crate) fn new(attr: &QpAttr) -> World {
        let mut world = World::apart(attr);
        let infos = [A, B].map(|side| world.qps[side].info().encode());
        for side in [A, B] {
            let path = path(&world.nics[side], 1 - side);
            world.qps[side].connect(&mut world.nics[side], 1, &path, &infos[1 - side]).expect("connected");
        }
        world
    }

    /// Both ends with these attributes, not connected.
    pub(crate) fn apart(attr: &QpAttr) -> World {
        let mut nics = [nic(A), nic(B)];
        let pds = [A, B].map(|side| nics[side].alloc_pd());
        let memory = [A, B].map(|_| Buffer::new(BASE, ROOM));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let keys = [A, B].map(|side| nics[side].reg_mr(pds[side], &memory[side], access).expect("a region"));
        let qps = [A, B].map(|side| SdrQp::create(&mut nics[side], pds[side], attr).expect("made"));
        let bytes: Vec<u8> = (0..ROOM).map(|i| (i * 7 + i / 251) as u8).collect();
        memory[A].write_at(0, &bytes);
        World { nics, qps, pds, now: Instant::from_nanos(1), memory, keys }
    }

    /// Memory of an end.
    pub(crate) fn local(&self, side: usize, at: usize, len: usize) -> Local {
        Local { key: self.keys[side], addr: BASE + at as u64, len: len as u64 }
    }

    pub(crate) fn bytes(&self, side: usize, at: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.memory[side].read_at(at, &mut out);
        out
    }

    pub(crate) fn recv(&mut self, at: usize, len: usize) -> RecvHandle {
        let memory = self.local(B, at, len);
        self.qps[B].recv_post(self.now, &mut self.nics[B], memory).expect("posted")
    }

    pub(crate) fn complete(&mut self, handle: RecvHandle) {
        self.qps[B].recv_complete(&mut self.nics[B], handle).expect("it was posted");
    }

    pub(crate) fn send(&mut self, at: usize, len: usize, imm: Option<u32>) -> SendHandle {
        let memory = self.local(A, at, len);
        self.qps[A].send_post(self.now, &mut self.nics[A], memory, imm).expect("posted")
    }

    /// All frames that an end sends now.
    pub(crate) fn frames(&mut self, side: usize) -> Vec<Vec<u8>> {
        let (mut frames, mut room) = (Vec::new(), [0; 1024]);
        loop {
            self.qps[side].progress(self.now, &mut self.nics[side]);
            let mut tx = TxFrame::new(&mut room);
            if !self.nics[side].poll_transmit(self.now, Nic::WIRE, &mut tx) {
                self.qps[side].progress(self.now, &mut self.nics[side]);
                return frames;
            }
            let (a, b) = tx.segments();
            frames.push([a, b].concat());
        }
    }

    pub(crate) fn deliver(&mut self, side: usize, frame: &[u8]) {
        self.nics[side].handle_frame(self.now, Nic::WIRE, &mut frame.to_vec());
        self.qps[side].progress(self.now, &mut self.nics[side]);
    }

    /// Carries all control messages to the sender, so that it knows of the receives.
    pub(crate) fn clear(&mut self) {
        for frame in self.frames(B) {
            self.deliver(A, &frame);
        }
    }

    /// Carries everything until nothing more is sent.
    pub(crate) fn settle(&mut self) {
        loop {
            let mut any = false;
            for side in [A, B] {
                for frame in self.frames(side) {
                    any = true;
                    self.deliver(1 - side, &frame);
                }
            }
            if !any {
                return;
            }
        }
    }

    /// The chunks of a receive that have come, the first one first.
    pub(crate) fn bits(&self, handle: RecvHandle) -> Vec<bool> {
        let bitmap = self.qps[B].recv_bitmap_get(handle).expect("it is posted");
        (0..bitmap.chunks()).map(|chunk| bitmap.is_set(chunk)).collect()
    }

    pub(crate) fn counters(&mut self, side: usize) -> Counters {
        self.qps[side].counters(&mut self.nics[side])
    }
}
