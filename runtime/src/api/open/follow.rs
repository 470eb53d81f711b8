//! Following what the kernel says of the interface: link, addresses, neighbours.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::engine::Engine;
use crate::host_network::Event;
use crate::wake::Wake;
use crate::{HostNetwork, api::path::lock};

/// The thread that follows; it ends with this value.
pub(crate) struct Follower {
    stop: Arc<(AtomicBool, Wake)>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    pub(super) fn start(
        host: &Arc<Mutex<HostNetwork>>,
        start: Instant,
        engines: &[Arc<Engine>],
    ) -> io::Result<Follower> {
        let stop = Arc::new((AtomicBool::new(false), Wake::new()?));
        let changes = lock(host).as_fd().try_clone_to_owned()?;
        let thread = std::thread::Builder::new().name("softnic-network".into()).spawn({
            let (host, engines, stop) = (Arc::clone(host), engines.to_vec(), Arc::clone(&stop));
            move || {
                while !stop.0.load(Ordering::Acquire) {
                    let now = || softnic_wire::Instant::ZERO + start.elapsed();
                    let timeout = {
                        let mut host = lock(&host);
                        host.handle_timeout(now());
                        follow(&mut host, &engines);
                        host.poll_timeout().map(|at| at.saturating_since(now()))
                    };
                    let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
                    let mut fds = [PollFd::new(&changes, PollFlags::IN), PollFd::new(&stop.1, PollFlags::IN)];
                    // Interrupted: all that is waited for is looked at anyway.
                    let _ = poll(&mut fds, timeout.as_ref());
                }
            }
        })?;
        Ok(Follower { stop, thread: Some(thread) })
    }
}

/// Tells the engines what changed.
fn follow(host: &mut HostNetwork, engines: &[Arc<Engine>]) {
    // An error is the kernel's refusal to tell; what is known stays.
    while let Ok(Some(event)) = host.poll_event() {
        for engine in engines {
            match event {
                Event::LinkUp => engine.control().nic().set_link(true),
                Event::LinkDown | Event::Gone => engine.control().nic().set_link(false),
                Event::AddressesChanged => engine.control().nic().set_addresses(host.addresses().to_vec()),
                Event::MtuChanged(_) | Event::MacChanged(_) | Event::NeighbourChanged { .. } | Event::RoutesChanged => {
                }
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Release);
        self.stop.1.wake();
        if let Some(thread) = self.thread.take() {
            // It panicked, and said so itself.
            let _ = thread.join();
        }
    }
}
