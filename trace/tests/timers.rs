//! Timers that run out: the trace names the queue pair of each, whenever the driver looks next.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{Data, SendFlags, SendOp, SendWr, Sge};
use softnic_nic::{Buffer, Connection, Nic, NicConfig, Port, QpInit, QpKind};
use softnic_trace::{Observer, Trace};
use softnic_wire::{Instant, MacAddr, Node, PathMtu, Qpn, TxFrame};

/// A file in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A NIC with two connections to a peer that never answers, each with a WRITE posted.
struct Unheard {
    nic: Nic,
    qpns: [Qpn; 2],
    observer: Observer,
    file: Memory,
    now: Instant,
}

impl Unheard {
    fn new(retry_cnt: u8) -> Unheard {
        let port = Port {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            addresses: vec![IpAddr::from([10, 0, 0, 1])],
            mtu: PathMtu::B1024,
        };
        let mut state = 0u32;
        let random = move || {
            state = state.wrapping_add(0x9e37_79b9);
            state
        };
        let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random));
        let pd = nic.alloc_pd();
        let cq = nic.create_cq(16);
        let buffer = Buffer::new(0x1000, 64);
        let lkey = nic.reg_mr(pd, &buffer, Access::LOCAL_WRITE).unwrap();
        let caps = Caps { max_send_wr: 4, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        let now = Instant::from_nanos(1);
        let qpns = [7, 8].map(|peer| {
            let qpn = nic.create_qp(&QpInit::new(QpKind::Rc, pd, cq, cq, caps)).unwrap();
            let path = nic.path_to(IpAddr::from([10, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 2]), peer);
            let connection = Connection { path, dest_qp: Qpn::new(peer), retry_cnt, ..Connection::default() };
            nic.connect(qpn, &connection).unwrap();
            let sges = [Sge { addr: 0x1000, len: 64, lkey }];
            let op = SendOp::Write { remote_addr: 0, rkey: 1 };
            let data = Data::Gather(&sges);
            let wr = SendWr { wr_id: 1, op, data, flags: SendFlags::default(), best_effort: None, to: None };
            nic.post_send(now, qpn, &wr).unwrap();
            qpn
        });
        let file = Memory::default();
        let trace = Trace::begin(Box::new(file.clone()), "a test", false).unwrap();
        let mut unheard = Unheard { nic, qpns, observer: trace.observer("", 0), file, now };
        unheard.send();
        unheard.observer.settled(unheard.now, &unheard.nic);
        unheard
    }

    /// All frames leave, as from a driver's loop: each is shown, and the NIC only behind the last.
    fn send(&mut self) {
        let mut frame = [0; 2048];
        loop {
            let mut tx = TxFrame::new(&mut frame);
            if !self.nic.poll_transmit(self.now, Nic::WIRE, &mut tx) {
                return;
            }
            let len = tx.len();
            self.observer.sent(self.now, &self.nic, &frame[..len]);
        }
    }

    /// So late that the timers of both have run out.
    fn time_out(&mut self) {
        self.now = self.now + Duration::from_secs(60);
        self.nic.handle_timeout(self.now);
        self.send();
        self.observer.settled(self.now, &self.nic);
    }

    /// Which queue pairs the events under a name are of, and the words of these under a key.
    fn events(&self, name: &str, key: &str) -> Vec<(String, String)> {
        let text = String::from_utf8(self.file.0.lock().unwrap().clone()).unwrap();
        let records = text.lines().map(|line| serde_json::from_str::<Value>(&line[1..]).unwrap());
        let of_name = records.filter(|record| record["name"] == name);
        let word = |value: &Value| value.as_str().unwrap_or("").to_string();
        let mut events: Vec<_> = of_name.map(|r| (word(&r["group_id"]), word(&r["data"][key]))).collect();
        events.sort();
        events
    }

    /// One event of each queue pair, with this word.
    fn of_both(&self, what: &str) -> Vec<(String, String)> {
        let mut both = self.qpns.map(|qpn| (format!("{:#x}", qpn.value()), what.to_string()));
        both.sort();
        both.into()
    }
}

#[test]
fn timers_of_two_queue_pairs_that_run_out_at_once_are_told_of_each_and_are_why_packets_are_sent_again() {
    let mut unheard = Unheard::new(7);
    unheard.time_out();
    assert_eq!(unheard.nic.counters().local_ack_timeout_err, 2);
    assert_eq!(unheard.events("roce:loss_detected", "trigger"), unheard.of_both("ack_timeout"));
    let again = unheard.events("roce:packet_sent", "reason").into_iter().filter(|(_, reason)| !reason.is_empty());
    assert_eq!(again.collect::<Vec<_>>(), unheard.of_both("ack_timeout"));
}

#[test]
fn the_last_timer_of_a_queue_pair_that_gives_up_is_told_of_that_queue_pair() {
    let mut unheard = Unheard::new(0);
    unheard.time_out();
    assert_eq!(unheard.nic.counters().retry_exceeded_err, 2);
    assert_eq!(unheard.events("roce:loss_detected", "trigger"), unheard.of_both("ack_timeout"));
    assert_eq!(unheard.events("roce:retries_exhausted", "counter"), unheard.of_both("retry_exceeded_err"));
}
