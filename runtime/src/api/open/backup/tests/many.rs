//! A thousand connections at once.

use super::*;

/// How long it takes is printed: what must hold is that it ends, and well.
#[test]
fn a_thousand_connections_are_protected_and_fall_back_together() {
    const CONNECTIONS: u64 = 1000;
    let world = World::new(Progress::Inline, 1, [true; 2]);
    let hosts = [A, B].map(|host| {
        let context = &world.contexts[host];
        let (pd, cq) = (context.alloc_pd(), context.create_cq_with(4 * CONNECTIONS as usize, None));
        let memory = pd.alloc_mr(SIZE, rights()).unwrap();
        (pd, cq, memory)
    });
    let begun = Instant::now();
    let connect = |_: u64| -> [QueuePair; 2] {
        let qps = [A, B].map(|host| {
            let (pd, cq, _) = &hosts[host];
            let qp = pd.create_qp(&QpOptions::new(QpKind::Rc, cq)).unwrap();
            qp.init(rights()).unwrap();
            qp
        });
        for host in [A, B] {
            let peer = world.contexts[1 - host].addresses()[0];
            let path = world.contexts[host].path_to(peer, qps[host].qpn().value()).unwrap();
            let usual = Connection::new(path, qps[1 - host].qpn(), Psn::new(7), Psn::new(7));
            qps[host].connect(&Connection { timeout: 15, retry_cnt: 2, access: rights(), ..usual }).unwrap();
        }
        qps
    };
    let all: Vec<[QueuePair; 2]> = (0..CONNECTIONS).map(connect).collect();
    let connected = begun.elapsed();
    world.await_protection(CONNECTIONS);
    eprintln!("{CONNECTIONS} connections: made in {connected:?}, protected in {:?}", begun.elapsed());
    world.set(0, LOSES);
    let failed = Instant::now();
    let [(_, cq, memory), (_, _, target)] = &hosts;
    let sges = [memory.sge(0, SIZE)];
    let op = SendOp::Write { remote_addr: target.addr(), rkey: target.rkey() };
    for (wr_id, [qp, _]) in (0..).zip(&all) {
        let (data, flags) = (Data::Gather(&sges[..]), SendFlags::default());
        qp.post_send(&SendWr { wr_id, op, data, flags, best_effort: None, to: None }).unwrap();
    }
    let mut done = 0;
    world.until("completions", || {
        while let Some(completion) = cq.poll_one().unwrap() {
            assert_eq!(completion.status, Status::Success);
            done += 1;
        }
        done == CONNECTIONS
    });
    eprintln!("{CONNECTIONS} connections: fell back in {:?}, retries of 130 ms among it", failed.elapsed());
    assert_eq!(world.moved(A).0, CONNECTIONS);
}
