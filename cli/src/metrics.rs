//! `--metrics ADDR`: counters as Prometheus takes them.

mod exposition;
mod http;
mod nics;
mod shares;
mod switches;
mod wires;

/// The reader that the tests of the command have, too.
#[cfg(test)]
#[path = "../../softnic/tests/metrics/strict.rs"]
mod strict;

pub(crate) use exposition::Page;
pub(crate) use http::{Endpoint, EndpointAddress};
pub(crate) use nics::{NicSample, own_nics, page_of_nics};
pub(crate) use shares::page_of_share;
pub(crate) use switches::page_of_switch;
pub(crate) use wires::page_of_wire;
