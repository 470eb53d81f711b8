//! A wire as metrics: each direction by itself, and what the wire itself dropped apart from what its faults lost.

use softnic_runtime::bump::Counters;

use super::exposition::{Kind, Page};

/// The page of a wire between two interfaces.
pub(crate) fn page_of_wire(a: &str, b: &str, counters: &[Counters; 2]) -> Page {
    let mut page = Page::default();
    for (direction, counters) in ["ab", "ba"].into_iter().zip(counters) {
        let labels = [("a", a), ("b", b), ("direction", direction)];
        for (name, value) in counters.iter() {
            match name {
                "under_way" => {
                    let help = "Frames that are on their way or held";
                    page.add("softnic_wire_under_way", Kind::Gauge, help, &labels, value);
                }
                _ => {
                    let help = format!("The wire's counter {name}");
                    page.add(&format!("softnic_wire_{name}_total"), Kind::Counter, &help, &labels, value);
                }
            }
        }
        let help = "Frames lost on purpose: by faults, and at the bottleneck's queue";
        page.add("softnic_wire_injected_loss_total", Kind::Counter, help, &labels, counters.injected_loss());
        let help = "Frames that the wire itself dropped: a measurement over it is invalid";
        page.add("softnic_wire_own_drops_total", Kind::Counter, help, &labels, counters.own_drops());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::super::strict;
    use super::*;

    #[test]
    fn both_directions_are_there_and_injected_loss_is_no_drop_of_our_own() {
        let ab =
            Counters { rx_frames: 10, fault_lost: 3, queue_full: 1, rx_missed: 2, under_way: 5, ..Counters::default() };
        let families = strict::parse(&page_of_wire("eth1", "eth2", &[ab, Counters::default()]).text()).unwrap();
        let values = |name: &str| families[name].samples.iter().map(|s| s.value).collect::<Vec<_>>();
        assert_eq!(values("softnic_wire_rx_frames_total"), [10.0, 0.0]);
        assert_eq!(values("softnic_wire_injected_loss_total"), [4.0, 0.0]);
        assert_eq!(values("softnic_wire_own_drops_total"), [2.0, 0.0]);
        assert_eq!(
            (families["softnic_wire_under_way"].kind.as_str(), values("softnic_wire_under_way")[0]),
            ("gauge", 5.0)
        );
        let labels = &families["softnic_wire_rx_frames_total"].samples[1].labels;
        assert_eq!(labels[2], ("direction".to_string(), "ba".to_string()));
    }
}
