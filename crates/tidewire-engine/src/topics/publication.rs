//! Publications, and the forms in which they are sent.

use crate::model::{Outgoing, Position};
use crate::topics::error::PublishError;
use crate::topics::excluded::Excluded;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use tidewire_wire::deflate::{WINDOW_BITS_MAX, WINDOW_BITS_MIN};
use tidewire_wire::envelope::{Category, Priority, PublicationHeader, SystemType};
use tidewire_wire::format::{Format, MESSAGEPACK_PREFIX, envelope_to_msgpack, json_to_msgpack};
use tidewire_wire::frame;
use tidewire_wire::frame::OpCode;
use tidewire_wire::session::{GapReason, PublicationGap, write_gap_event};
use tidewire_wire::uuid::Uuid;

/// A message that goes to many connections. Its form in another format or compressed is made once,
/// by the first connection that needs it, on whatever shard.
#[derive(Debug)]
pub(crate) struct Publication {
    body: Body,
    /// `None` for a message without a topic.
    pub(crate) topic: Option<Arc<str>>,
    pub(crate) position: Option<Position>,
    pub(crate) priority: Priority,
    pub(crate) key: Option<Box<str>>,
    pub(crate) exclude: Excluded,
    /// On the clock that counts from 1970.
    pub(crate) expires_unix_ms: u64,
    /// A connection that lags does not get it.
    pub(crate) is_volatile: bool,
    /// Of a presence event: whom it is about.
    pub(crate) member: Option<Box<MemberEvent>>,
    forms: OnceLock<Box<Forms>>,
}

/// The member that a presence event is about.
#[derive(Debug)]
pub(crate) struct MemberEvent {
    pub(crate) user: Arc<str>,
    /// It is an update: a later one replaces it.
    pub(crate) is_update: bool,
}

#[derive(Debug)]
enum Body {
    /// Sent as it is.
    Verbatim(Outgoing),
    /// An envelope in JSON.
    Envelope {
        json: Box<[u8]>,
        payload: Range<usize>,
        is_binary: bool,
    },
}

/// The forms other than the first.
#[derive(Debug, Default)]
struct Forms {
    messagepack: OnceLock<Box<[u8]>>,
    zlib: OnceLock<Box<[u8]>>,
    /// By log 2 of the window, of text and of binary frames.
    deflated: [[OnceLock<Box<[u8]>>; WINDOWS]; 2],
}

const WINDOWS: usize = (WINDOW_BITS_MAX - WINDOW_BITS_MIN) as usize + 1;

/// The destination of a new publication, once it is known.
pub(crate) struct Placed<'a> {
    pub(crate) topic: Option<&'a Arc<str>>,
    pub(crate) position: Option<Position>,
    pub(crate) priority: Priority,
    pub(crate) unix_ms: u64,
}

/// A new publication whose text lives elsewhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draft<'a> {
    pub(crate) t: &'a str,
    /// One JSON value; if it is binary, the base64 of the bytes in quotes.
    pub(crate) payload: &'a [u8],
    pub(crate) is_binary: bool,
    pub(crate) category: Category,
    pub(crate) priority: Option<Priority>,
    pub(crate) id: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
    pub(crate) exclude: &'a Excluded,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) is_volatile: bool,
    /// Distinguishes a repetition from a new publication where there is no `id`; nobody gets it.
    pub(crate) unique: Option<&'a str>,
}

/// Checks the type of a publication and the size of its payload.
pub(crate) fn check_content(
    t: &str,
    payload_bytes: usize,
    bytes_max: usize,
) -> Result<(), PublishError> {
    if t.is_empty() || SystemType::parse(t).is_some() {
        return Err(PublishError::Type);
    }
    match payload_bytes > bytes_max {
        true => Err(PublishError::TooLarge { bytes_max }),
        false => Ok(()),
    }
}

impl Draft<'_> {
    pub(crate) fn place(&self, placed: &Placed<'_>) -> Publication {
        let header = PublicationHeader {
            category: self.category,
            t: self.t,
            topic: placed.topic.map(|topic| &**topic),
            position: placed
                .position
                .map(|position| (position.epoch, position.offset)),
            id: self.id,
            priority: placed.priority,
            delivery: None,
            correlation_id: None,
            binary: self.is_binary,
        };
        let mut json = Vec::with_capacity(self.payload.len() + ENVELOPE_BYTES);
        header.write_json(self.payload, &mut json);
        // The payload is the last field.
        let end = json.len() - 1;
        Publication {
            body: Body::Envelope {
                json: json.into_boxed_slice(),
                payload: end - self.payload.len()..end,
                is_binary: self.is_binary,
            },
            topic: placed.topic.cloned(),
            position: placed.position,
            priority: placed.priority,
            key: self.key.map(Box::from),
            exclude: self.exclude.clone(),
            expires_unix_ms: self
                .ttl_ms
                .map_or(u64::MAX, |ttl_ms| placed.unix_ms.saturating_add(ttl_ms)),
            is_volatile: self.is_volatile,
            member: None,
            forms: OnceLock::new(),
        }
    }
}

impl Publication {
    pub(crate) fn verbatim(message: Outgoing) -> Self {
        Self {
            body: Body::Verbatim(message),
            topic: None,
            position: None,
            priority: Priority::Normal,
            key: None,
            exclude: Excluded::Nobody,
            expires_unix_ms: u64::MAX,
            is_volatile: false,
            member: None,
            forms: OnceLock::new(),
        }
    }

    /// The protocol's own message about a topic, an envelope in JSON.
    pub(crate) fn event(topic: Option<Arc<str>>, json: Vec<u8>) -> Self {
        Self {
            body: Body::Envelope {
                json: json.into_boxed_slice(),
                payload: 0..0,
                is_binary: false,
            },
            topic,
            ..Self::verbatim(Outgoing::Binary(Arc::new([])))
        }
    }

    /// A presence event about a user, an envelope in JSON.
    pub(crate) fn presence_event(
        topic: Arc<str>,
        user: Arc<str>,
        event: SystemType,
        json: Vec<u8>,
    ) -> Self {
        let is_update = event == SystemType::PresenceUpdate;
        Self {
            member: Some(Box::new(MemberEvent { user, is_update })),
            ..Self::event(Some(topic), json)
        }
    }

    /// The event that notifies the subscribers of a topic with history of an expired publication
    /// that they do not get.
    pub(crate) fn gap_of(expired: &Self, id: Uuid, unix_ms: u64) -> Option<Self> {
        let (topic, position) = (expired.topic.clone()?, expired.position?);
        let gap = PublicationGap {
            topic: topic.to_string(),
            reason: GapReason::Expired,
            count: 1,
            range: Some(position.as_range()),
        };
        let mut json = Vec::new();
        write_gap_event(&gap, id, unix_ms, &mut json);
        let gap = Self::event(Some(topic), json);
        Some(Self {
            priority: expired.priority,
            ..gap
        })
    }

    /// It in the format that a connection wants.
    pub(crate) fn payload(&self, format: Format) -> Payload<'_> {
        let payload = match (&self.body, format) {
            (Body::Verbatim(message), _) => message.payload(),
            (Body::Envelope { json, .. }, Format::Json) => Payload::new(OpCode::Text, json),
            (Body::Envelope { json, .. }, Format::MessagePack) => {
                let forms = self.forms();
                let packed = forms.messagepack.get_or_init(|| self.packed(json));
                Payload::new(OpCode::Binary, packed)
            }
        };
        Payload {
            publication: Some(self),
            priority: self.priority,
            ..payload
        }
    }

    /// Its envelope in a format, without a prefix, as it can stand in a batch. `None` if the
    /// message is no envelope.
    pub(crate) fn envelope(&self, format: Format) -> Option<&[u8]> {
        match &self.body {
            Body::Verbatim(_) => None,
            Body::Envelope { .. } => {
                let bytes = self.payload(format).bytes;
                match format {
                    Format::Json => Some(bytes),
                    Format::MessagePack => bytes.strip_prefix(MESSAGEPACK_PREFIX),
                }
            }
        }
    }

    /// The payload of its envelope, JSON.
    pub(crate) fn content(&self) -> &[u8] {
        match &self.body {
            Body::Verbatim(_) => &[],
            Body::Envelope { json, payload, .. } => &json[payload.clone()],
        }
    }

    /// Whether its payload is binary: [`content`](Self::content) is then the base64 of the bytes in quotes.
    pub(crate) fn is_binary(&self) -> bool {
        matches!(
            self.body,
            Body::Envelope {
                is_binary: true,
                ..
            }
        )
    }

    /// The whole envelope, JSON.
    pub(crate) fn json(&self) -> &[u8] {
        match &self.body {
            Body::Verbatim(_) => &[],
            Body::Envelope { json, .. } => json,
        }
    }

    /// Whether it is one of the protocol's own messages about a topic.
    pub(crate) fn is_event(&self) -> bool {
        matches!(&self.body, Body::Envelope { payload, .. } if payload.is_empty())
    }

    /// The same for whoever does the work, however late: without an exception for its publisher, without an end, and
    /// not volatile.
    pub(crate) fn for_anyone(&self) -> Self {
        Self {
            exclude: Excluded::Nobody,
            expires_unix_ms: u64::MAX,
            is_volatile: false,
            ..self.with_json(self.json().to_vec(), 0)
        }
    }

    /// The same with the number under which it is to be acknowledged, and whether it was delivered
    /// before.
    pub(crate) fn numbered(&self, number: u64, redelivered: bool) -> Self {
        let Body::Envelope { json, payload, .. } = &self.body else {
            return self.for_anyone();
        };
        // Before the payload, which is the last field.
        let (head, rest) = json.split_at(payload.start - PAYLOAD_NAME.len());
        let mut numbered = Vec::with_capacity(json.len() + 32);
        numbered.extend_from_slice(head);
        let added = format!(
            ",\"d\":{number}{}",
            if redelivered { ",\"rd\":true" } else { "" }
        );
        numbered.extend_from_slice(added.as_bytes());
        numbered.extend_from_slice(rest);
        self.with_json(numbered, added.len())
    }

    /// The same with another envelope, in which the payload starts N bytes later.
    fn with_json(&self, json: Vec<u8>, later: usize) -> Self {
        let body = match &self.body {
            Body::Verbatim(message) => Body::Verbatim(message.clone()),
            Body::Envelope {
                payload, is_binary, ..
            } => Body::Envelope {
                is_binary: *is_binary,
                json: json.into_boxed_slice(),
                payload: payload.start + later..payload.end + later,
            },
        };
        Self {
            body,
            topic: self.topic.clone(),
            position: self.position,
            priority: self.priority,
            key: self.key.clone(),
            exclude: self.exclude.clone(),
            expires_unix_ms: self.expires_unix_ms,
            is_volatile: self.is_volatile,
            member: None,
            forms: OnceLock::new(),
        }
    }

    /// Its approximate size in memory and on each connection, in bytes.
    pub(crate) fn cost(&self) -> usize {
        let bytes = match &self.body {
            Body::Verbatim(Outgoing::Text(text)) => text.len(),
            Body::Verbatim(Outgoing::Binary(bytes)) => bytes.len(),
            Body::Envelope { json, .. } => json.len(),
        };
        bytes + size_of_val(self.exclude.connections()) + size_of::<Self>()
    }

    /// Whether connections may be passed over, each by itself.
    pub(crate) fn is_for_all(&self) -> bool {
        self.exclude.is_nobody() && !self.is_volatile
    }

    pub(crate) fn can_expire(&self) -> bool {
        self.expires_unix_ms != u64::MAX
    }

    pub(crate) fn is_expired(&self, unix_ms: u64) -> bool {
        unix_ms > self.expires_unix_ms
    }

    /// Its zlib form, made by the first that asks.
    pub(crate) fn zlib(&self, make: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        self.forms().zlib.get_or_init(|| made(make))
    }

    /// Its deflated form for such a frame and a window of N bits, made by the first that
    /// asks.
    pub(crate) fn deflated(
        &self,
        opcode: OpCode,
        window_bits: u8,
        make: impl FnOnce(&mut Vec<u8>),
    ) -> &[u8] {
        let window = window_bits.clamp(WINDOW_BITS_MIN, WINDOW_BITS_MAX) - WINDOW_BITS_MIN;
        let is_binary = opcode == OpCode::Binary;
        self.forms().deflated[usize::from(is_binary)][usize::from(window)]
            .get_or_init(|| made(make))
    }

    fn forms(&self) -> &Forms {
        self.forms.get_or_init(Box::default)
    }

    fn packed(&self, json: &[u8]) -> Box<[u8]> {
        let mut packed = MESSAGEPACK_PREFIX.to_vec();
        // A snapshot is an event, and may be binary, too.
        let result = if self.is_binary() || self.is_event() {
            envelope_to_msgpack(json, &mut packed)
        } else {
            json_to_msgpack(json, &mut packed)
        };
        // The payload was checked to be JSON and not to be nested too deep.
        if result.is_err() {
            tracing::error!("a publication cannot be written as MessagePack");
        }
        packed.into_boxed_slice()
    }
}

fn made(make: impl FnOnce(&mut Vec<u8>)) -> Box<[u8]> {
    let mut bytes = Vec::new();
    make(&mut bytes);
    bytes.into_boxed_slice()
}

/// The text between the other fields of an envelope and its payload.
const PAYLOAD_NAME: &[u8] = b",\"p\":";

/// The usual size of an envelope besides its payload.
const ENVELOPE_BYTES: usize = 96;

/// The result of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Its place, if the topic keeps history.
    pub position: Option<Position>,
    /// It repeats the id of one that was published before, whose place this is, and went to nobody.
    pub is_duplicate: bool,
}

/// One message to one connection.
#[derive(Clone, Copy)]
pub(crate) struct Payload<'a> {
    pub(crate) opcode: OpCode,
    /// The mark of its encoding, in front of the bytes.
    pub(crate) prefix: &'a [u8],
    pub(crate) bytes: &'a [u8],
    /// Where its compressed forms are kept, if it goes to others as well.
    pub(crate) publication: Option<&'a Publication>,
    pub(crate) priority: Priority,
}

impl Outgoing {
    pub(crate) fn payload(&self) -> Payload<'_> {
        match self {
            Self::Text(text) => Payload::new(OpCode::Text, text.as_bytes()),
            Self::Binary(bytes) => Payload::new(OpCode::Binary, bytes),
        }
    }
}

impl<'a> Payload<'a> {
    pub(crate) fn new(opcode: OpCode, bytes: &'a [u8]) -> Self {
        Self {
            opcode,
            prefix: &[],
            bytes,
            publication: None,
            priority: Priority::Normal,
        }
    }

    /// MessagePack without its prefix.
    pub(crate) fn messagepack(bytes: &'a [u8]) -> Self {
        Self {
            prefix: MESSAGEPACK_PREFIX,
            ..Self::new(OpCode::Binary, bytes)
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.prefix.len() + self.bytes.len()
    }

    /// Appends the payload in a frame, as it is; how many bytes it has.
    #[inline(always)]
    pub(crate) fn write_frame(&self, out: &mut Vec<u8>) -> usize {
        frame::write_header(out, true, self.opcode, self.len(), None);
        out.extend_from_slice(self.prefix);
        out.extend_from_slice(self.bytes);
        self.len()
    }

    /// The prefix and the bytes in one piece.
    pub(crate) fn joined(&self) -> Cow<'a, [u8]> {
        if self.prefix.is_empty() {
            Cow::Borrowed(self.bytes)
        } else {
            Cow::Owned([self.prefix, self.bytes].concat())
        }
    }
}
