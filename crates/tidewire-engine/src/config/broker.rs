//! The broker that several servers share: where it is, and how they use it.

use std::path::PathBuf;
use url::Url;

/// The broker that this server shares topics over with others.
#[derive(Debug, Clone)]
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
        let wrong = |words: &str| InvalidBrokerUrl(words.to_owned());
        let url = Url::parse(text).map_err(|error| InvalidBrokerUrl(error.to_string()))?;
        let place = match url.scheme() {
            "redis" | "rediss" => Place::Tcp {
                host: host(&url).ok_or_else(|| wrong("a host is missing"))?,
                port: url.port().unwrap_or(PORT),
                is_tls: url.scheme() == "rediss",
            },
            "unix" => Place::Unix(
                decoded(url.path())
                    .filter(|path| path.len() > 1)
                    .ok_or_else(|| wrong("a path is missing"))?
                    .into(),
            ),
            other => return Err(InvalidBrokerUrl(format!("there is no broker {other}://"))),
        };
        let database = match &place {
            Place::Tcp { .. } => url.path().trim_start_matches('/').to_owned(),
            Place::Unix(_) => {
                let mut pairs = url.query_pairs();
                let pair = pairs.find(|(name, _)| name == "db");
                pair.map(|(_, number)| number.into_owned())
                    .unwrap_or_default()
            }
        };
        let database = match database.as_str() {
            "" => 0,
            number => number
                .parse()
                .map_err(|_| wrong("the database is a number"))?,
        };
        let text = |text: &str| {
            let text = decoded(text).ok_or_else(|| wrong("the user or password is not UTF-8"))?;
            Ok(Some(text).filter(|text| !text.is_empty()))
        };
        Ok(Self {
            place,
            user: text(url.username())?,
            password: text(url.password().unwrap_or_default())?,
            database,
        })
    }
}

fn host(url: &Url) -> Option<String> {
    let host = url.host_str().filter(|host| !host.is_empty())?;
    // An IPv6 address has brackets in a URL.
    Some(host.trim_matches(['[', ']']).to_owned())
}

/// The text without percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let bytes = percent_encoding::percent_decode_str(text);
    bytes.decode_utf8().ok().map(std::borrow::Cow::into_owned)
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
