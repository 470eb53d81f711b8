//! Connections by name: they are protected, their managers' messages go by the wire that works, and no event tells of it.

use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::api::cm::{
    Accept, CmId, CmSink, Connect, ConnectionManager, Disconnect, Event as CmEvent, Listen, PortSpace,
};

/// The managers of two hosts, a connection of theirs, and what its programs hear of it.
struct Names {
    managers: [ConnectionManager; 2],
    ids: [CmId; 2],
    heard: [Receiver<CmEvent>; 2],
}

impl Names {
    /// A asks B for a connection of these queue pairs, which are not connected yet.
    fn connect(world: &World, ends: &[End; 2]) -> Names {
        let managers = [A, B].map(|host| ConnectionManager::new(&world.contexts[host]).unwrap());
        let [(to_a, at_a), (to_b, at_b)] = [channel(), channel()];
        let [from, to] =
            [(A, 40_000), (B, 7174)].map(|(host, port)| (world.contexts[host].addresses()[0], port).into());
        managers[B].listen(&Listen::port(PortSpace::Tcp, to), CmSink::channel(to_b)).unwrap();
        let asked = Connect::ip(from, to, ends[A].qp.qpn(), Psn::new(7)).unwrap();
        let active = managers[A].connect(&asked, CmSink::channel(to_a)).unwrap();
        let passive = at_b.recv_timeout(LIMIT).unwrap().id();
        managers[B].accept(passive, &Accept::new(ends[B].qp.qpn(), Psn::new(7))).unwrap();
        assert!(matches!(at_a.recv_timeout(LIMIT), Ok(CmEvent::ConnectResponse { .. })));
        managers[A].establish(active).unwrap();
        assert!(matches!(at_b.recv_timeout(LIMIT), Ok(CmEvent::Established { .. })));
        Names { managers, ids: [active, passive], heard: [at_a, at_b] }
    }

    fn next(&self, host: usize) -> CmEvent {
        self.heard[host].recv_timeout(LIMIT).unwrap()
    }

    /// One host ends the connection, and the other agrees; nothing else was ever heard.
    fn end(&self, by: usize) {
        self.managers[by].disconnect(self.ids[by]).unwrap();
        self.agree(1 - by);
        assert_eq!(self.next(by), CmEvent::Disconnected { id: self.ids[by], how: Disconnect::Agreed });
        for host in [A, B] {
            assert!(matches!(self.next(host), CmEvent::TimewaitExit { .. }));
            assert!(self.heard[host].try_recv().is_err());
        }
    }

    fn agree(&self, host: usize) {
        assert_eq!(self.next(host), CmEvent::Disconnected { id: self.ids[host], how: Disconnect::Peer });
        self.managers[host].disconnect(self.ids[host]).unwrap();
    }
}

/// Two hosts with a connection by name that is protected.
fn world() -> (World, [End; 2], Names) {
    let world = World::new(Progress::Inline, 1, [true, true]);
    let ends = world.ends(rights());
    let names = Names::connect(&world, &ends);
    world.join(&ends, false, rights());
    world.await_protection(1);
    (world, ends, names)
}

/// People, and so the managers, were told of so many moves.
fn told(world: &World, words: &str, count: usize) -> bool {
    world.lines.lock().unwrap().iter().filter(|line| line.contains(words)).count() >= count
}

#[test]
fn a_connection_by_name_goes_on_and_ends_by_the_backup_whoever_ends_it() {
    for (by, dead) in [(A, LOSES), (B, LOSES), (A, FAILS), (B, FAILS)] {
        let (world, ends, names) = world();
        let mut flow = Flow::between(&world, ends, Work::Write);
        flow.more(8);
        world.set(0, dead);
        flow.until("fallback", |_| told(&world, "goes on by its backup", 2));
        flow.more(8);
        names.end(by);
    }
}

#[test]
fn a_connection_by_name_that_is_back_ends_by_the_default() {
    let (world, ends, names) = world();
    let mut flow = Flow::between(&world, ends, Work::Send);
    world.set(0, LOSES);
    flow.until("fallback", |_| told(&world, "goes on by its backup", 2));
    world.set(0, WHOLE);
    flow.until("return", |_| told(&world, "is back from its backup", 1));
    flow.more(8);
    world.set(1, LOSES);
    names.end(A);
}

#[test]
fn a_peer_hears_of_the_end_of_a_program_although_nobody_knew_that_the_default_was_dead() {
    let (world, _ends, names) = world();
    world.set(0, LOSES);
    names.managers[A].end_all(LIMIT);
    names.agree(B);
    assert!(names.heard[A].try_recv().is_err(), "nobody is told of what it does itself");
}
