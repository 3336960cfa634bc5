//! Traces: the context that a peer gives, the spans of what the engine does for it, and where finished spans go.
//!
//! Without a [`TraceSink`] nothing of this runs. With one, a span that is not sampled is not made, unless its context has
//! to be passed on to a backend.

use crate::clock::unix_ns;
use rand::Rng;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A place in a trace, as `traceparent` of W3C Trace Context has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace; not all zeros.
    pub trace_id: [u8; 16],
    /// The span in it; not all zeros.
    pub span_id: [u8; 8],
    /// Whether the spans of the trace are recorded.
    pub is_sampled: bool,
}

/// Where finished spans go. Shards and the link to the backend call it, so that no function may block.
pub trait TraceSink: fmt::Debug + Send + Sync + 'static {
    /// Whether a trace that begins here is recorded.
    fn samples(&self, trace_id: [u8; 16]) -> bool;

    /// Accepts a finished span, or counts it as dropped.
    fn record(&self, span: Span);

    /// The counts of spans, for `/metrics`.
    fn counts(&self) -> TraceCounts;
}

/// The counts of spans since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// Spans that the receiver has accepted.
    pub exported: u64,
    /// Spans dropped because too many waited.
    pub dropped: u64,
    /// Spans that the receiver has not accepted.
    pub failed: u64,
}

/// A finished span.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    /// The name of the operation, the same for all spans of a kind.
    pub name: &'static str,
    /// The role of this server in the operation.
    pub kind: SpanKind,
    /// Its own place.
    pub context: TraceContext,
    /// The span that caused it, if there is one.
    pub parent: Option<[u8; 8]>,
    /// When it began, in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// When it ended, in nanoseconds since 1970.
    pub end_unix_ns: u64,
    /// Names follow the semantic conventions of OpenTelemetry where these have one.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// The kind of failure (`error.type`), if it has failed.
    pub failure: Option<Cow<'static, str>>,
}

/// The role of the server in a span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SpanKind {
    /// A peer asked the server.
    #[default]
    Server,
    /// The server asked another one.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanValue {
    /// A text of at most [`TEXT_BYTES_MAX`] bytes.
    Text(String),
    /// A number.
    Integer(i64),
}

impl From<&str> for SpanValue {
    fn from(text: &str) -> Self {
        let mut end = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self::Text(text[..end].to_owned())
    }
}

impl From<u64> for SpanValue {
    fn from(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl TraceContext {
    /// Reads `traceparent` of W3C Trace Context, section 3.2, of any version. `None` if it is to be ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (head, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let version: [u8; 1] = hex(&head[..2])?;
        let is_known_end = match version {
            [0] => rest.is_empty(),
            [0xff] => false,
            // Later versions may add fields.
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        if !is_known_end || [head[2], head[35], head[52]] != *b"---" {
            return None;
        }
        let trace_id: [u8; 16] = hex(&head[3..35])?;
        let span_id: [u8; 8] = hex(&head[36..52])?;
        let flags: [u8; 1] = hex(&head[53..])?;
        let is_valid = trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Self {
            trace_id,
            span_id,
            is_sampled: flags[0] & SAMPLED != 0,
        })
    }
}

/// As `traceparent` of version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace = u128::from_be_bytes(self.trace_id);
        let span = u64::from_be_bytes(self.span_id);
        let flags = u8::from(self.is_sampled) * SAMPLED;
        write!(formatter, "00-{trace:032x}-{span:016x}-{flags:02x}")
    }
}

/// The bytes of lower-case hexadecimal digits, twice as many.
fn hex<const BYTES: usize>(digits: &[u8]) -> Option<[u8; BYTES]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

/// The trace of a connection: the context of its handshake, and its span until it is finished.
#[derive(Debug)]
pub(crate) struct ConnectionTrace {
    pub(crate) context: TraceContext,
    pub(crate) handshake: Option<Box<OpenSpan>>,
}

/// A span that has begun. It is recorded when it ends, or when whatever it belongs to is dropped: then as abandoned.
#[derive(Debug)]
pub(crate) struct OpenSpan {
    sink: Arc<dyn TraceSink>,
    span: Span,
    has_outcome: bool,
}

impl OpenSpan {
    /// The first span of a trace here: a part of the peer's trace, or of a new one. `None` if nobody needs it.
    pub(crate) fn root(
        sink: &Arc<dyn TraceSink>,
        random: &mut impl Rng,
        name: &'static str,
        parent: Option<TraceContext>,
    ) -> Option<Box<Self>> {
        if let Some(parent) = parent {
            return Some(Self::child(sink, random, (name, SpanKind::Server), parent));
        }
        let context = TraceContext {
            // All zeros are not valid.
            trace_id: random.random_range(1..=u128::MAX).to_be_bytes(),
            span_id: [0; 8],
            is_sampled: true,
        };
        sink.samples(context.trace_id).then(|| {
            let mut open = Self::child(sink, random, (name, SpanKind::Server), context);
            open.span.parent = None;
            open
        })
    }

    /// A span that another one causes. It is sampled if its parent is.
    pub(crate) fn child(
        sink: &Arc<dyn TraceSink>,
        random: &mut impl Rng,
        (name, kind): (&'static str, SpanKind),
        parent: TraceContext,
    ) -> Box<Self> {
        let span_id = random.random_range(1..=u64::MAX).to_be_bytes();
        let span = Span {
            name,
            kind,
            context: TraceContext { span_id, ..parent },
            parent: Some(parent.span_id),
            start_unix_ns: if parent.is_sampled { unix_ns() } else { 0 },
            ..Span::default()
        };
        Box::new(Self {
            sink: Arc::clone(sink),
            span,
            has_outcome: false,
        })
    }

    pub(crate) fn context(&self) -> TraceContext {
        self.span.context
    }

    pub(crate) fn is_sampled(&self) -> bool {
        self.span.context.is_sampled
    }

    /// It began before now.
    pub(crate) fn began_before(&mut self, ns: u64) {
        self.span.start_unix_ns = self.span.start_unix_ns.saturating_sub(ns);
    }

    /// Sets an attribute. The value is not made for a span that is not sampled.
    pub(crate) fn set<V: Into<SpanValue>>(&mut self, name: &'static str, value: V) {
        if !self.span.context.is_sampled {
            return;
        }
        let value = value.into();
        let mut attributes = self.span.attributes.iter_mut();
        match attributes.find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.span.attributes.push((name, value)),
        }
    }

    /// The measured operation is over; its outcome is known later. A receiver that is notified meanwhile
    /// may end the span that caused it.
    pub(crate) fn stop(&mut self) {
        if self.span.context.is_sampled {
            self.span.end_unix_ns = unix_ns();
        }
    }

    /// The span ends, with success unless it [has failed](Self::fail).
    pub(crate) fn end(mut self) {
        self.has_outcome = true;
    }

    /// The span ends with this kind of failure.
    pub(crate) fn fail(mut self, kind: impl Into<Cow<'static, str>>) {
        self.has_outcome = true;
        self.span.failure = Some(kind.into());
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if !self.span.context.is_sampled {
            return;
        }
        if !self.has_outcome {
            self.span.failure = Some(ABANDONED.into());
        }
        if self.span.end_unix_ns == 0 {
            self.span.end_unix_ns = unix_ns();
        }
        self.span.end_unix_ns = self.span.end_unix_ns.max(self.span.start_unix_ns);
        self.sink.record(std::mem::take(&mut self.span));
    }
}

/// The longest text of an attribute, in bytes. A longer one is cut off.
pub const TEXT_BYTES_MAX: usize = 256;

/// The failure of a span whose connection has ended, or whose server stops.
const ABANDONED: &str = "abandoned";

/// The length of version 00, in bytes.
const HEADER_BYTES: usize = 55;

/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_is_read_and_written() {
        let context = TraceContext::parse(TEXT).unwrap();
        assert!(context.is_sampled);
        assert_eq!(context.span_id[0], 0xb7);
        assert_eq!(context.to_string(), TEXT);
        let unsampled = TraceContext::parse(&TEXT.replace("-01", "-02")).unwrap();
        assert!(!unsampled.is_sampled);
        assert_eq!(unsampled.to_string(), TEXT.replace("-01", "-00"));
        let later = format!("{}-more", TEXT.replacen("00", "01", 1));
        assert_eq!(TraceContext::parse(&later), Some(context));
    }

    #[test]
    fn what_is_no_context_is_ignored() {
        for text in [
            "",
            "00",
            &TEXT[..54],
            &format!("{TEXT}-more"),
            &TEXT.replacen("00", "ff", 1),
            &TEXT.replacen("00", "0g", 1),
            &TEXT.replace("0af7", "0AF7"),
            &TEXT.replace("-b7", "_b7"),
            &TEXT.replace("b7ad6b7169203331", "0000000000000000"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-é",
            &"é".repeat(40),
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        let SpanValue::Text(text) = SpanValue::from("é".repeat(300).as_str()) else {
            panic!("a text");
        };
        assert_eq!(text.len(), TEXT_BYTES_MAX);
        let SpanValue::Text(text) = SpanValue::from(format!("a{}", "é".repeat(300)).as_str())
        else {
            panic!("a text");
        };
        assert_eq!(text.len(), TEXT_BYTES_MAX - 1);
    }
}
