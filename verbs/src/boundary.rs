//! The boundary: between the functions that a program calls, exported or by a table, and the verbs themselves.
//!
//! It is there for those who come between: faults of verbs, and an observer of what a program does. Whether anybody does is decided once per
//! process. If nobody does, tables have the verbs themselves, and an exported function is one branch away from its verb.
//!
//! A call has three points here: before it a fault may decide ([`before`]), then the verb is called, then the observer hears of it
//! ([`observe`]). What librdmacm does by verbs of its own is no call of the program and passes none of them. A call that a fault fails is not
//! made, and nobody hears of it.

// In the order of their imports.
pub(crate) mod observe;

mod timer;

mod held;

mod made;

mod process;

mod state;

mod happen;

mod late;

mod recorded;

pub(crate) mod before;

mod after;

mod through;

mod table_verbs;

mod data;

mod completions;

mod switch;

pub(crate) mod control;

pub(crate) mod cm;
