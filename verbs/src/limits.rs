//! Limits that programs can query, and that are enforced.

/// Maximum number of work requests in a queue.
pub(crate) const MAX_QP_WR: u32 = 32_768;
/// The number of work requests requested from the runtime, if a program requests `asked`.
///
/// A queue holds more than requested: as many work requests again, plus one, are in transit to the NIC. Programs get the total number, and
/// use one struct for many queues, so requesting the returned number must not increase it further. Therefore queues have few sizes, each
/// one less than 2^n, which is also the number for which a ring of 2^n slots is made. A program that requests the total capacity of such a
/// queue, one less than 2^(n+1), gets the same size again.
pub(crate) fn queue_size(asked: u32) -> u32 {
    let sizes = (4..16).map(|n| (1 << n) - 1);
    let fits = |&size: &u32| asked <= size + 1 || asked == held(size);
    sizes.into_iter().find(fits).unwrap_or(MAX_QP_WR)
}

/// The total number of work requests that a queue of this size holds.
const fn held(size: u32) -> u32 {
    size + size.next_power_of_two()
}

/// Maximum number of bytes of a work request besides its elements: in its ring, twice the length of the queue, and in the NIC.
pub(crate) const WORK_REQUEST: usize = 1024;
/// Maximum number of entries of a completion queue.
pub(crate) const MAX_CQE: u32 = 1 << 22;
/// Maximum number of READs and atomics of a queue pair at a time.
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
        // The NIC itself holds as many as requested, for any round number, or one less.
        for asked in [1, 10, 16, 100, 128, 1000, 1024, 10_000, 16_384, MAX_QP_WR] {
            assert!(queue_size(asked) + 1 >= asked, "{asked}");
        }
        assert_eq!((told(1), told(100), told(128)), (31, 255, 255));
    }
}
