//! Any stride, length, path MTU and pieces of memory, with any packets missing: bytes land where a model says, and nowhere else.

use proptest::prelude::*;
use softnic_nic::transports::Sge;
use softnic_nic::transports::xp::missing_ranges;
use softnic_wire::PathMtu;

use super::*;

const MTUS: [PathMtu; 3] = [PathMtu::B256, PathMtu::B512, PathMtu::B1024];
const BITMAP: usize = 100_000;

/// Pieces of `len` bytes in all, one behind the other with gaps between, from `offset` on.
fn pieces(w: &World, h: usize, offset: usize, len: usize, cuts: &[usize]) -> Vec<Sge> {
    let (mut list, mut at, mut left) = (Vec::new(), offset, len);
    for &cut in cuts {
        let part = cut.min(left);
        list.push(w.sge(h, at, part));
        (at, left) = (at + part + 3, left - part);
    }
    list.push(w.sge(h, at, left));
    list
}

fn bytes_of(w: &World, h: usize, list: &[Sge]) -> Vec<u8> {
    let base = w.hosts[h].buffer.addr();
    list.iter().flat_map(|s| w.read(h, (s.addr - base) as usize, s.len as usize)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bytes_land_where_they_belong_and_the_bitmap_is_exact(
        len in 0usize..20_000, log in 0u32..=9, mtu in 0usize..3, op in 0u8..3, two in any::<bool>(),
        from in prop::collection::vec(0usize..5000, 0..3), to in prop::collection::vec(0usize..5000, 0..3),
        lost in prop::collection::vec(any::<bool>(), 80), order in any::<u64>(),
    ) {
        let mtu = MTUS[mtu];
        let mut w = agreed(Options { mtu, ..options("linger=inf,timeout=1ms") });
        let (stride, is_read) = (1u16 << log, op == 2);
        let (source, target) = if is_read { (B, A) } else { (A, B) };
        w.fill(source, 0, &pattern(8, 40_000));
        // A READ or WRITE names one stretch of the peer's memory.
        let (from, to) = match op {
            0 => (pieces(&w, A, 0, len, &from), pieces(&w, B, 50_000, len, &to)),
            1 => (pieces(&w, A, 0, len, &from), vec![w.sge(B, 50_000, len)]),
            _ => (vec![w.sge(B, 0, len)], pieces(&w, A, 50_000, len, &to)),
        };
        w.fill(target, BITMAP, &[0xff; 16]);
        let bitmap = Some(w.sge(target, BITMAP, 10));
        let work = BestEffort { stride, ..within(&w, 1_000_000) };
        let receive = BestEffort { bitmap, ..within(&w, 1_000_000) };
        match op {
            0 => {
                w.post_recv(B, &RecvWr { wr_id: 1, sges: &to, best_effort: Some(&receive) }).unwrap();
                w.post(A, &SendWr { best_effort: Some(&work), ..wr(1, SendOp::Send, Data::Gather(&from)) }).unwrap();
            }
            1 => {
                w.post_recv(B, &RecvWr { wr_id: 1, sges: &[], best_effort: Some(&receive) }).unwrap();
                let op = w.write_imm_to(B, 50_000, 5);
                w.post(A, &SendWr { best_effort: Some(&work), ..wr(1, op, Data::Gather(&from)) }).unwrap();
            }
            _ => {
                let (op, work) = (w.read_from(B, 0), BestEffort { bitmap, ..work });
                w.post(A, &SendWr { best_effort: Some(&work), ..wr(1, op, Data::Gather(&to)) }).unwrap();
                let request = w.transmit(A);
                w.deliver_all(B, &request);
            }
        }
        let before = w.read(target, 0, BITMAP);
        let frames = if two { w.transmit_split(source) } else { w.transmit(source) };
        prop_assert_eq!(frames.len() as u32, mtu.packets(len as u32));
        // In any order, some never, some twice.
        let mut arrivals: Vec<usize> = (0..frames.len()).filter(|&i| !lost[i]).collect();
        arrivals.extend(arrivals.clone().into_iter().step_by(3));
        arrivals.sort_by_key(|&i| (i as u64 + 1).wrapping_mul(order | 1) >> 7);
        arrivals.iter().for_each(|&i| w.deliver(target, &frames[i]));
        w.wait(1_000_000);
        let done = if is_read { sent(&mut w) } else { received(&mut w) };
        let bits = w.read(target, BITMAP, 10);
        for i in 0..80 {
            let came = i < frames.len() && !lost[i];
            prop_assert_eq!(bits[i / 8] >> (i % 8) & 1 == 1, came, "packet {}", i);
        }
        let missing: Vec<_> = missing_ranges(&bits, len as u32, stride, mtu).flatten().collect();
        let whole = !frames.iter().enumerate().any(|(i, _)| lost[i]);
        let why = if whole { None } else { EXPIRED };
        prop_assert_eq!(done, vec![(1, (len - missing.len()) as u32, why)]);
        let (sent, mut expected) = (bytes_of(&w, source, &from), vec![UNTOUCHED; len]);
        expected.copy_from_slice(&sent);
        missing.iter().for_each(|&at| expected[at as usize] = UNTOUCHED);
        prop_assert_eq!(bytes_of(&w, target, &to), expected);
        // And nothing else was touched.
        let base = w.hosts[target].buffer.addr() as usize;
        let mut elsewhere = vec![true; BITMAP];
        to.iter().for_each(|s| elsewhere[s.addr as usize - base..][..s.len as usize].fill(false));
        let after = w.read(target, 0, BITMAP);
        prop_assert!((0..BITMAP).all(|at| !elsewhere[at] || after[at] == before[at]));
    }
}
