//! Events of a connection, for its owner.

use super::error::{ErrorCode, StreamFault};
use super::head::Parsed;
use super::stream::Message;
use crate::fields::Fields;

/// The result of one step.
#[derive(Debug)]
pub struct Step<'a> {
    /// Bytes that the caller must not pass again.
    pub consumed: usize,
    /// The event of these bytes.
    pub event: Event<'a>,
}

/// An event of a connection. A message is `Head`, any number of `Body`, and `Done`. After `Reset` or `Broken` nothing more
/// follows for a stream.
#[derive(Debug)]
pub enum Event<'a> {
    /// Nothing that concerns the caller. If no byte was consumed: call again when more bytes have arrived, with the
    /// unconsumed bytes at their front.
    More,
    /// The peer's first settings: it speaks HTTP/2.
    Ready,
    /// The head of a message.
    Head(Head<'a>),
    /// A whole 1xx response. The request stays open.
    Interim {
        /// Its stream.
        stream: u32,
        /// Its status.
        status: u16,
    },
    /// The next bytes of a body.
    Body {
        /// Its stream.
        stream: u32,
        /// Some of it.
        bytes: &'a [u8],
    },
    /// A message is whole.
    Done {
        /// Its stream.
        stream: u32,
        /// Its sizes.
        message: Message,
    },
    /// The peer has reset a stream.
    Reset {
        /// Its number.
        stream: u32,
        /// Its reason.
        code: ErrorCode,
    },
    /// The message of a stream breaks a rule, and this side has reset the stream.
    Broken {
        /// Its number.
        stream: u32,
        /// The rule.
        fault: StreamFault,
    },
    /// The peer accepts no more streams.
    GoAway {
        /// Streams with a higher number were not processed.
        last: u32,
        /// Its reason.
        code: ErrorCode,
    },
}

/// A whole head.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Its stream.
    pub stream: u32,
    /// The status of a response.
    pub status: u16,
    /// Whether it has a field `set-cookie`.
    pub sets_cookies: bool,
    parsed: &'a Parsed,
}

impl<'a> Head<'a> {
    pub(super) fn of(stream: u32, parsed: &'a Parsed) -> Self {
        Self {
            stream,
            status: parsed.status,
            sets_cookies: parsed.sets_cookies,
            parsed,
        }
    }

    /// All fields, in their order, without pseudo-headers; the authority of a request as `host`.
    #[must_use]
    pub fn headers(&self) -> Fields<'a> {
        self.parsed.fields()
    }

    /// The method and the target of a request.
    #[must_use]
    pub fn request_line(&self) -> (&'a str, &'a str) {
        self.parsed.request_line()
    }
}
