//! Check of what a client marks as binary, when the message arrives: nobody who receives it is the first to find that it is
//! not base64.

use crate::session::Session;
use memchr::memmem::Finder;
use std::sync::LazyLock;
use tidewire_wire::envelope::{EnvelopeError, message_content};
use tidewire_wire::format::{Format, NOT_BASE64};

impl Session<'_> {
    /// Whether an application's message may be passed on: it is not marked as binary, or its payload is. Refuses it
    /// otherwise. A message whose structure is broken is not this check's business.
    #[inline]
    pub(crate) fn accepts_mark(&mut self, format: Format, bytes: &[u8]) -> bool {
        !may_be_marked(format, bytes) || self.accepts_binary(format, bytes)
    }

    #[cold]
    fn accepts_binary(&mut self, format: Format, bytes: &[u8]) -> bool {
        let content = message_content(format, bytes);
        let is_wrong = matches!(content, Err(EnvelopeError::InvalidField(_)));
        if is_wrong {
            self.refuse(format, bytes, NOT_BASE64);
        }
        !is_wrong
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
