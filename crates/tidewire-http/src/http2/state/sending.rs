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
        self.streams.push_back(stream);
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
        self.write_block(number, block, body.is_empty(), out);
        let stream = &mut self.streams[place];
        if body.is_empty() {
            stream.has_sent_all = true;
        } else {
            self.unsent += 1;
            stream.unsent = Some(Unsent {
                body: Arc::clone(body),
                at: 0,
            });
            self.send_rest(place, room, out);
        }
        self.close_sent(place, out);
        true
    }

    /// Closes a stream of which everything was sent; a client waits for the response. Returns whether it did.
    fn close_sent(&mut self, place: usize, out: &mut Vec<u8>) -> bool {
        let stream = &self.streams[place];
        let is_heard = stream.has_received_all;
        let is_over = stream.has_sent_all && (is_heard || !self.is_client);
        if is_over {
            self.meter.credit(EXCHANGE_CREDIT);
            // The rest of the request is not needed (RFC 9113, section 8.1).
            let code = (!is_heard).then_some(ErrorCode::NO_ERROR);
            self.remove(place, code, out);
        }
        is_over
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

    /// Sends the rest of the body of a stream, as far as windows and `room` allow. Returns the number of bytes.
    fn send_rest(&mut self, place: usize, room: usize, out: &mut Vec<u8>) -> usize {
        let stream = &mut self.streams[place];
        let Some(mut rest) = stream.unsent.take() else {
            return 0;
        };
        let sizes = (self.peer.frame_bytes_max, room);
        let sent = stream.send(&rest.body[rest.at..], &mut self.send_window, sizes, out);
        rest.at += sent;
        match stream.has_sent_all {
            true => self.unsent -= 1,
            false => stream.unsent = Some(rest),
        }
        // Small frames pay for nothing: the peer chooses their size by its windows.
        self.meter.credit((sent / frame::FRAME_BYTES_MAX) as u32);
        sent
    }

    /// Sends what windows or `room` have stopped. Returns whether `room` has stopped it again.
    pub(in super::super) fn pump(&mut self, room: usize, out: &mut Vec<u8>) -> bool {
        let mut left = room;
        let mut place = 0;
        while self.unsent > 0 && self.send_window > 0 && place < self.streams.len() && left > 0 {
            left -= self.send_rest(place, left, out);
            if !self.close_sent(place, out) {
                place += 1;
            }
        }
        left == 0 && self.unsent > 0
    }
}

/// A change of the size of the sender's table to 0 (RFC 7541, section 6.3).
const RESIZED_TO_NOTHING: u8 = 0x20;
