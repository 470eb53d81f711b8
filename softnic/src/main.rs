//! The `softnic` command line.
fn main() {}
