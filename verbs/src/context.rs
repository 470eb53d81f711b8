//! Contexts: a device that a program opened, with the tables of functions that inlined verbs call.

use std::collections::HashMap;
use std::fs::File;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

use softnic_runtime::api::{QpAttr, QpState};

use crate::abi::*;
use crate::device::Device;
use crate::errno::{Errno, status};
use crate::events::EventQueue;
use crate::nic::{Nic, Nics};
use crate::queue_pair::Qp;
use crate::region::Mr;
use crate::{builder, completion, completion_ex, domain, fork, post, query, region, shared_receive, window};

/// An opened device. A program has the address of `ext.context`.
#[repr(C)]
pub(crate) struct Context {
    ext: verbs_context,
    /// Vendors' libraries look for their own fields here, and must find none.
    zeros: [u64; 64],
    pub(crate) ours: Ours,
}

pub(crate) struct Ours {
    pub(crate) device: &'static Device,
    pub(crate) nics: Arc<Nics>,
    pub(crate) events: Arc<EventQueue>,
    /// What a program may forget to destroy and that must not outlive the context: queue pairs by number, regions by key.
    alive: Mutex<Alive>,
    /// What programs take for the kernel's device: they may duplicate it, and hand it on, but not import anything by it.
    _command: File,
}

#[derive(Default)]
struct Alive {
    qps: HashMap<u32, usize>,
    mrs: HashMap<usize, ()>,
}

/// A pointer to `struct ibv_context`, which is the middle of a [`Context`].
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct ContextPtr<'a>(NonNull<ibv_context>, PhantomData<&'a Context>);

impl ContextPtr<'_> {
    /// # Safety
    /// It comes from `open`, and is not closed.
    pub(crate) unsafe fn new<'a>(context: *mut ibv_context) -> ContextPtr<'a> {
        // SAFETY: what `open` returns is not NULL.
        ContextPtr(unsafe { NonNull::new_unchecked(context) }, PhantomData)
    }

    pub(crate) fn as_c(self) -> *mut ibv_context {
        self.0.as_ptr()
    }
}

impl Deref for ContextPtr<'_> {
    type Target = Context;

    fn deref(&self) -> &Context {
        let before = std::mem::offset_of!(Context, ext) + std::mem::offset_of!(verbs_context, context);
        // SAFETY: a program has such pointers only from `open`, where they point that far into a `Context`.
        unsafe { self.0.byte_sub(before).cast().as_ref() }
    }
}

impl Context {
    pub(crate) fn nic(&self) -> &Nic {
        self.ours.nics.get(self.ours.device)
    }

    fn alive(&self) -> MutexGuard<'_, Alive> {
        self.ours.alive.lock().unwrap_or_else(|p| p.into_inner())
    }

    pub(crate) fn add_qp(&self, qp: &Qp) {
        self.alive().qps.insert(qp.qpn(), (&raw const *qp).expose_provenance());
    }

    pub(crate) fn remove_qp(&self, qp: &Qp) {
        self.alive().qps.remove(&qp.qpn());
    }

    pub(crate) fn add_mr(&self, mr: &Mr) {
        self.alive().mrs.insert((&raw const *mr).expose_provenance(), ());
    }

    pub(crate) fn remove_mr(&self, mr: &Mr) {
        self.alive().mrs.remove(&(&raw const *mr).addr());
    }
}

/// Functions by which inlined verbs reach us. The `compat` slots were programs' of long ago.
fn ops() -> ibv_context_ops {
    ibv_context_ops {
        compat0: [0; 7],
        alloc_mw: window::alloc,
        bind_mw: window::bind,
        dealloc_mw: window::dealloc,
        compat10: 0,
        poll_cq: completion::poll,
        req_notify_cq: completion::req_notify,
        compat13: [0; 7],
        post_srq_recv: shared_receive::post_recv,
        compat21: [0; 4],
        post_send: post::send,
        post_recv: post::recv,
        compat27: [0; 5],
    }
}

/// `ibv_open_device`.
pub(crate) extern "C" fn open(device: &'static Device) -> *mut ibv_context {
    let open = || -> Result<*mut Context, Errno> {
        fork::check()?;
        let (nics, events) = (Nics::of(device)?, Arc::new(EventQueue::new()?));
        let command = File::open("/dev/null")?;
        nics.get(device).owners.add_context(&events);
        let context = ibv_context {
            device: device.as_c(),
            ops: ops(),
            cmd_fd: command.as_raw_fd(),
            async_fd: events.fd(),
            num_comp_vectors: 1,
            mutex: Default::default(),
            abi_compat: usize::MAX,
        };
        let ext = verbs_context {
            query_port: query::port,
            advise_mr: 0,
            alloc_null_mr: region::alloc_null,
            counters_and_dm: [0; 10],
            modify_qp_rate_limit: 0,
            alloc_parent_domain: domain::alloc_parent,
            dealloc_td: domain::dealloc_td,
            alloc_td: domain::alloc_td,
            modify_cq: 0,
            post_srq_ops: 0,
            wq: [0; 5],
            query_rt_values: 0,
            create_cq_ex: completion_ex::create,
            private: 0,
            query_device_ex: query::device_ex,
            flow: [0; 4],
            open_qp: 0,
            create_qp_ex: builder::create,
            get_srq_num: 0,
            create_srq_ex: shared_receive::create_ex,
            xrcd: [0; 2],
            placeholder3: 0,
            sz: size_of::<verbs_context>(),
            context,
        };
        let ours = Ours { device, nics, events, alive: Mutex::default(), _command: command };
        Ok(Box::into_raw(Box::new(Context { ext, zeros: [0; 64], ours })))
    };
    match open() {
        // SAFETY: it was just made.
        Ok(context) => unsafe { &raw mut (*context).ext.context },
        Err(e) => {
            e.set();
            std::ptr::null_mut()
        }
    }
}

/// `ibv_close_device`. What the program did not destroy is not its any more: queue pairs fall silent, and memory is out of reach.
pub(crate) extern "C" fn close(context: ContextPtr<'_>) -> c_int {
    status(|| {
        let alive = std::mem::take(&mut *context.alive());
        for qp in alive.qps.into_values() {
            let qp = std::ptr::with_exposed_provenance::<Qp>(qp);
            // SAFETY: a queue pair is taken off the list before it is freed.
            let _ = unsafe { &(*qp).ours.qp }.modify(&QpAttr { state: Some(QpState::Reset), ..QpAttr::default() });
        }
        for mr in alive.mrs.into_keys() {
            // SAFETY: a region is taken off the list before it is freed.
            unsafe { &*std::ptr::with_exposed_provenance::<Mr>(mr) }.forget();
        }
        context.nic().owners.remove_context(&context.ours.events);
        // A capture has all frames even if the NIC stays open for somebody else.
        let _ = context.nic().runtime.flush_capture();
        // SAFETY: it comes from `open`, which made a box, and the program does not use it any more.
        drop(unsafe { Box::from_raw((&raw const *context).cast_mut()) });
        Ok(())
    })
}
