//! The boundary between the functions that a program calls, exported or in a table, and the verbs themselves.
//!
//! The boundary serves users that intercept calls: faults of verbs, and an observer of the program. Whether there is such a user is decided
//! once per process. If there is none, tables contain the verbs themselves, and an exported function is one branch away from its verb.
//!
//! A call has three stages here. First a fault may replace the call ([`before`]), then the verb is called, then the observer is notified
//! ([`observe`]). Verbs called by librdmacm are not calls of the program and are not intercepted. A call that a fault fails is not made,
//! and is not reported.

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
