//! The two ends of a scenario: a queue pair of our NIC in this process, one of rxe in the guest, and a wire between them.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use softnic_fault_injector::Spec;
use softnic_nic::transports::completion::{CqId, WcOpcode};
use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::transports::qp::{Caps, PayloadMode, QpState};
use softnic_nic::transports::wr::{AhId, Data, Datagram};
use softnic_nic::transports::{Completion, RecvWr, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_nic::{AddressAttr, Buffer, Nic, NicConfig, Port, QpAttr, QpInit, QpKind};
use softnic_runtime::dgram::DgramSpec;
use softnic_runtime::neighbours::link_local;
use softnic_runtime::{Dgram, Driver, DriverError, Faulty, Neighbours, OsRandom};
use softnic_wire::{MacAddr, PathMtu, Psn, Qpn};

use super::guest::{Guest, Network};
use super::image::Image;
use super::verbs;
use super::{Error, failed};

/// Who does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Softnic,
    Rxe,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Side::Softnic => "softnic",
            Side::Rxe => "rxe",
        }
    }

    pub(super) fn other(self) -> Side {
        match self {
            Side::Softnic => Side::Rxe,
            Side::Rxe => Side::Softnic,
        }
    }
}

/// Which completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Send,
    Recv,
}

/// How a work request ended, at whichever end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) wr_id: u64,
    pub(super) status: Status,
    /// Only known on success.
    pub(super) opcode: Option<WcOpcode>,
    /// Bytes received; of no meaning at a requester.
    pub(super) len: u32,
    pub(super) imm: Option<u32>,
    /// Who sent it; only known of datagrams.
    pub(super) src_qp: Option<u32>,
}

/// What a connection is made with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) service: QpKind,
    pub(super) requester: Side,
    pub(super) ipv6: bool,
    pub(super) mtu: PathMtu,
    /// The first PSN of both directions.
    pub(super) psn: u32,
    /// What the responder's queue pair allows.
    pub(super) qp_access: Access,
    /// What the responder's memory region allows.
    pub(super) mr_access: Access,
    pub(super) min_rnr_timer: u8,
    pub(super) rnr_retry: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    /// What the wire does to packets of both directions, as a fault SPEC.
    pub(super) faults: &'static str,
}

/// Every right there is.
pub(super) const ALL: [Access; 4] =
    [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
/// Bytes of memory at each end.
pub(super) const MEMORY: usize = 256 << 10;
/// READs and atomics outstanding at a time.
const RD_ATOMIC: u8 = 4;
const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0x33, 0, 1]);
const THEIR_MAC: &str = "02:00:00:33:00:02";
/// Of both ends.
const QKEY: u32 = 0x1122_3344;
/// Ours and the guest's, of IPv4 and IPv6.
const ADDRESSES: [[&str; 2]; 2] = [["10.33.0.1", "10.33.0.2"], ["fd33::1", "fd33::2"]];
const LINK_MTU: u32 = 4200;

impl Setup {
    pub(super) fn new(requester: Side, ipv6: bool, mtu: PathMtu) -> Setup {
        let all = ALL.into_iter().fold(Access::NONE, |a, b| a | b);
        // 67 ms, and never 7 retries: rxe does not count those.
        let (timeout, retry_cnt) = (14, 6);
        let (min_rnr_timer, rnr_retry) = (14, 7); // 1 ms, for ever
        let (service, psn, faults) = (QpKind::Rc, 100, "");
        Setup {
            service,
            requester,
            ipv6,
            mtu,
            psn,
            qp_access: all,
            mr_access: all,
            min_rnr_timer,
            rnr_retry,
            timeout,
            retry_cnt,
            faults,
        }
    }

    fn access(&self, side: Side) -> (Access, Access) {
        match side == self.requester {
            true => (Setup::new(side, false, self.mtu).qp_access, Setup::new(side, false, self.mtu).mr_access),
            false => (self.qp_access, self.mr_access),
        }
    }
}

/// Where an end's memory is.
#[derive(Debug, Clone, Copy)]
struct End {
    qpn: u32,
    addr: u64,
    key: u32,
}

/// Our NIC, the guest, and the connection of the current scenario.
pub(super) struct Session {
    driver: Driver<Nic, Faulty<Dgram>>,
    guest: Guest,
    pd: PdId,
    cqs: [CqId; 2],
    buffer: Arc<Buffer>,
    ours: Option<End>,
    theirs: Option<End>,
    /// The way to the guest, for datagrams.
    ah: Option<AhId>,
    /// The same faults with the same seed, as far as the guest does the same.
    seed: u64,
    /// Of the current connection.
    pub(super) setup: Setup,
}

pub(super) fn address(side: Side, ipv6: bool) -> IpAddr {
    let name = ADDRESSES[usize::from(ipv6)][usize::from(side == Side::Rxe)];
    name.parse().expect("a constant that is an address")
}

fn io(e: DriverError) -> Error {
    Error::Failed(e.to_string())
}

fn refused(e: impl std::fmt::Display) -> Error {
    Error::Failed(format!("softnic: {e}"))
}

/// Runs our NIC for a moment.
fn pump(driver: &mut Driver<Nic, Faulty<Dgram>>) -> Result<(), Error> {
    driver.run_until(Duration::from_millis(1), |_| false).map(|_| ()).map_err(io)
}

impl Session {
    /// Makes our NIC and boots the guest; sockets and logs are in `folder`.
    pub(super) fn start(image: &Image, folder: &Path, seed: u64) -> Result<Session, Error> {
        let wire = DgramSpec { local: folder.join("softnic"), remote: folder.join("qemu") };
        let port = Port {
            mac: OUR_MAC,
            addresses: vec![address(Side::Softnic, false), address(Side::Softnic, true), link_local(OUR_MAC).into()],
            mtu: PathMtu::B4096,
        };
        let neighbours = Neighbours::new(&port);
        let random = OsRandom::new().map_err(failed(folder))?;
        let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random));
        let pd = nic.alloc_pd();
        let cqs = [nic.create_cq(256), nic.create_cq(256)];
        let wire_end = Faulty::new(Dgram::bind(&wire).map_err(refused)?, &Spec::default(), 0);
        let mut driver = Driver::new(nic, wire_end, neighbours);
        let network = Network {
            wire: DgramSpec { local: wire.remote, remote: wire.local },
            mac: THEIR_MAC,
            addresses: &["10.33.0.2/24", "fd33::2/64"],
            mtu: LINK_MTU,
        };
        let guest = Guest::boot(image, folder, &network, &mut || pump(&mut driver))?;
        let buffer = Buffer::new(0x7000_0000_0000, MEMORY);
        let setup = Setup::new(Side::Softnic, false, PathMtu::B1024);
        Ok(Session { driver, guest, pd, cqs, buffer, ours: None, theirs: None, ah: None, seed, setup })
    }

    /// What there is to know of the guest.
    pub(super) fn describe(&mut self) -> Result<String, Error> {
        let kernel = self.call(json!({"do": "kernel"}))?;
        let seconds = self.guest.boot.as_secs_f64();
        Ok(format!("Linux {}, up in {seconds:.1} s", kernel.as_str().unwrap_or("?")))
    }

    /// The file that holds what the guest's kernel and init print.
    pub(super) fn console(&self) -> &Path {
        &self.guest.console
    }

    /// Records all frames into a file until [`Session::close`].
    pub(super) fn record(&mut self, file: &Path) -> Result<(), Error> {
        let out = std::fs::File::create(file).map_err(failed(file))?;
        self.driver.record(Box::new(std::io::BufWriter::new(out))).map_err(io)
    }

    fn call(&mut self, command: Value) -> Result<Value, Error> {
        let driver = &mut self.driver;
        self.guest.call(&command, &mut || pump(driver))
    }

    /// Makes a queue pair at each end and connects them.
    pub(super) fn open(&mut self, setup: Setup) -> Result<(), Error> {
        self.setup = setup;
        let ours = self.open_ours()?;
        let (qp_access, mr_access) = setup.access(Side::Rxe);
        let peer = address(Side::Rxe, setup.ipv6);
        let answer = self.call(json!({
            "do": "open", "service": verbs::service(setup.service), "memory": MEMORY, "ip": peer.to_string(), "mtu": setup.mtu.bytes(),
            "psn": setup.psn, "qp_access": verbs::access(qp_access), "mr_access": verbs::access(mr_access),
            "max_rd_atomic": RD_ATOMIC, "min_rnr_timer": setup.min_rnr_timer, "timeout": setup.timeout,
            "retry_cnt": setup.retry_cnt, "rnr_retry": setup.rnr_retry,
        }))?;
        let field = |name: &str| {
            answer[name].as_u64().ok_or_else(|| Error::Failed(format!("the agent's answer has no {name}: {answer}")))
        };
        let theirs = End { qpn: field("qpn")? as u32, addr: field("addr")?, key: field("rkey")? as u32 };
        (self.ours, self.theirs) = (Some(ours), Some(theirs));
        let gid = match address(Side::Softnic, setup.ipv6) {
            IpAddr::V4(a) => a.to_ipv6_mapped(),
            IpAddr::V6(a) => a,
        };
        // pyverbs reads a GID only with all its digits.
        let gid = gid.segments().map(|s| format!("{s:04x}")).join(":");
        self.call(json!({"do": "connect", "gid": gid, "qpn": ours.qpn, "psn": setup.psn, "qkey": QKEY}))?;
        let mac = self.driver.resolve(peer).map_err(io)?;
        self.connect_ours(ours, theirs, peer, mac)?;
        let faults: Spec = setup.faults.parse().map_err(refused)?;
        self.driver.io_mut().set_faults(&faults, self.seed);
        Ok(())
    }

    fn open_ours(&mut self) -> Result<End, Error> {
        let nic = &mut self.driver.node;
        let caps = Caps { max_send_wr: 64, max_recv_wr: 64, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        let [send_cq, recv_cq] = self.cqs;
        let init = QpInit { sig_all: true, ..QpInit::new(self.setup.service, self.pd, send_cq, recv_cq, caps) };
        let qpn = nic.create_qp(&init).map_err(refused)?;
        let key = nic.reg_mr(self.pd, &self.buffer, self.setup.access(Side::Softnic).1).map_err(refused)?;
        Ok(End { qpn: qpn.value(), addr: self.buffer.addr(), key })
    }

    fn connect_ours(&mut self, ours: End, theirs: End, peer: IpAddr, mac: MacAddr) -> Result<(), Error> {
        let Setup { service, ipv6, mtu, psn, min_rnr_timer, timeout, retry_cnt, rnr_retry, .. } = self.setup;
        let access = self.setup.access(Side::Softnic).0;
        let nic = &mut self.driver.node;
        let to = |state| QpAttr { state: Some(state), ..QpAttr::default() };
        let mut init = QpAttr { pkey_index: Some(0), port: Some(1), ..to(QpState::Init) };
        let mut rtr = to(QpState::ReadyToReceive);
        let mut rts = QpAttr { sq_psn: Some(Psn::new(psn)), ..to(QpState::ReadyToSend) };
        if service == QpKind::Ud {
            init.qkey = Some(QKEY);
            let way = AddressAttr::new(peer, mac, usize::from(ipv6), ours.qpn);
            self.ah = Some(nic.create_ah(self.pd, &way).map_err(refused)?);
        } else {
            init.access = Some(access);
            (rtr.path, rtr.mtu) = (nic.path_to(peer, mac, ours.qpn), Some(mtu));
            (rtr.dest_qp, rtr.rq_psn) = (Some(Qpn::new(theirs.qpn)), Some(Psn::new(psn)));
        }
        if service == QpKind::Rc {
            (rtr.max_dest_rd_atomic, rtr.min_rnr_timer) = (Some(RD_ATOMIC), Some(min_rnr_timer));
            (rts.timeout, rts.retry_cnt, rts.rnr_retry) = (Some(timeout), Some(retry_cnt), Some(rnr_retry));
            rts.max_rd_atomic = Some(RD_ATOMIC);
        }
        for attr in [init, rtr, rts] {
            nic.modify_qp(Qpn::new(ours.qpn), &attr).map_err(refused)?;
        }
        Ok(())
    }

    /// Destroys one end; that it is gone already is just as well.
    pub(super) fn close_end(&mut self, side: Side) -> Result<(), Error> {
        match side {
            Side::Rxe if self.theirs.take().is_some() => self.call(json!({"do": "close"})).map(|_| ()),
            Side::Softnic => {
                let Some(end) = self.ours.take() else { return Ok(()) };
                let nic = &mut self.driver.node;
                nic.destroy_qp(Qpn::new(end.qpn)).map_err(refused)?;
                nic.dereg_mr(end.key).map_err(refused)?;
                if let Some(ah) = self.ah.take() {
                    nic.destroy_ah(ah).map_err(refused)?;
                }
                // What completed and was not looked at is not the next scenario's.
                for cq in self.cqs {
                    while nic.poll_cq(cq).map_err(refused)?.is_some() {}
                }
                Ok(())
            }
            Side::Rxe => Ok(()),
        }
    }

    /// Destroys both ends and ends the capture.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        self.driver.io_mut().set_faults(&Spec::default(), 0);
        // Answers that are still under way belong to this capture.
        self.pause(Duration::from_millis(5))?;
        self.close_end(Side::Rxe)?;
        self.close_end(Side::Softnic)?;
        self.driver.stop_recording().map_err(io)
    }

    /// Lets time pass.
    pub(super) fn pause(&mut self, time: Duration) -> Result<(), Error> {
        self.driver.run_until(time, |_| false).map(|_| ()).map_err(io)
    }

    fn end(&self, side: Side) -> Result<End, Error> {
        let end = if side == Side::Softnic { self.ours } else { self.theirs };
        end.ok_or_else(|| Error::Failed(format!("{} has no queue pair", side.name())))
    }

    /// Address and key of an end's memory at `offset`, as its peer names it.
    pub(super) fn remote(&self, side: Side, offset: usize) -> Result<(u64, u32), Error> {
        let end = self.end(side)?;
        Ok((end.addr + offset as u64, end.key))
    }

    /// The number of an end's queue pair.
    pub(super) fn qpn(&self, side: Side) -> Result<u32, Error> {
        self.end(side).map(|e| e.qpn)
    }

    pub(super) fn fill(&mut self, side: Side, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        match side {
            Side::Softnic => self.buffer.write_at(offset, bytes),
            Side::Rxe if bytes.is_empty() => {}
            Side::Rxe => {
                self.call(json!({"do": "fill", "offset": offset, "hex": verbs::to_hex(bytes)}))?;
            }
        }
        Ok(())
    }

    pub(super) fn read(&mut self, side: Side, offset: usize, len: usize) -> Result<Vec<u8>, Error> {
        if side == Side::Softnic {
            let mut bytes = vec![0; len];
            self.buffer.read_at(offset, &mut bytes);
            return Ok(bytes);
        }
        let answer = self.call(json!({"do": "read", "offset": offset, "len": len}))?;
        let bytes = answer.as_str().and_then(verbs::from_hex).filter(|b| b.len() == len);
        bytes.ok_or_else(|| Error::Failed("the agent's memory is not as many bytes as were asked for".into()))
    }

    pub(super) fn recv(&mut self, side: Side, wr_id: u64, offset: usize, len: usize) -> Result<(), Error> {
        if side == Side::Rxe {
            return self.call(json!({"do": "recv", "wr_id": wr_id, "offset": offset, "len": len})).map(|_| ());
        }
        let ours = self.end(side)?;
        let sges = [Sge { addr: ours.addr + offset as u64, len: len as u32, lkey: ours.key }];
        let wr = RecvWr { wr_id, sges: &sges, deadline: None };
        self.driver.node.post_recv(Qpn::new(ours.qpn), &wr).map_err(refused)
    }

    pub(super) fn send(&mut self, side: Side, wr_id: u64, op: SendOp, offset: usize, len: usize) -> Result<(), Error> {
        if side == Side::Rxe {
            let mut command =
                verbs::send(op).ok_or_else(|| Error::Failed(format!("the agent has no command for {op:?}")))?;
            command["do"] = "send".into();
            (command["wr_id"], command["offset"], command["len"]) = (wr_id.into(), offset.into(), len.into());
            return self.call(command).map(|_| ());
        }
        let ours = self.end(side)?;
        let sges = [Sge { addr: ours.addr + offset as u64, len: len as u32, lkey: ours.key }];
        let dest_qp = Qpn::new(self.theirs.map_or(0, |t| t.qpn));
        let to = self.ah.map(|ah| Datagram { ah, dest_qp, qkey: QKEY });
        let wr = SendWr { wr_id, op, data: Data::Gather(&sges), flags: SendFlags::default(), deadline: None, to };
        let now = self.driver.now();
        self.driver.node.post_send(now, Qpn::new(ours.qpn), &wr).map_err(refused)
    }

    /// The next completions, at most `count`, waiting for them at most `limit`.
    pub(super) fn poll(&mut self, side: Side, queue: Queue, count: usize, limit: Duration) -> Result<Vec<Done>, Error> {
        if side == Side::Rxe {
            let queue = u8::from(queue == Queue::Recv);
            let ms = limit.as_millis() as u64;
            let answer = self.call(json!({"do": "poll", "queue": queue, "count": count, "ms": ms}))?;
            return verbs::completions(&answer).ok_or_else(|| Error::Failed(format!("no completions: {answer}")));
        }
        let cq = self.cqs[usize::from(queue == Queue::Recv)];
        let mut found = Vec::new();
        let mut broken = None;
        let enough = |nic: &mut Nic| {
            while found.len() < count {
                match nic.poll_cq(cq) {
                    Ok(Some(c)) => found.push(done(c)),
                    Ok(None) => return false,
                    Err(e) => {
                        broken = Some(e);
                        return true;
                    }
                }
            }
            true
        };
        self.driver.run_until(limit, enough).map_err(io)?;
        broken.map_or(Ok(found), |e| Err(refused(e)))
    }
}

fn done(c: Completion) -> Done {
    let opcode = (c.status == Status::Success).then_some(c.opcode);
    Done { wr_id: c.wr_id, status: c.status, opcode, len: c.byte_len, imm: c.imm, src_qp: c.src_qp.map(Qpn::value) }
}
