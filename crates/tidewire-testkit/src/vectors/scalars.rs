//! `scalars.json`.

use super::Hex;
use serde::Deserialize;

/// A time or an id, and its value.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Case {
    /// RFC 3339.
    Time {
        /// The title of the case.
        name: String,
        /// The text.
        timestamp: String,
        /// Milliseconds since 1970; `None` if the text is no time.
        unix_ms: Option<u64>,
        /// Whether a writer writes it like this.
        #[serde(default)]
        written: bool,
    },
    /// A UUID.
    Id {
        /// The title of the case.
        name: String,
        /// The text.
        uuid: String,
        /// The 16 bytes; `None` if the text is no id.
        bytes: Option<Hex>,
        /// The time in it, in milliseconds since 1970.
        unix_ms: Option<u64>,
        /// The random bytes from which, with the time, it is made.
        random: Option<Hex>,
    },
}
