//! Limits that programs are told, and that are held.

/// Work requests in a queue.
pub(crate) const MAX_QP_WR: u32 = 32_768;
/// What the runtime is asked for, of a queue of which a program asks for so many work requests.
///
/// A queue holds more than it is asked for: as many work requests again are on their way to the NIC. Programs are told so, and use one struct
/// for many queues: what was told must not grow when it is asked for. So they are told one less than there is room for; who asks for that,
/// which is no round number, gets the same queue again.
pub(crate) fn queue_size(asked: u32) -> u32 {
    let sizes = (4..15).map(|n| 1 << n);
    let fits = |&size: &u32| asked <= size || asked == told(2 * size);
    sizes.into_iter().find(fits).unwrap_or(MAX_QP_WR)
}

/// What a program is told of a queue that holds so many work requests in all.
pub(crate) fn told(held: u32) -> u32 {
    (held - 1).min(MAX_QP_WR)
}

/// Bytes that a work request takes beside its elements, at most: in its ring, twice as long as the queue may be, and in the NIC.
pub(crate) const WORK_REQUEST: usize = 1024;
/// Entries of a completion queue.
pub(crate) const MAX_CQE: u32 = 1 << 22;
/// READs and atomics of a queue pair at a time.
pub(crate) const MAX_RD_ATOMIC: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_told_again_when_it_is_asked_for() {
        let told = |asked| told(2 * queue_size(asked));
        for asked in 1..=MAX_QP_WR {
            assert!(told(asked) >= asked, "{asked}");
            assert_eq!(told(told(asked)), told(asked), "{asked}");
            assert!(queue_size(asked) <= MAX_QP_WR);
        }
        // The NIC itself holds as many as were asked for, whatever round number that is.
        for asked in [1, 10, 16, 100, 128, 1000, 1024, 10_000, 16_384, MAX_QP_WR] {
            assert!(queue_size(asked) >= asked, "{asked}");
        }
        assert_eq!((told(1), told(100), told(128)), (31, 255, 255));
    }
}
