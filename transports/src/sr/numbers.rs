//! PSNs and packet numbers: numbers count from 0 and never wrap around.

use softnic_wire::Psn;

/// A sequence of packets; number 0 has a given PSN.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    first: Psn,
}

impl Numbers {
    pub(super) fn from(first: Psn) -> Numbers {
        Numbers { first }
    }

    /// The PSN of packet `n`.
    #[inline]
    pub(super) fn psn(self, n: u64) -> Psn {
        self.first.add((n % u64::from(Psn::SPACE)) as u32)
    }

    /// The number with this PSN that is nearest to `near`; `None` if it would be before the first.
    #[inline]
    pub(super) fn number(self, psn: Psn, near: u64) -> Option<u64> {
        let ahead = u64::from(psn.forward_from(self.psn(near)));
        let space = u64::from(Psn::SPACE);
        if ahead < space / 2 { Some(near + ahead) } else { near.checked_sub(space - ahead) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_psn_leads_back_to_its_number_across_the_wrap() {
        let numbers = Numbers::from(Psn::new(0xff_fff0));
        for n in [0u64, 15, 16, 1 << 24, (1 << 24) + 5, 1 << 40] {
            for near in [n, n + 5000, n.saturating_sub(5000)] {
                assert_eq!(numbers.number(numbers.psn(n), near), Some(n), "{n} near {near}");
            }
        }
        assert_eq!(numbers.number(Psn::new(0xff_ffef), 3), None, "before the first there is nothing");
    }
}
