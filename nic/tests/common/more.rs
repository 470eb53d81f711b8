//! More queue pairs on the two hosts, and what they raise.

use softnic_nic::transports::Event;

use super::*;

impl World {
    /// What `h` was told since the last time.
    pub fn events(&mut self, h: usize) -> Vec<Event> {
        std::iter::from_fn(|| self.hosts[h].nic.poll_event()).collect()
    }

    /// All frames that wait go over, both ways, each in `one_way` nanoseconds, until nobody has any.
    pub fn settle(&mut self, one_way: u64) {
        for _ in 0..1000 {
            let frames = [self.transmit(A), self.transmit(B)];
            if frames.iter().all(Vec::is_empty) {
                return;
            }
            self.wait(one_way);
            self.deliver_all(B, &frames[A]);
            self.deliver_all(A, &frames[B]);
        }
        panic!("the two never become quiet");
    }

    /// The completion queues of `h` whose event was due since the last time.
    pub fn completion_events(&mut self, h: usize) -> Vec<CqId> {
        std::iter::from_fn(|| self.hosts[h].nic.poll_completion_event()).collect()
    }

    /// All completions of a queue, of whichever queue pair.
    pub fn all(&mut self, h: usize, cq: CqId) -> Vec<Completion> {
        std::iter::from_fn(|| self.hosts[h].nic.poll_cq(cq).unwrap()).collect()
    }

    /// (queue pair, wr_id, status) of all receives that completed.
    pub fn all_received(&mut self, h: usize) -> Vec<(Qpn, u64, Status)> {
        let cq = self.hosts[h].recv_cq;
        self.all(h, cq).iter().map(|c| (c.qpn, c.wr_id, c.status)).collect()
    }

    /// (queue pair, wr_id, status) of all sends that completed.
    pub fn all_sent(&mut self, h: usize) -> Vec<(Qpn, u64, Status)> {
        let cq = self.hosts[h].send_cq;
        self.all(h, cq).iter().map(|c| (c.qpn, c.wr_id, c.status)).collect()
    }

    /// Another queue pair of `h`, like its first one; in RESET.
    pub fn another_qp(&mut self, h: usize, kind: QpKind) -> Qpn {
        let Host { pd, send_cq, recv_cq, srq, .. } = self.hosts[h];
        let init = QpInit { srq, ..QpInit::new(kind, pd, send_cq, recv_cq, self.options.caps) };
        self.hosts[h].nic.create_qp(&init).unwrap()
    }

    /// A datagram queue pair of `h` that can send and receive.
    pub fn another_ud(&mut self, h: usize) -> Qpn {
        let qpn = self.another_qp(h, QpKind::Ud);
        self.connect((h, qpn), QpKind::Ud, (1 - h, qpn));
        qpn
    }

    /// Takes a queue pair from RESET to RTS, connected to another of whichever host.
    pub fn connect(&mut self, (h, qpn): (usize, Qpn), kind: QpKind, (peer, peer_qpn): (usize, Qpn)) {
        let o = Options { kind, ..self.options };
        let (v4, mac) = address(peer);
        let ip = if o.ipv6 { address_v6(peer) } else { v4 };
        let nic = &mut self.hosts[h].nic;
        let path = nic.path_to(ip, mac, qpn.value()).unwrap();
        for attr in [init_attr(&o), rtr_attr(&o, path, peer_qpn), rts_attr(&o)] {
            nic.modify_qp(qpn, &attr).unwrap();
        }
    }

    /// Two more queue pairs, one on each of two hosts (or two of one), connected to each other.
    pub fn another_pair(&mut self, kind: QpKind, [a, b]: [usize; 2]) -> [Qpn; 2] {
        let [x, y] = [a, b].map(|h| self.another_qp(h, kind));
        self.connect((a, x), kind, (b, y));
        self.connect((b, y), kind, (a, x));
        [x, y]
    }

    pub fn post_on(&mut self, h: usize, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.hosts[h].nic.post_send(self.now, qpn, wr)
    }

    /// Posts a signaled send on a queue pair other than the first.
    pub fn send_on(&mut self, h: usize, qpn: Qpn, wr_id: u64, op: SendOp, offset: usize, len: usize) {
        let sges = [self.sge(h, offset, len)];
        self.post_on(h, qpn, &wr(wr_id, op, Data::Gather(&sges))).unwrap();
    }

    /// Posts a receive on a queue pair other than the first.
    pub fn recv_on(&mut self, h: usize, qpn: Qpn, wr_id: u64, offset: usize, len: usize) {
        let sges = [self.sge(h, offset, len)];
        self.hosts[h].nic.post_recv(qpn, &RecvWr { wr_id, sges: &sges, best_effort: None }).unwrap();
    }

    /// Posts a send that says nothing when it goes well.
    pub fn send_unsignaled(&mut self, h: usize, wr_id: u64, op: SendOp, offset: usize, len: usize) {
        let sges = [self.sge(h, offset, len)];
        let flags = SendFlags::default();
        self.post(h, &SendWr { flags, ..wr(wr_id, op, Data::Gather(&sges)) }).unwrap();
    }

    /// Posts a signaled datagram.
    pub fn send_to(&mut self, h: usize, wr_id: u64, op: SendOp, to: Datagram, offset: usize, len: usize) {
        let sges = [self.sge(h, offset, len)];
        self.post(h, &SendWr { to: Some(to), ..wr(wr_id, op, Data::Gather(&sges)) }).unwrap();
    }

    /// One frame of `h`, if it has one for this port.
    pub fn transmit_one(&mut self, h: usize, port: usize) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 4096 + 256];
        let mut tx = TxFrame::new(&mut buffer);
        self.hosts[h].nic.poll_transmit(self.now, port, &mut tx).then(|| tx.segments().0.to_vec())
    }
}
