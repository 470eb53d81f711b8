//! What becomes of a context whose packet backend fails.

use super::*;
use crate::MemoryWire;
use std::os::fd::OwnedFd;
use std::time::Duration;

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Event, RecvWr, Status};
use softnic_wire::TxFrame;

/// A wire that fails at the first step after it was cut.
struct Cut(MemoryWire, Arc<std::sync::atomic::AtomicBool>);

impl PacketIo for Cut {
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        match self.1.load(std::sync::atomic::Ordering::Acquire) {
            true => Err(io::Error::other("cut")),
            false => self.0.receive(limit, take),
        }
    }

    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        self.0.transmit(limit, next)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.0.wait(timeout)
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        self.0.readiness()
    }

    fn lost(&self) -> u64 {
        self.0.lost()
    }

    fn max_frame(&self) -> usize {
        self.0.max_frame()
    }
}

#[test]
fn a_backend_that_fails_ends_all_work_whoever_runs_the_nic() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let cut = Arc::default();
        let io: Io = Box::new(Cut(MemoryWire::pair().unwrap().0, Arc::clone(&cut)));
        let own = OwnAddresses::of_host(1);
        let port = Port { mac: own.mac, addresses: own.addresses, mtu: PathMtu::B1024 };
        let link_mtu = link_mtu_of(io.max_frame());
        let parts = Parts {
            ios: vec![io],
            port,
            neighbourhood: Neighbourhood::Own(None),
            company: None,
            description: String::new(),
            rate: USUAL_RATE,
            link_mtu,
            own_stack: None,
        };
        let options = OpenOptions { progress: Some(progress), ..OpenOptions::default() };
        let context = parts.open(None, &options).unwrap();
        let (pd, cq) = (context.alloc_pd(), context.create_cq(8).unwrap());
        let qp = pd.create_qp(&super::super::QpOptions::new(QpKind::Rc, &cq)).unwrap();
        qp.init(Access::NONE).unwrap();
        let recv = |wr_id| qp.post_recv(&RecvWr { wr_id, sges: &[], best_effort: None }).unwrap();
        recv(1);
        cut.store(true, std::sync::atomic::Ordering::Release);
        for wr_id in 1..=3 {
            assert!(cq.wait(Duration::from_secs(60)).unwrap(), "it waits for ever");
            let done = cq.poll_one().unwrap().unwrap();
            assert_eq!((done.wr_id, done.status), (wr_id, Status::WrFlushErr));
            recv(wr_id + 1);
        }
        assert_eq!(qp.state(), QpState::Error);
        assert_eq!(context.failure().as_deref(), Some("packet IO failed: cut"));
        assert_eq!((context.poll_event(), context.poll_event()), (Some(Event::PortErr), None));
        assert!(context.path_to([10, 0, 0, 2].into(), 0).is_err(), "nobody can be asked, and nobody is waited for");
    }
}
