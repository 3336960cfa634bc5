//! Check of what a client marks as binary, when the message arrives: nobody who receives it is the first to find that it is
//! not base64.

use crate::session::Session;
use memchr::memmem::Finder;
use std::sync::LazyLock;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{EnvelopeError, check_binary, correlation_id};
use tidewire_wire::format::Format;
use tidewire_wire::session::Reply;

impl Session<'_> {
    /// Whether an application's message may be passed on: it is not marked as binary, or its payload is. Refuses it
    /// otherwise. A message whose structure is broken is not this check's business.
    #[inline]
    pub(crate) fn accepts_mark(&mut self, format: Format, bytes: &[u8]) -> bool {
        !may_be_marked(format, bytes) || self.accepts_binary(format, bytes)
    }

    #[cold]
    fn accepts_binary(&mut self, format: Format, bytes: &[u8]) -> bool {
        if !matches!(
            check_binary(format, bytes),
            Err(EnvelopeError::InvalidField(_))
        ) {
            return true;
        }
        let id = correlation_id(format, bytes).ok().flatten();
        self.core.counters.messages_refused_invalid.add(1);
        self.reply(&Reply::Error {
            code: ErrorCode::InvalidMessage,
            message: "the payload is marked as binary and is not base64".into(),
            retry_after_s: None,
            refused: None,
            correlation_id: id.map(|id| id.into_owned()),
        });
        false
    }
}

/// Whether a message may have the field `b` with the value true: in JSON the word is in it, in MessagePack the byte of true
/// follows the name. Nearly all other messages are passed by a search of their bytes.
fn may_be_marked(format: Format, bytes: &[u8]) -> bool {
    static TRUE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"true"));
    static PACKED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"b\xc3"));
    match format {
        Format::Json => TRUE.find(bytes).is_some(),
        Format::MessagePack => PACKED.find(bytes).is_some(),
    }
}
