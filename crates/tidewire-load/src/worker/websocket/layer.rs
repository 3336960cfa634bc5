//! Layer between the messages of a test and their frames: compression or encryption.

use tidewire_wire::deflate::{DeflateParameters, WINDOW_BITS_MAX};

/// The transformation of a message before it becomes a frame, on every connection of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layer {
    /// None.
    #[default]
    Plain,
    /// permessage-deflate without context takeover in both directions. A connection to a server that does not
    /// accept it fails.
    Deflate,
    /// The encryption of protocol version 1, under a key of each connection; for
    /// [`Profile::V1`](crate::worker::websocket::profile::Profile::V1) only. A connection is ready when the keys are agreed.
    Encryption,
}

impl Layer {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Deflate, Self::Encryption];

    /// The name in the worker contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Deflate => "deflate",
            Self::Encryption => "encryption",
        }
    }

    /// The WebSocket extensions that a connection uses, by their registered names.
    #[must_use]
    pub fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Plain | Self::Encryption => &[],
            Self::Deflate => &[tidewire_wire::deflate::EXTENSION_NAME],
        }
    }

    /// The version of the protocol's encryption that a connection uses.
    #[must_use]
    pub fn encryption_version(self) -> Option<u32> {
        (self == Self::Encryption).then_some(1)
    }

    /// The value of `Sec-WebSocket-Extensions` in the upgrade. It does not let the server narrow the
    /// client's window: the frames are compressed before it is asked.
    pub(crate) fn offer_header(self) -> Option<&'static str> {
        (self == Self::Deflate).then_some(OFFER)
    }

    /// The permessage-deflate offer in that header.
    pub(crate) fn offer(self) -> Option<DeflateParameters> {
        (self == Self::Deflate).then_some(DeflateParameters {
            server_no_context_takeover: true,
            client_no_context_takeover: true,
            ..DeflateParameters::default()
        })
    }

    /// Whether a server's answer lets the connection send the frames that were compressed before it was
    /// asked: with the largest window, and without memory.
    pub(crate) fn is_agreed(self, agreed: Option<DeflateParameters>) -> bool {
        let wanted_bits = WINDOW_BITS_MAX;
        match self {
            Self::Deflate => {
                agreed.is_some_and(|agreed| agreed.client_max_window_bits == wanted_bits)
            }
            Self::Plain | Self::Encryption => agreed.is_none(),
        }
    }
}

const OFFER: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_says_what_is_offered() {
        let (header, offered) = (Layer::Deflate.offer_header(), Layer::Deflate.offer());
        // A server that would like a small window of the client gets none.
        let wanted = DeflateParameters {
            client_max_window_bits: 9,
            ..DeflateParameters::default()
        };
        let accepted = DeflateParameters::accept(wanted, header).unwrap();
        assert_eq!(Some(accepted.parameters), offered);
        let agreed = offered.unwrap().parse_response(&accepted.header_value);
        assert!(Layer::Deflate.is_agreed(agreed.ok()));
        assert!(Layer::Plain.offer_header().is_none() && Layer::Plain.offer().is_none());
    }

    #[test]
    fn a_server_that_insists_on_a_smaller_window_does_not_agree() {
        let agreed = Layer::Deflate.offer().map(|offered| DeflateParameters {
            client_max_window_bits: 14,
            ..offered
        });
        assert!(!Layer::Deflate.is_agreed(agreed));
        assert!(!Layer::Deflate.is_agreed(None) && Layer::Plain.is_agreed(None));
    }
}
