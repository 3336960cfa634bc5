//! One stream of a connection, and the memory of those that are over.

use super::error::StreamFault;
use super::frame::{write_data, write_window};
use super::head::{Limits, Parsed};
use crate::fields::ContentLength;
use std::sync::Arc;

/// A whole message of a peer: its last frame has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The status of a response.
    pub status: u16,
    /// Bytes of the frames of its headers and trailers.
    pub head_bytes: u64,
    /// Bytes of its body.
    pub body_bytes: u64,
    /// All bytes of its frames.
    pub wire_bytes: u64,
}

/// A stream that is not over.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) number: u32,
    pub(super) send_window: i64,
    /// Bytes that the peer may still send.
    pub(super) receive_window: i64,
    /// Bytes that have arrived since the peer's window was last filled up.
    taken: u32,
    /// The rest of the body that this side sends.
    pub(super) unsent: Option<Unsent>,
    pub(super) has_sent_all: bool,
    pub(super) has_received_all: bool,
    /// The final head of the peer's message has arrived.
    pub(super) has_head: bool,
    /// The length that the peer has announced.
    length: Option<u64>,
    /// The request is HEAD.
    pub(super) is_head: bool,
    pub(super) message: Message,
}

/// A body, from its place on.
#[derive(Clone, Debug)]
pub(super) struct Unsent {
    pub(super) body: Arc<[u8]>,
    pub(super) at: usize,
}

impl Stream {
    pub(super) fn new(number: u32, send_window: u32, limits: &Limits) -> Self {
        Self {
            number,
            send_window: i64::from(send_window),
            receive_window: i64::from(limits.stream_window),
            taken: 0,
            unsent: None,
            has_sent_all: false,
            has_received_all: false,
            has_head: false,
            length: None,
            is_head: false,
            message: Message::default(),
        }
    }

    /// The final head of the peer's message, or its trailers.
    pub(super) fn add_head(&mut self, parsed: &Parsed, is_final: bool) {
        if is_final {
            self.has_head = true;
            self.message.status = parsed.status;
            if let ContentLength::Bytes(bytes) = parsed.length {
                self.length = Some(bytes);
            }
        }
    }

    /// A piece of a DATA frame.
    #[inline]
    pub(super) fn add_data(&mut self, flow_bytes: u32, bytes: usize) -> Result<(), StreamFault> {
        self.receive_window -= i64::from(flow_bytes);
        self.taken += flow_bytes;
        self.message.body_bytes += bytes as u64;
        if self.receive_window < 0 {
            return Err(StreamFault::WindowExceeded);
        }
        match self.has_head {
            true => Ok(()),
            false => Err(StreamFault::BadHeader),
        }
    }

    /// Lets the peer send more, once half of the window is used up.
    #[inline]
    pub(super) fn return_window(&mut self, window: u32, out: &mut Vec<u8>) {
        if self.taken >= window / 2 {
            write_window(self.number, self.taken, out);
            self.receive_window += i64::from(self.taken);
            self.taken = 0;
        }
    }

    /// The last frame of the peer's message has arrived.
    pub(super) fn end(&mut self) -> Result<Message, StreamFault> {
        self.has_received_all = true;
        // These have no body, whatever length they announce.
        let is_bodiless = self.is_head || matches!(self.message.status, 204 | 304);
        let expected = if is_bodiless { Some(0) } else { self.length };
        let received = self.message.body_bytes;
        match expected {
            Some(length) if received < length => Err(StreamFault::TruncatedBody),
            Some(length) if received > length => Err(StreamFault::SurplusBody),
            _ => Ok(self.message),
        }
    }

    /// Appends as much of the body as both windows and `room` allow, in frames of at most `frame_bytes_max` bytes, and
    /// returns how much that was. An empty rest is the end of the message.
    pub(super) fn send(
        &mut self,
        body: &[u8],
        connection_window: &mut i64,
        (frame_bytes_max, room): (usize, usize),
        out: &mut Vec<u8>,
    ) -> usize {
        let mut at = 0;
        loop {
            let window = self.send_window.min(*connection_window).max(0);
            let window = usize::try_from(window).unwrap_or(usize::MAX);
            let left = body.len() - at;
            let bytes = left
                .min(window)
                .min(frame_bytes_max)
                .min(room - at.min(room));
            if bytes == 0 {
                return at;
            }
            let ends = bytes == left;
            write_data(self.number, &body[at..at + bytes], ends, out);
            at += bytes;
            self.send_window -= bytes as i64;
            *connection_window -= bytes as i64;
            if ends {
                self.has_sent_all = true;
                return at;
            }
        }
    }
}

/// The streams that were closed last. A frame for one of them was on its way, or is a fault.
#[derive(Debug, Default)]
pub(super) struct Closed {
    /// The oldest is replaced.
    last: Vec<ClosedStream>,
    next: usize,
}

#[derive(Debug)]
pub(super) struct ClosedStream {
    number: u32,
    pub(super) is_reset_here: bool,
    /// Bytes that the peer may still have sent before it knew.
    window: i64,
}

impl ClosedStream {
    /// Whether a frame of this size may have been on its way.
    pub(super) fn takes(&mut self, flow_bytes: u32) -> bool {
        self.window -= i64::from(flow_bytes);
        self.window >= 0 && flow_bytes > 0
    }
}

impl Closed {
    pub(super) fn add(&mut self, number: u32, is_reset_here: bool, window: i64) {
        let closed = ClosedStream {
            number,
            is_reset_here,
            window,
        };
        match self.last.get_mut(self.next) {
            Some(place) => *place = closed,
            None => self.last.push(closed),
        }
        self.next = (self.next + 1) % CLOSED_MAX;
    }

    /// A stream, if it is among the last.
    pub(super) fn find(&mut self, number: u32) -> Option<&mut ClosedStream> {
        self.last.iter_mut().find(|closed| closed.number == number)
    }
}

/// The frames that bring nothing, against the time and against those that do.
#[derive(Debug, Default)]
pub(super) struct Meter {
    debt: u32,
    /// The time at which the debt was last reduced.
    paid_ms: Option<u64>,
}

impl Meter {
    /// Counts a frame; false if there were too many.
    #[must_use]
    pub(super) fn charge(&mut self, cost: u32, now_ms: u64) -> bool {
        self.debt = self.debt.saturating_add(cost);
        let since_ms = *self.paid_ms.get_or_insert(now_ms);
        if self.debt > DEBT_MAX {
            let passed_ms = now_ms.saturating_sub(since_ms);
            let paid = (passed_ms * DEBT_PAID_PER_S / 1000).min(u64::from(u32::MAX));
            self.debt = self.debt.saturating_sub(paid as u32);
            self.paid_ms = Some(now_ms);
        }
        self.debt <= DEBT_MAX
    }

    #[inline]
    pub(super) fn credit(&mut self, frames: u32) {
        self.debt = self.debt.saturating_sub(frames);
    }
}

const CLOSED_MAX: usize = 64;
/// Frames that bring nothing: the number at once, and the number per second.
const DEBT_MAX: u32 = 1_000;
const DEBT_PAID_PER_S: u64 = 100;
