//! Authenticated connections over a wire that loses, doubles and reorders.

use softnic_nic::transports::{SendOp, Status};
use softnic_wire::Node;

use super::{TRANSPORTS, options};
use crate::common::*;

/// Messages of each host, and the most bytes of one.
const MESSAGES: usize = 12;
const SLOT: usize = 5000;

/// Carries frames over by chance until nobody has any and nobody waits for work; the frames that came twice, of each host.
fn run_over(w: &mut World, random: &mut impl FnMut() -> u32) -> [u64; 2] {
    let mut flying: [Vec<Vec<u8>>; 2] = Default::default();
    let mut doubled = [0; 2];
    for _ in 0..200_000 {
        for h in [A, B] {
            for frame in w.transmit(h) {
                let copies = match random() % 20 {
                    0 => 0,
                    1 => 2,
                    _ => 1,
                };
                doubled[1 - h] += u64::from(copies == 2);
                flying[1 - h].extend(std::iter::repeat_n(frame, copies));
            }
        }
        match [A, B].into_iter().find(|&h| !flying[h].is_empty()) {
            Some(h) => {
                // Mostly the oldest one.
                let n = flying[h].len();
                let at = if random().is_multiple_of(8) { random() as usize % n } else { 0 };
                let frame = flying[h].remove(at);
                w.wait(1000);
                w.deliver(h, &frame);
            }
            None => match [A, B].into_iter().filter_map(|h| w.hosts[h].nic.poll_timeout().map(|at| (at, h))).min() {
                Some((_, h)) => _ = w.wait_for_timer(h),
                None => return doubled,
            },
        }
    }
    panic!("it never ends");
}

#[test]
fn data_arrive_over_loss_reordering_and_doubled_packets() {
    for (n, transport) in TRANSPORTS.into_iter().cycle().take(9).enumerate() {
        let mut random = generator(n as u32 + 1);
        let psn = FIRST_PSNS[n % 4];
        let mut w = World::new(Options { psn, retry_cnt: 7, rnr_retry: 7, timeout: 8, ..options(transport) });
        run_over(&mut w, &mut random);
        for h in [A, B] {
            w.fill(h, 0, &pattern(h as u32, MESSAGES * SLOT));
            for i in 0..MESSAGES {
                w.recv(h, 100 + i as u64, (3 * MESSAGES + i) * SLOT, SLOT);
                let at = (MESSAGES + i) * SLOT;
                let (op, from) = match i % 3 {
                    0 => (w.write_to(1 - h, at), i * SLOT),
                    1 => (SendOp::Send, i * SLOT),
                    _ => (w.read_from(1 - h, i * SLOT), (2 * MESSAGES + i) * SLOT),
                };
                w.send(h, i as u64, op, from, SLOT);
            }
        }
        let doubled = run_over(&mut w, &mut random);
        for h in [A, B] {
            assert_eq!(w.sent_status(h), (0..MESSAGES as u64).map(|i| (i, Status::Success)).collect::<Vec<_>>());
            let theirs = |i: usize| pattern(1 - h as u32, MESSAGES * SLOT)[i * SLOT..][..SLOT].to_vec();
            let mut receives = 3 * MESSAGES;
            for i in 0..MESSAGES {
                let at = match i % 3 {
                    0 => MESSAGES + i,
                    1 => {
                        receives += 1;
                        receives - 1
                    }
                    _ => 2 * MESSAGES + i,
                };
                assert!(w.read(h, at * SLOT, SLOT) == theirs(i), "{transport}, message {i} of host {h}");
            }
            let c = w.counters(h);
            assert_eq!((c.rx_auth_failed, c.rx_auth_replayed), (0, doubled[h]), "{transport}");
        }
    }
}
