//! What holds of congestion control at every moment: credit is granted at the rate of the link, an honest peer is never refused, and a window
//! of Swift is cut once a round trip, by round trips that the path allows.

use std::time::Duration;

use softnic_collectives::simulated::Cluster;
use softnic_sim::{Cc, Time};
use softnic_wire::Qpn;

use super::world::World;

/// A cut by less is no cut: windows also follow the longest packet.
const CUT: f64 = 0.9;

/// A queue pair with Swift.
struct Window {
    host: usize,
    qpn: Qpn,
    bytes: u64,
    /// What is above this may also be taken back where a path turns out to be shorter than it seemed.
    ceiling: u64,
    cut_at: Option<Time>,
}

/// A host that grants credit.
struct Granting {
    host: usize,
    /// Bytes that were granted in all, and those of them that the link has not carried yet.
    granted: u64,
    ahead: f64,
    at: Time,
}

/// What is watched.
pub(super) struct Controls {
    windows: Vec<Window>,
    granting: Vec<Granting>,
    /// The most that may be ahead: a turn of four quanta.
    most_ahead: f64,
}

impl Controls {
    pub(super) fn new(world: &World, cluster: &mut Cluster<'_>) -> Controls {
        let (mut windows, mut granting, mut most_ahead) = (Vec::new(), Vec::<Granting>::new(), 0f64);
        for (number, group) in world.groups.iter().enumerate() {
            for (rank, &host) in group.hosts.iter().enumerate() {
                match group.cc {
                    // Of these timeouts tell nothing, so that only round trips cut.
                    Cc::Swift(config) if group.transport.is_bounded() => {
                        let longest = config.base + config.hop * config.hops + config.range;
                        let ceiling = (u128::from(world.rate) * longest.as_nanos() / 8_000_000_000) as u64;
                        let qpns: Vec<Qpn> = cluster.endpoint(number, rank).data_queue_pairs().collect();
                        windows.extend(qpns.into_iter().map(|qpn| Window {
                            host,
                            qpn,
                            bytes: 0,
                            ceiling,
                            cut_at: None,
                        }));
                    }
                    Cc::Eqds(config) => {
                        most_ahead = most_ahead.max(4.0 * f64::from(config.quantum) + 8000.0);
                        if !granting.iter().any(|one| one.host == host) {
                            granting.push(Granting { host, granted: 0, ahead: 0.0, at: Time(0) });
                        }
                    }
                    _ => {}
                }
            }
        }
        Controls { windows, granting, most_ahead }
    }

    pub(super) fn check(&mut self, world: &World, cluster: &mut Cluster<'_>) -> Result<(), String> {
        let now = cluster.network().now();
        for one in &mut self.granting {
            let total = cluster.network().nic(one.host).counters().eqds_granted_bytes;
            let carried = (now.0 - one.at.0) as f64 * world.rate as f64 / 8e12;
            one.ahead = (one.ahead - carried).max(0.0) + (total - one.granted) as f64;
            (one.granted, one.at) = (total, now);
            if one.ahead > self.most_ahead {
                return Err(format!("host {} granted {} bytes more than its link carries", one.host, one.ahead));
            }
        }
        let round_trip = world.shortest_round_trip();
        for window in &mut self.windows {
            let vitals = cluster.network().nic(window.host).vitals(window.qpn);
            let Some((bytes, rate)) = vitals.and_then(|v| v.congestion_window.map(|bytes| (bytes, v.rate))) else {
                continue;
            };
            if let Some(rate) = rate
                && rate as f64 * round_trip.as_secs_f64() > 8.001 * bytes as f64 + 64.0
            {
                return Err(format!(
                    "host {}: a window of {bytes} bytes at {rate} bit/s: no path is so short",
                    window.host
                ));
            }
            if (bytes as f64) < window.bytes as f64 * CUT && window.bytes <= window.ceiling {
                let before = window.cut_at.replace(now);
                if before.is_some_and(|at| at.after(round_trip - Duration::from_nanos(100)) > now) {
                    return Err(format!("host {}: its window was cut twice in a round trip", window.host));
                }
            }
            window.bytes = bytes;
        }
        Ok(())
    }

    /// In the end.
    pub(super) fn check_end(&self, world: &World, cluster: &mut Cluster<'_>) -> Result<(), String> {
        for host in world.groups.iter().flat_map(|group| &group.hosts) {
            let counters = *cluster.network().nic(*host).counters();
            if counters.eqds_credit_rejected > 0 {
                return Err(format!("host {host} refused credit of an honest peer"));
            }
        }
        Ok(())
    }
}
