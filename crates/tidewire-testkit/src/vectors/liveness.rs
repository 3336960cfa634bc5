//! `liveness.json`.

use super::Hex;
use super::frames::Side;
use serde::Deserialize;

/// A connection on which time passes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The title of the case.
    pub name: String,
    /// Which side is looked at.
    pub side: Side,
    /// Time between two pings.
    pub ping_interval_ms: u64,
    /// Silence after which the connection ends.
    pub idle_timeout_ms: u64,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// The events at one time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// When, since the opening.
    pub at_ms: u64,
    /// The messages from the other side.
    #[serde(default)]
    pub receive: Hex,
    /// The messages that are sent then.
    #[serde(default)]
    pub send: Vec<Sent>,
}

/// Something that is sent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sent {
    /// A system message of this type.
    Message(String),
    /// This frame.
    Frame(Hex),
    /// A close frame with this code.
    Close(u16),
}
