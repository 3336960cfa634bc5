//! The headers of a WebSocket upgrade, in the form of the user's options.

use tidewire_wire::handshake::client::{Offer, RequestHead};

use super::OptionError;
use crate::worker::template::{Escape, Names, Template};

/// The headers of an upgrade.
pub(super) struct UpgradeHeaders {
    /// The value of `Host`, if it is not that of the URL.
    pub(super) host: Option<String>,
    /// All others, with their values.
    pub(super) others: Vec<(String, Template)>,
}

impl UpgradeHeaders {
    /// From their names and their texts, which may have these values.
    ///
    /// # Errors
    /// A wrong template, or a header that belongs to the upgrade itself.
    pub(super) fn of(given: Vec<(String, String)>, names: &Names) -> Result<Self, OptionError> {
        let (mut host, mut others) = (None, Vec::new());
        for (name, value) in given {
            let lower = name.to_ascii_lowercase();
            let is_own = lower.starts_with("sec-websocket-");
            if is_own || ["connection", "upgrade"].contains(&lower.as_str()) {
                return Err(OptionError::new(format_args!(
                    "the header `{name}` belongs to the upgrade, which sends it itself: remove it"
                )));
            }
            if lower == "host" {
                host = Some(value);
                continue;
            }
            let value = Template::of(value.as_bytes(), names, Escape::Header);
            let value = value
                .map_err(|error| OptionError::new(format_args!("the header `{name}`: {error}")))?;
            others.push((name, value));
        }
        Ok(Self { host, others })
    }

    /// Checks that a request can carry them, and its target; the values are valid in their places.
    ///
    /// # Errors
    /// It cannot.
    pub(super) fn check(&self, target: &Template) -> Result<(), OptionError> {
        let text =
            |template: &Template| String::from_utf8_lossy(&template.with_digits()).into_owned();
        let others = self.others.iter();
        let others: Vec<(&str, String)> = others
            .map(|(name, value)| (name.as_str(), text(value)))
            .collect();
        let headers: Vec<(&str, &str)> = others
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let head = RequestHead {
            host: self.host.as_deref().unwrap_or("host"),
            target: &text(target),
            offer: Offer {
                key: &[0; 16],
                protocols: &[],
                deflate: None,
            },
            headers: &headers,
        };
        head.write(&mut Vec::new()).map_err(OptionError::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_cannot_be_sent_is_named() {
        let error = |name: &str, value: &str| {
            let given = vec![(name.to_owned(), value.to_owned())];
            let headers = UpgradeHeaders::of(given, &Names::default());
            let checked = headers.and_then(|headers| headers.check(&Template::fixed(b"/")));
            checked.err().map(|error| error.to_string())
        };
        for (name, value, expected) in [
            ("Bad Name", "x", "Bad Name has characters"),
            ("X", "a\u{7f}b", "X has characters"),
            (
                "X",
                "{{none}}",
                "the header `X`: `{{none}}` stands for nothing",
            ),
            (
                "Sec-WebSocket-Key",
                "x",
                "`Sec-WebSocket-Key` belongs to the upgrade",
            ),
            ("connection", "x", "`connection` belongs to the upgrade"),
            ("Host", "a b", "host has characters"),
        ] {
            let error = error(name, value).unwrap_or_default();
            assert!(error.contains(expected), "{name} {value}: {error}");
        }
        for (name, value) in [("Host", "other:1"), ("X", "{{user}}"), ("Origin", "null")] {
            assert_eq!(error(name, value), None, "{name}");
        }
    }
}
