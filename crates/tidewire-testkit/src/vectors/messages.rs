//! `envelopes.json`, `malformed.json` and `limits.json`.

use super::frames::Side;
use super::{Hex, nullable};
use serde::Deserialize;
use serde_json::Value;

/// A message in some forms and what both sides make of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The title of the case.
    pub name: String,
    /// The forms, each in a frame of its own.
    pub frames: Vec<Form>,
    /// The category of the message.
    pub kind: Kind,
    /// The system type, as this project writes it.
    #[serde(rename = "type")]
    pub system_type: Option<String>,
    /// The fields that are there; `Some(None)` if a whole reading is refused.
    #[serde(default, deserialize_with = "nullable")]
    pub envelope: Option<Option<Envelope>>,
    /// The error code for the sender.
    pub code: Option<String>,
    /// Why it is refused.
    pub reason: Option<String>,
    /// The side that refuses it; both sides by default.
    #[serde(default = "both")]
    pub by: Vec<Side>,
    /// The most that it may inflate to, in bytes; 1 MiB by default.
    #[serde(default = "inflated_bytes_max")]
    pub inflated_bytes_max: usize,
}

/// The payload of a frame.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Of a text frame.
    Text(String),
    /// Of a binary frame.
    Binary(Hex),
}

/// The category of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The application's.
    Application,
    /// The protocol's.
    System,
    /// Nobody's.
    Refused,
}

/// The fields of an envelope, by their names on the wire.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the protocol document says what each field is")]
pub struct Envelope {
    pub t: String,
    pub c: Option<String>,
    pub id: Option<String>,
    pub ts: Option<String>,
    pub seq: Option<u64>,
    #[serde(default)]
    pub p: Value,
    pub v: Option<u64>,
    pub pri: Option<u64>,
    pub cid: Option<String>,
    pub sig: Option<String>,
    pub tp: Option<String>,
    pub e: Option<String>,
    pub o: Option<u64>,
    pub d: Option<u64>,
    pub rd: Option<bool>,
    pub n: Option<u64>,
    pub b: Option<bool>,
}

fn both() -> Vec<Side> {
    vec![Side::Server, Side::Client]
}

fn inflated_bytes_max() -> usize {
    1024 * 1024
}
