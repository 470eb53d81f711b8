//! In the simulator, on a link that loses packets: every receive completes, and says how many bytes are there.

use std::sync::Arc;
use std::time::Duration;

use softnic_nic::Buffer;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{
    Completion, Data, PartialReason, RecvWr, SendFlags, SendOp, SendWr, Sge, Status, Transport,
};
use softnic_sim::LinkConfig;
use softnic_sim::pair::{A, B, Pair, PairConfig};
use softnic_wire::PathMtu;

const SIZE: usize = 16 << 10;
const COUNT: usize = 64;
/// In no message.
const UNTOUCHED: u8 = 0;

/// All messages posted at once, the receives with a deadline after the time that the messages take; how the receives completed.
fn run(faults: &str, seed: u64) -> (Vec<Completion>, Arc<Buffer>) {
    let caps = COUNT as u32;
    let mut pair = Pair::new(PairConfig {
        transport: Transport::Timed,
        link: LinkConfig { rate: 10_000_000_000, delay: Duration::from_micros(50), faults: faults.parse().unwrap() },
        payload: PayloadMode::Real,
        mtu: PathMtu::B1024,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        max_rd_atomic: 16,
        caps: Caps { max_send_wr: caps, max_recv_wr: caps, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 },
        limit_flight: false,
        cq_capacity: COUNT,
        seed,
        first_psn: None,
    });
    let qpns = pair.connect().unwrap();
    let buffers = [Buffer::new(0x10_0000, SIZE), Buffer::new(0x200_0000, SIZE * COUNT)];
    buffers[A].write_at(0, &[7; SIZE]);
    buffers[B].write_at(0, &[UNTOUCHED; SIZE * COUNT]);
    let keys = [A, B].map(|h| pair.sim.nic(h).reg_mr(pair.sides[h].pd, &buffers[h], Access::LOCAL_WRITE).unwrap());
    let now = pair.sim.now().instant();
    let sge = |h: usize, i: usize| Sge { addr: buffers[h].addr() + (i * SIZE) as u64, len: SIZE as u32, lkey: keys[h] };
    for i in 0..COUNT {
        let deadline = Some(now + Duration::from_millis(100));
        pair.sim.nic(B).post_recv(qpns[B], &RecvWr { wr_id: i as u64, sges: &[sge(B, i)], deadline }).unwrap();
        let (flags, data) = (SendFlags::default(), &[sge(A, 0)]);
        let wr =
            SendWr { wr_id: i as u64, op: SendOp::Send, data: Data::Gather(data), flags, deadline: None, to: None };
        pair.sim.nic(A).post_send(now, qpns[A], &wr).unwrap();
    }
    pair.sim.touch(A);
    pair.sim.touch(B);
    while pair.sim.step().is_some() {}
    let cq = pair.sides[B].recv_cq;
    let completions = std::iter::from_fn(|| pair.sim.nic(B).poll_cq(cq).unwrap()).collect();
    (completions, Arc::clone(&buffers[B]))
}

#[test]
fn on_a_link_that_loses_nothing_every_message_is_whole() {
    let (completions, _) = run("", 3);
    assert_eq!(completions.len(), COUNT);
    assert!(completions.iter().all(|c| c.byte_len == SIZE as u32 && c.partial.is_none()));
}

#[test]
fn under_loss_every_receive_completes_with_as_many_bytes_as_are_in_its_memory() {
    for seed in 1..20 {
        let (completions, buffer) = run("loss=0.03", seed);
        let ids: Vec<u64> = completions.iter().map(|c| c.wr_id).collect();
        assert_eq!(ids, (0..COUNT as u64).collect::<Vec<_>>(), "seed {seed}");
        for c in &completions {
            let mut bytes = vec![0; SIZE];
            buffer.read_at(c.wr_id as usize * SIZE, &mut bytes);
            let placed = bytes.iter().filter(|&&b| b != UNTOUCHED).count();
            assert_eq!((c.status, c.byte_len as usize), (Status::Success, placed), "seed {seed}: {c:?}");
            assert_eq!(c.partial.is_none(), placed == SIZE, "seed {seed}: {c:?}");
        }
        // 1024 packets, 3 % of them lost: about thirty messages of sixteen lack one or two.
        let lacking = completions.iter().filter(|c| c.partial == Some(PartialReason::Superseded)).count();
        assert!((5..COUNT - 5).contains(&lacking), "seed {seed}: {lacking}");
    }
}
