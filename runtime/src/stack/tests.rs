//! Two stacks and a wire between them that loses, reorders and duplicates, in virtual time.

mod world;

use std::net::SocketAddr;
use std::time::Duration;

use softnic_wire::Instant;

use super::*;
use world::{Faults, World, at, ip};

const PORT: u16 = 18515;

/// Bytes that differ from position to position.
fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ i >> 8 ^ salt) as u8).collect()
}

/// One end of an exchange: what it still has to write, and what it has read.
struct End {
    stack: usize,
    id: StreamId,
    out: Vec<u8>,
    written: usize,
    read: Vec<u8>,
    ended: bool,
}

impl End {
    fn new(stack: usize, id: StreamId, out: Vec<u8>) -> End {
        End { stack, id, out, written: 0, read: Vec::new(), ended: false }
    }

    /// Moves as many bytes as possible.
    fn turn(&mut self, world: &mut World) {
        let streams = world.streams(self.stack);
        if self.written < self.out.len() {
            self.written += streams.write(self.id, &self.out[self.written..]).unwrap();
            if self.written == self.out.len() {
                streams.shutdown(self.id).unwrap();
            }
        }
        let mut room = [0; 8192];
        while let Some(n) = streams.read(self.id, &mut room).unwrap() {
            self.read.extend(&room[..n]);
            self.ended |= n == 0;
            if n == 0 {
                break;
            }
        }
    }
}

/// Connects two stacks and accepts the connection.
fn connected(world: &mut World) -> (StreamId, StreamId) {
    world.streams(1).listen(PORT, 4).unwrap();
    let peer = SocketAddr::new(world.address(1), PORT);
    let client = world.stacks[0].connect(peer).unwrap();
    let mut server = None;
    assert!(world.run_until(at(9), |world| {
        server = server.or_else(|| world.streams(1).accept(PORT).map(|(id, _)| id));
        server.is_some() && world.streams(0).state(client) == Ok(StreamState::Open)
    }));
    (client, server.unwrap())
}

#[test]
fn a_mebibyte_goes_both_ways_whatever_the_wire_does() {
    let bad = Faults { loss: 14, reorder: 10, duplicate: 10 };
    let worlds =
        [(4, Faults::default()), (6, Faults::default())].into_iter().chain((0..6).map(|n| (4 + n % 2 * 2, bad)));
    for (seed, (version, faults)) in (1..).zip(worlds) {
        let mut world = World::two(version, Faults::default());
        let (client, server) = connected(&mut world);
        (world.faults, world.random) = (faults, seed);
        let (there, back) = (pattern(1 << 20, 1), pattern(1 << 20, 2));
        let mut ends = [End::new(0, client, there), End::new(1, server, back)];
        let done = world.run_until(at(600), |world| {
            ends.iter_mut().for_each(|end| end.turn(world));
            ends.iter().all(|end| end.ended)
        });
        assert!(done, "seed {seed}: {} and {} bytes", ends[0].read.len(), ends[1].read.len());
        assert!(ends[0].read == ends[1].out && ends[1].read == ends[0].out, "other bytes than were written");
        // Both ends are closed, and closed streams are removed after a while.
        for (stack, id) in [(0, client), (1, server)] {
            let now = world.now;
            world.streams(stack).close(now, id);
        }
        let end = world.now + Duration::from_secs(120);
        world.run_until(end, |_| false);
        assert_eq!((world.streams(0).len(), world.streams(1).len()), (0, 0));
    }
}

#[test]
fn a_neighbour_is_asked_for_once_for_many_packets() {
    let mut world = World::two(4, Faults::default());
    world.streams(1).listen(PORT, 16).unwrap();
    let peer = SocketAddr::new(world.address(1), PORT);
    let ids: Vec<_> = (0..9).map(|_| world.stacks[0].connect(peer).unwrap()).collect();
    assert!(
        world.run_until(at(1), |world| { ids.iter().all(|&id| world.streams(0).state(id) == Ok(StreamState::Open)) })
    );
    assert_eq!(world.asked, 2, "each of the two asks for the other");
}

#[test]
fn a_peer_that_vanishes_ends_the_stream_with_an_error_after_bounded_time() {
    for writes in [false, true] {
        let mut world = World::two(4, Faults::default());
        let (client, _) = connected(&mut world);
        world.cut = true;
        if writes {
            world.streams(0).write(client, b"anybody there?").unwrap();
        }
        let begin = world.now;
        let failed = |world: &mut World| matches!(world.streams(0).state(client), Ok(StreamState::Failed(_)));
        assert!(world.run_until(begin + Duration::from_secs(60), failed));
        assert!(world.now >= begin + Duration::from_secs(29), "{:?}", world.now);
        let error = world.streams(0).read(client, &mut [0; 9]).unwrap_err();
        assert_eq!(error.to_string(), "nothing was heard of the peer for 30 s");
        assert_eq!(world.streams(0).write(client, b"x"), Err(StreamError::TimedOut));
    }
}

#[test]
fn an_idle_stream_stays_open() {
    let mut world = World::two(6, Faults::default());
    let (client, server) = connected(&mut world);
    world.run_until(at(600), |_| false);
    world.streams(0).write(client, b"still here").unwrap();
    let mut room = [0; 99];
    assert!(world.run_until(at(602), |world| world.streams(1).read(server, &mut room) == Ok(Some(10))));
}

#[test]
fn whom_nobody_answers_for_is_told_to_who_connects() {
    let mut world = World::two(4, Faults::default());
    let nobody = world.stacks[0].connect(SocketAddr::new(ip("10.0.0.9"), PORT)).unwrap();
    let failed = |world: &mut World, id| matches!(world.streams(0).state(id), Ok(StreamState::Failed(_)));
    assert!(world.run_until(at(9), |world| failed(world, nobody)));
    let error = world.streams(0).read(nobody, &mut [0; 9]).unwrap_err();
    assert_eq!(error.to_string(), "10.0.0.9 does not answer: asked 4 times for its MAC address");
    // The neighbour exists, but has no TCP.
    let silent = world.stacks[0].connect(SocketAddr::new(ip("10.0.0.3"), PORT)).unwrap();
    let mut third = Stack::from(world::neighbours(3, "10.0.0.3/24", &[]));
    std::mem::swap(&mut world.stacks[1], &mut third);
    assert!(world.run_until(at(90), |world| failed(world, silent)));
    assert_eq!(world.streams(0).state(silent), Ok(StreamState::Failed(StreamError::NoAnswer)));
    let elsewhere = world.stacks[0].connect(SocketAddr::new(ip("192.0.2.1"), PORT)).unwrap_err();
    assert_eq!(elsewhere.to_string(), "192.0.2.1 is on no subnet of the port, and the port has no gateway");
}

#[test]
fn a_port_that_nobody_listens_to_refuses_and_a_peer_that_aborts_resets() {
    let mut world = World::two(4, Faults::default());
    let refused = world.stacks[0].connect(SocketAddr::new(ip("10.0.0.2"), 7)).unwrap();
    let is = |world: &mut World, id, error| world.streams(0).state(id) == Ok(StreamState::Failed(error));
    assert!(world.run_until(at(5), |world| is(world, refused, StreamError::Refused)));
    let (client, server) = connected(&mut world);
    world.streams(1).abort(server);
    assert!(world.run_until(at(10), |world| is(world, client, StreamError::Reset)));
    assert_eq!(world.streams(1).len(), 0);
    assert_eq!(world.streams(1).state(server), Err(StreamError::NoSuchStream));
}

#[test]
fn a_listener_whose_backlog_is_full_answers_when_there_is_room_again() {
    let mut world = World::two(4, Faults::default());
    world.streams(1).listen(PORT, 2).unwrap();
    let peer = SocketAddr::new(world.address(1), PORT);
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(world.stacks[0].connect(peer).unwrap());
        world.run_until(at(n + 1), |_| false);
    }
    let states = |world: &mut World| ids.iter().map(|&id| world.streams(0).state(id).unwrap()).collect::<Vec<_>>();
    assert_eq!(states(&mut world), [StreamState::Open, StreamState::Open, StreamState::Connecting]);
    assert!(world.streams(1).accept(PORT).is_some());
    assert!(world.run_until(at(9), |world| states(world)[2] == StreamState::Open));
}

#[test]
fn connections_that_never_finish_their_handshake_keep_nobody_out_and_are_forgotten() {
    let mut world = World::two(4, Faults::default());
    world.streams(1).listen(PORT, 4).unwrap();
    for n in 0..500u16 {
        let mut syn = world::syn(&world.stacks[1], n);
        let now = world.now;
        world.stacks[1].handle_frame(now, 0, &mut syn);
    }
    assert_eq!(world.streams(1).len(), 32);
    let client = world.stacks[0].connect(SocketAddr::new(world.address(1), PORT)).unwrap();
    assert!(world.run_until(at(5), |world| world.streams(0).state(client) == Ok(StreamState::Open)));
    world.run_until(at(30), |_| false);
    assert_eq!(world.streams(1).len(), 1);
}

#[test]
fn listeners_and_streams_have_a_limit() {
    let mut world = World::two(4, Faults::default());
    for port in 1..=8 {
        world.streams(0).listen(port, 1).unwrap();
    }
    assert_eq!(world.streams(0).listen(8, 1), Err(StreamError::PortInUse(8)));
    assert_eq!(world.streams(0).listen(9, 1), Err(StreamError::TooManyListeners));
    world.streams(0).unlisten(1);
    world.streams(0).listen(9, 1).unwrap();
    let peer = SocketAddr::new(world.address(1), PORT);
    let ids: Vec<_> = (0..64).map(|_| world.stacks[0].connect(peer).unwrap()).collect();
    assert_eq!(world.stacks[0].connect(peer), Err(StreamError::TooManyStreams));
    let now = world.now;
    world.streams(0).close(now, ids[0]);
    assert!(world.stacks[0].connect(peer).is_ok(), "a stream that only ends gives way");
}

#[test]
fn streams_pass_a_gateway_between_two_links() {
    let mut world = World::routed();
    let (client, server) = connected(&mut world);
    let text = pattern(99_999, 3);
    let mut ends = [End::new(0, client, text), End::new(1, server, Vec::new())];
    world.streams(1).shutdown(server).unwrap();
    assert!(world.run_until(at(60), |world| {
        ends.iter_mut().for_each(|end| end.turn(world));
        ends.iter().all(|end| end.ended)
    }));
    assert!(ends[1].read == ends[0].out);
}

#[test]
fn a_port_in_a_vlan_tags_all_that_it_sends_and_hears_nothing_else() {
    // The VLANs of two stacks, and whether their frames reach each other.
    for (vlans, hear) in [
        ([None, None], true),
        ([Some(7), Some(7)], true),
        ([Some(7), Some(8)], false),
        ([Some(7), None], false),
        ([None, Some(7)], false),
        // A priority tag.
        ([Some(0), None], true),
    ] {
        let mut world = World::two(4, Faults::default());
        for (n, vlan) in vlans.into_iter().enumerate() {
            world.stacks[n].vlan = vlan;
        }
        world.streams(1).listen(PORT, 1).unwrap();
        let client = world.stacks[0].connect(SocketAddr::new(world.address(1), PORT)).unwrap();
        let frames = world::sent(&mut world.stacks[0], Instant::ZERO);
        let tag = vlans[0].map(|id| [0x81, 0, 0, id as u8]);
        assert!(frames.iter().all(|frame| tag.is_none_or(|tag| frame[12..16] == tag)));
        world.carry_all(0, frames);
        let open = |world: &mut World| world.streams(0).state(client) == Ok(StreamState::Open);
        // A stack without a VLAN answers without tags, which a stack with priority tags does not accept.
        let answers = vlans[0] != Some(0);
        assert_eq!(world.run_until(at(9), open), hear && answers, "{vlans:?}");
        assert_eq!(world.heard[0] > 0, hear, "{vlans:?}");
    }
}

#[test]
fn without_streams_segments_are_not_answered() {
    let mut world = World::two(4, Faults::default());
    let mut stack = Stack::from(world::neighbours(2, "10.0.0.2/24", &[]));
    let mut syn = world::syn(&world.stacks[1], 1);
    stack.handle_frame(Instant::ZERO, 0, &mut syn);
    assert!(!stack.may_transmit(0) && stack.poll_timeout().is_none());
    assert_eq!(stack.connect(SocketAddr::new(world.address(0), 1)), Err(StreamError::NoStreams));
    // With streams the answer is a reset, sent to the segment's MAC address without address resolution.
    world.stacks[1].handle_frame(Instant::ZERO, 0, &mut syn);
    let frames = world::sent(&mut world.stacks[1], Instant::ZERO);
    assert_eq!((frames.len(), &frames[0][..6], frames[0][14 + 20 + 13]), (1, &syn[6..12], 0x14));
}

/// smoltcp would panic on these segments.
#[test]
fn a_peer_that_sends_more_than_its_window_is_not_heard() {
    let mut world = World::two(4, Faults::default());
    let (client, server) = connected(&mut world);
    let most = world.streams(0).write(client, &pattern(60_000, 0)).unwrap();
    assert!(world.run_until(at(9), |world| world.streams(0).unacknowledged(client) == Ok(0)));
    assert_eq!(world.streams(1).read(server, &mut [0; 3000]), Ok(Some(3000)), "the window grows, and is not told yet");
    world.streams(0).write(client, &[1; 1460]).unwrap();
    let now = world.now;
    let frame = world::sent(&mut world.stacks[0], now).remove(0);
    for n in 0..6 {
        let mut frame = world::later(&frame, n * 1460);
        world.stacks[1].handle_frame(now, 0, &mut frame);
    }
    let (mut room, mut read) = ([0; 8192], 3000);
    while let Some(n) = world.streams(1).read(server, &mut room).unwrap() {
        read += n;
    }
    assert_eq!(read - most, 3 * 1460, "those within the window");
}

#[test]
fn a_stack_tells_its_groups_and_answers_who_asks_for_them() {
    let mut world = World::two(6, Faults::default());
    let stack = &mut world.stacks[0];
    stack.set_groups(Instant::ZERO, [ip("239.1.2.3"), ip("ff0e::7")]).unwrap();
    let reports = world::sent(stack, Instant::ZERO);
    let to = |frames: &[Vec<u8>]| frames.iter().map(|frame| frame[..6].to_vec()).collect::<Vec<_>>();
    assert_eq!(to(&reports), [[1, 0, 0x5e, 0, 0, 22], [0x33, 0x33, 0, 0, 0, 0x16]]);
    // The solicited-node group of both of its addresses, which end alike, and the group that it joined.
    assert_eq!(reports[1][14 + 40 + 8 + 6..][..2], [0, 2]);
    world.run_until(at(5), |_| false);
    let stack = &mut world.stacks[0];
    let mut query = [&[1, 0, 0x5e, 0, 0, 1][..], &world::mac(2).0, &[8, 0], &world::GENERAL_QUERY].concat();
    stack.handle_frame(at(5), 0, &mut query);
    let answer = stack.poll_timeout().unwrap();
    assert!(answer < at(6));
    stack.handle_timeout(answer);
    assert_eq!(to(&world::sent(stack, answer)), [[1, 0, 0x5e, 0, 0, 22]]);
}

#[test]
fn a_segment_that_was_damaged_or_that_a_stranger_made_up_acknowledges_nothing() {
    let mut world = World::two(4, Faults::default());
    let (client, server) = connected(&mut world);
    world.streams(1).write(server, b"hello").unwrap();
    let mut room = [0; 9];
    assert!(world.run_until(at(2), |world| world.streams(0).read(client, &mut room) == Ok(Some(5))));
    assert!(world.run_until(at(2), |world| world.streams(1).unacknowledged(server) == Ok(0)));
    // From here on the server's bytes are lost, and forged acknowledgements claim that they arrived.
    world.cut = true;
    world.streams(1).write(server, &[7; 5000]).unwrap();
    world.streams(0).write(client, b"x").unwrap();
    let now = world.now;
    let segment = world::sent(&mut world.stacks[0], now).remove(0);
    world::sent(&mut world.stacks[1], now);
    let [mut early, mut late] = [-1 << 20, 1 << 20].map(|by| world::acknowledging(&world::later(&segment, by), 5000));
    let mut damaged = world::acknowledging(&segment, 5000);
    damaged[14 + 20 + 8] ^= 1;
    for frame in [&mut early, &mut late, &mut damaged] {
        world.stacks[1].handle_frame(now, 0, frame);
    }
    let end = now + Duration::from_secs(5);
    world.run_until(end, |_| false);
    assert_eq!(world.streams(1).unacknowledged(server), Ok(5000));
    // The wire works again, and all data arrives.
    world.cut = false;
    let (mut read, end) = (0, end + Duration::from_secs(15));
    assert!(world.run_until(end, |world| {
        let mut room = [0; 8192];
        read += world.streams(0).read(client, &mut room).unwrap().unwrap_or(0);
        read == 5000
    }));
}
