//! `deflate.json` and `deflate-negotiation.json`.

use super::Hex;
use super::frames::Broken;
use serde::Deserialize;

/// The compressed messages of one connection, one after another.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The title of the case.
    pub name: String,
    /// Log 2 of the window in bytes.
    pub window_bits: u8,
    /// Whether a message may refer to those before it.
    pub keeps_context: bool,
    /// The messages. One that cannot be inflated is the last.
    pub messages: Vec<Message>,
    /// The most that one may inflate to, in bytes; 1 MiB by default.
    #[serde(default = "inflated_bytes_max")]
    pub inflated_bytes_max: usize,
    /// The reason for which the last message is refused.
    pub error: Option<Broken>,
}

/// One compressed message.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// The payload of its frames.
    pub payload: Hex,
    /// The inflated message.
    pub plain: Option<Hex>,
}

/// The parameters that are agreed, or offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The server's messages do not refer to those before them.
    pub server_no_context_takeover: bool,
    /// Nor the client's.
    pub client_no_context_takeover: bool,
    /// Log 2 of the server's window in bytes.
    pub server_max_window_bits: u8,
    /// Log 2 of the client's.
    pub client_max_window_bits: u8,
}

/// One side of a negotiation.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "side", rename_all = "snake_case", deny_unknown_fields)]
pub enum Negotiation {
    /// A server and the offers that it receives.
    Server {
        /// The title of the case.
        name: String,
        /// The server's setting of encryption: `off`, `optional` or `required`; `off` if missing.
        encryption: Option<String>,
        /// The wishes of the server.
        wanted: Parameters,
        /// The values of the headers.
        offers: Vec<String>,
        /// The agreement; nothing if the server declines.
        agreed: Option<Parameters>,
        /// The value of the header for it.
        response: Option<String>,
    },
    /// A client and the response to its offer.
    Client {
        /// The title of the case.
        name: String,
        /// The offers of the client.
        offered: Parameters,
        /// The value of the header for it.
        offer: String,
        /// The value of the header in the response.
        response: String,
        /// The agreement.
        agreed: Option<Parameters>,
        /// Why the client rejects the response.
        error: Option<String>,
    },
}

fn inflated_bytes_max() -> usize {
    1024 * 1024
}
