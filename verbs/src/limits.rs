//! Limits that programs are told, and that are held.

/// Work requests in a queue.
pub(crate) const MAX_QP_WR: u32 = 32_768;
/// What the runtime is asked for, of a queue of which a program asks for so many work requests.
///
/// A queue holds more than it is asked for: as many work requests again, and one more, are on their way to the NIC. Programs are told how many
/// that is in all, and use one struct for many queues: what was told must not grow when it is asked for. So queues have few sizes, 2^n - 1,
/// which is also what a ring of 2^n places is for, and who asks for what one of them holds in all, 2^(n+1) - 1, gets the same one.
pub(crate) fn queue_size(asked: u32) -> u32 {
    let sizes = (4..16).map(|n| (1 << n) - 1);
    let fits = |&size: &u32| asked <= size + 1 || asked == held(size);
    sizes.into_iter().find(fits).unwrap_or(MAX_QP_WR)
}

/// How many work requests a queue of this size holds in all.
const fn held(size: u32) -> u32 {
    size + size.next_power_of_two()
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
        let told = |asked| held(queue_size(asked)).min(MAX_QP_WR);
        for asked in 1..=MAX_QP_WR {
            assert!(told(asked) >= asked, "{asked}");
            assert_eq!(told(told(asked)), told(asked), "{asked}");
            let places = queue_size(asked).next_power_of_two();
            assert!(places <= asked.next_power_of_two().max(16), "{asked} take {places} places");
        }
        // The NIC itself holds as many as were asked for, whatever round number that is, or all but one.
        for asked in [1, 10, 16, 100, 128, 1000, 1024, 10_000, 16_384, MAX_QP_WR] {
            assert!(queue_size(asked) + 1 >= asked, "{asked}");
        }
        assert_eq!((told(1), told(100), told(128)), (31, 255, 255));
    }
}
