//! Two namespaces and a wire of ours between them.

use softnic_runtime::bump::{Bump, BumpError, Counters, Options};
use softnic_runtime::{MAX_MTU, PortError};

use crate::veth::{MIDDLE, Veth, left_out};

/// What to forward between the interfaces in the middle.
pub(crate) fn options(faults: &str) -> Options {
    let [a, b] = MIDDLE.map(String::from);
    Options { a, b, faults: faults.parse().unwrap(), seed: 7, ..Options::default() }
}

/// Starts it in the namespace in the middle.
pub(crate) fn start(veth: &Veth, options: &Options) -> Result<Bump, BumpError> {
    veth.in_the_middle(|| Bump::start(options))
}

/// Both pairs of interfaces with a wire between them.
pub(crate) fn wired(queues: u32, mtu: u32, faults: &str) -> Option<(Veth, Bump)> {
    let veth = Veth::with_middle(queues, [mtu; 2])?;
    match start(&veth, &options(faults)) {
        Ok(bump) => Some((veth, bump)),
        Err(e @ BumpError::Port(PortError::Mtu { max, .. })) if max < MAX_MTU => {
            left_out(&format!("frames in several pieces came with Linux 6.6: {e}"));
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Every frame has ended somewhere.
pub(crate) fn adds_up(c: &Counters) {
    let ends = c.tx_frames + c.fault_lost + c.queue_full + c.overflowed + c.too_long + c.unsegmented + c.under_way;
    assert_eq!(c.rx_frames + c.duplicated, ends, "{c:?}");
}
