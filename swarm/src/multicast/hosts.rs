//! The hosts of a world with a group: a NIC with one queue pair each, and memory for all messages.

use std::sync::Arc;

use softnic_fault_injector::random::Random;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{CqId, SrqId, Transport};
use softnic_nic::{Buffer, Nic, NicConfig, Port, QpInit, WindowType, next_key};
use softnic_wire::Qpn;

use super::messages::{COLOUR, Message};
use super::text;
use super::world::{Kind, World, one_of};

/// A host.
pub(super) struct Host {
    pub(super) qpn: Qpn,
    pub(super) cq: CqId,
    pub(super) srq: Option<SrqId>,
    pub(super) buffer: Arc<Buffer>,
    pub(super) key: u32,
    /// The key of the window for each message that takes one away.
    pub(super) windows: Vec<Option<u32>>,
    /// Receives posted, and completed.
    pub(super) posted: usize,
    pub(super) received: usize,
}

/// A NIC with one queue pair, memory for all messages, and windows for those that take one away.
pub(super) fn make_host(world: &World, host: usize, room: usize, messages: &[Message]) -> Result<(Nic, Host), String> {
    let port = Port { mac: World::mac(host), addresses: vec![world.ip(host)], mtu: world.mtu };
    let mut random = Random::stream(world.seed, 8700 + host as u64);
    let mut draws = random.clone();
    let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(move || random.next_u32()));
    nic.set_link_rate(world.rate);
    let (pd, cq) = (nic.alloc_pd(), nic.create_cq(256));
    let buffer = Buffer::new((host as u64 + 1) << 44 | one_of(&mut draws, &[0, 0x1000, 0xffff_f001]), room);
    buffer.write_at(0, &vec![COLOUR; room]);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::MW_BIND;
    let key = nic.reg_mr(pd, &buffer, access).map_err(text)?;
    let is_receiver = (1..=world.receivers).contains(&host);
    let (receives, shared) = if is_receiver { world.receives[host - 1] } else { (1, false) };
    let srq = if shared { Some(nic.create_srq(pd, receives as u32, 1).map_err(text)?) } else { None };
    let caps = Caps { max_send_wr: 64, max_recv_wr: receives as u32, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let init = QpInit { srq, ..QpInit::new(Transport::Rc.kind(), pd, cq, cq, caps) };
    let qpn = nic.create_qp(&init).map_err(text)?;
    let mut windows = vec![None; messages.len()];
    for (n, _) in messages.iter().enumerate().filter(|(_, m)| is_receiver && m.kind == Kind::SendInv) {
        windows[n] = Some(next_key(nic.alloc_mw(pd, WindowType::Type2B).map_err(text)?));
    }
    Ok((nic, Host { qpn, cq, srq, buffer, key, windows, posted: 0, received: 0 }))
}
