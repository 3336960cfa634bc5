//! Replies: what a server sends back for a message, or says instead.

use tidewire_net::Io;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::frame::{Extensions, OpCode, Role, parse_extended_header};

use super::Lab;
use super::work::PhaseRun;
use crate::layer::Layer;
use crate::plan::Activity;
use crate::session::{Talk, Task, Work};

impl Lab {
    /// A message that is not the protocol's: the reply to one of ours, or something else.
    #[inline]
    pub(super) fn handle_application(&mut self, talk: &mut Talk, opcode: OpCode, message: &[u8]) {
        let Some(phase) = &mut self.phase else { return };
        if phase.fan.is_some() {
            return self.handle_publication(talk, message);
        }
        if !phase.expects_replies || talk.work.task == Task::Idle {
            phase.result.unsolicited += 1;
            return;
        }
        let work = &mut talk.work;
        let frame = work.first_frame + work.replies + u64::from(work.fresh_replies);
        if let Some(ring) = &phase.ring {
            let is_right = match ring.layer() {
                Layer::Plain => message.len() == ring.payload_bytes(frame),
                Layer::Deflate | Layer::Encryption => message == ring.message(frame),
            };
            if opcode != ring.opcode() || !is_right {
                phase.result.wrong_replies += 1;
            }
        }
        work.fresh_replies += 1;
    }

    /// Takes whole replies, or the publications of a fan-out, from the front of `data`; replies by their header alone, as long as they are just
    /// what is expected: their content is ours and need not be looked at. Of compressed and encrypted
    /// ones, some are looked into all the same; of compressed ones the length tells nothing. How many
    /// bytes that was, and whether the next frame is cut off.
    #[inline]
    pub(super) fn take_plain_replies(&mut self, talk: &mut Talk, data: &[u8]) -> (usize, bool) {
        if matches!(&self.phase, Some(phase) if phase.fan.is_some()) {
            return self.take_deliveries(talk, data);
        }
        let phase = self.phase.as_ref().filter(|phase| phase.expects_replies);
        let Some(ring) = phase.and_then(|phase| phase.ring()) else {
            return (0, false);
        };
        if talk.work.task == Task::Idle {
            return (0, false);
        }
        let is_deflated = ring.layer() == Layer::Deflate;
        let extensions = if is_deflated {
            Extensions::Deflate
        } else {
            Extensions::None
        };
        let mut reply = talk.work.replies + u64::from(talk.work.fresh_replies);
        let mut at = 0;
        let is_cut = loop {
            let frame = talk.work.first_frame + reply;
            let header = match parse_extended_header(&data[at..], Role::Client, extensions) {
                Ok(Some(header)) => header,
                Ok(None) => break at < data.len(),
                Err(_) => break false,
            };
            let is_length_right = if is_deflated {
                header.is_compressed || header.payload_bytes == ring.message(frame).len() as u64
            } else {
                header.payload_bytes == ring.payload_bytes(frame) as u64
            };
            if !header.fin || header.opcode != ring.opcode() || !is_length_right {
                break false;
            }
            let end = at + header.header_bytes + header.payload_bytes as usize;
            if end > data.len() {
                break true;
            }
            if ring.layer() != Layer::Plain && reply.is_multiple_of(LOOK_EVERY) {
                let payload = &data[at + header.header_bytes..end];
                let (message, channel) = (ring.message(frame), talk.channel.as_deref_mut());
                let contents = &mut self.contents;
                if !contents.is_of(message, payload, header.is_compressed, channel) {
                    // The reader comes to the same and says what is wrong.
                    break false;
                }
            }
            at = end;
            reply += 1;
            talk.work.fresh_replies += 1;
        };
        (at, is_cut)
    }

    /// An `error` answers so many messages, without delivering them.
    pub(super) fn handle_refusal(&mut self, talk: &mut Talk, code: &'static str, messages: u32) {
        let Some(phase) = &mut self.phase else { return };
        let result = &mut phase.result;
        if code == ErrorCode::RateLimited.as_str() {
            result.rate_limited += u64::from(messages);
        } else {
            *result.errors.entry(code).or_default() += u64::from(messages);
        }
        if phase.expects_replies && talk.work.task != Task::Idle {
            let refusals = &mut talk.work.fresh_refusals;
            *refusals = refusals.saturating_add(messages);
        }
    }

    /// Everything that arrived together has been looked at.
    #[inline]
    pub(super) fn handle_read_end(&mut self, io: &mut Io, talk: &mut Talk) {
        if matches!(&self.phase, Some(phase) if phase.fan.is_some()) {
            self.end_deliveries(io, talk);
        }
        if talk.work.fresh_replies > 0 || talk.work.fresh_refusals > 0 {
            self.take_replies(io, talk);
        } else if !talk.out.controls.is_empty() {
            self.pump(io, talk);
        }
    }

    fn take_replies(&mut self, io: &mut Io, talk: &mut Talk) {
        let now_ns = self.now_ns();
        let Some(phase) = &mut self.phase else { return };
        let work = &mut talk.work;
        let replies = std::mem::take(&mut work.fresh_replies);
        let refusals = std::mem::take(&mut work.fresh_refusals);
        let count = u64::from(replies) + u64::from(refusals);
        work.replies += count;
        work.confirmed += count;
        phase.result.confirmed += count;
        phase.count_confirmed(u64::from(replies), now_ns);
        let answered = phase.answer(work, replies, Some(now_ns));
        let refused = phase.answer(work, refusals, None);
        // Replies that nothing asked for release nothing, or the window would grow.
        let released = answered + refused;
        let is_window = matches!(phase.activity, Activity::Window { .. });
        if is_window && released > 0 && work.task == Task::Active {
            self.release(talk, now_ns, released);
        }
        self.pump(io, talk);
    }
}

impl PhaseRun {
    /// Takes `count` messages from those that wait for an answer, oldest first, and records what each
    /// waited until `answered_ns`, if it was answered and not refused. How many there were to take.
    fn answer(&mut self, work: &mut Work, count: u32, answered_ns: Option<u64>) -> u32 {
        let mut left = count;
        while left > 0 {
            let Some(batch) = work.batches.front_mut() else {
                break;
            };
            let answered = left.min(batch.left);
            if let Some(now_ns) = answered_ns {
                let times = u64::from(answered);
                let result = &mut self.result;
                result
                    .latency
                    .record_many_ns(now_ns.saturating_sub(batch.intended_ns), times);
                if let Some(sent_ns) = batch.sent_ns {
                    result
                        .latency_sent
                        .record_many_ns(now_ns.saturating_sub(sent_ns), times);
                }
            }
            batch.left -= answered;
            left -= answered;
            if batch.left == 0 {
                work.batches.pop_front();
            }
        }
        count - left
    }
}

/// Of so many replies to a connection, one is inflated or decrypted and compared.
const LOOK_EVERY: u64 = 64;
