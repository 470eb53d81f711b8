//! `libibverbs.so.1` and `librdmacm.so.1` whose device is a softnic: unmodified RDMA programs run on it.
//!
//! One library carries the symbols of both, so that a process has one NIC. It opens the device named in the environment ([`environment`]),
//! and each verb is a call of the runtime's API on that device.
//!
//! **Layers.** A file imports files of lower layers, and of its own layer in one direction; `xtask/tests/import_cycles.rs` checks that.
//! From the top:
//! - `exports`: the symbols, each with its version.
//! - `boundary/`: between a program's calls and the verbs, if it is in use: faults before a call, an observer after it.
//! - `checking/`: that observer, which passes the program's calls to a model of misuse.
//! - `rdmacm/`: librdmacm. Addresses, ports and devices are below the queues of pending events; these are below ids; ids below the calls.
//! - `calls/`: verbs that concern several kinds of objects, and the tables of functions that inlined verbs call.
//! - `objects/`: the targets of programs' pointers, with reference counts; `objects.rs` lists them in order.
//! - `seen`, `identity`, `stacks`: a record of the process's actions in a file, its name within a run, and the stacks of hanging threads.
//! - `c_result`, `exit`, `per_process`, `fork`, `environment`: results of verbs in C form; the process that the library is in.
//! - `codes`, `gid`, `limits`, `errno`, `message`, `unwind`: codes of verbs and their meaning in the runtime, messages on stderr; libgcc_s.
//! - `abi/`: the structs of the C headers.
//!
//! A higher layer passes the functions that a lower layer must call: a table of functions when an object is created, `exit::at` for the end
//! of the process, `Retire` for objects that a program does not destroy.
//!
//! **Pointers.** Functions that C calls take references where the header has pointers: libibverbs also requires that a pointer is valid,
//! and lives for the call. Objects are passed out as raw pointers from boxes and converted back when they are destroyed. Fields of a C
//! struct that both sides write are atomics.
#![allow(unsafe_code)]

mod abi;
mod boundary;
mod c_result;
mod calls;
mod checking;
mod codes;
mod environment;
mod errno;
mod exit;
mod exports;
mod fork;
mod gid;
mod identity;
mod limits;
mod message;
mod objects;
mod per_process;
mod rdmacm;
mod seen;
mod stacks;
mod unwind;
