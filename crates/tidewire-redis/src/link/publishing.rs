//! Publications: into batches, each sent until it is answered, done once.
//!
//! A batch has a number that is never used for other content. Redis keeps the number of the writer's last
//! batch and its last four replies, so that a batch that is sent again gives the first reply. A batch states
//! which one must have been done before it. Therefore a batch that fails stops those behind it, and the order
//! holds.

use crate::connection::{ErrorKind, ServerError};
use crate::layout::Position;
use crate::link::Link;
use crate::link::event::{Draft, Event, History, Placed, Refusal};
use crate::link::options::{Now, Slot};
use crate::link::state::{Batch, Item, KnownEpoch, Tag};
use crate::record::{Mark, Record};
use crate::resp::Value;
use crate::script::{BATCH_MAX, PlaceReply, PublishCall, PublishItem, PublishReply};
use std::sync::Arc;

impl Link {
    pub(super) fn enqueue(
        &mut self,
        number: u64,
        topic: &Arc<str>,
        history: History,
        draft: &Draft<'_>,
        now: Now,
    ) {
        self.counters.offered += 1;
        let history = history.or_else(|| self.agreement.history_of(topic));
        let mut record = Vec::with_capacity(draft.payload.len() + RECORD_HEAD_BYTES);
        let redis_ms = now.unix_ms.saturating_add_signed(self.clock.ahead_ms);
        let encoded = Record {
            mark: Mark {
                node: self.node,
                batch: 0,
                index: 0,
            },
            category: draft.category,
            priority: draft.priority,
            // Where it is kept, it matters how old it is.
            published_redis_ms: history.map(|_| redis_ms),
            expires_redis_ms: draft.ttl_ms.map(|ttl_ms| redis_ms.saturating_add(ttl_ms)),
            excluded: draft.excluded,
            also_excluded: draft.also_excluded,
            volatile: draft.volatile,
            binary: draft.binary,
            t: draft.t,
            id: draft.id,
            key: draft.key,
            payload: draft.payload,
        }
        .encode(&mut record);
        let item = Item {
            number,
            sequence: self.publishing.next_sequence,
            topic: Arc::clone(topic),
            stream: self.names.layout.stream(topic),
            history,
            id_key: draft.id.map(|id| self.names.layout.id(topic, id)),
            record,
            give_up_ms: now.ms + self.options.broker_wait_ms,
            is_doubtful: false,
            is_told: false,
        };
        // A record that is too long never has room.
        let has_room = self
            .publishing
            .has_room(item.bytes(), self.options.waiting_bytes_max);
        if encoded.is_err() || !has_room {
            self.counters.refused += 1;
            self.events.push_back(Event::Published {
                number,
                outcome: Err(Refusal::Busy),
            });
            return;
        }
        self.publishing.next_sequence += 1;
        self.publishing.bytes += item.bytes();
        self.publishing.queue.push_back(item);
    }

    pub(super) fn tick_publishing(&mut self, now: Now) {
        self.expire_publications(now);
        if self.publishing.hold_until_ms <= now.ms {
            self.publishing.hold_until_ms = 0;
            self.send_batches(now);
        }
    }

    fn send_batches(&mut self, now: Now) {
        while self.fencing.is_fenced {
            let flight = &self.publishing.flight;
            if let Some(index) = flight.iter().position(|batch| !batch.is_sent) {
                self.counters.repeated_batches += 1;
                self.send_batch(index, now);
                continue;
            }
            if self.publishing.is_draining && !flight.is_empty() {
                return;
            }
            self.publishing.is_draining = false;
            if self.publishing.flight.len() >= BATCHES_IN_FLIGHT || !self.form_batch(now) {
                return;
            }
            self.send_batch(self.publishing.flight.len() - 1, now);
        }
    }

    /// Makes a batch of what waits; whether something did.
    fn form_batch(&mut self, now: Now) -> bool {
        let redis_ms = now.unix_ms.saturating_add_signed(self.clock.ahead_ms);
        let number = (self.publishing.last_batch + 1).min(BATCH_MAX);
        let items_max = self
            .options
            .batch_publications_max
            .clamp(1, PUBLICATIONS_MAX);
        let (mut items, mut bytes) = (Vec::new(), 0);
        while items.len() < items_max
            && let Some(item) = self.publishing.queue.front()
        {
            bytes += item.bytes();
            if bytes > self.options.batch_bytes_max && !items.is_empty() {
                break;
            }
            if let Some(mut item) = self.publishing.queue.pop_front() {
                let index = items.len() as u16;
                Mark {
                    node: self.node,
                    batch: number,
                    index,
                }
                .write(&mut item.record);
                // Only now it is certain that the clock of Redis is known.
                Record::write_published(&mut item.record, redis_ms);
                items.push(item);
            }
        }
        if items.is_empty() {
            return false;
        }
        let before = self.publishing.flight.back().map(|batch| batch.number);
        let after = before.unwrap_or(self.publishing.settled);
        self.publishing.last_batch = number;
        self.publishing.flight.push_back(Batch {
            number,
            after,
            items,
            is_sent: false,
            is_doubtful: false,
        });
        true
    }

    fn send_batch(&mut self, index: usize, now: Now) {
        let keeps: Vec<_> = self.publishing.flight[index]
            .items
            .iter()
            .map(|item| self.epoch_of(item, now))
            .collect();
        let publishing = &self.publishing;
        let batch = &publishing.flight[index];
        let items = batch
            .items
            .iter()
            .zip(&keeps)
            .map(|(item, (epoch, keep_ms))| PublishItem {
                stream: &item.stream,
                id_key: item.id_key.as_deref(),
                expected_epoch: *epoch,
                publications_max: item.history.map_or(0, |keep| keep.publications_max),
                record: &item.record,
                keep_ms: *keep_ms,
            });
        let items = items.collect::<Vec<_>>();
        let idle = |item: &Item| Some(item.history?.idle_ms);
        let begun_ms = match batch.items.iter().filter_map(idle).min() {
            None | Some(0) => 0,
            Some(idle_ms) => idle_ms.max(KEPT_MS_MIN),
        };
        let Some(fence) = &self.fencing.fence else {
            return;
        };
        let call = PublishCall {
            fence_key: &self.names.fence,
            writer_key: &self.names.writer,
            fence,
            generation: self.fencing.generation,
            batch: batch.number,
            after: batch.after,
            // Those behind it need one before them.
            may_begin: index == 0 && !publishing.is_known,
            id_memory_ms: self.options.id_memory_ms,
            groups_key: &self.names.layout.groups(),
            work_max: self.options.group_waiting_max,
            work_bytes_max: self.options.group_waiting_bytes_max,
            work_drops_newest: self.options.group_drops_newest,
            begun_ms,
            channels: self.names.layout.moved_channels().unwrap_or_default(),
            items: &items,
        };
        let tag = Tag::Publish(batch.number);
        let deadline_ms = now.ms + self.options.command_ms;
        if let Some(connection) = self.slots.ready(Slot::Command) {
            connection.send(tag, deadline_ms, |out| call.write(&self.hashes, out));
        }
        self.counters.batches += 1;
        self.publishing.flight[index].is_sent = true;
    }

    /// The epoch that the topic of a publication probably has, and how long its stream is to be kept, if this
    /// was not set within the last quarter of that time.
    fn epoch_of(&self, item: &Item, now: Now) -> (Option<u32>, Option<u64>) {
        let Some(keep) = item.history else {
            return (None, None);
        };
        let known = self.publishing.epochs.get(&item.topic);
        let keep_ms = keep.idle_ms.max(KEPT_MS_MIN);
        let is_kept = known.is_some_and(|known| now.ms - known.kept_ms < keep_ms / 4);
        let keep_ms = (keep.idle_ms != 0 && !is_kept).then_some(keep_ms);
        (Some(known.map_or(0, |known| known.epoch)), keep_ms)
    }

    pub(super) fn handle_published(
        &mut self,
        number: u64,
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        let mut flight = self.publishing.flight.iter();
        let Some(index) = flight.position(|batch| batch.number == number) else {
            return;
        };
        let items = self.publishing.flight[index].items.len();
        let reply = match result {
            Ok(value) => PublishReply::read(value, items),
            Err(error) => {
                self.handle_refused_batch(index, &error, now);
                return;
            }
        };
        match reply {
            Ok(PublishReply::Places(places)) => {
                self.publishing.is_known = true;
                self.settle(index, &places, now);
            }
            Ok(PublishReply::Gap) => {
                // The first one has nothing before it: whatever Redis has is right.
                if index == 0 {
                    self.publishing.settled = 0;
                }
                self.dissolve(index, false);
            }
            Ok(PublishReply::Begin) => {
                self.publishing.is_known = false;
                self.dissolve(index, true);
            }
            Ok(PublishReply::Fenced) => {
                self.dissolve(index, true);
                self.lose_fence();
            }
            Ok(PublishReply::Forgotten) => self.give_up_batch(index),
            Ok(PublishReply::Stale) => {
                self.give_up(
                    Slot::Command,
                    "a newer connection of this node took over",
                    now,
                );
            }
            Err(error) => {
                self.counters.malformed += 1;
                self.health.reason = Some(error.to_string());
                self.give_up_batch(index);
            }
        }
    }

    fn handle_refused_batch(&mut self, index: usize, error: &ServerError, now: Now) {
        self.health.reason = Some(error.to_string());
        self.publishing.is_denied = error.kind == ErrorKind::NoPermission;
        self.note_refused_write(error);
        if !error.is_refusal() {
            self.give_up_batch(index);
            return;
        }
        // One that may have been done keeps its number, under which Redis may know it.
        if self.publishing.flight[index].is_doubtful {
            self.publishing.flight[index].is_sent = false;
        } else {
            self.dissolve(index, false);
        }
        match error.kind {
            ErrorKind::NoScript => self.load_scripts(Slot::Command, now),
            _ if error.is_wrong_server() => self.give_up_all(&error.to_string(), now),
            _ => self.publishing.hold_until_ms = now.ms + HOLD_MS,
        }
    }

    fn settle(&mut self, index: usize, places: &[PlaceReply], now: Now) {
        let Some(batch) = self.publishing.flight.remove(index) else {
            return;
        };
        self.publishing.settled = self.publishing.settled.max(batch.number);
        self.publishing.is_denied = false;
        if self.health.is_connected {
            self.health.reason = None;
        }
        for (item, place) in batch.items.into_iter().zip(places) {
            let outcome = match *place {
                PlaceReply::Placed(position, is_duplicate) => {
                    self.learn(&item, position.filter(|_| !is_duplicate), now);
                    Ok(Placed {
                        position,
                        is_duplicate,
                    })
                }
                PlaceReply::Unusable => {
                    self.begin_wrong_key(&item.topic, now);
                    Err(Refusal::Unavailable)
                }
            };
            self.finish(item, outcome);
        }
    }

    fn learn(&mut self, item: &Item, position: Option<Position>, now: Now) {
        let Some(position) = position else {
            return;
        };
        self.saw_epoch(position.epoch);
        let idle_ms = item.history.map_or(0, |keep| keep.idle_ms).max(KEPT_MS_MIN);
        let epochs = &mut self.publishing.epochs;
        if let Some(known) = epochs.get_mut(&item.topic) {
            // Another epoch: the script has set how long the stream is kept.
            let is_other = std::mem::replace(&mut known.epoch, position.epoch) != position.epoch;
            if is_other || now.ms - known.kept_ms >= idle_ms / 4 {
                known.kept_ms = now.ms;
            }
            return;
        }
        // Forgetting costs some microseconds of Redis for the next publication of each topic.
        if epochs.len() >= EPOCHS_MAX {
            epochs.clear();
        }
        let known = KnownEpoch {
            epoch: position.epoch,
            kept_ms: now.ms,
        };
        epochs.insert(Arc::clone(&item.topic), known);
    }

    /// Nobody knows what became of a batch.
    fn give_up_batch(&mut self, index: usize) {
        if let Some(batch) = self.publishing.flight.remove(index) {
            for item in batch.items {
                self.finish(item, Err(Refusal::Unknown));
            }
        }
    }

    /// A batch was not done: its publications wait again, in their old order. `is_doubtful`: Redis may have forgotten
    /// that it was done.
    fn dissolve(&mut self, index: usize, is_doubtful: bool) {
        let Some(batch) = self.publishing.flight.remove(index) else {
            return;
        };
        self.publishing.is_draining = true;
        for mut item in batch.items.into_iter().rev() {
            self.publishing.epochs.remove(&item.topic);
            item.is_doubtful &= is_doubtful;
            if item.is_told {
                self.publishing.bytes -= item.bytes();
                continue;
            }
            let queue = &mut self.publishing.queue;
            let place = queue.partition_point(|other| other.sequence < item.sequence);
            queue.insert(place, item);
        }
    }

    fn expire_publications(&mut self, now: Now) {
        while let Some(item) = self.publishing.queue.pop_front() {
            if item.give_up_ms > now.ms {
                self.publishing.queue.push_front(item);
                break;
            }
            let refusal = if item.is_doubtful {
                Refusal::Unknown
            } else {
                Refusal::Unavailable
            };
            self.finish(item, Err(refusal));
        }
        let mut told = Vec::new();
        for batch in &mut self.publishing.flight {
            for item in &mut batch.items {
                if item.give_up_ms <= now.ms && !item.is_told {
                    item.is_told = true;
                    told.push(item.number);
                }
            }
        }
        for number in told {
            self.tell(number, Err(Refusal::Unknown));
        }
        // What nobody waits for is not sent again.
        let is_over = |batch: &Batch| !batch.is_sent && batch.items.iter().all(|item| item.is_told);
        while let Some(index) = self.publishing.flight.iter().position(is_over) {
            self.give_up_batch(index);
        }
    }

    fn finish(&mut self, item: Item, outcome: Result<Placed, Refusal>) {
        self.publishing.bytes -= item.bytes();
        if !item.is_told {
            self.tell(item.number, outcome);
        }
    }

    fn tell(&mut self, number: u64, outcome: Result<Placed, Refusal>) {
        match outcome {
            Ok(_) => self.counters.settled += 1,
            Err(Refusal::Unknown) => self.counters.unknown += 1,
            Err(_) => self.counters.refused += 1,
        }
        self.events.push_back(Event::Published { number, outcome });
    }

    /// The connection for commands is gone: the batches sent on it may have been done.
    pub(super) fn lose_commands(&mut self) {
        self.agreement.lose();
        self.doubt_channels();
        self.fencing.is_fenced = false;
        self.fencing.is_asking = false;
        self.fencing.begins_ms = None;
        self.publishing.hold_until_ms = 0;
        for batch in &mut self.publishing.flight {
            if batch.is_sent {
                batch.is_sent = false;
                batch.is_doubtful = true;
                for item in &mut batch.items {
                    item.is_doubtful = true;
                }
            }
        }
        self.lose_probe();
    }

    pub(super) fn publishing_deadline_ms(&self) -> Option<u64> {
        let publishing = &self.publishing;
        let flying = publishing.flight.iter().flat_map(|batch| &batch.items);
        let flying = flying
            .filter(|item| !item.is_told)
            .map(|item| item.give_up_ms)
            .min();
        let waiting = publishing.queue.front().map(|item| item.give_up_ms);
        let hold = Some(publishing.hold_until_ms)
            .filter(|_| self.fencing.is_fenced && (waiting.is_some() || flying.is_some()))
            .filter(|at| *at != 0);
        [flying, waiting, hold].into_iter().flatten().min()
    }
}

/// The number of replies that Redis keeps.
const BATCHES_IN_FLIGHT: usize = 4;

const PUBLICATIONS_MAX: usize = 1_000;

/// The usual size of a record besides its payload.
const RECORD_HEAD_BYTES: usize = 96;

/// How long the link waits after Redis refused a batch.
const HOLD_MS: u64 = 100;

/// The least time that a stream with an end is kept.
pub(super) const KEPT_MS_MIN: u64 = 60_000;

/// Topics whose epochs are remembered.
const EPOCHS_MAX: usize = 65_536;
