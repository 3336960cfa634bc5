//! The broker that several servers share: where it is, and how they use it.

use std::path::PathBuf;

/// The broker that this server shares topics over with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerConfig {
    /// Where it is.
    pub address: BrokerAddress,
    /// Certificates of authorities, PEM, for an address with TLS; `None` for those of the web.
    pub authorities: Option<PathBuf>,
    /// What all of its keys and channels begin with. Servers with another prefix are another
    /// cluster. Default `tw`.
    pub prefix: String,
    /// Positions of topics outlive a restart of the broker. Only true of a broker that always has
    /// the same data and writes each change to the disk before it answers. Default `false`.
    pub is_durable: bool,
    /// How long what needs the broker waits while the broker does not answer, in milliseconds.
    /// Default 5,000.
    pub wait_ms: u64,
}

impl BrokerConfig {
    /// The defaults for a broker at this address.
    #[must_use]
    pub fn new(address: BrokerAddress) -> Self {
        Self {
            address,
            authorities: None,
            prefix: "tw".to_owned(),
            is_durable: false,
            wait_ms: 5_000,
        }
    }
}

/// Where a broker is and how it is entered.
#[derive(Clone, PartialEq, Eq)]
pub struct BrokerAddress {
    pub(crate) place: Place,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp {
        host: String,
        port: u16,
        is_tls: bool,
    },
    Unix(PathBuf),
}

/// Why a text is no URL of a broker. The caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; a broker is redis://[user:password@]host[:6379][/database], rediss:// for TLS, or unix:///path?db=0"
)]
pub struct InvalidBrokerUrl(String);

impl BrokerAddress {
    /// Whether its connections are encrypted.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.place, Place::Tcp { is_tls: true, .. })
    }

    /// Reads `redis://`, `rediss://` (TLS) or `unix://`. User, password and path may be
    /// percent-encoded.
    ///
    /// # Errors
    /// [`InvalidBrokerUrl`].
    pub fn parse(text: &str) -> Result<Self, InvalidBrokerUrl> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| wrong("the scheme is missing"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        match scheme {
            "redis" | "rediss" => Self::tcp(rest, scheme == "rediss"),
            "unix" => {
                let path = decoded(rest)?;
                if !path.starts_with('/') {
                    return Err(wrong("a path is missing"));
                }
                let database = query.split('&').find_map(|pair| pair.strip_prefix("db="));
                Ok(Self {
                    place: Place::Unix(path.into()),
                    user: None,
                    password: None,
                    database: number(database.unwrap_or_default())?,
                })
            }
            other => Err(InvalidBrokerUrl(format!("there is no broker {other}://"))),
        }
    }

    /// What is behind the scheme: `[user:password@]host[:port][/database]`.
    fn tcp(rest: &str, is_tls: bool) -> Result<Self, InvalidBrokerUrl> {
        let (rest, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        // The colons of an IPv6 address are in brackets.
        let (host, port) = match place
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
        {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        if host.is_empty() {
            return Err(wrong("a host is missing"));
        }
        let port = port.map_or(Ok(PORT), str::parse);
        let some = |text: &str| Ok(Some(decoded(text)?).filter(|text| !text.is_empty()));
        Ok(Self {
            place: Place::Tcp {
                host: host.to_owned(),
                port: port.map_err(|_| wrong("the port is a number from 0 to 65535"))?,
                is_tls,
            },
            user: some(user)?,
            password: some(password)?,
            database: number(database)?,
        })
    }
}

fn wrong(words: &str) -> InvalidBrokerUrl {
    InvalidBrokerUrl(words.to_owned())
}

/// The number of a database; 0 if there is none.
fn number(text: &str) -> Result<u32, InvalidBrokerUrl> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| wrong("the database is a number"))
}

/// The text without percent-encoding.
fn decoded(text: &str) -> Result<String, InvalidBrokerUrl> {
    let bytes = percent_encoding::percent_decode_str(text);
    let text = bytes.decode_utf8();
    Ok(text.map_err(|_| wrong("it is not UTF-8"))?.into_owned())
}

/// What may be shown: everything but the password.
impl std::fmt::Display for BrokerAddress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            Place::Tcp { host, port, is_tls } => {
                let scheme = if *is_tls { "rediss" } else { "redis" };
                write!(formatter, "{scheme}://{host}:{port}")
            }
            Place::Unix(path) => write!(formatter, "unix://{}", path.display()),
        }
    }
}

impl std::fmt::Debug for BrokerAddress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "BrokerAddress({self})")
    }
}

/// Where a broker listens unless its URL says otherwise.
const PORT: u16 = 6379;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let plain = BrokerAddress::parse("redis://127.0.0.1").expect("a URL");
        assert_eq!(plain.to_string(), "redis://127.0.0.1:6379");
        assert_eq!((plain.database, &plain.user), (0, &None));
        let whole = BrokerAddress::parse("rediss://ada:p%40ss@[::1]:7000/3").expect("a URL");
        assert_eq!(whole.to_string(), "rediss://::1:7000");
        assert_eq!(whole.user.as_deref(), Some("ada"));
        assert_eq!(whole.password.as_deref(), Some("p@ss"));
        assert_eq!(whole.database, 3);
        let unix = BrokerAddress::parse("unix:///run/redis.sock?db=2").expect("a URL");
        assert_eq!(
            (unix.to_string().as_str(), unix.database),
            ("unix:///run/redis.sock", 2)
        );
        assert!(!format!("{whole:?}").contains("p@ss"));
    }

    #[test]
    fn what_is_no_url_says_what_a_url_is() {
        for (text, words) in [
            ("127.0.0.1:6379", "redis://"),
            ("nats://a", "there is no broker nats://"),
            ("redis://a/b", "the database is a number"),
            ("unix://", "a path is missing"),
        ] {
            let error = BrokerAddress::parse(text).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
