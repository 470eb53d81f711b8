//! The networks of the experiments: one switch, leaves and spines, or data centres far apart; with background traffic and losses.

use std::fmt::Write as _;
use std::time::Duration;

use softnic_sim::topology::Topology;

/// Hosts of a leaf.
const HOSTS_OF_LEAF: usize = 4;
/// Queues mark all packets of DCQCN from here on; a queue that is controlled is not longer.
const MARKED: f64 = 400e3;
const RATE: f64 = 25e9;

/// The shape of a network of hosts at 25 Gbit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    /// One switch.
    Star,
    /// Leaves of four hosts, and two spines with 50 Gbit/s to each leaf: nothing is oversubscribed.
    LeafSpine,
    /// Each host in a data centre of its own, with this round trip between any two.
    Apart(Duration),
}

/// A network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Net {
    pub(super) shape: Shape,
    pub(super) hosts: usize,
    /// The part of each line that other traffic takes.
    pub(super) background: f64,
    /// The chance that a packet is lost on its way; it passes the place where that happens once.
    pub(super) loss: f64,
    /// Bytes of the queue of each port.
    pub(super) queue: u64,
}

impl Net {
    pub(super) fn topology(&self) -> Result<Topology, String> {
        let mut text = match self.shape {
            Shape::Star => format!("kind = \"star\"\nhosts = {}\ndelay = \"1us\"\n", self.hosts),
            Shape::LeafSpine => format!(
                "kind = \"leaf-spine\"\nleaves = {}\nspines = 2\nhosts = {HOSTS_OF_LEAF}\nbottleneck = \"50Gbit\"\ndelay = \"1us\"\n",
                self.hosts / HOSTS_OF_LEAF
            ),
            Shape::Apart(rtt) => {
                format!("kind = \"star\"\nhosts = {}\ndelay = \"{}ns\"\n", self.hosts, rtt.as_nanos() / 4)
            }
        };
        let Net { loss, queue, .. } = self;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "rate = \"25Gbit\"\nqueue = \"{queue}\"\necn = \"100K:400K:0.1\"\nmtu = 4096\npayload = \"none\""
        );
        if self.background > 0.0 {
            text += &self.background();
        }
        let mut topology = Topology::of_network(&text).map_err(|e| e.to_string())?;
        if *loss > 0.0 {
            // The links of the hosts come first.
            let spec = format!("ab.loss={loss}").parse().map_err(|e| format!("loss: {e}"))?;
            topology.links.iter_mut().take(self.hosts).for_each(|link| link.faults = Clone::clone(&spec));
        }
        Ok(topology)
    }

    /// Other traffic, as in docs/topologies/ranks.toml: bursts, messages and incasts, 40 to 9 to 1.
    fn background(&self) -> String {
        let [bursts, poisson, incast] = [0.8, 0.18, 0.02].map(|part| part * self.background);
        let all = "from = \"all\"\nto = \"all\"";
        let hosts = 7.min(self.hosts - 1);
        format!(
            "[[background]]\npattern = \"bursts\"\n{all}\nshare = {bursts:.4}\non = \"80us\"\n\
             [[background]]\npattern = \"poisson\"\n{all}\nshare = {poisson:.4}\nsize = [[\"2K\", 60], [\"16K\", 30], [\"256K\", 10]]\n\
             [[background]]\npattern = \"incast\"\n{all}\nhosts = {hosts}\nshare = {incast:.4}\nevery = \"4ms\"\n"
        )
    }

    /// What queues add to a round trip: where there is other traffic, each on the way as long as it is when all that leaves it is marked.
    pub(super) fn queueing(&self) -> Duration {
        let queue = MARKED * 8.0 / RATE;
        // Ports to spines and from them are twice as fast.
        let one_way = match self.shape {
            _ if self.background == 0.0 => 0.0,
            Shape::Star | Shape::Apart(_) => queue,
            Shape::LeafSpine => 2.0 * queue,
        };
        Duration::from_secs_f64(2.0 * one_way)
    }

    pub(super) fn name(&self) -> String {
        let shape = match self.shape {
            Shape::Star => "star".into(),
            Shape::LeafSpine => "leaf-spine".into(),
            Shape::Apart(rtt) => format!("apart {rtt:?}"),
        };
        format!("{shape} {}", self.hosts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_lost_where_hosts_send_and_nowhere_else() {
        for shape in [Shape::Star, Shape::LeafSpine, Shape::Apart(Duration::from_millis(1))] {
            let net = Net { shape, hosts: 8, background: 0.5, loss: 0.01, queue: 1 << 20 };
            let topology = net.topology().unwrap();
            assert_eq!((topology.hosts.len(), topology.background.len()), (8, 3));
            let lossy =
                topology.links.iter().filter(|link| link.faults != softnic_fault_injector::Spec::default()).count();
            assert_eq!(lossy, 8, "{shape:?}");
            assert!((topology.background.iter().map(|b| b.share).sum::<f64>() - 0.5).abs() < 1e-6);
        }
    }
}
