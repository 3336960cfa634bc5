//! `http-responses.json` and `http-requests.json`.

use serde::Deserialize;

/// The bytes that a client receives and what it reads from them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResponseCase {
    /// The title of the case.
    pub name: String,
    /// The effect of each request on the form of its response.
    #[serde(default = "one_ordinary")]
    pub expected: Vec<Expected>,
    /// The largest head, in bytes.
    #[serde(default = "response_head_bytes_max")]
    pub head_bytes_max: usize,
    /// The largest trailers, in bytes.
    #[serde(default = "response_trailer_bytes_max")]
    pub trailer_bytes_max: usize,
    /// The most interim responses.
    #[serde(default = "interim_max")]
    pub interim_max: u32,
    /// A byte for each character; see [`latin_1`](super::latin_1).
    pub bytes: String,
    /// How the connection ends after them.
    pub end: Option<End>,
    /// The whole responses.
    pub responses: Vec<Response>,
    /// Bytes after the last response that was due.
    #[serde(default)]
    pub unread: usize,
    /// A response is due and still incomplete.
    #[serde(default)]
    pub incomplete: bool,
    /// The name of the rule that is broken.
    pub error: Option<String>,
}

/// The effect of a request's method on the form of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// Nothing.
    Ordinary,
    /// There is no body.
    Head,
    /// 2xx makes a tunnel.
    Connect,
    /// 101 makes a tunnel.
    Upgrade,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// In order.
    Clean,
    /// By a reset, or without the end that TLS wants.
    Cut,
}

/// A whole response.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Response {
    /// The interim responses before it.
    #[serde(default)]
    pub interims: Vec<u16>,
    /// Its status.
    pub status: u16,
    /// How its end is found.
    pub framing: String,
    /// Its body, a byte for each character.
    pub body: String,
    /// Whether another request may follow.
    pub keeps_alive: bool,
    /// Whether the bytes after it are not HTTP.
    #[serde(default)]
    pub tunnel: bool,
    /// Whether programs could disagree about its end.
    #[serde(default)]
    pub suspect: bool,
}

/// The bytes that a server receives and what it reads from them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestCase {
    /// The title of the case.
    pub name: String,
    /// The largest head, in bytes.
    #[serde(default = "request_head_bytes_max")]
    pub head_bytes_max: usize,
    /// The longest request line, in bytes.
    #[serde(default = "request_line_bytes_max")]
    pub request_line_bytes_max: usize,
    /// The largest body, in bytes.
    #[serde(default = "body_bytes_max")]
    pub body_bytes_max: u64,
    /// The largest trailers, in bytes.
    #[serde(default = "request_trailer_bytes_max")]
    pub trailer_bytes_max: usize,
    /// A byte for each character; see [`latin_1`](super::latin_1).
    pub bytes: String,
    /// Whether the client ends its side after them.
    #[serde(default)]
    pub end: bool,
    /// The whole requests.
    pub requests: Vec<Request>,
    /// The next request is incomplete.
    #[serde(default)]
    pub incomplete: bool,
    /// The rule that is broken.
    pub error: Option<Refused>,
}

/// A whole request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Its method.
    pub method: String,
    /// Its target.
    pub target: String,
    /// The path of the target.
    pub path: Option<String>,
    /// How its end is found.
    pub framing: String,
    /// Its body, a byte for each character.
    pub body: String,
    /// Whether another request may follow.
    pub keeps_alive: bool,
    /// Whether the client waits for `100 Continue`.
    #[serde(default)]
    pub expects_continue: bool,
}

/// How a bad request is answered.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// The name of the rule.
    pub name: String,
    /// The status of the answer.
    pub status: u16,
}

fn one_ordinary() -> Vec<Expected> {
    vec![Expected::Ordinary]
}

fn response_head_bytes_max() -> usize {
    65_535
}

fn response_trailer_bytes_max() -> usize {
    16_384
}

fn interim_max() -> u32 {
    100
}

fn request_head_bytes_max() -> usize {
    16_384
}

fn request_line_bytes_max() -> usize {
    8192
}

fn request_trailer_bytes_max() -> usize {
    4096
}

fn body_bytes_max() -> u64 {
    1 << 20
}
