//! Software on a NIC: it takes completions, has a timer and posts work, all in the thread and in the rounds that run the NIC.

use std::any::Any;

use softnic_wire::Instant;

use crate::Nic;

/// Software that sits on a [`Nic`] and is driven with it, by whatever drives the NIC.
///
/// A layer takes completions from sinks ([`Nic::sink_mut`]) or by polling, and posts what follows from them: that leaves in the same
/// round. Its queue pairs, memory and completion queues are ordinary ones of the NIC.
pub trait Layer: Send {
    /// Does what there is to do: after frames came in, after the time of [`Layer::poll_timeout`] has come, and after all that was to be
    /// sent has left. May be called when nothing has changed.
    fn progress(&mut self, now: Instant, nic: &mut Nic);

    /// When [`Layer::progress`] wants to be called although nothing happens.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The value itself, for the owner of the NIC.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// A layer in its NIC.
pub(crate) struct Installed {
    layer: Box<dyn Layer>,
    /// Something happened to the NIC that no counter shows.
    pub(crate) due: bool,
    /// The NIC's counters when the layer was called last.
    received: u64,
    sent: u64,
}

impl Installed {
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.layer.poll_timeout()
    }
}

impl Nic {
    /// Puts a layer on the NIC, or takes it off.
    pub fn set_layer(&mut self, layer: Option<Box<dyn Layer>>) {
        self.layer = layer.map(|layer| Box::new(Installed { layer, due: true, received: 0, sent: 0 }));
    }

    /// Lets the NIC's owner talk to the layer, if there is one; the NIC has none for as long. Ask the NIC for frames after this.
    pub fn with_layer<R>(&mut self, talk: impl FnOnce(&mut dyn Layer, &mut Nic) -> R) -> Option<R> {
        let mut installed = self.layer.take()?;
        let result = talk(&mut *installed.layer, self);
        installed.due = true;
        self.layer = Some(installed);
        Some(result)
    }

    /// The layer has its turn before frames leave, once for all that came in.
    #[cold]
    pub(crate) fn progress_layer_if_due(&mut self, now: Instant) {
        let received = self.counters().rcvd_pkts;
        if self.layer.as_ref().is_some_and(|l| l.due || l.received != received) {
            self.progress_layer(now);
        }
    }

    /// All that was to be sent has left, and sends may have completed with it: the layer has its turn. Whether anything was sent since its
    /// last one.
    #[cold]
    pub(crate) fn progress_layer_if_sent(&mut self, now: Instant) -> bool {
        let sent = self.counters().sent_pkts;
        let due = self.layer.as_ref().is_some_and(|l| l.sent != sent);
        if due {
            self.progress_layer(now);
        }
        due
    }

    /// Time has passed. A layer whose time has come has its turn at once: whether anybody asks for frames, while the link is busy, is not
    /// known, and its time would stay in the past.
    #[cold]
    pub(crate) fn handle_layer_timeout(&mut self, now: Instant) {
        let Some(installed) = &mut self.layer else { return };
        installed.due = true;
        if installed.poll_timeout().is_some_and(|at| at <= now) {
            self.progress_layer(now);
        }
    }

    fn progress_layer(&mut self, now: Instant) {
        // Taken out for the time of the call, so that it may use the whole NIC.
        let Some(mut installed) = self.layer.take() else { return };
        let counters = self.counters();
        (installed.due, installed.received, installed.sent) = (false, counters.rcvd_pkts, counters.sent_pkts);
        installed.layer.progress(now, self);
        self.layer = Some(installed);
    }
}
