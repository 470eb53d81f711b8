//! `libibverbs.so.1` and `librdmacm.so.1` whose device is a softnic: unmodified RDMA programs run on it.
//!
//! One library carries the symbols of both, so that a process has one NIC. It opens the device that the environment names
//! ([`environment`]), and each verb is a call of the runtime's API on it.
//!
//! **Layers.** A file imports files of lower layers, and of its own layer in one direction; `xtask/tests/import_cycles.rs` checks that.
//! From the top:
//! - `exports`: the symbols, each with its version.
//! - `boundary/`: between a program's calls and the verbs, where somebody asks for it: faults before a call, an observer behind it.
//! - `checking/`: that observer, which tells a model of misuse of what the program does.
//! - `rdmacm/`: librdmacm. Addresses, ports and devices lie below the queues of pending events; these below ids; ids below the calls.
//! - `calls/`: verbs that concern several kinds of objects, and the tables of functions that inlined verbs call.
//! - `objects/`: what programs hold pointers to, with reference counts; `objects.rs` has them in their order.
//! - `seen`, `identity`, `stacks`: what the process does, in a file, its name among those of a run, and where its threads hang.
//! - `c_result`, `exit`, `per_process`, `fork`, `environment`: the result of a verb as C gets it; the process that the library is in.
//! - `codes`, `gid`, `limits`, `errno`, `message`, `unwind`: numbers of verbs, what they mean to the runtime, what is said on stderr; libgcc_s.
//! - `abi/`: the structs of the C headers.
//!
//! What a lower layer must call of a higher one is handed in: a table of functions when an object is made, `exit::at` for the end of the
//! process, `Retire` for objects that a program forgets.
//!
//! **Pointers.** Functions that C calls take references where the header says pointer: that a pointer is valid, and lives for the call,
//! is what libibverbs asks of programs too. Objects are handed out as raw pointers from boxes and taken back when they are destroyed.
//! What a C struct has that both sides write is an atomic.
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
