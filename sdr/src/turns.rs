//! Which packets of a message go by which channel, and at which engine of the NIC that channel is.
//!
//! Packet p goes by channel p mod C, and channel c is at engine c mod E. So each packet has one channel and one engine, and no two engines
//! ever see the same packet.

/// The channels of one of several engines that have those of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turns {
    channels: u32,
    engines: u32,
    engine: u32,
}

impl Turns {
    /// Of so many channels, those of one of so many engines.
    pub(crate) fn new(channels: u8, engines: u8, engine: u8) -> Turns {
        let engines = engines.clamp(1, channels.max(1));
        Turns { channels: channels.max(1).into(), engines: engines.into(), engine: engine.into() }
    }

    /// Of the same channels, those of another engine.
    pub(crate) fn of_engine(&self, engine: u8) -> Turns {
        Turns { engine: engine.into(), ..*self }
    }

    /// Whether one engine has all channels.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.engines == 1
    }

    /// How many engines have channels.
    pub(crate) fn engines(&self) -> usize {
        self.engines as usize
    }

    /// Which of them it is.
    pub(crate) fn engine(&self) -> usize {
        self.engine as usize
    }

    /// How many channels there are, here and elsewhere.
    #[inline]
    pub(crate) fn all(&self) -> u32 {
        self.channels
    }

    /// The channels that are here.
    pub(crate) fn channels(&self) -> impl Iterator<Item = u32> + use<> {
        (self.engine..self.channels).step_by(self.engines as usize)
    }

    /// The channel of a packet.
    #[inline]
    pub(crate) fn channel(&self, packet: u32) -> u32 {
        // Most have one, and a division takes as long as all else that a packet needs here.
        if self.channels == 1 { 0 } else { packet % self.channels }
    }

    /// The channel of a packet as its place among those that are here, if it is.
    #[inline]
    pub(crate) fn place(&self, packet: u32) -> Option<usize> {
        if self.is_alone() {
            return Some(self.channel(packet) as usize);
        }
        let channel = self.channel(packet);
        (channel % self.engines == self.engine).then_some((channel / self.engines) as usize)
    }

    /// How many of a message's packets before this one are of this engine.
    fn before(&self, packet: u32) -> u32 {
        let mine = |channels: u32| (channels + self.engines - 1 - self.engine) / self.engines;
        packet / self.channels * mine(self.channels) + mine(packet % self.channels)
    }

    /// How many of these packets are of this engine.
    #[inline]
    pub(crate) fn count(&self, from: u32, to: u32) -> u32 {
        if self.is_alone() { to - from } else { self.before(to) - self.before(from) }
    }

    /// How many engines have packets of a chunk, of a message of so many.
    pub(crate) fn parts(&self, packets: u32, chunk_packets: u32, chunk: u32) -> u8 {
        let from = chunk * chunk_packets;
        let to = packets.min(from + chunk_packets);
        (0..self.engines).filter(|&engine| Turns { engine, ..*self }.count(from, to) > 0).count() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_is_of_one_engine_and_they_are_counted_right() {
        for (channels, engines) in [(1, 1), (1, 2), (2, 2), (3, 2), (4, 3), (5, 4), (16, 2)] {
            let all: Vec<Turns> = (0..engines.min(channels)).map(|e| Turns::new(channels, engines, e)).collect();
            let mut seen: Vec<u32> = all.iter().flat_map(Turns::channels).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..u32::from(channels)).collect::<Vec<_>>(), "{channels} channels, {engines} engines");
            for packet in 0..40u32 {
                assert_eq!(all.iter().filter(|t| t.place(packet).is_some()).count(), 1);
                for to in packet..40 {
                    for turns in &all {
                        let mine = (packet..to).filter(|&p| turns.place(p).is_some()).count();
                        assert_eq!(turns.count(packet, to) as usize, mine, "{turns:?}, {packet} to {to}");
                    }
                }
            }
            for turns in &all {
                let places: Vec<u32> = turns.channels().collect();
                assert!((0..40).all(|p| turns.place(p).is_none_or(|at| places[at] == p % u32::from(channels))));
            }
        }
        let turns = Turns::new(4, 2, 0);
        assert_eq!((turns.parts(9, 4, 0), turns.parts(9, 4, 2), turns.parts(9, 1, 3)), (2, 1, 1));
    }
}
