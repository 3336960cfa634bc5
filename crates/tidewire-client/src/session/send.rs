//! Messages of the application, pings and pongs, on their way out.

use super::codec::{Signed, WriteError};
use super::pending::queue_correlation_id;
use super::{Link, Session};
use crate::clock::Moment;
use crate::command::Reply;
use crate::error::Ending;
use crate::error::Error;
use crate::event::{BatchBuilder, Event, ServerError};
use crate::outbox::{Burst, Outgoing};
use crate::payload::BINARY;
use crate::priority_queue::Priority;
use crate::quality::OPEN_MAX;
use crate::queue::{Durable, Numbered};
use crate::request::Publication;
use std::time::Duration;
use tidewire_wire::close::CloseCode;
use tidewire_wire::envelope::{Category, EnvelopeHeader, PublicationHeader, pack_payload};
use tidewire_wire::format::{Format, MESSAGEPACK_PREFIX, envelope_to_msgpack};
use tidewire_wire::frame::OpCode;
use tidewire_wire::session::PublishRequest;

impl Session {
    /// Encodes from `burst` into `out` until that has `out_bytes_max` bytes, the rate limit is used up or nothing is
    /// left.
    pub(crate) fn handle_burst(
        &mut self,
        burst: &mut Burst,
        out_bytes_max: usize,
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        let mut tokens = 0;
        while out.len() < out_bytes_max && !burst.is_empty() {
            if tokens == 0 {
                tokens = self.rate.take(TOKENS, moment.ms());
            }
            if tokens == 0 {
                break;
            }
            match burst.next(self.may_request()) {
                None => break,
                Some(Outgoing::Command(command)) => {
                    tokens -= 1;
                    self.handle_command(*command, moment, out, batch)?;
                }
                Some(Outgoing::Message {
                    t,
                    payload,
                    is_binary,
                    priority,
                }) => {
                    tokens -= 1;
                    let payload = (payload, is_binary);
                    self.send_message(t, payload, priority, moment, out, batch)?;
                }
                Some(Outgoing::Envelope(envelope)) => {
                    tokens -= 1;
                    self.send_envelope(envelope, moment, out)?;
                }
            }
            self.report_too_large(batch);
        }
        self.rate.give_back(tokens);
        self.update_key(moment, out)
    }

    /// Whether one more request may wait for an answer.
    fn may_request(&self) -> bool {
        self.pending.len() < self.config.requests_max.max(1)
    }

    /// When the rate limit lets the next message through.
    pub(crate) fn next_send_ms(&self, moment: Moment) -> u64 {
        if !self.may_request() {
            // What waits goes on with the next answer.
            return u64::MAX;
        }
        self.rate.next_at_ms(moment.ms())
    }

    fn send_message(
        &mut self,
        t: &str,
        (payload, is_binary): (&[u8], bool),
        priority: Priority,
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        if is_binary && !self.takes_binary() {
            report_binary(1, batch);
            return Ok(());
        }
        let header = PublicationHeader {
            category: Category::Update,
            t,
            topic: None,
            position: None,
            id: None,
            priority,
            delivery: None,
            correlation_id: None,
            binary: is_binary,
        };
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        link.write(
            Signed::Yes,
            moment,
            out,
            |link_format, out| match link_format {
                Format::Json => header.write_json(payload, out),
                Format::MessagePack => {
                    let mut packed = Vec::with_capacity(payload.len());
                    // It was checked when it was put into the outbox.
                    let _ = pack_payload(payload, is_binary, &mut packed);
                    header.write_msgpack(&packed, out);
                }
            },
        )
    }

    fn send_envelope(
        &mut self,
        envelope: &[u8],
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        link.write(Signed::Yes, moment, out, |format, out| match format {
            Format::Json => out.extend_from_slice(envelope),
            Format::MessagePack => {
                out.extend_from_slice(MESSAGEPACK_PREFIX);
                // It was checked when it was put into the outbox.
                let _ = envelope_to_msgpack(envelope, out);
            }
        })
    }

    /// Whether the server of the connection has binary payloads.
    pub(crate) fn takes_binary(&self) -> bool {
        let link = self.link.as_ref();
        link.is_some_and(|link| link.wire.server_takes_binary())
    }

    /// Reports a message that was not written because it exceeds the server's limit. It alone is gone.
    fn report_too_large(&mut self, batch: &mut BatchBuilder) {
        let too_large = self.link.as_mut().and_then(|link| link.too_large.take());
        if let Some(bytes) = too_large {
            batch.push(Event::Error(Box::new(ServerError {
                code: "MESSAGE_TOO_LARGE".to_owned(),
                message: format!("a message of {bytes} bytes was not sent: the server takes fewer"),
                recoverable: true,
                retry_after: None,
                refused: 1,
            })));
        }
    }

    /// Sends messages that the store has numbered.
    pub(super) fn send_numbered(
        &mut self,
        messages: Vec<Numbered>,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        for numbered in messages {
            let id = self.id(moment);
            self.rate.take(1, moment.ms());
            let (Some(link), Some(queue)) = (&mut self.link, &mut self.queue) else {
                return Ok(());
            };
            queue.last_sent = numbered.number;
            let number = Some(numbered.number);
            // A refusal names it.
            let cid = queue_correlation_id(numbered.row);
            let Durable {
                topic,
                t,
                payload,
                is_binary,
                priority,
                key,
                ..
            } = numbered.message;
            match topic {
                Some(topic) => {
                    let mut request = PublishRequest::new(&topic, &t, &payload);
                    request.binary = is_binary;
                    request.priority = (priority != Priority::Normal).then_some(priority);
                    request.key = key.as_deref().map(Into::into);
                    link.write_system(Signed::Yes, moment, out, |wire, out| {
                        wire.write_publish(&request, Some(&cid), number, id, moment.now, out)
                            .unwrap_or(OpCode::Binary)
                    })?;
                }
                None => {
                    let header = EnvelopeHeader {
                        category: Category::Update,
                        t: &t,
                        id,
                        unix_ms: moment.now.unix_ms,
                        seq: numbered.number,
                        correlation_id: Some(&cid),
                        signature: None,
                        number,
                        binary: is_binary,
                    };
                    link.write(Signed::Yes, moment, out, |format, out| {
                        // It was checked when it was stored.
                        let _ = header.write(format, &payload, out);
                    })?;
                }
            }
        }
        self.update_key(moment, out)
    }

    /// Sends a ping; `reply` receives its round-trip time.
    pub(super) fn ping(
        &mut self,
        reply: Option<Reply<Duration>>,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        let id = self.id(moment);
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        if link.pings.len() >= OPEN_MAX {
            if let Some(reply) = reply {
                let _ = reply.send(Err(Error::Full));
                return Ok(());
            }
            if let Some((_, Some(oldest))) = link.pings.pop_front() {
                let _ = oldest.send(Err(Error::TimedOut));
            }
        }
        link.last_ping_ms = moment.ms();
        link.pings.push_back((moment.us, reply));
        self.quality.handle_ping(moment.us);
        link.write_system(Signed::No, moment, out, |wire, out| {
            wire.write_ping(id, moment.now, out)
        })
    }

    /// Sends a ping after a request has timed out. The connection ends if nothing arrives for another such time.
    pub(super) fn probe(&mut self, moment: Moment, out: &mut Vec<u8>) -> Result<(), Ending> {
        let timeout_ms = u64::try_from(self.config.request_timeout.as_millis());
        match &mut self.link {
            Some(link) if link.silent_until_ms.is_none() => {
                let until_ms = moment.ms().saturating_add(timeout_ms.unwrap_or(u64::MAX));
                link.silent_until_ms = Some(until_ms);
            }
            _ => return Ok(()),
        }
        self.ping(None, moment, out)
    }

    /// Changes the key when it has been used for long enough (section 10.5 of the protocol).
    pub(super) fn update_key(&mut self, moment: Moment, out: &mut Vec<u8>) -> Result<(), Ending> {
        match &self.link {
            Some(link) if link.codec.wants_key_update() => self.send_key_update(true, moment, out),
            _ => Ok(()),
        }
    }

    pub(super) fn send_key_update(
        &mut self,
        request: bool,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        let id = self.id(moment);
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        link.write_system(Signed::No, moment, out, |wire, out| {
            wire.write_key_update(request, id, moment.now, out)
        })?;
        link.codec.update_sealing_key();
        Ok(())
    }
}

impl Link {
    /// Appends a message of the application's, which `encode` writes in the format it is given.
    pub(super) fn write(
        &mut self,
        signed: Signed,
        moment: Moment,
        out: &mut Vec<u8>,
        encode: impl FnOnce(Format, &mut Vec<u8>),
    ) -> Result<(), Ending> {
        let format = self.wire.format();
        self.codec.server_bytes_max = self.server_message_bytes_max;
        let written = self.codec.write(signed, moment.now.unix_ms, out, |out| {
            encode(format, out);
            match format {
                Format::Json => OpCode::Text,
                Format::MessagePack => OpCode::Binary,
            }
        });
        self.note_written(written)
    }

    /// Appends a message of the protocol's.
    pub(super) fn write_system(
        &mut self,
        signed: Signed,
        moment: Moment,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut tidewire_wire::session::ClientSession, &mut Vec<u8>) -> OpCode,
    ) -> Result<(), Ending> {
        let wire = &mut self.wire;
        self.codec.server_bytes_max = self.server_message_bytes_max;
        let written = self
            .codec
            .write(signed, moment.now.unix_ms, out, |out| encode(wire, out));
        self.note_written(written)
    }

    fn note_written(&mut self, written: Result<(), WriteError>) -> Result<(), Ending> {
        match written {
            Ok(()) => Ok(()),
            Err(WriteError::TooLarge(bytes)) => {
                self.too_large = Some(bytes);
                Ok(())
            }
            Err(WriteError::Seal(error)) => Err(Ending::ours(CloseCode::NORMAL, error.to_string())),
        }
    }
}

/// Reports messages of bytes that are not sent, because the server would read them as texts.
pub(super) fn report_binary(messages: u64, batch: &mut BatchBuilder) {
    let error = Error::Unsupported(BINARY);
    batch.push(Event::Error(Box::new(ServerError {
        code: error.code().to_owned(),
        message: format!("not sent: {error}"),
        recoverable: true,
        retry_after: None,
        refused: messages,
    })));
}

pub(super) fn publish_request(publication: &Publication) -> PublishRequest<'_> {
    let payload = publication.payload.as_json().as_bytes();
    let mut request = PublishRequest::new(&publication.topic, &publication.t, payload);
    request.binary = publication.payload.is_binary();
    request.id = publication.id.as_deref().map(Into::into);
    request.key = publication.key.as_deref().map(Into::into);
    request.ttl_ms = publication.ttl_ms;
    request.priority = publication.priority;
    request.exclude_self = publication.exclude_self;
    if publication.is_snapshot {
        request.category = Category::Snapshot;
    }
    request
}

/// Tokens that are spent from the rate limit at once.
const TOKENS: u64 = 64;
