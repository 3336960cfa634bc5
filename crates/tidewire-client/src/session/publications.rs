//! The publications in the order of their topics, and the gaps in them.

use super::Session;
use super::pending::Waiting;
use crate::clock::Moment;
use crate::error::Ending;
use crate::event::{BatchBuilder, Event, HeldMessage, TopicGap};
use crate::request::Published;
use crate::sequencer::{Position, Sequenced, SequencerOutcome};
use std::sync::Arc;
use tidewire_wire::envelope::Outline;
use tidewire_wire::format::Format;
use tidewire_wire::session::PublicationGap;

impl Session {
    /// A message of the server's application, or a publication.
    pub(super) fn handle_application(
        &mut self,
        encoding: Format,
        bytes: &[u8],
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        if self.subscriptions.is_empty() && self.granted.is_empty() {
            batch.push_message(encoding, bytes, (b"", false));
            return Ok(());
        }
        let Ok(outline) = Outline::find(encoding, bytes) else {
            batch.push_message(encoding, bytes, (b"", false));
            return Ok(());
        };
        let payload = (outline.payload, outline.binary);
        // Members of a queue group get what the group gives them; the answer to a sync_request includes its position.
        let is_apart = outline.delivery.is_some() || outline.correlation_id.is_some();
        let (Some(topic), Some((epoch, offset)), false) =
            (outline.topic, outline.position, is_apart)
        else {
            batch.push_message(encoding, bytes, payload);
            return Ok(());
        };
        let position = Position { epoch, offset };
        let known = self.sequencer.position(&topic);
        let is_next = known.is_none_or(|known| {
            known.epoch == epoch && offset.checked_sub(1) == Some(known.offset)
        });
        let mut sequenced = Vec::new();
        if is_next {
            batch.push_message(encoding, bytes, payload);
            self.sequencer
                .advance(&topic, position, moment.ms(), &mut sequenced);
            self.push_sequenced(sequenced, batch);
            return Ok(());
        }
        if !self.subscriptions.is_gapless(&topic) {
            let is_newer = known.is_none_or(|known| known.epoch != epoch || known.offset < offset);
            if is_newer {
                batch.push_message(encoding, bytes, payload);
                self.sequencer
                    .advance(&topic, position, moment.ms(), &mut sequenced);
                self.push_sequenced(sequenced, batch);
            }
            return Ok(());
        }
        self.handle_early(&topic, position, (encoding, bytes), moment, out, batch)
    }

    /// A publication that arrives before its turn waits for those before it, which are requested.
    fn handle_early(
        &mut self,
        topic: &str,
        position: Position,
        (encoding, bytes): (Format, &[u8]),
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        let mut sequenced = Vec::new();
        self.held_bytes += bytes.len();
        let held = HeldMessage {
            encoding,
            bytes: Arc::from(bytes),
        };
        let outcome =
            self.sequencer
                .handle(topic, position, Some(held), moment.ms(), &mut sequenced);
        if outcome == SequencerOutcome::Duplicate {
            self.held_bytes -= bytes.len();
        }
        self.push_sequenced(sequenced, batch);
        if self.held_bytes > self.config.inbox_bytes_max {
            // There is no room to wait any longer for anything.
            let mut sequenced = Vec::new();
            self.sequencer.handle_timeout(u64::MAX, &mut sequenced);
            self.push_sequenced(sequenced, batch);
        }
        // Asking anew would undo what the application has asked for meanwhile.
        if outcome == SequencerOutcome::Held
            && !self.pending.changes(topic)
            && (self.subscriptions.start_recovery(topic)
                || self.subscriptions.options(topic).is_none())
        {
            self.recover(topic, moment, out)?;
        }
        Ok(())
    }

    /// Passes on what the sequencer lets through.
    pub(super) fn push_sequenced(
        &mut self,
        sequenced: Vec<Sequenced<Option<HeldMessage>>>,
        batch: &mut BatchBuilder,
    ) {
        for item in sequenced {
            match item {
                Sequenced::Message(Some(held)) => {
                    self.held_bytes -= held.bytes.len();
                    batch.push_message(held.encoding, &held.bytes, (b"", false));
                }
                // A publication of this client's own that its subscription left out.
                Sequenced::Message(None) => {}
                Sequenced::Gap(gap) => batch.push(Event::Gap(Box::new(TopicGap {
                    topic: gap.topic.to_string(),
                    reason: None,
                    count: gap.to - gap.from + 1,
                    range: Some((gap.epoch, gap.from, gap.to)),
                }))),
            }
        }
    }

    pub(super) fn handle_published(
        &mut self,
        waiting: Option<Waiting>,
        topic: &str,
        is_duplicate: bool,
        position: Option<(u32, u64)>,
        moment: Moment,
        batch: &mut BatchBuilder,
    ) {
        let Some(Waiting::Publish { publication, reply }) = waiting else {
            return;
        };
        let position = position.map(|(epoch, offset)| Position { epoch, offset });
        let is_subscribed = self.subscriptions.options(topic).is_some();
        if let Some(position) = position.filter(|_| publication.exclude_self && is_subscribed) {
            let mut sequenced = Vec::new();
            self.sequencer
                .handle(topic, position, None, moment.ms(), &mut sequenced);
            self.push_sequenced(sequenced, batch);
        }
        if let Some(reply) = reply {
            let _ = reply.send(Ok(Published {
                is_duplicate,
                position,
            }));
        }
    }

    pub(super) fn handle_gap(
        &mut self,
        gap: PublicationGap,
        moment: Moment,
        batch: &mut BatchBuilder,
    ) {
        let range = gap
            .range
            .as_ref()
            .map(|range| (range.epoch, range.from, range.to));
        if let Some((epoch, from, to)) = range {
            let mut sequenced = Vec::new();
            let now_ms = moment.ms();
            self.sequencer
                .skip(&gap.topic, epoch, from, to, now_ms, &mut sequenced);
            self.push_sequenced(sequenced, batch);
        }
        batch.push(Event::Gap(Box::new(TopicGap {
            topic: gap.topic,
            reason: Some(gap.reason),
            count: gap.count,
            range,
        })));
    }
}
