//! The C types of `infiniband/verbs.h` and `rdma/rdma_cma.h` that programs and this library share, identical in rdma-core 44 to 65; and
//! those of `softnic_sdr.h`.
//!
//! Names are those of the header, so that the two can be compared. Sizes and offsets are checked against the numbers of the header at
//! compile time, and against an installed header by `verbs/tests/c/offsets.c`.
#![allow(non_camel_case_types)]

mod attributes;
mod context;
mod layout;
mod objects;
mod rdmacm;
mod sdr;
mod work;

pub(crate) use attributes::*;
pub(crate) use context::*;
pub(crate) use layout::layout;
pub(crate) use objects::*;
pub(crate) use rdmacm::*;
pub(crate) use sdr::*;
pub(crate) use work::*;

pub(crate) use std::ffi::{c_char, c_int, c_uint, c_void};
