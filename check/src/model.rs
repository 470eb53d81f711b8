//! The model: all that is known of the objects of a process, and the findings that nobody took yet.

mod attributes;
mod completing;
mod ending;
mod posting;

use std::collections::{BTreeMap, VecDeque};

use crate::calls::{CompletionQueue, ObjectId, ObjectKind, QueuePair, Region};
use crate::finding::{Finding, Kind, Place, QueuePairName, Severity, Stack};
use crate::hash::{NumberMap, NumberSet};
use crate::memory::Scratch;
use crate::queue_pair::{Buffer, Pair, Receive, Send};
use crate::regions::{Known, Regions};
use crate::spans::Spans;

/// One process.
#[derive(Debug, Default)]
pub struct Model {
    findings: Vec<Finding>,
    /// Kinds and sites that were told of.
    told: NumberSet<(u32, u64)>,
    objects: BTreeMap<(ObjectKind, ObjectId), Object>,
    /// What a verb that is under way takes away, until it is known whether it did.
    going: BTreeMap<(ObjectKind, ObjectId), Going>,
    regions: Regions,
    queues: NumberMap<ObjectId, Queue>,
    pairs: NumberMap<ObjectId, Pair>,
    /// Queue pairs by a completion queue of theirs and their number.
    by_queue: NumberMap<(ObjectId, u32), ObjectId>,
    shared: NumberMap<ObjectId, VecDeque<Receive>>,
    /// Memory of posted receives.
    receive_spans: Spans,
    /// Memory that outstanding READs and atomics write.
    result_spans: Spans,
    scratch: Scratch,
    tickets: u64,
    pairs_made: u32,
}

/// An object that programs hold.
#[derive(Debug)]
struct Object {
    made: Place,
    unacknowledged: u64,
    /// librdmacm made it for an id, and takes it away.
    is_of_connection: bool,
}

/// An object that a verb is taking away.
#[derive(Debug)]
struct Going {
    object: Object,
    region: Option<Known>,
    queue: Option<Queue>,
    /// To be told if it goes.
    finding: Option<(u64, Finding)>,
    /// To be told if it does not go for long, because it waits for events to be acknowledged.
    waiting: Option<(Wait, Finding)>,
    ended: Place,
}

/// A verb that waits until events of its object are acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait(u64);

/// A completion queue.
#[derive(Debug)]
struct Queue {
    capacity: u32,
    /// Outstanding sends that complete here.
    signaled: u64,
    /// Outstanding receives that complete here, but those of shared queues: where these complete is not known before.
    receives: u64,
    /// Signaled sends that were ever posted.
    posted: u64,
    polled: bool,
}

impl Model {
    /// Of a process without objects.
    pub fn new() -> Model {
        Model::default()
    }

    /// Whether there are findings to take.
    pub fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }

    /// Takes the findings since the last time.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// An object is the program's now.
    pub fn made(&mut self, kind: ObjectKind, id: ObjectId, place: &Place) {
        let object = Object { made: place.clone(), unacknowledged: 0, is_of_connection: false };
        self.objects.insert((kind, id), object);
    }

    /// An object that was made is one of librdmacm's, for an id: functions of the id take it away.
    pub fn is_of_connection(&mut self, kind: ObjectKind, id: ObjectId) {
        if let Some(object) = self.objects.get_mut(&(kind, id)) {
            object.is_of_connection = true;
        }
    }

    /// A region is registered.
    pub fn region_made(&mut self, id: ObjectId, region: Region, place: &Place) {
        self.made(ObjectKind::Region, id, place);
        self.regions.insert(id, Known { region, made: place.stack.clone(), uses: 0 });
    }

    /// A region that there is.
    pub fn region(&self, id: ObjectId) -> Option<&Region> {
        self.regions.get(id).map(|known| &known.region)
    }

    /// A region has other memory, rights, keys or another domain.
    pub fn region_changed(&mut self, id: ObjectId, region: Region) {
        if let Some(known) = self.regions.take(id) {
            self.regions.insert(id, Known { region, ..known });
        }
    }

    /// A completion queue is made.
    pub fn completion_queue_made(&mut self, id: ObjectId, queue: CompletionQueue, place: &Place) {
        self.made(ObjectKind::CompletionQueue, id, place);
        self.check_completion_queue(queue, place);
        self.queues.insert(id, Queue { capacity: queue.capacity, signaled: 0, receives: 0, posted: 0, polled: false });
    }

    /// A completion queue has another size.
    pub fn completion_queue_resized(&mut self, id: ObjectId, queue: CompletionQueue) {
        if let Some(known) = self.queues.get_mut(&id) {
            known.capacity = queue.capacity;
        }
    }

    /// A shared receive queue is made.
    pub fn shared_receive_made(&mut self, id: ObjectId, place: &Place) {
        self.made(ObjectKind::SharedReceive, id, place);
        self.shared.insert(id, VecDeque::new());
    }

    /// A queue pair is made, by the program or by librdmacm for an id, which changes its states by itself.
    pub fn queue_pair_made(&mut self, id: ObjectId, pair: QueuePair, is_the_programs: bool, place: &Place) {
        self.pairs_made += 1;
        self.made(ObjectKind::QueuePair, id, place);
        if !is_the_programs {
            self.is_of_connection(ObjectKind::QueuePair, id);
        }
        for queue in [pair.send_cq, pair.recv_cq] {
            self.by_queue.insert((queue, pair.number), id);
        }
        let pair = Pair::new(pair, self.pairs_made, is_the_programs, place.stack.clone());
        self.check_capacity(&pair, place);
        self.pairs.insert(id, pair);
    }

    /// Adds a finding, unless one of the kind was told of this site.
    fn tell(&mut self, site: u64, finding: Finding) {
        if self.told.insert((finding.kind as u32, site)) {
            self.findings.push(finding);
        }
    }

    /// Whether a finding of this kind was told of this site.
    fn was_told(&self, kind: Kind, place: &Place) -> bool {
        self.told.contains(&(kind as u32, place.site))
    }

    /// A finding of a call.
    fn report(&mut self, kind: Kind, place: &Place, about: About, message: String) {
        let finding = finding_of(kind, place, about, message);
        self.tell(place.site, finding);
    }

    fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// A send is over: its memory is the program's again.
    fn release_send(&mut self, queue: ObjectId, send: &Send) {
        self.release_buffers(&send.buffers, send.ticket, send.op.writes_locally(), false);
        if send.is_signaled
            && send.is_taken
            && let Some(queue) = self.queues.get_mut(&queue)
        {
            queue.signaled = queue.signaled.saturating_sub(1);
        }
    }

    fn release_receive(&mut self, receive: &Receive) {
        if let Some(queue) = receive.counted.and_then(|queue| self.queues.get_mut(&queue)) {
            queue.receives = queue.receives.saturating_sub(1);
        }
        self.release_buffers(&receive.buffers, receive.ticket, false, true);
    }

    fn release_buffers(&mut self, buffers: &[Buffer], ticket: u64, is_result: bool, is_receive: bool) {
        for buffer in buffers {
            self.regions.count(buffer.region, false);
            if is_result {
                self.result_spans.remove(buffer.span, ticket);
            }
            if is_receive {
                self.receive_spans.remove(buffer.span, ticket);
            }
        }
    }

    /// Nothing of a queue pair is outstanding any more.
    fn clear_pair(&mut self, id: ObjectId) {
        let Some(pair) = self.pairs.get_mut(&id) else { return };
        let queue = pair.attributes.send_cq;
        let (sends, receives) = (std::mem::take(&mut pair.sends), std::mem::take(&mut pair.receives));
        sends.iter().for_each(|send| self.release_send(queue, send));
        receives.iter().for_each(|receive| self.release_receive(receive));
    }
}

/// What a finding is about, beside its place.
#[derive(Debug, Default)]
struct About {
    queue_pair: Option<QueuePairName>,
    wr_id: Option<u64>,
    made: Option<Stack>,
    related: Option<(&'static str, Stack)>,
    /// If it is not that of the kind.
    severity: Option<Severity>,
}

impl About {
    /// A queue pair.
    fn pair(pair: &Pair) -> About {
        About { queue_pair: Some(pair.name), made: Some(pair.made.clone()), ..About::default() }
    }
}

fn finding_of(kind: Kind, place: &Place, about: About, message: String) -> Finding {
    Finding {
        kind,
        severity: about.severity.unwrap_or(kind.severity()),
        message,
        queue_pair: about.queue_pair,
        wr_id: about.wr_id,
        stack: Some(place.stack.clone()),
        made: about.made,
        related: about.related,
    }
}
