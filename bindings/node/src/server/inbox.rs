//! Receiving: batches of the engine's queue, copied into a buffer of JavaScript.
//!
//! Each batch needs one crossing. It is four numbers of 32 bits (rows, where the bytes begin in the buffer,
//! where they end, how many of them are of messages), then the rows, then the bytes of all messages, texts
//! and descriptions. A row has [`ROW_NUMBERS`] numbers:
//!
//! | kind | 1 | 2, 3 | 4 | 5 | 6 | 7 |
//! |---|---|---|---|---|---|---|
//! | message | connection | its bytes | handler | start and end of its payload | | |
//! | request | connection | type and payload | handler | place | generation | time in ms |
//! | publication | connection | type, topic and payload | handler | place | generation | length of its topic |
//! | snapshot request | connection | JSON | | | | |
//! | connect | connection | JSON | | generation | | |
//! | disconnect | connection | | | reason | close code | |
//!
//! The first number of a request or publication has the length of its type above the lowest 8 bits. Positions count from the begin of
//! the bytes. `lib/batch.js` reads all this.

use super::tables::{Connections, Requests};
use crate::content::shown_content;
use rustc_hash::FxHashMap;
use serde_json::json;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;
use tidewire_engine::queue::{Batch, Event, Finished, Receiver};
use tidewire_engine::{
    AdoptionTicket, Call, CloseReason, Encoding, Message, Peer, PublicationRequest, Responder,
    SyncRequest,
};
use tidewire_wire::envelope::{message_content, message_type};
use tidewire_wire::format::Format;

/// The end of the queue that JavaScript empties.
pub(super) struct Inbox {
    /// `None` once everything was received: it holds a function of JavaScript, and that the server.
    receiver: Option<Receiver>,
    /// A batch whose rows are made.
    staged: Option<Batch>,
    rows: Rows,
    routes: Routes,
    pub(super) connections: Connections,
    pub(super) requests: Requests,
}

/// Result of one attempt to receive a batch.
pub(super) enum Received {
    /// A batch that ends here in the buffer.
    Batch(usize),
    Nothing,
    /// The batch needs this number of bytes.
    NoRoom(usize),
    Finished,
}

/// The rows of one batch, and the texts that are no messages. The memory is used again.
#[derive(Default)]
struct Rows {
    numbers: Vec<u32>,
    texts: Vec<u8>,
    /// Offset of the texts, which follow the messages.
    texts_start: usize,
}

/// The types that have handlers of their own.
#[derive(Default)]
struct Routes {
    messages: FxHashMap<String, u32>,
    requests: FxHashMap<String, u32>,
}

impl Inbox {
    pub(super) fn new(receiver: Receiver) -> Self {
        Self {
            receiver: Some(receiver),
            staged: None,
            rows: Rows::default(),
            routes: Routes::default(),
            connections: Connections::default(),
            requests: Requests::default(),
        }
    }

    pub(super) fn route(&mut self, messages: Vec<String>, requests: Vec<String>) {
        let places = |names: Vec<String>| names.into_iter().zip(0..).collect();
        self.routes = Routes {
            messages: places(messages),
            requests: places(requests),
        };
    }

    pub(super) fn receive(&mut self, buffer: &mut [u8], at: usize) -> Received {
        if self.staged.is_none() {
            match self.next() {
                Err(Finished) => {
                    self.receiver = None;
                    return Received::Finished;
                }
                Ok(None) => return Received::Nothing,
                Ok(Some(batch)) => {
                    self.stage(&batch);
                    self.staged = Some(batch);
                }
            }
        }
        let Some(batch) = self.staged.take() else {
            return Received::Nothing;
        };
        let room = buffer.get_mut(at..).unwrap_or_default();
        let written = self.rows.write(batch.message_bytes(), room, at);
        match written {
            Ok(end) => Received::Batch(end),
            Err(bytes) => {
                self.staged = Some(batch);
                Received::NoRoom(bytes)
            }
        }
    }

    /// The next batch; the waker is armed if there is none.
    fn next(&mut self) -> Result<Option<Batch>, Finished> {
        let receiver = self.receiver.as_ref().ok_or(Finished)?;
        if let Some(batch) = receiver.receive(Duration::ZERO)? {
            return Ok(Some(batch));
        }
        receiver.arm();
        // What arrived before the waker was armed did not call it.
        receiver.receive(Duration::ZERO)
    }

    /// Makes the rows of a batch.
    fn stage(&mut self, batch: &Batch) {
        self.rows.clear(batch.message_bytes().len());
        let mut last: (*const Peer, u32) = (ptr::null(), 0);
        for (index, event) in batch.events().enumerate() {
            let range = batch.message_range(index).unwrap_or(0..0);
            let (peer, place) = match event {
                Event::Connect(peer) => (peer, Some(self.connect(peer))),
                Event::Message(peer, _)
                | Event::Call(peer, _, _)
                | Event::Publication(peer, _, _)
                | Event::Sync(peer, _)
                | Event::Close(peer, _) => {
                    let is_same = ptr::eq(Arc::as_ptr(peer), last.0);
                    let place = match is_same {
                        true => Some(last.1),
                        false => self.connections.place(peer.connection),
                    };
                    (peer, place)
                }
            };
            // The queue announces each connection before anything else of it.
            let Some(place) = place else { continue };
            last = (Arc::as_ptr(peer), place);
            match event {
                Event::Connect(_) => {}
                Event::Message(_, message) => self.message(place, &message, range.start),
                Event::Call(_, call, responder) => self.call(place, &call, responder),
                Event::Publication(_, publication, responder) => {
                    self.publication(place, &publication, responder);
                }
                Event::Sync(_, request) => self.sync(place, &request),
                Event::Close(peer, reason) => {
                    self.connections.remove(peer.connection);
                    last = (ptr::null(), 0);
                    let (reason, code) = match reason {
                        CloseReason::ByPeer(code) => (0, code.map_or(0, |code| code.value())),
                        CloseReason::ByUs(code) => (1, code.value()),
                        CloseReason::Lost => (2, 0),
                    };
                    self.rows
                        .push([DISCONNECT, place, 0, 0, NO_HANDLER, reason, code.into(), 0]);
                }
            }
        }
    }

    fn connect(&mut self, peer: &Peer) -> u32 {
        let (place, generation) = self.connections.insert(peer.connection);
        let described = json!([
            peer.connection.to_string(),
            peer.user,
            peer.address.map(|address| address.ip().to_string()),
            peer.address.map(|address| address.port()),
            peer.adoption.as_ref().map(AdoptionTicket::number),
        ]);
        let [start, end] = self.rows.text(described.to_string().as_bytes());
        self.rows
            .push([CONNECT, place, start, end, NO_HANDLER, generation, 0, 0]);
        place
    }

    fn message(&mut self, place: u32, message: &Message<'_>, start: usize) {
        let (kind, format) = match message.encoding {
            Encoding::Text => (TEXT, Some(Format::Json)),
            Encoding::Binary => (BINARY, None),
            Encoding::MessagePack => (MESSAGEPACK, Some(Format::MessagePack)),
        };
        let end = start + message.bytes.len();
        let mut row = [kind, place, start as u32, end as u32, NO_HANDLER, 0, 0, 0];
        if let Some(format) = format
            && !self.routes.messages.is_empty()
            && let Ok(Some(name)) = message_type(format, message.bytes)
        {
            row[4] = place_of(&self.routes.messages, &name);
            if format == Format::Json
                && let Ok((Some(payload), is_binary)) = message_content(format, message.bytes)
            {
                let offset = payload.as_ptr().addr() - message.bytes.as_ptr().addr();
                row[5] = (start + offset) as u32;
                row[6] = (start + offset + payload.len()) as u32;
                row[7] = is_binary.into();
            }
        }
        self.rows.push(row);
    }

    fn call(&mut self, connection: u32, call: &Call<'_>, responder: &Responder) {
        let (place, generation) = self.requests.insert(responder.clone(), call.timeout_ms);
        let [start, _] = self.rows.text(call.t.as_bytes());
        let payload = shown_content(call.payload, call.is_binary);
        let [_, end] = self.rows.text(payload.as_bytes());
        let kind = REQUEST | (call.t.len() as u32) << 8;
        let handler = place_of(&self.routes.requests, call.t);
        let timeout_ms = u32::try_from(call.timeout_ms).unwrap_or(u32::MAX);
        self.rows.push([
            kind, connection, start, end, handler, place, generation, timeout_ms,
        ]);
    }

    fn publication(
        &mut self,
        connection: u32,
        publication: &PublicationRequest<'_>,
        responder: &Responder,
    ) {
        let timeout_ms = publication.timeout_ms;
        let (place, generation) = self.requests.insert(responder.clone(), timeout_ms);
        let [start, _] = self.rows.text(publication.t.as_bytes());
        self.rows.text(publication.topic.as_bytes());
        let payload = shown_content(publication.payload, publication.is_binary);
        let [_, end] = self.rows.text(payload.as_bytes());
        let kind = PUBLICATION | (publication.t.len() as u32) << 8;
        let topic_bytes = publication.topic.len() as u32;
        let handler = publication.place as u32;
        self.rows.push([
            kind,
            connection,
            start,
            end,
            handler,
            place,
            generation,
            topic_bytes,
        ]);
    }

    fn sync(&mut self, place: u32, request: &SyncRequest<'_>) {
        let described = json!({
            "topics": request.topics,
            "includeSnapshots": request.include_snapshots,
            "lastSequence": request.last_sequence,
            "correlationId": request.correlation_id,
        });
        let [start, end] = self.rows.text(described.to_string().as_bytes());
        self.rows
            .push([SNAPSHOT_REQUEST, place, start, end, NO_HANDLER, 0, 0, 0]);
    }
}

impl Rows {
    fn clear(&mut self, texts_start: usize) {
        self.numbers.clear();
        self.texts.clear();
        self.texts_start = texts_start;
    }

    fn push(&mut self, row: [u32; ROW_NUMBERS]) {
        self.numbers.extend_from_slice(&row);
    }

    /// Start and end of a text, as offsets.
    fn text(&mut self, text: &[u8]) -> [u32; 2] {
        let start = self.texts_start + self.texts.len();
        self.texts.extend_from_slice(text);
        [start as u32, (start + text.len()) as u32]
    }

    /// Writes the batch into `room`, which begins at `at` in its buffer: where it ends there, or how many bytes it
    /// needs.
    fn write(&self, messages: &[u8], room: &mut [u8], at: usize) -> Result<usize, usize> {
        let rows_end = 4 * (HEAD_NUMBERS + self.numbers.len());
        let messages_end = rows_end + messages.len();
        let end = messages_end + self.texts.len();
        let needed = end.next_multiple_of(8);
        if needed > room.len() {
            return Err(needed);
        }
        let rows = (self.numbers.len() / ROW_NUMBERS) as u32;
        let (start, end_number) = ((at + rows_end) as u32, (at + end) as u32);
        let head = [rows, start, end_number, messages.len() as u32];
        let (head_room, rows_room) = room.as_chunks_mut::<4>().0.split_at_mut(HEAD_NUMBERS);
        copy_numbers(&head, head_room);
        copy_numbers(&self.numbers, rows_room);
        room[rows_end..messages_end].copy_from_slice(messages);
        room[messages_end..end].copy_from_slice(&self.texts);
        Ok(at + needed)
    }
}

fn copy_numbers(numbers: &[u32], room: &mut [[u8; 4]]) {
    for (bytes, number) in room.iter_mut().zip(numbers) {
        *bytes = number.to_ne_bytes();
    }
}

/// The number of a handler, or that of none.
fn place_of(routes: &FxHashMap<String, u32>, name: &str) -> u32 {
    routes.get(name).copied().unwrap_or(NO_HANDLER)
}

const HEAD_NUMBERS: usize = 4;
const ROW_NUMBERS: usize = 8;

// The kinds of rows.
const TEXT: u32 = 0;
const BINARY: u32 = 1;
const MESSAGEPACK: u32 = 2;
const REQUEST: u32 = 3;
const SNAPSHOT_REQUEST: u32 = 4;
const CONNECT: u32 = 5;
const DISCONNECT: u32 = 6;
const PUBLICATION: u32 = 7;

/// A type without a handler of its own.
const NO_HANDLER: u32 = u32::MAX;
