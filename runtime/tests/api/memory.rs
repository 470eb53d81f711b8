//! Memory regions: foreign memory, null regions, deregistering and registering anew.
#![allow(unsafe_code)]

use softnic_nic::transports::memory::{Access, Bind};
use softnic_nic::transports::{SendFlags, SendOp, Status};
use softnic_nic::{Buffer, MrError, WindowType, next_key};
use softnic_runtime::api::{MemoryRegion, Progress};

use crate::world::{Side, completion, post, world};

fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND
}

/// Writes `len` bytes of `from`'s own memory to where a peer's key leads.
fn write_to(from: &Side, to: &Side, addr: u64, rkey: u32, len: usize) -> Status {
    post(&from.qp, SendOp::Write { remote_addr: addr, rkey }, &[from.mr.sge(0, len)]).unwrap();
    completion(from, || {
        to.context.progress();
    })
    .status
}

#[test]
fn a_peer_writes_into_memory_of_the_program_under_another_address() {
    let [a, b] = world([Progress::Inline; 2]);
    a.mr.write_at(0, b"abcde");
    let mut memory = vec![0u8; 16];
    // SAFETY: the vector is not used before the region is gone.
    let buffer = unsafe { Buffer::foreign(memory.as_mut_ptr().wrapping_add(1), 15, 0x10) };
    let mr = b.pd.reg_mr(&buffer, all()).unwrap();
    drop(buffer);
    assert_eq!((mr.addr(), mr.len()), (0x10, 15));
    assert_eq!(write_to(&a, &b, 0x12, mr.rkey(), 5), Status::Success);
    mr.deregister().unwrap();
    assert_eq!(&memory, b"\0\0\0abcde\0\0\0\0\0\0\0\0");
}

#[test]
fn a_null_region_takes_everything_and_reads_as_zeros() {
    let [a, b] = world([Progress::Inline; 2]);
    let null = b.pd.alloc_null_mr(all()).unwrap();
    assert_eq!(write_to(&a, &b, 0xdead_0000, null.rkey(), 64), Status::Success);
    a.mr.write_at(0, &[7; 64]);
    let read = SendOp::Read { remote_addr: 0xbeef, rkey: null.rkey() };
    post(&a.qp, read, &[a.mr.sge(0, 64)]).unwrap();
    let done = completion(&a, || {
        b.context.progress();
    });
    assert_eq!((done.status, a.mr.load_byte(63)), (Status::Success, 0));
}

fn bind(window: u32, mr: &MemoryRegion, len: u64) -> Bind {
    let (lkey, addr, access) = (mr.lkey(), mr.addr(), Access::REMOTE_WRITE);
    Bind { window, rkey: 0, lkey, addr, len, access, zero_based: false }
}

/// Binds a window of type 1; its key from then on.
fn bind_mw(side: &Side, bind: &Bind) -> u32 {
    let rkey = side.qp.bind_mw(5, bind, SendFlags { signaled: true, ..SendFlags::default() }).unwrap();
    assert_eq!(rkey, next_key(bind.window));
    let done = completion(side, || ());
    assert_eq!((done.wr_id, done.status), (5, Status::Success));
    rkey
}

#[test]
fn a_region_with_a_window_bound_to_it_stays_as_it_is() {
    let [a, b] = world([Progress::Inline; 2]);
    let mr = b.pd.alloc_mr(4096, all()).unwrap();
    let window = b.pd.alloc_mw(WindowType::Type1).unwrap();
    let rkey = bind_mw(&b, &bind(window.key(), &mr, 64));
    assert_eq!(write_to(&a, &b, mr.addr(), rkey, 64), Status::Success);
    let (mr, why) = mr.deregister().unwrap_err();
    assert_eq!(why, MrError::Busy);
    let (mr, why) = mr.reregister(None, None, Some(Access::NONE)).unwrap_err();
    assert_eq!(why, MrError::Busy);
    assert_eq!(write_to(&a, &b, mr.addr(), mr.rkey(), 64), Status::Success, "nothing changed");
    assert_eq!(write_to(&a, &b, mr.addr(), rkey, 64), Status::Success, "nothing changed");
    bind_mw(&b, &bind(rkey, &mr, 0));
    let (addr, key) = (mr.addr(), mr.rkey());
    mr.deregister().unwrap();
    assert_eq!(write_to(&a, &b, addr, key, 64), Status::RemAccessErr);
}

#[test]
fn a_region_registered_anew_keeps_its_key_and_loses_its_old_rights() {
    let [a, b] = world([Progress::Inline; 2]);
    a.mr.write_at(0, &[9; 8]);
    let mr = b.pd.alloc_mr(64, all()).unwrap();
    let old = mr.clone();
    let refused = mr.reregister(None, None, Some(Access::REMOTE_WRITE)).unwrap_err();
    assert_eq!(refused.1, MrError::NeedsLocalWrite);
    let elsewhere = Buffer::in_place(32);
    let mr = refused.0.reregister(None, Some(&elsewhere), None).unwrap();
    assert_eq!((mr.rkey(), mr.addr()), (old.rkey(), elsewhere.addr()));
    assert_eq!(old.clone().deregister().unwrap_err().1, MrError::NoSuchMr, "it is another's now");
    drop(old);
    assert_eq!(write_to(&a, &b, mr.addr(), mr.rkey(), 8), Status::Success);
    assert_eq!(elsewhere.load_byte(7), 9);
    let mr = mr.reregister(Some(&b.context.alloc_pd()), None, None).unwrap();
    assert_eq!(write_to(&a, &b, mr.addr(), mr.rkey(), 8), Status::RemAccessErr, "in another domain");
}
