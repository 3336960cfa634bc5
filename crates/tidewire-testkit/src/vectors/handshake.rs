//! `handshake-requests.json` and `handshake-responses.json`.

use super::{Hex, nullable};
use serde::Deserialize;
use std::collections::BTreeMap;

/// An upgrade request and the server's result: exactly one of the last three fields is there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestCase {
    /// The title of the case.
    pub name: String,
    /// A byte for each character; see [`latin_1`](super::latin_1).
    pub request: String,
    /// The largest head, in bytes; 16 KiB by default.
    #[serde(default = "head_bytes_max")]
    pub head_bytes_max: usize,
    /// The server accepts it.
    pub accepted: Option<AcceptedRequest>,
    /// It is answered with an error.
    pub refused: Option<RefusedRequest>,
    /// The request is incomplete.
    #[serde(default)]
    pub incomplete: bool,
}

/// The content of a valid request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedRequest {
    /// The path of the target.
    pub path: String,
    /// The query: the part after `?`.
    pub query: String,
    /// `Host`.
    pub host: String,
    /// `Sec-WebSocket-Accept` of the answer.
    pub accept: String,
    /// Bytes of the head.
    pub head_bytes: usize,
    /// Parameters of the query, decoded; `None` for one that is not there.
    #[serde(default)]
    pub parameters: BTreeMap<String, Option<String>>,
    /// `Origin`.
    pub origin: Option<String>,
    /// The subprotocols offered.
    #[serde(default)]
    pub protocols: Vec<String>,
    /// The part of them that a server confirms.
    #[serde(default)]
    pub confirmed: Vec<ConfirmedProtocol>,
    /// The values of `Sec-WebSocket-Extensions`.
    #[serde(default)]
    pub extensions: Vec<String>,
    /// The bearer token; `Some(None)` if there must be none.
    #[serde(default, deserialize_with = "nullable")]
    pub bearer: Option<Option<String>>,
    /// Cookies; `None` for one that is not there.
    #[serde(default)]
    pub cookies: BTreeMap<String, Option<String>>,
}

/// Which subprotocol a server confirms, by its configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfirmedProtocol {
    /// The application's subprotocols that the server knows; none means any.
    pub configured: Vec<String>,
    /// The prefix of those that carry a token.
    pub token_prefix: Option<String>,
    /// The token that they carry.
    pub token: Option<String>,
    /// The part that the answer confirms.
    pub protocol: Option<String>,
}

/// How a bad request is answered.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedRequest {
    /// The HTTP status.
    pub status: u16,
    /// Why.
    pub error: String,
    /// Headers that the answer must have.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// An answer and the client's result: exactly one of the last three fields is there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResponseCase {
    /// The title of the case.
    pub name: String,
    /// The 16 bytes behind `Sec-WebSocket-Key`.
    pub key: Hex,
    /// The subprotocols that were offered.
    pub protocols: Vec<String>,
    /// Whether permessage-deflate was.
    pub offers_deflate: bool,
    /// A byte for each character; see [`latin_1`](super::latin_1).
    pub response: String,
    /// The largest head, in bytes; 16 KiB by default.
    #[serde(default = "head_bytes_max")]
    pub head_bytes_max: usize,
    /// The connection is open.
    pub accepted: Option<AcceptedResponse>,
    /// The client rejects the answer.
    pub refused: Option<RefusedResponse>,
    /// The answer is incomplete.
    #[serde(default)]
    pub incomplete: bool,
}

/// The content of a valid answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedResponse {
    /// Bytes of the head.
    pub head_bytes: usize,
    /// The subprotocol chosen.
    pub protocol: Option<String>,
    /// The name and version of the server.
    pub server: Option<String>,
    /// Whether permessage-deflate was agreed.
    #[serde(default)]
    pub deflate: bool,
}

/// Why an answer opens no connection.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedResponse {
    /// Why.
    pub error: String,
    /// The HTTP status, if that is why.
    pub status: Option<u16>,
    /// Seconds to wait.
    pub retry_after: Option<u64>,
}

fn head_bytes_max() -> usize {
    16_384
}
