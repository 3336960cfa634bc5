//! Parameters of permessage-deflate, agreed on in the opening handshake (RFC 7692, section 7.1).

use super::{WINDOW_BITS_MAX, WINDOW_BITS_MIN};
use std::fmt::Write as _;

/// How the two sides of a connection compress, or how one side would like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeflateParameters {
    /// The server's messages do not refer to those before them.
    pub server_no_context_takeover: bool,
    /// The client's messages do not refer to those before them.
    pub client_no_context_takeover: bool,
    /// Log 2 of how far back the server's references reach, in bytes: 9 to 15; 15 by default.
    pub server_max_window_bits: u8,
    /// The same of the client's: 8 to 15; 15 by default.
    pub client_max_window_bits: u8,
}

/// The answer of a server to the offers of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The parameters of the connection.
    pub parameters: DeflateParameters,
    /// The value of `Sec-WebSocket-Extensions` for it.
    pub header_value: String,
}

/// The reason why a client rejects the server's answer to its offer. The server's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeflateError {
    /// Another extension, or this one twice.
    #[error("an extension that was not offered")]
    NotOffered,
    /// A parameter that RFC 7692 does not have, twice the same, or a value that it does not allow.
    #[error("a parameter of permessage-deflate is not valid")]
    InvalidParameter,
    /// Less than the offer asked for, or a window that this side cannot compress with.
    #[error("permessage-deflate was not agreed to as it was offered")]
    NotAsOffered,
}

impl Default for DeflateParameters {
    fn default() -> Self {
        Self {
            server_no_context_takeover: false,
            client_no_context_takeover: false,
            server_max_window_bits: WINDOW_BITS_MAX,
            client_max_window_bits: WINDOW_BITS_MAX,
        }
    }
}

impl DeflateParameters {
    /// The server's side: accepts the first of the client's offers that it can keep to, and narrows it to
    /// `wanted`. `extensions` are the values of all `Sec-WebSocket-Extensions` headers; other extensions in
    /// them are ignored.
    #[must_use]
    pub fn accept<'a>(
        wanted: Self,
        extensions: impl IntoIterator<Item = &'a str>,
    ) -> Option<Accepted> {
        extensions
            .into_iter()
            .flat_map(|value| split_outside_quotes(value, ','))
            .filter_map(|offer| Offered::parse(offer).ok())
            .find_map(|offer| offer.narrow(wanted))
    }

    /// The client's side: the value of `Sec-WebSocket-Extensions` that offers these parameters.
    #[must_use]
    pub fn offer(&self) -> String {
        let mut value = EXTENSION_NAME.to_owned();
        self.write_flags(&mut value);
        if self.server_max_window_bits < WINDOW_BITS_MAX {
            write_bits(&mut value, SERVER_BITS, self.server_max_window_bits);
        }
        if self.client_max_window_bits < WINDOW_BITS_MAX {
            write_bits(&mut value, CLIENT_BITS, self.client_max_window_bits);
        } else {
            value.push_str("; ");
            value.push_str(CLIENT_BITS);
        }
        value
    }

    /// The client's side: what holds after the server's answer `value` to the offer of `self`.
    ///
    /// # Errors
    /// [`DeflateError`]; the connection has to be failed.
    pub fn parse_response(&self, value: &str) -> Result<Self, DeflateError> {
        let answer = Offered::parse(value)?;
        let server_bits = answer.server_bits.unwrap_or(WINDOW_BITS_MAX);
        let client_bits = match answer.client_bits {
            None => self.client_max_window_bits,
            Some(bits) => bits.ok_or(DeflateError::InvalidParameter)?,
        };
        let is_as_offered = server_bits <= self.server_max_window_bits
            && (WINDOW_BITS_MIN..=self.client_max_window_bits).contains(&client_bits)
            && (answer.server_no_context || !self.server_no_context_takeover);
        if !is_as_offered {
            return Err(DeflateError::NotAsOffered);
        }
        Ok(Self {
            server_no_context_takeover: answer.server_no_context,
            client_no_context_takeover: answer.client_no_context || self.client_no_context_takeover,
            server_max_window_bits: server_bits,
            client_max_window_bits: client_bits,
        })
    }

    fn write_flags(&self, value: &mut String) {
        if self.server_no_context_takeover {
            value.push_str("; ");
            value.push_str(SERVER_NO_CONTEXT);
        }
        if self.client_no_context_takeover {
            value.push_str("; ");
            value.push_str(CLIENT_NO_CONTEXT);
        }
    }
}

/// One extension of a list, which is a permessage-deflate with valid parameters.
#[derive(Debug, Default)]
struct Offered {
    server_no_context: bool,
    client_no_context: bool,
    server_bits: Option<u8>,
    /// `Some(None)` without a value, as only an offer may have it.
    client_bits: Option<Option<u8>>,
}

impl Offered {
    fn parse(extension: &str) -> Result<Self, DeflateError> {
        let mut parts = split_outside_quotes(extension, ';');
        if !parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(EXTENSION_NAME))
        {
            return Err(DeflateError::NotOffered);
        }
        let mut offered = Self::default();
        for parameter in parts {
            let (name, value) = match parameter.split_once('=') {
                Some((name, value)) => (name.trim_end(), Some(unquote(value.trim_start()))),
                None => (parameter, None),
            };
            offered
                .take(name, value)
                .ok_or(DeflateError::InvalidParameter)?;
        }
        Ok(offered)
    }

    /// Reads one parameter; `None` if it is unknown or repeated, or its value is not allowed.
    fn take(&mut self, name: &str, value: Option<&str>) -> Option<()> {
        let once =
            |flag: &mut bool| (value.is_none() && !std::mem::replace(flag, true)).then_some(());
        match name {
            SERVER_NO_CONTEXT => once(&mut self.server_no_context),
            CLIENT_NO_CONTEXT => once(&mut self.client_no_context),
            SERVER_BITS if self.server_bits.is_none() => {
                self.server_bits = Some(window_bits(value?)?);
                Some(())
            }
            CLIENT_BITS if self.client_bits.is_none() => {
                let bits = match value {
                    None => None,
                    Some(value) => Some(window_bits(value)?),
                };
                self.client_bits = Some(bits);
                Some(())
            }
            _ => None,
        }
    }

    /// The parameters if this offer is accepted; `None` if its window is too small to compress with.
    fn narrow(&self, wanted: DeflateParameters) -> Option<Accepted> {
        let server_bits = self
            .server_bits
            .unwrap_or(WINDOW_BITS_MAX)
            .min(wanted.server_max_window_bits);
        if server_bits < WINDOW_BITS_MIN {
            return None;
        }
        // A server may demand a smaller window only from a client that names its window.
        let client_bits = match self.client_bits {
            None => WINDOW_BITS_MAX,
            Some(bits) => bits
                .unwrap_or(WINDOW_BITS_MAX)
                .min(wanted.client_max_window_bits),
        };
        let parameters = DeflateParameters {
            server_no_context_takeover: self.server_no_context || wanted.server_no_context_takeover,
            client_no_context_takeover: self.client_no_context || wanted.client_no_context_takeover,
            server_max_window_bits: server_bits,
            client_max_window_bits: client_bits,
        };
        let mut header_value = EXTENSION_NAME.to_owned();
        parameters.write_flags(&mut header_value);
        if self.server_bits.is_some() || server_bits < WINDOW_BITS_MAX {
            write_bits(&mut header_value, SERVER_BITS, server_bits);
        }
        if client_bits < WINDOW_BITS_MAX {
            write_bits(&mut header_value, CLIENT_BITS, client_bits);
        }
        Some(Accepted {
            parameters,
            header_value,
        })
    }
}

/// 8 to 15, in decimal without a zero in front (RFC 7692, section 7.1.2).
fn window_bits(value: &str) -> Option<u8> {
    let bits = match value.as_bytes() {
        [digit @ b'8'..=b'9'] => digit - b'0',
        [b'1', digit @ b'0'..=b'5'] => 10 + digit - b'0',
        _ => return None,
    };
    Some(bits)
}

fn unquote(value: &str) -> &str {
    value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'))
        .unwrap_or(value)
}

fn write_bits(value: &mut String, name: &str, bits: u8) {
    let _ = write!(value, "; {name}={bits}");
}

/// The trimmed parts of a list or of one of its elements. A separator inside a quoted string separates nothing.
fn split_outside_quotes(value: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    value
        .split(move |character| {
            is_quoted ^= character == '"';
            character == separator && !is_quoted
        })
        .map(crate::header::trim)
}

/// The name of the extension in `Sec-WebSocket-Extensions`.
pub const EXTENSION_NAME: &str = "permessage-deflate";

const SERVER_NO_CONTEXT: &str = "server_no_context_takeover";
const CLIENT_NO_CONTEXT: &str = "client_no_context_takeover";
const SERVER_BITS: &str = "server_max_window_bits";
const CLIENT_BITS: &str = "client_max_window_bits";

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(wanted: DeflateParameters, offers: &str) -> Option<String> {
        DeflateParameters::accept(wanted, [offers]).map(|accepted| accepted.header_value)
    }

    fn shared() -> DeflateParameters {
        DeflateParameters {
            server_no_context_takeover: true,
            client_no_context_takeover: true,
            ..DeflateParameters::default()
        }
    }

    #[test]
    fn offers_and_what_they_lead_to() {
        let any = DeflateParameters::default();
        let small = DeflateParameters {
            server_max_window_bits: 10,
            client_max_window_bits: 9,
            ..any
        };
        let no_context = "; server_no_context_takeover; client_no_context_takeover";
        let cases = [
            (any, "", ""),
            (any, "; client_max_window_bits", ""),
            (
                any,
                "; server_max_window_bits=15",
                "; server_max_window_bits=15",
            ),
            (
                any,
                "; server_max_window_bits=\"9\"",
                "; server_max_window_bits=9",
            ),
            (any, "; server_max_window_bits=8, permessage-deflate", ""),
            (
                any,
                "; client_max_window_bits=8",
                "; client_max_window_bits=8",
            ),
            (any, no_context, no_context),
            (shared(), "", no_context),
            (small, "", "; server_max_window_bits=10"),
            (
                small,
                "; client_max_window_bits",
                "; server_max_window_bits=10; client_max_window_bits=9",
            ),
        ];
        for (wanted, parameters, answer) in cases {
            let offers = format!("x-other; a=\"b,c;d\", Permessage-Deflate{parameters}");
            let answer = format!("permessage-deflate{answer}");
            assert_eq!(accept(wanted, &offers), Some(answer), "{offers}");
        }
    }

    #[test]
    fn offers_that_are_declined() {
        for parameters in [
            "; server_max_window_bits=8",
            "; server_max_window_bits=16",
            "; server_max_window_bits=010",
            "; server_max_window_bits",
            "; server_no_context_takeover=1",
            "; server_no_context_takeover; server_no_context_takeover",
            "; client_max_window_bits; client_max_window_bits=9",
            "; unknown",
            ";",
            "d",
        ] {
            let offer = format!("permessage-deflate{parameters}");
            assert_eq!(
                accept(DeflateParameters::default(), &offer),
                None,
                "{offer}"
            );
        }
        assert_eq!(accept(DeflateParameters::default(), ""), None);
    }

    #[test]
    fn a_client_understands_what_a_server_answers() {
        for offered in [DeflateParameters::default(), shared()] {
            for wanted in [DeflateParameters::default(), shared()] {
                let accepted = DeflateParameters::accept(wanted, [offered.offer().as_str()]);
                let accepted = accepted.expect("the offer is acceptable");
                let understood = offered.parse_response(&accepted.header_value);
                assert_eq!(understood, Ok(accepted.parameters));
            }
        }
    }

    #[test]
    fn answers_that_break_the_offer() {
        let offered = DeflateParameters {
            server_max_window_bits: 12,
            ..shared()
        };
        let good = "permessage-deflate; server_no_context_takeover; server_max_window_bits=11";
        assert_eq!(
            offered.parse_response(good),
            Ok(DeflateParameters {
                server_max_window_bits: 11,
                ..shared()
            })
        );
        for (answer, error) in [
            (
                "permessage-deflate; server_max_window_bits=11",
                DeflateError::NotAsOffered,
            ),
            (
                "permessage-deflate; server_no_context_takeover",
                DeflateError::NotAsOffered,
            ),
            (
                "permessage-deflate; server_no_context_takeover; server_max_window_bits=13",
                DeflateError::NotAsOffered,
            ),
            (
                "permessage-deflate; server_no_context_takeover; server_max_window_bits=9; client_max_window_bits=8",
                DeflateError::NotAsOffered,
            ),
            (
                "permessage-deflate; server_no_context_takeover; server_max_window_bits=9; client_max_window_bits",
                DeflateError::InvalidParameter,
            ),
            (
                "permessage-deflate; server_max_window_bits=7",
                DeflateError::InvalidParameter,
            ),
            ("permessage-deflate; x", DeflateError::InvalidParameter),
            (
                "permessage-deflate, permessage-deflate",
                DeflateError::NotOffered,
            ),
            ("x-other", DeflateError::NotOffered),
        ] {
            assert_eq!(offered.parse_response(answer), Err(error), "{answer}");
        }
    }
}
