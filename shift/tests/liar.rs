//! A host with two NICs, and a peer with two NICs of which every word about failover is the test's.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::transports::qp::{Caps, PayloadMode, QpKind};
use softnic_nic::transports::{Completion, CqId, Data, RecvWr, SendFlags, SendOp, SendWr, Sge};
use softnic_nic::{Buffer, Connection, Nic, NicConfig, Port, QpInit};
use softnic_shift::{Config, DualNic, Notice, Request, Store, Times};
use softnic_wire::failover::{BackupQp, Entry, EntryValue, Phase, Side, Status, connection_secret};
use softnic_wire::mad::failover::{FAILOVER_HELLO, Hello, Mode, Readiness, VERSION};
use softnic_wire::mad::vendor::Kind;
use softnic_wire::mad::{self, MAD_LEN, Status as MadStatus};
use softnic_wire::{Instant, MacAddr, Node, PathMtu, Psn, Qpn, TxFrame};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const ANSWER: Duration = Duration::from_millis(40);
const ROOM: usize = 4096;
pub(crate) const NONCE: [u8; 16] = [0x5a; 16];
const BASES: [u64; 2] = [0x1000_0000, 0x2000_0000];

/// The honest host is 1, the liar 2; backups are on another network.
pub(crate) fn address(host: u8, backup: bool) -> (IpAddr, MacAddr) {
    (Ipv4Addr::new(10, u8::from(backup), 0, host).into(), MacAddr([2, 0, u8::from(backup), 0, 0, host]))
}

fn nic(host: u8, backup: bool) -> Nic {
    let (ip, mac) = address(host, backup);
    let port = Port { mac, addresses: vec![ip], mtu: PathMtu::B256 };
    let mut n = 0x1357_9bdfu32.wrapping_mul(u32::from(host) * 2 + u32::from(backup) + 3);
    let random = move || {
        n = n.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
        n ^ n >> 15
    };
    Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random))
}

/// The objects of a NIC.
#[derive(Clone, Copy)]
struct Objects {
    pd: PdId,
    cq: CqId,
    key: u32,
}

fn caps() -> Caps {
    Caps { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 }
}

pub(crate) struct World {
    pub(crate) host: DualNic,
    /// The liar's default NIC, and its backup.
    pub(crate) liar: [Nic; 2],
    pub(crate) now: Instant,
    /// The default queue pairs, of the host and of the liar.
    pub(crate) qpns: [Qpn; 2],
    /// Links that carry nothing: of the defaults, and of the backups.
    pub(crate) cut: [bool; 2],
    pub(crate) notices: Vec<Notice>,
    /// What the host said of its backup.
    pub(crate) hello: Option<Hello>,
    /// MADs that came to the liar and that it has not answered, by the NIC that they came to.
    pub(crate) mads: Vec<(usize, softnic_nic::ReceivedMad)>,
    /// What the host asks of a store.
    pub(crate) requests: Vec<Request>,
    own: Objects,
    theirs: [Objects; 2],
    pub(crate) memory: [Arc<Buffer>; 2],
    control: [u32; 2],
    backup_qpn: Qpn,
}

impl World {
    /// The two are connected, and the host wants its connection protected. A peer that takes no MADs refuses them.
    pub(crate) fn new(takes_mads: bool) -> World {
        World::with(takes_mads, Store::Peer)
    }

    /// [`World::new`] with this store.
    pub(crate) fn with(takes_mads: bool, store: Store) -> World {
        let times = Times { probe: MS, fence: MS, answer: ANSWER };
        let mut n = 77u32;
        let random = move || {
            n = n.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
            n ^ n >> 15
        };
        let mut host = DualNic::new(nic(1, false), nic(1, true), Config { times, store }, Box::new(random));
        let mut liar = [nic(2, false), nic(2, true)];
        let memory = [0, 1].map(|at| Buffer::new(BASES[at], ROOM));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let pd = host.nic.alloc_pd();
        host.shadow_pd(pd);
        let (cq, key) = (host.nic.create_cq(64), host.nic.reg_mr(pd, &memory[0], access).unwrap());
        host.shadow_mr(key, pd, &memory[0], access, None).unwrap();
        let own = Objects { pd, cq, key };
        let control = Buffer::new(0x3000_0000, 2 * Status::LEN);
        let mut keys = [0; 2];
        let theirs = [0, 1].map(|at| {
            let nic = &mut liar[at];
            nic.take_mads(takes_mads);
            let pd = nic.alloc_pd();
            keys[at] = nic.reg_mr(pd, &control, access).unwrap();
            Objects { pd, cq: nic.create_cq(64), key: nic.reg_mr(pd, &memory[1], access).unwrap() }
        });
        let init = |of: Objects| QpInit::new(QpKind::Rc, of.pd, of.cq, of.cq, caps());
        let qpns = [host.create_qp(&init(own)).unwrap(), liar[0].create_qp(&init(theirs[0])).unwrap()];
        let backup_qpn = liar[1].create_qp(&init(theirs[1])).unwrap();
        let usual = Connection { mtu: PathMtu::B256, timeout: 6, retry_cnt: 2, ..Connection::default() };
        let settings = |nic: &Nic, to: u8, dest_qp: Qpn| {
            let (ip, mac) = address(to, false);
            Connection { path: nic.path_to(ip, mac, 7), dest_qp, ..usual }
        };
        let (ours, others) = (settings(&host.nic, 2, qpns[1]), settings(&liar[0], 1, qpns[0]));
        host.nic.connect(qpns[0], &ours).unwrap();
        liar[0].connect(qpns[1], &others).unwrap();
        let mut world = World {
            host,
            liar,
            now: Instant::from_nanos(1),
            qpns,
            cut: [false; 2],
            notices: Vec::new(),
            hello: None,
            mads: Vec::new(),
            requests: Vec::new(),
            own,
            theirs,
            memory,
            control: keys,
            backup_qpn,
        };
        world.host.protect(world.now, qpns[0]).unwrap();
        world.carry();
        world
    }

    /// The two have met: the liar has been honest so far.
    pub(crate) fn met() -> World {
        let mut world = World::new(true);
        world.answer_hello();
        assert!(world.host.is_protected(world.qpns[0]), "{:?}", world.notices);
        world
    }

    /// What an honest peer says of its backup.
    pub(crate) fn honest(&self) -> Hello {
        let IpAddr::V4(gid) = address(2, true).0 else { unreachable!() };
        let asked = self.hello.expect("the host asked");
        Hello {
            transaction_id: asked.transaction_id,
            kind: Kind::Answer(MadStatus::SUCCESS),
            version: VERSION,
            sender_qpn: self.qpns[1],
            receiver_qpn: self.qpns[0],
            mode: Mode::Shift,
            readiness: Readiness::Ready,
            nonce: NONCE,
            backup: Some(BackupQp {
                gid: gid.to_ipv6_mapped(),
                qpn: self.backup_qpn,
                psn: Psn::new(0x1000),
                mtu: PathMtu::B256,
                control_addr: 0x3000_0000,
                control_keys: self.control,
            }),
        }
    }

    /// Answers as an honest peer does, and connects the backups.
    pub(crate) fn answer_hello(&mut self) {
        let hello = self.honest();
        self.connect_backup();
        self.say(0, |mad| hello.emit(mad));
    }

    /// The liar's backup is connected to the host's.
    pub(crate) fn connect_backup(&mut self) {
        let told = self.hello.and_then(|hello| hello.backup).expect("a backup");
        let (ip, mac) = address(1, true);
        let settings = Connection {
            path: self.liar[1].path_to(ip, mac, 7),
            dest_qp: told.qpn,
            mtu: PathMtu::B256,
            sq_psn: Psn::new(0x1000),
            rq_psn: told.psn,
            timeout: 6,
            ..Connection::default()
        };
        self.liar[1].connect(self.backup_qpn, &settings).unwrap();
        for wr_id in 0..4 {
            self.liar[1].post_recv(self.backup_qpn, &RecvWr { wr_id, sges: &[], best_effort: None }).unwrap();
        }
    }

    /// Sends a MAD to the host by one of the liar's NICs.
    pub(crate) fn say(&mut self, by: usize, write: impl FnOnce(&mut [u8])) {
        let mut mad = [0; MAD_LEN];
        write(&mut mad);
        let (ip, mac) = address(1, by == 1);
        let path = self.liar[by].path_to(ip, mac, 7).unwrap();
        self.liar[by].post_mad(Nic::WIRE, &path, &mad);
        self.carry();
    }

    /// A status that could be true when the host is in its first epoch, or about to be.
    pub(crate) fn status(&self) -> Status {
        Status {
            epoch: 1,
            phase: Phase::Moving,
            recv_on: Side::Backup,
            recv_count: 0,
            next_psn: [Psn::new(0x5000), Psn::new(0x6000)],
            returned: 0,
            woke: true,
            refused: false,
        }
    }

    /// The secret of the liar's statuses.
    pub(crate) fn secret(&self) -> [u8; 16] {
        connection_secret([NONCE, self.hello.expect("the host asked").nonce])
    }

    /// Writes a block into the host's control memory by the backup; with an immediate that wakes it, or without.
    pub(crate) fn write_block(&mut self, block: &[u8; Status::LEN], wake: bool) {
        self.post_block(block, wake);
        self.carry();
    }

    fn post_block(&mut self, block: &[u8; Status::LEN], wake: bool) {
        self.memory[1].write_at(0, block);
        let told = self.hello.and_then(|hello| hello.backup).expect("a backup");
        let (remote_addr, rkey) = (told.control_addr, told.control_keys[1]);
        let op = match wake {
            true => SendOp::WriteImm { remote_addr, rkey, imm: 0 },
            false => SendOp::Write { remote_addr, rkey },
        };
        let sges = [Sge { addr: BASES[1], len: Status::LEN as u32, lkey: self.theirs[1].key }];
        let (data, flags) = (Data::Gather(&sges), SendFlags::default());
        let wr = SendWr { wr_id: 0, op, data, flags, best_effort: None, to: None };
        self.liar[1].post_send(self.now, self.backup_qpn, &wr).unwrap();
    }

    pub(crate) fn write_status(&mut self, status: &Status) {
        self.post_status(status);
        self.carry();
    }

    /// The same, and it is still to be carried.
    pub(crate) fn post_status(&mut self, status: &Status) {
        let mut block = [0; Status::LEN];
        status.emit(&self.secret(), &mut block);
        self.post_block(&block, true);
    }

    /// The host's program posts a receive.
    pub(crate) fn post_recv(&mut self, wr_id: u64) {
        let sges = [Sge { addr: BASES[0], len: 64, lkey: self.own.key }];
        self.host.post_recv(self.qpns[0], &RecvWr { wr_id, sges: &sges, best_effort: None }).unwrap();
    }

    /// The host's program posts a signaled send of 64 bytes.
    pub(crate) fn post(&mut self, wr_id: u64, op: SendOp) {
        let sges = [Sge { addr: BASES[0], len: 64, lkey: self.own.key }];
        let (data, flags) = (Data::Gather(&sges), SendFlags { signaled: true, ..SendFlags::default() });
        let wr = SendWr { wr_id, op, data, flags, best_effort: None, to: None };
        self.host.post_send(self.now, self.qpns[0], &wr).unwrap();
        self.carry();
    }

    /// The liar's default queue pair takes a message.
    pub(crate) fn liar_receives(&mut self) {
        let sges = [Sge { addr: BASES[1], len: 64, lkey: self.theirs[0].key }];
        self.liar[0].post_recv(self.qpns[1], &RecvWr { wr_id: 9, sges: &sges, best_effort: None }).unwrap();
    }

    /// The key of the host's memory at its default.
    pub(crate) fn own_key(&self) -> u32 {
        self.own.key
    }

    /// The key of the liar's memory at its default, and at its backup.
    pub(crate) fn liar_keys(&self) -> [u32; 2] {
        [0, 1].map(|at| self.theirs[at].key)
    }

    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.host.poll_cq(self.own.cq).unwrap()).collect()
    }

    /// Carries frames until nobody has any.
    pub(crate) fn carry(&mut self) {
        loop {
            let mut any = false;
            for side in [0, 1] {
                any |= self.carry_to_liar(side);
                any |= self.carry_to_host(side);
                self.listen(side);
            }
            self.attend();
            if !any {
                return;
            }
        }
    }

    /// Carries what the host sends by a side; whether there was anything.
    fn carry_to_liar(&mut self, side: usize) -> bool {
        let (mut room, mut any) = ([0; 2048], false);
        loop {
            let mut tx = TxFrame::new(&mut room);
            if !self.host.poll_transmit(self.now, [Nic::WIRE, DualNic::BACKUP][side], &mut tx) {
                return any;
            }
            any = true;
            let (head, tail) = tx.segments();
            let mut frame = [head, tail].concat();
            if !self.cut[side] {
                self.liar[side].handle_frame(self.now, Nic::WIRE, &mut frame);
            }
        }
    }

    /// Carries what the liar sends by a side; whether there was anything.
    pub(crate) fn carry_to_host(&mut self, side: usize) -> bool {
        let (mut room, mut any) = ([0; 2048], false);
        loop {
            let mut tx = TxFrame::new(&mut room);
            if !self.liar[side].poll_transmit(self.now, Nic::WIRE, &mut tx) {
                return any;
            }
            any = true;
            let (head, tail) = tx.segments();
            let mut frame = [head, tail].concat();
            if !self.cut[side] {
                self.host.handle_frame(self.now, [Nic::WIRE, DualNic::BACKUP][side], &mut frame);
            }
        }
    }

    fn listen(&mut self, side: usize) {
        while let Some(received) = self.liar[side].poll_mad() {
            let header = mad::Repr::parse(&received.mad).unwrap();
            if header.attribute_id == FAILOVER_HELLO
                && let Ok(hello) = Hello::parse(&received.mad)
                && hello.kind == Kind::Offer
            {
                self.hello = Some(hello);
            }
            self.mads.push((side, received));
        }
    }

    fn attend(&mut self) {
        while let Some(request) = self.host.poll_request() {
            match request {
                Request::Path { qpn, peer } => {
                    assert_eq!(peer, address(2, true).0);
                    let path = self.host.backup().unwrap().path_to(peer, address(2, true).1, 7);
                    self.host.set_backup_path(self.now, qpn, path);
                }
                request => self.requests.push(request),
            }
            // What the store is told of the host's backup is what a hello would say.
            if let Request::Put { entry: Entry { nonce, value: EntryValue::QueuePair(backup) }, .. } = request {
                self.hello = Some(Hello {
                    transaction_id: 1,
                    kind: Kind::Offer,
                    version: VERSION,
                    sender_qpn: self.qpns[0],
                    receiver_qpn: self.qpns[1],
                    mode: Mode::Shift,
                    readiness: Readiness::Ready,
                    nonce,
                    backup: Some(backup),
                });
            }
        }
        self.notices.extend(std::iter::from_fn(|| self.host.poll_notice()));
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let timers = [self.host.poll_timeout(), self.liar[0].poll_timeout(), self.liar[1].poll_timeout()];
            let next = timers.into_iter().flatten().min().unwrap_or(end).min(end);
            self.now = self.now.max(next);
            self.host.handle_timeout(self.now);
            self.liar.iter_mut().for_each(|nic| nic.handle_timeout(self.now));
            self.carry();
            if self.now >= end {
                return;
            }
        }
    }

    /// The default link fails for good, while a message and a receive are outstanding.
    pub(crate) fn lose_the_default(&mut self) {
        self.cut[0] = true;
        self.post_recv(100);
        self.post(1, SendOp::Send);
        self.post(2, SendOp::Send);
        self.pass(5 * MS);
        assert_eq!(self.host.machine(self.qpns[0]).unwrap().phase(), Phase::Moving);
    }
}
