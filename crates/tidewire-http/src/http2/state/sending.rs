//! Sending: heads at once, and bodies as far as the peer's windows allow.

use super::{EXCHANGE_CREDIT, State};
use crate::http2::error::ErrorCode;
use crate::http2::frame;
use crate::http2::stream::{Stream, Unsent};
use std::sync::Arc;

impl State {
    /// Opens a stream with a request.
    pub(in super::super) fn open(
        &mut self,
        block: &[u8],
        body: &[u8],
        is_head: bool,
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let open = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        if !self.is_open() || open >= self.peer.streams_max {
            return None;
        }
        let number = match self.last {
            0 => 1,
            last => last + 2,
        };
        self.last = number;
        let mut stream = Stream::new(number, self.peer.stream_window, &self.limits);
        stream.is_head = is_head;
        self.write_block(number, block, body.is_empty(), out);
        self.send_body(&mut stream, body, out);
        self.streams.push(stream);
        Some(number)
    }

    /// Answers a stream; false if it is over.
    pub(in super::super) fn respond(
        &mut self,
        number: u32,
        (block, body): (&[u8], &Arc<[u8]>),
        room: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let Ok(place) = self.find(number) else {
            return false;
        };
        let mut stream = self.streams.remove(place);
        self.write_block(number, block, body.is_empty(), out);
        stream.has_sent_all = body.is_empty();
        if !body.is_empty() {
            let rest = Unsent {
                body: Arc::clone(body),
                at: 0,
            };
            self.send_rest(&mut stream, rest, room, out);
        }
        self.put_back(place, stream, out);
        true
    }

    /// A stream of which something was sent: it stays while something of it is left.
    fn put_back(&mut self, place: usize, stream: Stream, out: &mut Vec<u8>) {
        let is_heard = stream.has_received_all;
        let is_over = stream.has_sent_all && (is_heard || !self.is_client);
        self.streams.insert(place, stream);
        if is_over {
            self.meter.credit(EXCHANGE_CREDIT);
            // The rest of the request is not needed (RFC 9113, section 8.1).
            let code = (!is_heard).then_some(ErrorCode::NO_ERROR);
            self.remove(place, code, out);
        }
    }

    fn write_block(&mut self, number: u32, block: &[u8], ends: bool, out: &mut Vec<u8>) {
        let frame_bytes_max = self.peer.frame_bytes_max;
        if std::mem::take(&mut self.peer.wants_resize) {
            let resized = [&[RESIZED_TO_NOTHING], block].concat();
            frame::write_headers(number, &resized, ends, frame_bytes_max, out);
        } else {
            frame::write_headers(number, block, ends, frame_bytes_max, out);
        }
    }

    /// Sends a body that belongs to the caller, and keeps a copy of what cannot leave now.
    #[inline]
    fn send_body(&mut self, stream: &mut Stream, body: &[u8], out: &mut Vec<u8>) {
        if body.is_empty() {
            stream.has_sent_all = true;
            return;
        }
        let sizes = (self.peer.frame_bytes_max, usize::MAX);
        let at = stream.send(body, &mut self.send_window, sizes, out);
        if at < body.len() {
            self.unsent += 1;
            stream.unsent = Some(Unsent {
                body: body[at..].into(),
                at: 0,
            });
        }
    }

    /// Sends a body that is shared, from its place on. Returns the number of bytes.
    fn send_rest(
        &mut self,
        stream: &mut Stream,
        mut rest: Unsent,
        room: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let sizes = (self.peer.frame_bytes_max, room);
        let sent = stream.send(&rest.body[rest.at..], &mut self.send_window, sizes, out);
        rest.at += sent;
        if !stream.has_sent_all {
            self.unsent += 1;
            stream.unsent = Some(rest);
        }
        self.meter
            .credit(sent.div_ceil(frame::FRAME_BYTES_MAX) as u32);
        sent
    }

    /// Sends what windows or `room` have stopped. Returns whether more could leave with more room.
    pub(in super::super) fn pump(&mut self, room: usize, out: &mut Vec<u8>) -> bool {
        if self.unsent == 0 {
            return false;
        }
        let mut left = room;
        let mut place = 0;
        while place < self.streams.len() && left > 0 {
            let Some(rest) = self.streams[place].unsent.take() else {
                place += 1;
                continue;
            };
            self.unsent -= 1;
            let mut stream = self.streams.remove(place);
            left -= self.send_rest(&mut stream, rest, left, out);
            let before = self.streams.len();
            self.put_back(place, stream, out);
            place += self.streams.len() - before;
        }
        left == 0 && self.unsent > 0
    }
}

/// A change of the size of the sender's table to 0 (RFC 7541, section 6.3).
const RESIZED_TO_NOTHING: u8 = 0x20;
