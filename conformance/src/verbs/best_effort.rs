//! Programs that know nothing of best effort, over XP: they end, whatever is lost.

use super::tools::Prints::{OneRow, Pings};
use super::tools::{Case, case};

/// A message that lost its last fragment ends this long after its first packet, and a READ of which nothing comes after 100 ms. The program's
/// thread may not run for some milliseconds, and a message that is over by then is none the worse.
const BOUNDED: &str = "xp:active=50ms,timeout=100ms";

/// The cases: bandwidth at every loss, and latency and rping, which need each message, where nothing is lost.
pub(super) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (loss, short) in [(None, false), (Some("loss=0.01"), false), (Some("loss=0.05"), true)] {
        for (program, options) in [
            ("ib_write_bw", "-s 65536 -n 200"),
            ("ib_send_bw", "-s 65536 -n 200"),
            ("ib_read_bw", "-s 65536 -n 200"),
            ("ib_write_bw", "-c UC -s 65536 -n 200"),
            ("ib_send_bw", "-c UC -s 65536 -n 200"),
        ] {
            all.push(Case { transport: Some(BOUNDED), fault: loss, ..case(program, options, OneRow, short) });
        }
    }
    all.push(Case { transport: Some("xp"), ..case("ib_send_lat", "-n 500", OneRow, true) });
    all.push(Case { transport: Some("xp"), ..case("rping", "-v -C 50", Pings(50), true) });
    all
}
