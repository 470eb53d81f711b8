//! Creation and release of the resources that a protected connection has at both NICs.

use std::collections::VecDeque;

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::Caps;
use softnic_nic::{Buffer, MrError, Nic, QpAttr, QpInit};
use softnic_wire::{Instant, Psn, Qpn};

use super::owed::Owed;
use super::{Backup, OWN_SENDS, ProtectError, Request};
use crate::connection::{CONTROL, Connection, Guard, Stage};
use crate::machine::Machine;

/// Base address of the control memory: each connection has its own range, at both NICs.
const CONTROL_BASE: u64 = 0x5346_0000_0000_0000;

impl Backup {
    fn draw_bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| (self.random.next_u32() >> 8) as u8)
    }

    /// Creates what a connection needs at both NICs.
    pub(super) fn make_guard(
        &mut self,
        nic: &mut Nic,
        at: usize,
        attr: &QpAttr,
        now: Instant,
    ) -> Result<Guard, ProtectError> {
        let Some(Some(Connection { plain, .. })) = self.connections.get(at) else { return Err(ProtectError::Kind) };
        let init = plain.init;
        let path = attr.path.ok_or(ProtectError::State)?;
        let (own, peer) = (path.addresses.src(), path.addresses.dst());
        if nic.port().addresses.contains(&peer) {
            return Err(ProtectError::Loopback);
        }
        let port = self.nic.port();
        if !port.addresses.iter().any(|address| address.is_ipv4() == own.is_ipv4()) {
            return Err(ProtectError::NoAddress);
        }
        if attr.mtu.is_some_and(|mtu| mtu > port.mtu) {
            return Err(ProtectError::Mtu);
        }
        let pd = *self.pds.get(&init.pd).ok_or(ProtectError::Resources)?;
        // The backup's queues also hold a receive of our own, statuses and fences. When these queues are full, the program's last receive and last
        // sends wait here instead: sizes are rounded up to powers of two, which programs ask for.
        let (max_send_wr, max_recv_wr) = (init.caps.max_send_wr.max(2 * OWN_SENDS), init.caps.max_recv_wr.max(2));
        let caps = Caps { max_send_wr, max_recv_wr, ..init.caps };
        let shadow = QpInit {
            pd,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            caps,
            sig_all: false,
            halt_on_retry_exceeded: true,
            ..init
        };
        let backup = self.nic.create_qp(&shadow).map_err(|_| ProtectError::Resources)?;
        let control = Buffer::new(CONTROL_BASE + (at * CONTROL) as u64, CONTROL);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let control_keys = [
            self.register_control(|key| nic.reg_mr_as(key, init.pd, &control, access)),
            self.nic.reg_mr(pd, &control, access),
        ];
        let (nonce, psn) = (self.draw_bytes(), Psn::new(self.random.next_u32()));
        self.by_backup.insert(backup, at);
        let [Ok(of_default), Ok(of_backup)] = control_keys else {
            self.drop_backup_qp(backup);
            control_keys[0].into_iter().for_each(|key| _ = nic.dereg_mr(key));
            control_keys[1].into_iter().for_each(|key| _ = self.nic.dereg_mr(key));
            return Err(ProtectError::Resources);
        };
        Ok(Guard {
            stage: Stage::Meeting,
            attr: *attr,
            receives_only: false,
            backup,
            control,
            control_keys: [of_default, of_backup],
            backup_psn: psn,
            nonce,
            secrets: [[0; 16]; 2],
            peer: None,
            path: None,
            ask_at: Some(now),
            asked: 0,
            stored: None,
            dropped: 0,
            region_nonce: None,
            machine: Machine::new(self.config.times),
            halted: [false; 2],
            queue: VecDeque::new(),
            recvs: VecDeque::new(),
            at_backup: VecDeque::new(),
            next_seq: 0,
            fence: None,
            probe_at: None,
            notice_at: None,
            recv_moved: false,
            published: 0,
            owes_status: false,
            broken: false,
            failed_at: None,
            wanted: None,
            looked_up: None,
            keyless: false,
            drain: None,
            doomed: None,
        })
    }

    /// Registers control memory at the default under a key drawn here. The sequence of keys that the NIC draws is left to the program.
    fn register_control(&mut self, mut register: impl FnMut(u32) -> Result<u32, MrError>) -> Result<u32, MrError> {
        const TRIES: usize = 16;
        let mut done = Err(MrError::NoKeys);
        for _ in 0..TRIES {
            done = register(self.random.next_u32());
            if done.is_ok() {
                break;
            }
        }
        done
    }

    /// Destroys a queue pair of the backup and drops its completions, because its number may be reused.
    fn drop_backup_qp(&mut self, backup: Qpn) {
        self.by_backup.remove(&backup);
        let _ = self.nic.destroy_qp(backup);
        for cq in [self.send_cq, self.recv_cq] {
            let _ = self.nic.forget_completions(cq, backup);
        }
    }

    /// Drops the backup of a connection for good. From now on, a peer that asks is answered that there is none.
    pub(super) fn give_up(&mut self, nic: &mut Nic, at: usize) {
        let Some(Some(connection)) = self.connections.get_mut(at) else { return };
        (connection.refused, connection.gave_up) = (true, true);
        if let Some(guard) = connection.guard.take() {
            self.drop_guard(nic, at, &guard);
        }
    }

    /// Releases the resources of a connection at both NICs.
    fn drop_guard(&mut self, nic: &mut Nic, at: usize, guard: &Guard) {
        let _ = nic.dereg_mr(guard.control_keys[0]);
        self.bury(at, guard);
    }

    /// As [`Backup::drop_guard`], for a verb: resources at the backup are released later. The default's protection domain is empty at once, so that
    /// a verb can free it.
    pub(super) fn leave_guard(&mut self, nic: &mut Nic, at: usize, guard: Box<Guard>) {
        let _ = nic.dereg_mr(guard.control_keys[0]);
        self.owed.push(Owed::Guard { at, guard });
    }

    /// Releases the resources of a connection at the backup.
    pub(super) fn bury(&mut self, at: usize, guard: &Guard) {
        self.requests.extend(guard.stored.map(|object| Request::Delete { object }));
        self.note(at);
        self.drop_backup_qp(guard.backup);
        let _ = self.nic.dereg_mr(guard.control_keys[1]);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use softnic_nic::transports::memory::PdId;
    use softnic_nic::transports::qp::{PayloadMode, QpKind};
    use softnic_nic::{Connection as Settings, NicConfig, Port};
    use softnic_wire::{MacAddr, Node, PathMtu};

    use super::super::{Config, DualNic};
    use super::*;

    fn nic(net: u8) -> Nic {
        let addresses = vec![IpAddr::from([10, net, 0, 1])];
        let port = Port { mac: MacAddr([2, 0, net, 0, 0, 1]), addresses, mtu: PathMtu::B1024 };
        let mut n = u32::from(net) + 3;
        let random = move || {
            n = n.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
            n ^ n >> 15
        };
        Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random))
    }

    #[test]
    fn queue_pairs_of_the_backup_go_with_the_connections_that_needed_them() {
        let mut n = 1u32;
        let random = move || {
            n = n.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
            n
        };
        let mut dual = DualNic::new(nic(0), nic(1), Config::default(), Box::new(random));
        let (pd, cq) = (dual.nic.alloc_pd(), dual.nic.create_cq(16));
        dual.shadow_pd(pd);
        let caps = Caps { max_send_wr: 8, max_recv_wr: 5, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        let make = |dual: &mut DualNic| {
            let qpn = dual.create_qp(&QpInit::new(QpKind::Rc, pd, cq, cq, caps)).unwrap();
            let path = dual.nic.path_to(IpAddr::from([10, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 2]), 7);
            dual.nic.connect(qpn, &Settings { path, dest_qp: Qpn::new(9), ..Settings::default() }).unwrap();
            dual.protect(Instant::ZERO, qpn).unwrap();
            qpn
        };
        let count = |dual: &DualNic| {
            dual.backup.as_ref().map(|backup| (backup.by_backup.len(), backup.nic.queue_pairs().count()))
        };
        let (none, first) = (count(&dual), make(&mut dual));
        let of_one = count(&dual);
        let others: Vec<Qpn> = (0..3).map(|_| make(&mut dual)).collect();
        assert_eq!(count(&dual).map(|(guarded, _)| guarded), Some(4));
        for qpn in others {
            dual.destroy_qp(qpn).unwrap();
        }
        assert!(dual.owes() && count(&dual) != of_one, "no verb waits for that");
        dual.catch_up();
        assert!(!dual.owes());
        assert_eq!(count(&dual), of_one);
        // A connection without a backup needs no queue pair there either.
        let DualNic { nic, backup: Some(backup) } = &mut dual else { unreachable!() };
        let at = backup.by_qpn[&first];
        backup.give_up(nic, at);
        assert_eq!(count(&dual), none);
        dual.destroy_qp(first).unwrap();
        assert_eq!(dual.backup.as_ref().unwrap().free.len(), 4);
    }

    #[test]
    fn whatever_uses_the_backup_does_first_what_verbs_have_left() {
        type Use = fn(&mut DualNic);
        let times: [(&str, Use); 4] = [
            ("time passes", |dual| dual.handle_timeout(Instant::ZERO)),
            ("its link changes", |dual| _ = dual.backup()),
            ("a shadow is made", |dual| dual.shadow_pd(PdId(9))),
            ("requests are asked for", |dual| _ = dual.poll_request()),
        ];
        for (what, time) in times {
            let mut dual = DualNic::new(nic(0), nic(1), Config::default(), Box::new(|| 7));
            let pd = dual.nic.alloc_pd();
            dual.shadow_pd(pd);
            dual.forget_pd(pd);
            assert_eq!(dual.backup.as_ref().unwrap().pds.len(), 1);
            time(&mut dual);
            assert!(!dual.owes(), "{what}");
            assert!(!dual.backup.as_ref().unwrap().pds.contains_key(&pd), "{what}");
        }
    }
}
