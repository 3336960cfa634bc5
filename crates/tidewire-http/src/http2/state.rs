//! The streams of a connection, its windows and its settings.

mod sending;

use super::error::{ErrorCode, Fault, StreamFault};
use super::event::{Event, Head};
use super::frame::{self, Frame, HEAD_BYTES, PREFACE, Piece, STREAM_MASK};
use super::head::{Kind, Limits, Parsed};
use super::hpack::TABLE_BYTES_MAX;
use super::stream::{Closed, Message, Meter, Stream};
use std::collections::VecDeque;

/// The settings of the peer.
#[derive(Debug)]
pub(super) struct Peer {
    stream_window: u32,
    frame_bytes_max: usize,
    streams_max: u32,
    /// It has once asked for a smaller table of headers than the default, and wants to hear that this side uses none.
    has_small_table: bool,
    wants_resize: bool,
}

/// The streams, windows and settings of a connection.
#[derive(Debug)]
pub(super) struct State {
    is_client: bool,
    /// Bytes of the client's preface that a server still waits for.
    preface_left: usize,
    has_settings: bool,
    limits: Limits,
    peer: Peer,
    /// Bytes that this side may send, and that the peer may send.
    send_window: i64,
    receive_window: i64,
    /// Bytes that have arrived since the peer's window was last filled up.
    taken: u32,
    /// The time of the last call.
    pub(super) now_ms: u64,
    /// In the order of their numbers.
    streams: VecDeque<Stream>,
    closed: Closed,
    /// The last stream of the client.
    last: u32,
    unsent: usize,
    meter: Meter,
    is_going_away: bool,
    has_gone_away: bool,
    /// The message whose last piece was the last event.
    done: Option<(u32, Message)>,
}

/// The first bytes of a connection.
pub(super) enum Start {
    Missing,
    Preface(usize),
    Past,
}

impl State {
    /// Appends what widens the peer's window.
    pub(super) fn new(is_client: bool, limits: &Limits, out: &mut Vec<u8>) -> Self {
        let more = limits.connection_window.saturating_sub(WINDOW_DEFAULT);
        if more > 0 {
            frame::write_window(0, more, out);
        }
        Self {
            is_client,
            preface_left: if is_client { 0 } else { PREFACE.len() },
            has_settings: false,
            limits: *limits,
            peer: Peer {
                stream_window: WINDOW_DEFAULT,
                frame_bytes_max: frame::FRAME_BYTES_MAX,
                streams_max: u32::MAX,
                has_small_table: false,
                wants_resize: false,
            },
            send_window: i64::from(WINDOW_DEFAULT),
            receive_window: i64::from(WINDOW_DEFAULT + more),
            taken: 0,
            now_ms: 0,
            streams: VecDeque::new(),
            closed: Closed::default(),
            last: 0,
            unsent: 0,
            meter: Meter::default(),
            is_going_away: false,
            has_gone_away: false,
            done: None,
        }
    }

    #[inline]
    pub(super) fn take_done(&mut self) -> Option<(u32, Message)> {
        self.done.take()
    }

    pub(super) fn has_done(&self) -> bool {
        self.done.is_some()
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    pub(super) fn peer_keeps_table(&self) -> bool {
        !self.peer.has_small_table
    }

    pub(super) fn head_bytes_max(&self) -> usize {
        self.limits.head_bytes_max
    }

    pub(super) fn peer_streams_max(&self) -> u32 {
        match self.has_settings {
            true => self.peer.streams_max,
            false => 0,
        }
    }

    /// Whether a client may open a stream, now or when another is over.
    pub(super) fn is_open(&self) -> bool {
        !self.is_going_away && self.last < STREAM_MASK - 2
    }

    /// Gives up a stream.
    pub(super) fn reset(&mut self, number: u32, code: ErrorCode, out: &mut Vec<u8>) {
        if let Ok(place) = self.find(number) {
            self.remove(place, Some(code), out);
        }
    }

    /// Checks that the peer begins as a peer of HTTP/2 does.
    #[inline]
    pub(super) fn read_start(&mut self, data: &[u8]) -> Result<Start, Fault> {
        if self.has_settings {
            return Ok(Start::Past);
        }
        if self.preface_left > 0 {
            let wanted = &PREFACE[PREFACE.len() - self.preface_left..];
            let length = wanted.len().min(data.len());
            if wanted[..length] != data[..length] {
                return Err(Fault::BadPreface);
            }
            self.preface_left -= length;
            return Ok(match length {
                0 => Start::Missing,
                _ => Start::Preface(length),
            });
        }
        match data.first_chunk::<HEAD_BYTES>() {
            None => Ok(Start::Missing),
            // SETTINGS, not an acknowledgement.
            Some([0, _, _, 4, flags, 0, 0, 0, 0]) if flags & 1 == 0 => Ok(Start::Past),
            Some(_) => Err(Fault::BadPreface),
        }
    }

    fn charge(&mut self, cost: u32) -> Result<(), Fault> {
        match self.meter.charge(cost, self.now_ms) {
            true => Ok(()),
            false => Err(Fault::Flood),
        }
    }

    #[inline]
    fn find(&self, number: u32) -> Result<usize, usize> {
        // Most often it is the only one, or the oldest.
        if self
            .streams
            .front()
            .is_some_and(|stream| stream.number == number)
        {
            return Ok(0);
        }
        self.streams
            .binary_search_by_key(&number, |stream| stream.number)
    }

    /// Whether nothing was sent on a stream yet. Its first frame is HEADERS.
    fn is_idle(&self, number: u32) -> bool {
        number > self.last || number.is_multiple_of(2)
    }

    #[inline]
    pub(super) fn kind_of(&self, number: u32) -> Kind {
        let has_head = self
            .find(number)
            .is_ok_and(|place| self.streams[place].has_head);
        match (has_head, self.is_client) {
            (true, _) => Kind::Trailers,
            (false, true) => Kind::Response,
            (false, false) => Kind::Request,
        }
    }

    #[inline]
    pub(super) fn receive_head<'a>(
        &mut self,
        (number, ends, on_itself): (u32, bool, bool),
        parsed: &'a Parsed,
        wire_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<Event<'a>, Fault> {
        let place = match self.find(number) {
            Ok(place) => place,
            Err(_) if self.is_client || !self.is_next(number)? => {
                return self.receive_late(number, u32::MAX, out);
            }
            Err(_) => {
                self.last = number;
                let is_full = self.streams.len() >= self.limits.streams_max as usize;
                if is_full || self.has_gone_away {
                    self.charge(1)?;
                    return Ok(self.refuse(number, StreamFault::TooManyStreams, out));
                }
                let stream = Stream::new(number, self.peer.stream_window, &self.limits);
                self.streams.push_back(stream);
                self.streams.len() - 1
            }
        };
        let is_interim = self.is_client && parsed.status / 100 == 1;
        let stream = &mut self.streams[place];
        stream.message.head_bytes += wire_bytes as u64;
        stream.message.wire_bytes += wire_bytes as u64;
        let is_trailers = stream.has_head;
        let fault = match parsed.fault {
            _ if stream.has_received_all => Some(StreamFault::StreamClosed),
            _ if on_itself => Some(StreamFault::BadPriority),
            _ if is_trailers && !ends => Some(StreamFault::BadTrailer),
            _ if is_interim && ends => Some(StreamFault::BadHeader),
            fault => fault,
        };
        if let Some(fault) = fault {
            return self.break_off(place, fault, out);
        }
        if is_interim {
            let status = parsed.status;
            self.charge(1)?;
            return Ok(Event::Interim {
                stream: number,
                status,
            });
        }
        stream.add_head(parsed, !is_trailers);
        if ends && let Some(broken) = self.end(place, out)? {
            return Ok(broken);
        }
        Ok(match is_trailers {
            true => Event::More,
            false => Event::Head(Head::of(number, parsed)),
        })
    }

    /// Whether HEADERS opens the client's next stream; false if the stream is over.
    fn is_next(&mut self, number: u32) -> Result<bool, Fault> {
        match number {
            _ if number.is_multiple_of(2) => Err(Fault::BadStream),
            _ if number > self.last => Ok(true),
            _ if self.closed.find(number).is_some() => Ok(false),
            _ => Err(Fault::BadStream),
        }
    }

    /// A frame for a stream that is over. It is no fault if it was on its way when this side reset the stream, whose
    /// window still bounds what may follow: `flow_bytes` of it.
    fn receive_late<'a>(
        &mut self,
        number: u32,
        flow_bytes: u32,
        out: &mut Vec<u8>,
    ) -> Result<Event<'a>, Fault> {
        if self.is_idle(number) {
            return Err(Fault::UnexpectedFrame);
        }
        let is_expected = match self.closed.find(number) {
            Some(closed) if !closed.is_reset_here => return Err(Fault::StreamClosed),
            Some(closed) => closed.takes(flow_bytes),
            None => {
                frame::write_reset(number, ErrorCode::STREAM_CLOSED, out);
                false
            }
        };
        self.charge(u32::from(!is_expected))?;
        Ok(Event::More)
    }

    /// A piece of a body, or an event in its place. `wire_bytes` were consumed for it.
    #[inline]
    pub(super) fn receive_data<'a>(
        &mut self,
        piece: &Piece<'_>,
        wire_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Fault> {
        let flow_bytes = piece.flow_bytes.unwrap_or(0);
        self.receive_window -= i64::from(flow_bytes);
        if self.receive_window < 0 {
            return Err(Fault::WindowExceeded);
        }
        self.taken += flow_bytes;
        if self.taken >= self.limits.connection_window / 2 {
            frame::write_window(0, self.taken, out);
            self.receive_window += i64::from(self.taken);
            self.taken = 0;
        }
        if piece.is_empty && !piece.ends {
            self.charge(1)?;
        }
        let Ok(place) = self.find(piece.stream) else {
            return match piece.flow_bytes {
                Some(flow_bytes) => self.receive_late(piece.stream, flow_bytes, out).map(Some),
                // The first piece was late, too.
                None => Ok(Some(Event::More)),
            };
        };
        let window = self.limits.stream_window;
        let stream = &mut self.streams[place];
        stream.message.wire_bytes += wire_bytes as u64;
        if stream.has_received_all {
            return self
                .break_off(place, StreamFault::StreamClosed, out)
                .map(Some);
        }
        if let Err(fault) = stream.add_data(flow_bytes, piece.bytes.len()) {
            return self.break_off(place, fault, out).map(Some);
        }
        if piece.ends {
            return self.end(place, out);
        }
        if !piece.is_last {
            stream.return_window(window, out);
        }
        Ok(None)
    }

    /// The peer's message is whole, or has another length than it announced.
    fn end<'a>(&mut self, place: usize, out: &mut Vec<u8>) -> Result<Option<Event<'a>>, Fault> {
        let stream = &mut self.streams[place];
        let number = stream.number;
        match stream.end() {
            Err(fault) => return self.break_off(place, fault, out).map(Some),
            Ok(message) => self.done = Some((number, message)),
        }
        if self.is_client {
            self.meter.credit(EXCHANGE_CREDIT);
        }
        if stream.has_sent_all {
            self.remove(place, None, out);
        } else if self.is_client {
            // The server has answered and does not need the rest of the request.
            self.remove(place, Some(ErrorCode::CANCEL), out);
        }
        Ok(None)
    }

    pub(super) fn receive_control<'a>(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Event<'a>, Fault> {
        match *frame {
            Frame::Settings(payload) => {
                self.charge(1 + payload.len() as u32 / 64)?;
                self.take_settings(payload)?;
                frame::write_settings_ack(out);
                if !std::mem::replace(&mut self.has_settings, true) {
                    return Ok(Event::Ready);
                }
            }
            Frame::Ping(payload) => {
                self.charge(1)?;
                frame::write_ping_ack(payload, out);
            }
            Frame::Window { stream, by } => {
                // Larger ones let this side send as much; the limit of a window bounds them.
                self.charge(u32::from(by < SMALL_WINDOW_BYTES))?;
                return self.widen(stream, by, out);
            }
            Frame::Reset { stream, code } => {
                return match self.find(stream) {
                    Ok(place) => {
                        self.charge(u32::from(!self.is_client))?;
                        self.forget(place, false);
                        Ok(Event::Reset { stream, code })
                    }
                    Err(_) if self.is_idle(stream) => Err(Fault::UnexpectedFrame),
                    Err(_) => self.charge(1).map(|()| Event::More),
                };
            }
            Frame::GoAway { last, code } => {
                self.charge(1)?;
                self.is_going_away = true;
                return Ok(Event::GoAway { last, code });
            }
            Frame::Priority { stream, depends_on } => {
                self.charge(1)?;
                let fault = match depends_on {
                    None if self.is_idle(stream) => return Err(Fault::BadFrameSize),
                    None => StreamFault::BadFrameSize,
                    Some(other) if other == stream => StreamFault::BadPriority,
                    Some(_) => return Ok(Event::More),
                };
                return match self.find(stream) {
                    Ok(place) => self.break_off(place, fault, out),
                    Err(_) => Ok(self.refuse(stream, fault, out)),
                };
            }
            Frame::SettingsAck | Frame::PingAck | Frame::Unknown => self.charge(1)?,
            Frame::Data { .. } | Frame::Headers { .. } => {}
        }
        Ok(Event::More)
    }

    fn take_settings(&mut self, payload: &[u8]) -> Result<(), Fault> {
        for (name, value) in frame::settings(payload) {
            match name {
                frame::HEADER_TABLE_SIZE => {
                    let is_small = (value as usize) < TABLE_BYTES_MAX;
                    self.peer.has_small_table |= is_small;
                    self.peer.wants_resize |= is_small;
                }
                frame::ENABLE_PUSH if value > u32::from(!self.is_client) => {
                    return Err(Fault::BadSetting);
                }
                frame::MAX_CONCURRENT_STREAMS => self.peer.streams_max = value,
                frame::INITIAL_WINDOW_SIZE if value > STREAM_MASK => {
                    return Err(Fault::WindowOverflow);
                }
                frame::INITIAL_WINDOW_SIZE => {
                    let by = i64::from(value) - i64::from(self.peer.stream_window);
                    self.peer.stream_window = value;
                    for stream in &mut self.streams {
                        stream.send_window += by;
                        if stream.send_window > i64::from(STREAM_MASK) {
                            return Err(Fault::WindowOverflow);
                        }
                    }
                }
                frame::MAX_FRAME_SIZE => {
                    let bytes = value as usize;
                    if !(frame::FRAME_BYTES_MAX..1 << 24).contains(&bytes) {
                        return Err(Fault::BadSetting);
                    }
                    // Larger ones would only make other streams wait.
                    self.peer.frame_bytes_max = bytes.min(frame::FRAME_BYTES_MAX);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A window of what this side may send grows.
    fn widen<'a>(&mut self, number: u32, by: u32, out: &mut Vec<u8>) -> Result<Event<'a>, Fault> {
        if number == 0 {
            self.send_window += i64::from(by);
            return match by {
                0 => Err(Fault::UnexpectedFrame),
                _ if self.send_window > i64::from(STREAM_MASK) => Err(Fault::WindowOverflow),
                _ => Ok(Event::More),
            };
        }
        let Ok(place) = self.find(number) else {
            return match self.is_idle(number) {
                true => Err(Fault::UnexpectedFrame),
                false => Ok(Event::More),
            };
        };
        let stream = &mut self.streams[place];
        stream.send_window += i64::from(by);
        let is_too_wide = stream.send_window > i64::from(STREAM_MASK);
        match by {
            0 => self.break_off(place, StreamFault::EmptyWindow, out),
            _ if is_too_wide => self.break_off(place, StreamFault::WindowOverflow, out),
            _ => Ok(Event::More),
        }
    }

    /// Resets a stream whose message breaks a rule. A client that provokes that has had the work of a request done for it.
    fn break_off<'a>(
        &mut self,
        place: usize,
        fault: StreamFault,
        out: &mut Vec<u8>,
    ) -> Result<Event<'a>, Fault> {
        self.charge(u32::from(!self.is_client))?;
        let stream = self.streams[place].number;
        self.remove(place, Some(fault.code()), out);
        Ok(Event::Broken { stream, fault })
    }

    /// Resets a stream that this side does not know.
    fn refuse<'a>(&mut self, number: u32, fault: StreamFault, out: &mut Vec<u8>) -> Event<'a> {
        frame::write_reset(number, fault.code(), out);
        self.closed.add(number, true, 0);
        Event::More
    }

    /// A stream is over; with a code this side resets it.
    fn remove(&mut self, place: usize, code: Option<ErrorCode>, out: &mut Vec<u8>) {
        if let Some(code) = code {
            frame::write_reset(self.streams[place].number, code, out);
        }
        self.forget(place, code.is_some());
    }

    fn forget(&mut self, place: usize, is_reset_here: bool) {
        let Some(stream) = self.streams.remove(place) else {
            return;
        };
        self.unsent -= usize::from(stream.unsent.is_some());
        self.closed
            .add(stream.number, is_reset_here, stream.receive_window);
    }

    pub(super) fn go_away(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        let is_first = !std::mem::replace(&mut self.has_gone_away, true);
        if is_first || code != ErrorCode::NO_ERROR {
            let last = if self.is_client { 0 } else { self.last };
            frame::write_go_away(last, code, out);
        }
    }
}

/// Each answered request allows this many frames that bring nothing. A request that is not answered allows none, because its
/// client may reset it at once.
const EXCHANGE_CREDIT: u32 = 2;
/// A window that grows by fewer bytes is a frame that brings nothing.
const SMALL_WINDOW_BYTES: u32 = 1_024;
/// RFC 9113, section 6.5.2.
const WINDOW_DEFAULT: u32 = 65_535;
