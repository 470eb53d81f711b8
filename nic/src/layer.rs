//! Software on a NIC: it takes completions, has a timer and posts work, all in the thread and in the rounds that run the NIC.

use std::any::Any;

use softnic_wire::Instant;

use crate::Nic;

/// Software on top of a [`Nic`], run by the driver of the NIC.
///
/// A layer takes completions from sinks ([`Nic::sink_mut`]) or by polling, and posts further work, which leaves in the same round. Its
/// queue pairs, memory and completion queues are ordinary objects of the NIC.
pub trait Layer: Send {
    /// Does the pending work. Called after frames arrived, after the time of [`Layer::poll_timeout`] has passed, and after all pending
    /// frames have left. May be called when nothing has changed.
    fn progress(&mut self, now: Instant, nic: &mut Nic);

    /// When to call [`Layer::progress`] without an event.
    fn poll_timeout(&self) -> Option<Instant>;

    /// This object, for a downcast by the owner of the NIC.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// A layer installed in its NIC.
pub(crate) struct Installed {
    layer: Box<dyn Layer>,
    /// A change of the NIC that no counter shows.
    pub(crate) due: bool,
    /// The NIC's counters at the last call of the layer.
    received: u64,
    sent: u64,
}

impl Installed {
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.layer.poll_timeout()
    }
}

impl Nic {
    /// Installs a layer on the NIC, or removes it.
    pub fn set_layer(&mut self, layer: Option<Box<dyn Layer>>) {
        self.layer = layer.map(|layer| Box::new(Installed { layer, due: true, received: 0, sent: 0 }));
    }

    /// Lets the NIC's owner call the layer, if there is one. During the call the NIC has no layer. Ask the NIC for frames afterwards.
    pub fn with_layer<R>(&mut self, talk: impl FnOnce(&mut dyn Layer, &mut Nic) -> R) -> Option<R> {
        let mut installed = self.layer.take()?;
        let result = talk(&mut *installed.layer, self);
        installed.due = true;
        self.layer = Some(installed);
        Some(result)
    }

    /// Runs the layer before frames leave, once for all frames that arrived.
    #[cold]
    pub(crate) fn progress_layer_if_due(&mut self, now: Instant) {
        let received = self.counters().rcvd_pkts;
        if self.layer.as_ref().is_some_and(|l| l.due || l.received != received) {
            self.progress_layer(now);
        }
    }

    /// Runs the layer after all pending frames have left, because sends may have completed with them. Returns whether any frame was sent
    /// since the layer's last run.
    #[cold]
    pub(crate) fn progress_layer_if_sent(&mut self, now: Instant) -> bool {
        let sent = self.counters().sent_pkts;
        let due = self.layer.as_ref().is_some_and(|l| l.sent != sent);
        if due {
            self.progress_layer(now);
        }
        due
    }

    /// Handles a timeout. A layer whose timer is due runs at once: while the link is busy, it is not known when the driver next asks for
    /// frames, and until then the timeout would stay in the past.
    #[cold]
    pub(crate) fn handle_layer_timeout(&mut self, now: Instant) {
        let Some(installed) = &mut self.layer else { return };
        installed.due = true;
        if installed.poll_timeout().is_some_and(|at| at <= now) {
            self.progress_layer(now);
        }
    }

    fn progress_layer(&mut self, now: Instant) {
        // Taken out during the call, so that the layer may use the whole NIC.
        let Some(mut installed) = self.layer.take() else { return };
        let counters = self.counters();
        (installed.due, installed.received, installed.sent) = (false, counters.rcvd_pkts, counters.sent_pkts);
        installed.layer.progress(now, self);
        self.layer = Some(installed);
    }
}
