//! What a sender does to all members of its group, and what must be true after it: all memories hold it when it completes, and guests and
//! switch have counted the same.

use std::time::Duration;

use softnic_runtime::bump::Summary;
use softnic_runtime::switch::{Handle, Report};
use softnic_switch::GroupReport;
use softnic_switch::group::{GroupSpec, MergeSpec, Range, Receiver, Target};
use softnic_wire::{Psn, Qpn};

use super::hosts::{Done, End, FAULTY, HOSTS, Hosts, MACS, MEMORY, Op, PSN, SOFTNIC, Setup, Work, address};
use crate::guest::{Error, HwCounters, since};

/// The destination of every sender's packets.
const MC_ID: u32 = 0x77_7777;
/// The memory of all receivers, as senders know it.
const VIRTUAL: u64 = 0x5000_0000_0000;
const KEY: u32 = 0x1234_5678;
/// Where messages are received.
const TO: usize = MEMORY / 2;

/// 2 s: where nothing is lost, no guest is so slow that it would send again.
const PATIENT: u8 = 19;
/// 0.27 s: where the last packet of a message may be lost, nothing else finds out.
const LOSSY: u8 = 16;

/// `enum ibv_wc_status`.
const SUCCESS: u64 = 0;
const FLUSHED: u64 = 5;
const REMOTE_ACCESS: u64 = 10;

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Story {
    /// Every operation with messages of these lengths.
    All(&'static [usize]),
    /// The last receiver has no receive at first.
    NotReady,
    /// The switch has a wrong key of the last receiver's memory.
    WrongKey,
}

pub(super) struct Scenario {
    pub(super) name: &'static str,
    sender: usize,
    mtu: u32,
    ipv6: bool,
    /// Between the first guest and the switch, both ways.
    pub(super) faults: &'static str,
    story: Story,
}

const fn scenario(
    name: &'static str,
    sender: usize,
    mtu: u32,
    ipv6: bool,
    faults: &'static str,
    story: Story,
) -> Scenario {
    Scenario { name, sender, mtu, ipv6, faults, story }
}

const MANY: Story = Story::All(&[0, 1, 1023, 1024, 1025, 4096, 4097, 60_001, 1 << 20]);
const SOME: Story = Story::All(&[1, 20_000, 60_001]);
const LOSS: &str = "loss=0.03";
const RXE: usize = FAULTY;
const OTHER_RXE: usize = 2;

pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("softnic", SOFTNIC, 1024, false, "", MANY),
    scenario("softnic-v6", SOFTNIC, 4096, true, "", MANY),
    scenario("rxe", RXE, 4096, false, "", MANY),
    scenario("rxe-v6", OTHER_RXE, 1024, true, "", MANY),
    scenario("loss", SOFTNIC, 1024, false, LOSS, SOME),
    scenario("loss-v6", SOFTNIC, 4096, true, LOSS, SOME),
    scenario("dup", SOFTNIC, 1024, false, "dup=0.05", SOME),
    scenario("reorder", SOFTNIC, 1024, false, "reorder=0.03:3", SOME),
    scenario("corrupt", SOFTNIC, 1024, false, "corrupt=0.03", SOME),
    scenario("rxe-loss", OTHER_RXE, 1024, false, LOSS, SOME),
    scenario("rxe-mixed", OTHER_RXE, 4096, false, "loss=0.01,dup=0.02,corrupt=0.01,reorder=0.02:2", SOME),
    // The sender's own link.
    scenario("rxe-own", RXE, 1024, false, LOSS, SOME),
    scenario("rnr", SOFTNIC, 1024, false, "", Story::NotReady),
    scenario("rxe-rnr", OTHER_RXE, 1024, false, "", Story::NotReady),
    scenario("key", SOFTNIC, 1024, false, "", Story::WrongKey),
    scenario("rxe-key", RXE, 1024, false, "", Story::WrongKey),
];

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + seed * 7) >> 2) as u8).collect()
}

/// What a scenario left behind.
pub(super) struct Seen {
    sender: usize,
    receivers: [usize; HOSTS - 1],
    group: GroupReport,
    /// By guest.
    guests: [HwCounters; 2],
    messages: usize,
}

impl Scenario {
    pub(super) fn describe(&self) -> String {
        let who = if self.sender == SOFTNIC { "softnic sends" } else { "rxe sends" };
        let ip = if self.ipv6 { "IPv6" } else { "IPv4" };
        let what = match self.story {
            Story::All(_) => self.faults,
            Story::NotReady => "a receiver is not ready",
            Story::WrongKey => "the key of a receiver's memory is wrong",
        };
        format!("{who}, {ip}, path MTU {}{}{what}", self.mtu, if what.is_empty() { "" } else { ": " })
    }

    fn setup(&self) -> Setup {
        let timeout = if self.faults.is_empty() { PATIENT } else { LOSSY };
        Setup { mtu: self.mtu, ipv6: self.ipv6, timeout }
    }

    /// All other hosts, in the order in which the group has them.
    fn receivers(&self) -> [usize; HOSTS - 1] {
        match self.sender {
            SOFTNIC => [1, 2],
            1 => [2, SOFTNIC],
            _ => [1, SOFTNIC],
        }
    }

    /// Connects everybody, adds the group, and tells the story.
    pub(super) fn run(&self, hosts: &mut Hosts, switch: &Handle) -> Result<Seen, Error> {
        let before = hosts.hw_counters()?;
        let (setup, receivers) = (self.setup(), self.receivers());
        let ends = hosts.open(&setup)?;
        let refused = |e| Error::Failed(format!("the switch takes no group: {e}"));
        switch.add_group(self.group(&ends)).map_err(refused)?;
        hosts.connect(self.sender, &setup, receivers[0], MC_ID)?;
        for receiver in receivers {
            hosts.connect(receiver, &setup, self.sender, ends[self.sender].qpn)?;
        }
        let messages = match self.story {
            Story::All(lengths) => self.all(hosts, lengths)?,
            Story::NotReady => self.not_ready(hosts)?,
            Story::WrongKey => self.wrong_key(hosts)?,
        };
        let gone = |e| Error::Failed(format!("the switch does not answer: {e}"));
        // Answers to what came twice may still be on the way.
        let mut group = switch.groups().map_err(gone)?.swap_remove(0);
        loop {
            std::thread::sleep(Duration::from_millis(300));
            let before = std::mem::replace(&mut group, switch.groups().map_err(gone)?.swap_remove(0));
            if before.counters == group.counters {
                break;
            }
        }
        let after = hosts.hw_counters()?;
        let guests = [0, 1].map(|guest| since(&before[guest], &after[guest]));
        Ok(Seen { sender: self.sender, receivers, group, guests, messages })
    }

    fn group(&self, ends: &[End; HOSTS]) -> GroupSpec {
        let receivers = self.receivers();
        let wrong = |i: usize| self.story == Story::WrongKey && i + 1 == receivers.len();
        let target = |(i, host): (usize, &usize)| Target {
            start: ends[*host].addr,
            rkey: ends[*host].rkey ^ if wrong(i) { 0x5a5a_5a00 } else { 0 },
        };
        let receiver = |host: &usize| Receiver {
            address: address(*host, self.ipv6),
            qpn: Qpn::new(ends[*host].qpn),
            mac: Some(MACS[*host]),
            branch: None,
        };
        GroupSpec {
            sender: address(self.sender, self.ipv6),
            mc_id: Qpn::new(MC_ID),
            merge: Some(MergeSpec { qpn: Qpn::new(ends[self.sender].qpn), psn: Psn::new(PSN) }),
            receivers: receivers.iter().map(receiver).collect(),
            ranges: vec![Range {
                start: VIRTUAL,
                len: MEMORY as u64,
                rkey: KEY,
                targets: receivers.iter().enumerate().map(target).collect(),
            }],
        }
    }

    fn work(&self, wr_id: usize, op: Op, len: usize) -> Work {
        Work {
            wr_id: wr_id as u64,
            op,
            len,
            imm: 0xabcd_0000 + wr_id as u32,
            remote_addr: VIRTUAL + TO as u64,
            rkey: KEY,
        }
    }

    /// Every operation with every length; how many messages that were.
    fn all(&self, hosts: &mut Hosts, lengths: &[usize]) -> Result<usize, Error> {
        let mut number = 0;
        for op in Op::ALL {
            for &len in lengths {
                number += 1;
                let data = pattern(number, len);
                hosts.fill(self.sender, 0, &data)?;
                if op.takes_receive() {
                    for receiver in self.receivers() {
                        hosts.recv(receiver, number as u64, TO, len)?;
                    }
                }
                let work = self.work(number, op, len);
                hosts.send(self.sender, &work)?;
                self.arrived(hosts, &work, &data)?;
            }
        }
        Ok(number)
    }

    /// The work request completes, and then every receiver has it.
    fn arrived(&self, hosts: &mut Hosts, work: &Work, data: &[u8]) -> Result<(), Error> {
        let (op, len) = (work.op.name(), work.len);
        let done = hosts.done(self.sender, 0)?;
        if (done.wr_id, done.status) != (work.wr_id, SUCCESS) {
            return Err(Error::Failed(format!("{op} of {len} bytes ended so: {done:?}")));
        }
        for receiver in self.receivers() {
            if !hosts.holds(receiver, TO, data)? {
                return Err(Error::Failed(format!(
                    "{op} of {len} bytes is done, and not in the memory of host {receiver}"
                )));
            }
            if work.op.takes_receive() {
                let expected = Done { wr_id: work.wr_id, status: SUCCESS, imm: work.op.has_imm().then_some(work.imm) };
                let done = hosts.done(receiver, 1)?;
                if done != expected {
                    return Err(Error::Failed(format!(
                        "{op} of {len} bytes at host {receiver}: {done:?}, not {expected:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The last receiver posts its receive when the others have the message.
    fn not_ready(&self, hosts: &mut Hosts) -> Result<usize, Error> {
        let [ready, late] = self.receivers();
        for (number, op) in [Op::Send, Op::WriteImm].into_iter().enumerate() {
            let data = pattern(number, 20_000);
            hosts.fill(self.sender, 0, &data)?;
            hosts.recv(ready, number as u64, TO, data.len())?;
            let work = self.work(number, op, data.len());
            hosts.send(self.sender, &work)?;
            std::thread::sleep(Duration::from_millis(100));
            hosts.recv(late, number as u64, TO, data.len())?;
            self.arrived(hosts, &work, &data)?;
        }
        Ok(2)
    }

    /// A SEND arrives; the WRITE behind it fails at one receiver, and with it all that follows.
    fn wrong_key(&self, hosts: &mut Hosts) -> Result<usize, Error> {
        let data = pattern(1, 5000);
        hosts.fill(self.sender, 0, &data)?;
        for receiver in self.receivers() {
            hosts.recv(receiver, 1, TO, data.len())?;
        }
        let work = self.work(1, Op::Send, data.len());
        hosts.send(self.sender, &work)?;
        self.arrived(hosts, &work, &data)?;
        let [_, refusing] = self.receivers();
        let zeros = vec![0; data.len()];
        hosts.fill(refusing, TO, &zeros)?;
        hosts.send(self.sender, &self.work(2, Op::Write, data.len()))?;
        hosts.send(self.sender, &self.work(3, Op::Write, data.len()))?;
        let ends = [hosts.done(self.sender, 0)?, hosts.done(self.sender, 0)?].map(|done| (done.wr_id, done.status));
        if ends != [(2, REMOTE_ACCESS), (3, FLUSHED)] {
            return Err(Error::Failed(format!("WRITEs with a wrong key ended so: {ends:?}")));
        }
        match hosts.holds(refusing, TO, &zeros)? {
            true => Ok(3),
            false => Err(Error::Failed("a WRITE with a wrong key changed memory".into())),
        }
    }
}

impl Seen {
    /// An error unless it is true, with all counters.
    fn must(&self, what: &str, is: bool) -> Result<(), String> {
        match is {
            true => Ok(()),
            false => Err(format!("{what}: {:?}; guests {:?}", self.group, self.guests)),
        }
    }

    fn guest(&self, host: usize, name: &str) -> Option<u64> {
        self.guests.get(host.checked_sub(1)?).and_then(|counters| counters.get(name)).copied()
    }

    /// Whether the switch counted what guests did; what is worth telling.
    pub(super) fn judge(&self, scenario: &Scenario, switch: &Report, wire: &Summary) -> Result<String, String> {
        let c = &self.group.counters;
        let clean = scenario.faults.is_empty();
        for port in &switch.ports {
            let lost = port.dropped + port.too_long + port.rx_missed + port.tx_refused + port.unsegmented;
            self.must(&format!("frames were lost at {}: {port:?}", port.interface), lost == 0)?;
        }
        self.must("a copy has no way", c.unresolved == 0)?;
        self.must("each packet is copied to each member", c.copies == 2 * (c.packets_in - c.refused))?;
        if (clean || self.sender != FAULTY)
            && let Some(sent) = self.guest(self.sender, "sent_pkts")
        {
            self.must("the switch saw what was sent", c.packets_in == sent)?;
            let told = self.guest(self.sender, "rcvd_pkts").unwrap_or(0);
            self.must("the sender got what it is told", c.acks_out + c.cnps_out == told)?;
        }
        // One that refuses a request counts nothing behind it.
        let refuses = |host: usize| scenario.story == Story::WrongKey && host == self.receivers[1];
        let counts = |host: &usize| (clean || *host != FAULTY) && !refuses(*host);
        for receiver in self.receivers.into_iter().filter(counts) {
            if let Some(received) = self.guest(receiver, "rcvd_pkts") {
                self.must("a member got all copies", received == c.packets_in - c.refused)?;
            }
        }
        if clean && self.sender == SOFTNIC {
            let said: u64 = self.receivers.iter().filter_map(|host| self.guest(*host, "sent_pkts")).sum();
            self.must("the switch heard what members say", c.acks_in == said)?;
        }
        match scenario.story {
            Story::All(_) if clean => {
                self.must("nothing is asked for again", c.naks + c.rnr == 0)?;
                self.must("nothing is wrong", c.bad == 0)?;
            }
            Story::All(_) => {}
            Story::NotReady => self.must("somebody is not ready", c.rnr > 0)?,
            Story::WrongKey => self.must("somebody refuses", c.naks > 0)?,
        }
        let faults: u64 = wire.counters.iter().map(|w| w.fault_lost + w.duplicated + w.corrupted + w.reordered).sum();
        if !clean && faults == 0 {
            return Err("the wire did nothing to any packet".into());
        }
        Ok(format!(
            "{} messages: {} packets, {} copies, {} answers of which {} were told, {} NAKs, {} RNR; {faults} faults",
            self.messages, c.packets_in, c.copies, c.acks_in, c.acks_out, c.naks, c.rnr
        ))
    }
}
