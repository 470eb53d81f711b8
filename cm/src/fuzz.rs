//! The fuzz body.
