//! Rounds of the driver loop: when frames are sent, and how late a timer fires.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use softnic_nic::Port;
use softnic_wire::{PathMtu, TxFrame};

use super::*;
use crate::neighbours::Neighbours;

/// A wire that can be full.
struct Narrow {
    full: bool,
}

impl PacketIo for Narrow {
    fn receive(&mut self, _: usize, _: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        Ok(0)
    }

    fn transmit(&mut self, _: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        let mut room = [0; 100];
        Ok(usize::from(!self.full && next(&mut TxFrame::new(&mut room))))
    }

    fn wait(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn due_in(&self) -> Option<Duration> {
        self.full.then_some(Duration::from_micros(100))
    }

    fn lost(&self) -> u64 {
        0
    }
}

/// A Node with one frame to send; records the time at which it was polled for the frame.
struct Once(Option<Instant>);

impl Node for Once {
    fn handle_frame(&mut self, _: Instant, _: usize, _: &mut [u8]) {}

    fn poll_transmit(&mut self, now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        port == Nic::WIRE && self.0.is_none() && {
            self.0 = Some(now);
            tx.put_frame(&[0; 60]).is_ok()
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}
}

#[test]
fn a_frame_that_waited_for_room_is_sent_with_the_time_of_its_sending() {
    for rounds in 1..2 * IDLE_ROUNDS {
        let addresses = vec![Ipv4Addr::new(10, 0, 0, 1).into()];
        let port = Port { mac: MacAddr([2; 6]), addresses, mtu: PathMtu::B1024 };
        let mut driver = Driver::new(Once(None), Narrow { full: true }, Neighbours::new(&port));
        for _ in 0..rounds {
            assert!(!driver.step_after(None, &mut |_, _| ()).unwrap());
        }
        let before = driver.now();
        driver.io_mut().full = false;
        driver.step_after(None, &mut |_, _| ()).unwrap();
        assert!(driver.node.0.unwrap() >= before, "after {rounds} rounds in vain");
    }
}

/// A Node whose timer is always due; counts the calls.
struct Due(u32);

impl Node for Due {
    fn handle_frame(&mut self, _: Instant, _: usize, _: &mut [u8]) {}

    fn poll_transmit(&mut self, _: Instant, _: usize, _: &mut TxFrame<'_>) -> bool {
        false
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(Instant::ZERO)
    }

    fn handle_timeout(&mut self, _: Instant) {
        self.0 += 1;
    }
}

#[test]
fn a_timer_is_at_most_a_few_rounds_late_though_nothing_comes_in() {
    let port = Port { mac: MacAddr([2; 6]), addresses: Vec::new(), mtu: PathMtu::B1024 };
    let mut driver = Driver::new(Due(0), Narrow { full: false }, Neighbours::new(&port));
    for rounds in 1..100 {
        assert!(!driver.step_after(None, &mut |_, _| ()).unwrap());
        assert!(driver.node.0 * (NEAR_ROUNDS + 1) >= rounds, "{} times in {rounds} rounds", driver.node.0);
    }
    assert!(driver.node.0 < 100, "every round looks at the clock");
    let before = driver.node.0;
    driver.refresh();
    driver.step_after(None, &mut |_, _| ()).unwrap();
    assert_eq!(driver.node.0, before + 1);
}

/// A Node that counts the frames it receives.
struct Heard(u32);

impl Node for Heard {
    fn handle_frame(&mut self, _: Instant, _: usize, _: &mut [u8]) {
        self.0 += 1;
    }

    fn poll_transmit(&mut self, _: Instant, _: usize, _: &mut TxFrame<'_>) -> bool {
        false
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}
}

#[test]
fn whoever_gives_work_is_asked_again_before_each_frame_that_came_in() {
    // The beginning of a RoCEv2 packet over IPv4.
    let mut frame = [0; 60];
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&46u16.to_be_bytes());
    frame[23] = 17;
    frame[36..38].copy_from_slice(&4791u16.to_be_bytes());
    frame[38..40].copy_from_slice(&26u16.to_be_bytes());
    let (mut peer, wire) = crate::MemoryWire::pair().unwrap();
    let port = Port { mac: MacAddr([2; 6]), addresses: Vec::new(), mtu: PathMtu::B1024 };
    let mut driver = Driver::new(Heard(0), wire, Neighbours::new(&port));
    let mut left = 3;
    let mut next = |tx: &mut TxFrame<'_>| {
        left -= 1;
        left >= 0 && tx.put_frame(&frame).is_ok()
    };
    assert_eq!(peer.transmit(3, &mut next).unwrap(), 3);
    let mut asked = 0;
    driver
        .step_after(None, &mut |node, _| {
            assert_eq!(node.0, asked, "what was posted before the frame was sent comes too late");
            asked += 1;
        })
        .unwrap();
    assert_eq!((asked, driver.node.0), (3, 3));
}

#[test]
fn while_the_link_is_down_frames_are_taken_and_lost() {
    let port = Port { mac: MacAddr([2; 6]), addresses: Vec::new(), mtu: PathMtu::B1024 };
    let mut driver = Driver::new(Once(None), Narrow { full: true }, Neighbours::new(&port));
    driver.set_cut(softnic_nic::Nic::WIRE, true);
    assert!(driver.step().unwrap(), "the backend, which has no room, is not asked");
    assert!(driver.node.0.is_some());
    driver.set_cut(softnic_nic::Nic::WIRE, false);
    driver.node.0 = None;
    assert!(!driver.step().unwrap() && driver.node.0.is_none());
}

#[test]
fn while_the_link_is_down_nothing_is_due_there() {
    let port = Port { mac: MacAddr([2; 6]), addresses: Vec::new(), mtu: PathMtu::B1024 };
    let mut driver = Driver::new(Once(Some(Instant::ZERO)), Narrow { full: true }, Neighbours::new(&port));
    assert_eq!(driver.due_in(), Some(Duration::from_micros(100)));
    driver.set_cut(Nic::WIRE, true);
    driver.step().unwrap();
    assert_eq!(driver.due_in(), None, "a thread that sleeps would wake up for nothing, again and again");
    driver.set_cut(Nic::WIRE, false);
    assert!(driver.due_in().is_some());
}

/// A wire that has frames, and counts the calls of `receive`.
struct Watched {
    looks: u32,
    frames: u32,
}

impl PacketIo for Watched {
    fn receive(&mut self, max: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        self.looks += 1;
        let taken = self.frames.min(max as u32);
        (0..taken).for_each(|_| take(&mut [0; 60]));
        self.frames -= taken;
        Ok(taken as usize)
    }

    fn transmit(&mut self, _: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        let mut room = [0; 100];
        Ok(usize::from(next(&mut TxFrame::new(&mut room))))
    }

    fn wait(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(vec![std::os::unix::net::UnixDatagram::unbound()?.into()])
    }

    fn lost(&self) -> u64 {
        0
    }
}

#[test]
fn a_port_that_stands_by_is_looked_at_seldom_until_a_frame_comes_by_it() {
    let port = |number: usize| {
        let addresses = vec![Ipv4Addr::new(10, 0, number as u8, 1).into()];
        let port = Port { mac: MacAddr([2; 6]), addresses, mtu: PathMtu::B1024 };
        DriverPort { number, io: Watched { looks: 0, frames: 0 }, stack: Neighbours::new(&port).into() }
    };
    let node = Once(Some(Instant::ZERO));
    let mut driver = Driver::with_ports(node, port(Nic::WIRE), vec![port(Nic::WIRE + 1)], None).unwrap();
    let rounds = 10 * (IDLE_ROUNDS + 1);
    let looks = |driver: &mut Driver<Once, Watched>| {
        let before: Vec<u32> = driver.ios().map(|io| io.looks).collect();
        for _ in 0..rounds {
            driver.step_after(None, &mut |_, _| ()).unwrap();
        }
        driver.ios().zip(before).map(|(io, before)| io.looks - before).collect::<Vec<u32>>()
    };
    assert_eq!(looks(&mut driver), [rounds, 10]);
    driver.ports[1].io.frames = 1;
    looks(&mut driver);
    assert_eq!(driver.ports[1].io.frames, 0, "it is seen");
    let after = looks(&mut driver);
    assert!(after[1] == rounds && after[0] < rounds / IDLE_ROUNDS + 2, "the next one is expected there: {after:?}");
}
