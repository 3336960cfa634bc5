//! Replies: messages and errors with which a server answers messages.
//!
//! Every reply is compared with the sent message. Expected replies that arrive together need a single comparison
//! of memory; the first different reply is handled separately.

use tidewire_net::Io;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::frame::{Extensions, OpCode, Role, parse_extended_header};

use super::Core;
use super::contents::Form;
use super::phase::PhaseRun;
use crate::worker::order::Activity;
use crate::worker::websocket::layer::Layer;
use crate::worker::websocket::ring::FrameRing;
use crate::worker::websocket::session::{Connection, PhaseProgress, Task};

impl Core {
    /// Handles a message of the application: the reply to one of ours, or another message.
    #[inline]
    pub(super) fn handle_application(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
        opcode: OpCode,
        message: &[u8],
    ) {
        let Some(phase) = &mut self.phase else { return };
        if phase.fan.is_some() {
            return self.handle_publication(connection, message);
        }
        if !phase.expects_replies {
            phase.result.unsolicited += 1;
            return;
        }
        let Some(ring) = phase.ring() else { return };
        let (next, written) = (connection.progress.next_reply(), written(ring, connection));
        let frame = connection.progress.first_frame + next;
        if next < written && opcode == ring.opcode() && message == ring.message(frame) {
            connection.progress.fresh_replies += 1;
        } else {
            self.handle_odd_reply(io, connection, opcode, message);
        }
    }

    /// Matches expected replies, or publications of a fan-out, at the front of `data`. Returns their bytes, and
    /// whether the next frame is incomplete.
    #[inline]
    pub(super) fn match_plain_replies(
        &mut self,
        connection: &mut Connection,
        data: &[u8],
    ) -> (usize, bool) {
        let Some(phase) = &self.phase else {
            return (0, false);
        };
        if phase.fan.is_some() {
            return self.match_deliveries(connection, data);
        }
        let Some(ring) = phase.ring().filter(|_| phase.expects_replies) else {
            return (0, false);
        };
        let limit = connection.progress.first_frame + written(ring, connection);
        if ring.layer() != Layer::Plain {
            return self.match_coded_replies(connection, data, limit);
        }
        let frame = connection.progress.first_frame + connection.progress.next_reply();
        let (replies, bytes) = ring.whole_replies(frame, limit, data);
        // No read buffer holds more replies than this counts.
        connection.progress.fresh_replies += replies as u32;
        (bytes, is_cut(&data[bytes..], Extensions::None))
    }

    /// The same for compressed and encrypted replies, which are decoded one at a time.
    fn match_coded_replies(
        &mut self,
        connection: &mut Connection,
        data: &[u8],
        limit: u64,
    ) -> (usize, bool) {
        let ring = self.phase.as_ref().and_then(|phase| phase.ring.as_ref());
        let Some(ring) = ring else { return (0, false) };
        let extensions = match ring.layer() {
            Layer::Deflate => Extensions::Deflate,
            Layer::Plain | Layer::Encryption => Extensions::None,
        };
        let mut at = 0;
        loop {
            let frame = connection.progress.first_frame + connection.progress.next_reply();
            let rest = &data[at..];
            let header = match parse_extended_header(rest, Role::Client, extensions) {
                Ok(Some(header)) if frame < limit => header,
                _ => break,
            };
            let end = header.header_bytes as u64 + header.payload_bytes;
            if !header.fin || header.opcode != ring.opcode() || end > rest.len() as u64 {
                break;
            }
            let payload = &rest[header.header_bytes..end as usize];
            let form = match connection.channel.as_deref_mut() {
                Some(channel) => Form::Sealed(channel),
                None if header.is_compressed => Form::Compressed,
                None => Form::Plain,
            };
            if !self.contents.is_of(ring, frame, payload, form) {
                break;
            }
            at += end as usize;
            connection.progress.fresh_replies += 1;
        }
        (at, is_cut(&data[at..], extensions))
    }

    /// Handles an unexpected reply: one that is late, doubled or early, or no reply at all.
    #[cold]
    fn handle_odd_reply(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
        opcode: OpCode,
        message: &[u8],
    ) {
        self.count_replies(io, connection);
        let now_ns = self.now_ns();
        let Some(phase) = &mut self.phase else { return };
        let Some(ring) = phase.ring.clone() else {
            return;
        };
        let progress = &mut connection.progress;
        let written = ring.frames_before(connection.out.place) - progress.first_frame;
        let is_of_kind = opcode == ring.opcode();
        let index = is_of_kind.then(|| ring.index_with(message)).flatten();
        let faults = &mut phase.result.replies;
        let mut released = 0;
        match index.map_or(Place::Nowhere, |index| {
            place(&ring, progress, index, written)
        }) {
            Place::Ahead(number) => {
                let skipped = number - progress.replies;
                progress.skip(number);
                phase.pass(progress, skipped, None);
                phase.pass(progress, 1, Some(now_ns));
                progress.replies += 1;
                phase.confirm(progress, 1, now_ns);
                released = 1;
            }
            Place::Skipped(number) => {
                faults.reordered += 1;
                progress.skipped.remove(&number);
                phase.confirm(progress, 1, now_ns);
                released = 1;
            }
            Place::Behind => faults.doubled += 1,
            Place::Unsent => faults.unsent += 1,
            Place::Nowhere => {
                faults.wrong += 1;
                // It stands where the next reply should.
                if progress.replies < written {
                    phase.pass(progress, 1, None);
                    progress.replies += 1;
                    released = 1;
                }
            }
        }
        if released > 0 {
            self.release_next(connection, now_ns, released);
            self.pump(io, connection);
        }
    }

    /// Counts an `error` that rejects this number of messages.
    pub(super) fn handle_refusal(
        &mut self,
        connection: &mut Connection,
        code: &'static str,
        messages: u32,
    ) {
        let Some(phase) = &mut self.phase else { return };
        let result = &mut phase.result;
        if code == ErrorCode::RateLimited.as_str() {
            result.rate_limited += u64::from(messages);
        } else {
            *result.errors.entry(code.to_owned()).or_default() += u64::from(messages);
        }
        if phase.expects_replies && connection.progress.task != Task::Idle {
            let refusals = &mut connection.progress.fresh_refusals;
            *refusals = refusals.saturating_add(messages);
        }
    }

    /// Ends the handling of the data that arrived together.
    #[inline]
    pub(super) fn handle_read_end(&mut self, io: &mut Io, connection: &mut Connection) {
        if matches!(&self.phase, Some(phase) if phase.fan.is_some()) {
            self.end_deliveries(io, connection);
        }
        if connection.progress.fresh_replies > 0 || connection.progress.fresh_refusals > 0 {
            self.count_replies(io, connection);
        } else if !connection.out.controls.is_empty() {
            self.pump(io, connection);
        }
    }

    fn count_replies(&mut self, io: &mut Io, connection: &mut Connection) {
        let progress = &mut connection.progress;
        let replies = std::mem::take(&mut progress.fresh_replies);
        let refusals = std::mem::take(&mut progress.fresh_refusals);
        if replies == 0 && refusals == 0 {
            return;
        }
        let now_ns = self.now_ns();
        let Some(phase) = &mut self.phase else { return };
        progress.replies += u64::from(replies);
        progress.refused += u64::from(refusals);
        phase.pass(progress, u64::from(replies), Some(now_ns));
        phase.confirm(progress, replies, now_ns);
        // Which messages were refused is not known before the reply to a later one arrives, but their places
        // are free. A server cannot reject more messages than are in flight.
        let refusals = u64::from(refusals).min(progress.waiting) as u32;
        phase.result.confirmed += u64::from(refusals);
        self.release_next(connection, now_ns, replies.saturating_add(refusals));
        match self.has_sent_all(connection) {
            true => self.settle(io, connection),
            false => self.pump(io, connection),
        }
    }

    /// Whether a connection of a closed loop has sent all of its messages.
    pub(super) fn has_sent_all(&self, connection: &Connection) -> bool {
        let Some(phase) = &self.phase else {
            return false;
        };
        let progress = &connection.progress;
        phase.activity.frames_max() < u64::MAX
            && progress.task == Task::Active
            && phase.ring().is_some_and(|ring| {
                let released = ring.frames_before(connection.out.goal) - progress.first_frame;
                phase.activity.frames_left(released) == 0
            })
    }

    /// In a closed loop, releases one message for each answered one.
    fn release_next(&mut self, connection: &mut Connection, now_ns: u64, count: u32) {
        let is_window = matches!(
            &self.phase,
            Some(phase) if matches!(phase.activity, Activity::Window { .. })
        );
        if is_window && count > 0 && connection.progress.task == Task::Active {
            self.release(connection, now_ns, count);
        }
    }
}

impl PhaseRun {
    /// Counts replies that confirm their messages.
    fn confirm(&mut self, progress: &mut PhaseProgress, replies: u32, now_ns: u64) {
        if replies > 0 {
            let count = u64::from(replies);
            progress.confirmed += count;
            self.result.confirmed += count;
            self.count_confirmed(count, now_ns);
        }
    }

    /// Removes the `count` oldest messages that wait for an answer, and records the latency of each until
    /// `answered_ns`, if it was answered.
    pub(super) fn pass(
        &mut self,
        progress: &mut PhaseProgress,
        count: u64,
        answered_ns: Option<u64>,
    ) {
        let mut left = count.min(progress.waiting);
        progress.waiting -= left;
        while left > 0 {
            let Some(batch) = progress.batches.front_mut() else {
                break;
            };
            let passed = left.min(u64::from(batch.left));
            if let Some(now_ns) = answered_ns {
                let result = &mut self.result;
                result
                    .latency
                    .record_many_ns(now_ns.saturating_sub(batch.intended_ns), passed);
                if let Some(sent_ns) = batch.sent_ns {
                    result
                        .latency_sent
                        .record_many_ns(now_ns.saturating_sub(sent_ns), passed);
                }
            }
            batch.left -= passed as u32;
            left -= passed;
            if batch.left == 0 {
                progress.batches.pop_front();
            }
        }
    }
}

/// The place of a known message among the sent ones.
enum Place {
    /// It is the next unanswered message, or a later one.
    Ahead(u64),
    /// It was skipped.
    Skipped(u64),
    /// It was answered before.
    Behind,
    /// It was not sent yet.
    Unsent,
    /// It is not a message of this ring.
    Nowhere,
}

fn place(ring: &FrameRing, progress: &PhaseProgress, index: usize, written: u64) -> Place {
    let is_it = |number: &u64| ring.index_of(progress.first_frame + number) == index;
    let next = progress.replies;
    // The order of laps differs, so that a message occurs again after two laps at the latest.
    let far = 2 * ring.frames();
    if let Some(number) = (next..written.min(next + far)).find(is_it) {
        return Place::Ahead(number);
    }
    if let Some(number) = progress
        .skipped
        .iter()
        .copied()
        .find(|number| is_it(number))
    {
        return Place::Skipped(number);
    }
    if (next.saturating_sub(far)..next).any(|number| is_it(&number)) {
        Place::Behind
    } else {
        Place::Unsent
    }
}

/// Whole messages of this phase that the connection has written.
#[inline]
fn written(ring: &FrameRing, connection: &Connection) -> u64 {
    ring.frames_before(connection.out.place)
        .saturating_sub(connection.progress.first_frame)
}

/// Whether the first frame is incomplete. The reader stores long frames, because unused data here has to fit into a
/// part of the read buffer.
fn is_cut(data: &[u8], extensions: Extensions) -> bool {
    match parse_extended_header(data, Role::Client, extensions) {
        Ok(None) => !data.is_empty(),
        Ok(Some(header)) => {
            let end = header.header_bytes as u64 + header.payload_bytes;
            header.fin && end > data.len() as u64 && end <= CUT_BYTES_MAX
        }
        Err(_) => false,
    }
}

const CUT_BYTES_MAX: u64 = 32 * 1024;
