//! An SDR queue pair at the engines of a NIC: the queue pair itself at the first one, reliable or not, branches at others that have channels of
//! it.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use softnic_nic::Nic;
use softnic_nic::transports::CqId;
use softnic_nic::transports::memory::PdId;
use softnic_sdr::reliable::ReliableQp;
use softnic_sdr::{Branch, QpAttr, QpId, Sdr, SdrError, SdrQp, Watch};
use softnic_wire::Instant;

use crate::api::context::Context;
use crate::engine::{Core, Engine};

/// The engine that has the queue pair, and the first of its channels.
pub(super) const FIRST: usize = 0;
/// Completion queues of an SDR queue pair: those of a NIC have the same numbers at all engines.
const CQS: usize = 3;

/// An SDR queue pair at the engines that have it.
pub(super) struct AtEngines {
    context: Context,
    id: QpId,
    engines: usize,
    watch: Arc<Watch>,
    /// Held while engines are told of a message one after the other: all hear of the same messages in the same order.
    order: Mutex<()>,
}

impl AtEngines {
    /// Makes a queue pair, at as many engines as there are and it has channels.
    pub(super) fn create(context: &Context, pd: PdId, attr: &QpAttr) -> Result<AtEngines, SdrError> {
        let engines = context.engines().min(usize::from(attr.channels));
        let this = AtEngines::create_at(context, engines, |cores| make(cores, pd, attr, engines))?;
        let others: Vec<Weak<Engine>> =
            context.inner().engines()[..engines].iter().skip(1).map(Arc::downgrade).collect();
        if !others.is_empty() {
            this.qp(|_, qp, _| {
                qp.set_wake(move || others.iter().filter_map(Weak::upgrade).for_each(|engine| engine.wake_sleeper()));
                Ok(())
            })?;
        }
        Ok(this)
    }

    /// Makes a reliable one, at the first engine alone.
    pub(super) fn create_reliable(
        context: &Context,
        reliable: impl FnOnce(&mut Nic) -> Result<ReliableQp, SdrError>,
    ) -> Result<AtEngines, SdrError> {
        AtEngines::create_at(context, 1, |cores| make_reliable(cores, reliable))
    }

    /// What `make` makes with all engines to itself, so many of which have some of it.
    fn create_at(
        context: &Context,
        engines: usize,
        make: impl FnOnce(&mut [MutexGuard<'_, Core>]) -> Result<(QpId, Arc<Watch>), SdrError>,
    ) -> Result<AtEngines, SdrError> {
        let inner = context.inner();
        let order = inner.mirrored();
        let mut cores = inner.control_all(&order);
        let made = make(&mut cores);
        if made.is_err() {
            cores.iter_mut().for_each(|core| core.nic().sort_free_cqs());
        }
        drop(cores);
        drop(order);
        let (id, watch) = made?;
        Ok(AtEngines { context: context.clone(), id, engines, watch, order: Mutex::default() })
    }

    /// Its name at each of them.
    pub(super) fn id(&self) -> QpId {
        self.id
    }

    /// How many engines it is at.
    pub(super) fn engines(&self) -> usize {
        self.engines
    }

    /// Whether messages have left.
    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Whether the NIC's packet IO stopped.
    pub(super) fn is_dead(&self) -> bool {
        self.context.failure().is_some()
    }

    /// Makes progress once, where no thread of the NIC does; says whether there was anything to do.
    pub(super) fn progress(&self) -> bool {
        self.context.progress()
    }

    /// To be held while the queue pair is connected, which takes several steps.
    pub(super) fn connecting(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// To be held while all engines are told of a message; of one engine nobody needs it.
    pub(super) fn in_order(&self) -> Option<MutexGuard<'_, ()>> {
        (self.engines > 1).then(|| self.connecting())
    }

    /// Lets a call work on the queue pair, with its engine to itself.
    pub(super) fn qp<R>(
        &self,
        work: impl FnOnce(Instant, &mut SdrQp, &mut Nic) -> Result<R, SdrError>,
    ) -> Result<R, SdrError> {
        self.at(FIRST, |now, sdr, nic| work(now, sdr.qp(self.id)?, nic))
    }

    /// Lets a call work on the queue pair and what makes it reliable.
    pub(super) fn reliable<R>(
        &self,
        work: impl FnOnce(Instant, &mut ReliableQp, &mut Nic) -> Result<R, SdrError>,
    ) -> Result<R, SdrError> {
        self.at(FIRST, |now, sdr, nic| work(now, sdr.reliable(self.id)?, nic))
    }

    /// Lets a call work on the branches at the other engines, one after the other.
    pub(super) fn others(
        &self,
        mut work: impl FnMut(Instant, &mut Branch, &mut Nic) -> Result<(), SdrError>,
    ) -> Result<(), SdrError> {
        (FIRST + 1..self.engines)
            .try_for_each(|engine| self.at(engine, |now, sdr, nic| work(now, sdr.branch(self.id)?, nic)))
    }

    fn at<R>(
        &self,
        engine: usize,
        work: impl FnOnce(Instant, &mut Sdr, &mut Nic) -> Result<R, SdrError>,
    ) -> Result<R, SdrError> {
        let now = self.context.inner().engines()[engine].now();
        let done = self.context.with_layer(engine, |layer, nic| {
            let sdr = layer.as_any_mut().downcast_mut::<Sdr>().ok_or(SdrError::NoSuchQp)?;
            work(now, sdr, nic)
        });
        done.unwrap_or(Err(SdrError::NoSuchQp))
    }
}

impl Drop for AtEngines {
    fn drop(&mut self) {
        let inner = self.context.inner();
        let order = inner.mirrored();
        let mut cores = inner.control_all(&order);
        let cqs = cores[FIRST].nic().with_layer(|layer, _| {
            let sdr = layer.as_any_mut().downcast_mut::<Sdr>()?;
            Some(sdr.qp(self.id).ok()?.completion_queues())
        });
        let Some(cqs) = cqs.flatten() else { return };
        // The branches first: what they share with the queue pair outlives them.
        for core in cores.iter_mut().take(self.engines).rev() {
            core.nic().with_layer(|layer, nic| {
                let _ = layer.as_any_mut().downcast_mut::<Sdr>()?.destroy(nic, self.id);
                Some(())
            });
        }
        for (engine, core) in cores.iter_mut().enumerate().skip(FIRST + 1) {
            cqs[placeholders_from(engine, self.engines)..].iter().for_each(|&cq| _ = core.nic().destroy_cq(cq));
        }
    }
}

/// From which of the queue pair's completion queues on an engine that does not have the queue pair has none of it, but one that keeps its
/// number.
fn placeholders_from(engine: usize, engines: usize) -> usize {
    if engine < engines { CQS - 1 } else { 0 }
}

/// Makes a queue pair at all engines, or at none.
fn make(
    cores: &mut [MutexGuard<'_, Core>],
    pd: PdId,
    attr: &QpAttr,
    engines: usize,
) -> Result<(QpId, Arc<Watch>), SdrError> {
    // Nothing is made that nobody would have.
    cores.iter_mut().take(engines).try_for_each(|core| with_sdr(core, |_| ()))?;
    let mut qp = SdrQp::create_among(cores[FIRST].nic(), pd, attr, engines as u8)?;
    let mut branches: Vec<Branch> = Vec::new();
    for (engine, core) in cores.iter_mut().enumerate().take(engines).skip(FIRST + 1) {
        match qp.branch_out(core.nic(), pd, engine as u8) {
            Ok(branch) => branches.push(branch),
            Err(error) => {
                for (branch, core) in branches.into_iter().zip(&mut cores[FIRST + 1..]) {
                    branch.destroy(core.nic());
                }
                qp.destroy(cores[FIRST].nic());
                return Err(error);
            }
        }
    }
    keep_numbers(cores, engines, &qp);
    let watch = qp.watch();
    let mut qp = Some(qp);
    let id = with_sdr(&mut cores[FIRST], |sdr| qp.take().map(|qp| sdr.add(qp)))?.ok_or(SdrError::NoSuchQp)?;
    for (branch, core) in branches.into_iter().zip(&mut cores[FIRST + 1..]) {
        with_sdr(core, |sdr| sdr.add_branch(id, branch))?;
    }
    Ok((id, watch))
}

/// Makes a reliable queue pair at the first engine.
fn make_reliable(
    cores: &mut [MutexGuard<'_, Core>],
    reliable: impl FnOnce(&mut Nic) -> Result<ReliableQp, SdrError>,
) -> Result<(QpId, Arc<Watch>), SdrError> {
    with_sdr(&mut cores[FIRST], |_| ())?;
    let mut made = reliable(cores[FIRST].nic())?;
    keep_numbers(cores, 1, made.qp());
    let watch = made.qp().watch();
    let id = with_sdr(&mut cores[FIRST], |sdr| sdr.add_reliable(made))?;
    Ok((id, watch))
}

/// What is made next at all engines shall have the same number at all of them.
fn keep_numbers(cores: &mut [MutexGuard<'_, Core>], engines: usize, qp: &SdrQp) {
    for (engine, core) in cores.iter_mut().enumerate().skip(FIRST + 1) {
        let made: Vec<CqId> = (placeholders_from(engine, engines)..CQS).map(|_| core.nic().create_cq(0)).collect();
        debug_assert!(qp.completion_queues().ends_with(&made));
    }
}

fn with_sdr<R>(core: &mut Core, work: impl FnOnce(&mut Sdr) -> R) -> Result<R, SdrError> {
    let done = core.nic().with_layer(|layer, _| layer.as_any_mut().downcast_mut::<Sdr>().map(work));
    done.flatten().ok_or(SdrError::NoSuchQp)
}
