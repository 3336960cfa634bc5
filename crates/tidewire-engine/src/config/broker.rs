//! The broker that several servers share: where it is, and how they use it.

use std::path::PathBuf;
use tidewire_redis::Partition;

/// The broker that this server shares topics over with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerConfig {
    /// Where it is: one address, or those of several independent servers, which share the partitions. They have the
    /// same order at all servers of a cluster. At least one.
    pub addresses: Vec<BrokerAddress>,
    /// Into how many parts the topics are divided, each with keys of its own, at most 64; at least one for each address. The
    /// same at all servers of a cluster. Default 1.
    pub partitions: u16,
    /// Certificates of authorities, PEM, for an address with TLS; `None` for those of the web.
    pub authorities: Option<PathBuf>,
    /// The certificate chain and its key, PEM, that this server shows to an address with TLS.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The user, in place of one in the address.
    pub username: Option<String>,
    /// Where the password is, in place of one in the address.
    pub password: Option<PasswordSource>,
    /// The prefix of all of its keys and channels. Servers with another prefix are another
    /// cluster. Default `tw`.
    pub prefix: String,
    /// Positions of topics outlive a restart of the broker. Only true of a broker that always has
    /// the same data and writes each change to the disk before it answers. Default `false`.
    pub is_durable: bool,
    /// How long what needs the broker waits while the broker does not answer, in milliseconds.
    /// Default 5,000.
    pub wait_ms: u64,
    /// How long the broker may be away until this server ends its sessions, once in an outage, so that their clients go to
    /// servers that reach it, in milliseconds. Default `None`: sessions stay.
    pub lost_close_ms: Option<u64>,
}

impl BrokerConfig {
    /// The defaults for a broker at this address.
    #[must_use]
    pub fn new(address: BrokerAddress) -> Self {
        Self {
            addresses: vec![address],
            partitions: 1,
            authorities: None,
            certificate: None,
            username: None,
            password: None,
            prefix: "tw".to_owned(),
            is_durable: false,
            wait_ms: 5_000,
            lost_close_ms: None,
        }
    }

    /// Whether the addresses and the number of partitions fit together.
    ///
    /// # Errors
    /// What is wrong with them. The caller's fault.
    pub fn check(&self) -> Result<(), &'static str> {
        let addresses = &self.addresses;
        if addresses.is_empty() {
            return Err("no broker is named");
        }
        if addresses.len() > usize::from(self.partitions.min(Partition::COUNT_MAX)) {
            return Err("each broker of the list needs a partition: there are fewer partitions");
        }
        if addresses.len() > 1 && addresses.iter().any(BrokerAddress::is_cluster) {
            return Err(
                "a Redis Cluster spreads its keys itself: give one address and broker_partitions",
            );
        }
        let is_twice = |(index, address): (usize, &BrokerAddress)| {
            let mut before = addresses[..index].iter();
            before.any(|other| other.is_same_place(address))
        };
        match addresses.iter().enumerate().any(is_twice) {
            true => Err("a broker is in the list twice"),
            false => Ok(()),
        }
    }

    /// How many partitions there are.
    pub(crate) fn partitions(&self) -> u16 {
        let addresses = u16::try_from(self.addresses.len()).unwrap_or(u16::MAX);
        self.partitions
            .max(addresses)
            .clamp(1, Partition::COUNT_MAX)
    }

    /// Where a partition is: the addresses take turns.
    pub(crate) fn address_of(&self, partition: Partition) -> &BrokerAddress {
        &self.addresses[usize::from(partition.index()) % self.addresses.len()]
    }

    /// The names of several independent servers; none for one.
    pub(crate) fn servers(&self) -> Vec<String> {
        match &*self.addresses {
            [_] => Vec::new(),
            several => several
                .iter()
                .map(BrokerAddress::place_and_database)
                .collect(),
        }
    }
}

/// The source of the password of a broker. It is read before each connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PasswordSource {
    /// The first line of a file.
    File(PathBuf),
    /// The first line that a command prints: the program and its arguments, divided by spaces. It has 10 s.
    Command(String),
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
    /// Sentinels, which know the master of this name.
    Sentinel {
        sentinels: Vec<(String, u16)>,
        name: String,
        /// Of the sentinels; the address has that of the master.
        password: Option<String>,
        is_tls: bool,
    },
    /// Nodes of a Redis Cluster, which know the master of a slot.
    Cluster {
        nodes: Vec<(String, u16)>,
        is_tls: bool,
    },
}

/// Why a text is no URL of a broker. The caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; a broker is redis://[user:password@]host[:6379][/database], rediss:// for TLS, valkey:// or valkeys://, \
     unix:///path?db=0, \
     redis+sentinel://[user:password@]host[:26379],host.../name[/database], \
     or redis+cluster://[user:password@]host[:6379],host..."
)]
pub struct InvalidBrokerUrl(String);

impl BrokerAddress {
    /// Whether its connections are encrypted.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(
            self.place,
            Place::Tcp { is_tls: true, .. }
                | Place::Sentinel { is_tls: true, .. }
                | Place::Cluster { is_tls: true, .. }
        )
    }

    /// True if another process, which may lack the newest writes, can replace it.
    pub(crate) fn fails_over(&self) -> bool {
        matches!(self.place, Place::Sentinel { .. } | Place::Cluster { .. })
    }

    /// Whether the URL has a user or a password.
    pub(crate) fn has_login(&self) -> bool {
        self.user.is_some() || self.password.is_some()
    }

    /// Reads one address, or several that are separated by commas.
    ///
    /// # Errors
    /// [`InvalidBrokerUrl`].
    pub fn parse_list(text: &str) -> Result<Vec<Self>, InvalidBrokerUrl> {
        // A URL may have commas of its own: between the nodes of a cluster or the sentinels.
        let mut urls: Vec<String> = Vec::new();
        for part in text.split(',') {
            match urls.last_mut().filter(|_| !part.contains("://")) {
                Some(url) => *url += &format!(",{part}"),
                None => urls.push(part.trim().to_owned()),
            }
        }
        urls.iter().map(|url| Self::parse(url)).collect()
    }

    /// Its place, as one of several servers.
    pub(crate) fn place_and_database(&self) -> String {
        format!("{self}/{}", self.database)
    }

    /// Whether both name the same database of the same server.
    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        (&self.place, self.database) == (&other.place, other.database)
    }

    /// Whether it is a Redis Cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.place, Place::Cluster { .. })
    }

    /// Reads `redis://`, `rediss://` (TLS), the same with `valkey`, `unix://`, `redis+sentinel://`, whose
    /// sentinels know the address of the master, or `redis+cluster://` with nodes of a cluster;
    /// `rediss+sentinel://` and `rediss+cluster://` use TLS. User, password and path may be percent-encoded.
    ///
    /// # Errors
    /// [`InvalidBrokerUrl`].
    pub fn parse(text: &str) -> Result<Self, InvalidBrokerUrl> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| wrong("the scheme is missing"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let scheme = scheme.replacen("valkey", "redis", 1);
        match scheme.as_str() {
            "redis" | "rediss" => {
                let database = parameter(query, &["db"])?;
                Self::tcp(rest, scheme == "rediss", database)
            }
            "redis+sentinel" | "rediss+sentinel" => {
                Self::sentinel(rest, query, scheme == "rediss+sentinel")
            }
            "redis+cluster" | "rediss+cluster" => {
                parameter(query, &[])?;
                Self::cluster(rest, scheme == "rediss+cluster")
            }
            "unix" => {
                let path = decoded(rest)?;
                if !path.starts_with('/') {
                    return Err(wrong("a path is missing"));
                }
                let database = parameter(query, &["db"])?;
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

    /// The part after the scheme: `[user:password@]host[:port][/database]`; `db` is the one behind `?`.
    fn tcp(rest: &str, is_tls: bool, db: Option<&str>) -> Result<Self, InvalidBrokerUrl> {
        let (rest, database) = rest.split_once('/').unwrap_or((rest, ""));
        if db.is_some() && !database.is_empty() {
            return Err(wrong("the database is given twice"));
        }
        let database = db.unwrap_or(database);
        let (user, password, place) = login(rest)?;
        let (host, port) = host_and_port(place, PORT)?;
        Ok(Self {
            place: Place::Tcp { host, port, is_tls },
            user,
            password,
            database: number(database)?,
        })
    }

    /// The part after the scheme: `[user:password@]host[:port],host[:port].../name[/database]`, and the part
    /// after `?`: `sentinel_password=...`.
    fn sentinel(rest: &str, query: &str, is_tls: bool) -> Result<Self, InvalidBrokerUrl> {
        let missing = "the name of the master is missing behind the sentinels, such as /mymaster";
        let (rest, name) = rest.split_once('/').ok_or_else(|| wrong(missing))?;
        let (name, database) = name.split_once('/').unwrap_or((name, ""));
        if name.is_empty() {
            return Err(wrong(missing));
        }
        let (user, password, places) = login(rest)?;
        let sentinels = hosts_and_ports(places, SENTINEL_PORT)?;
        let of_sentinels = parameter(query, &["sentinel_password"])?;
        Ok(Self {
            place: Place::Sentinel {
                sentinels,
                name: decoded(name)?,
                password: of_sentinels.map(decoded).transpose()?,
                is_tls,
            },
            user,
            password,
            database: number(database)?,
        })
    }

    /// The part after the scheme: `[user:password@]host[:port],host[:port]...`.
    fn cluster(rest: &str, is_tls: bool) -> Result<Self, InvalidBrokerUrl> {
        let (rest, database) = rest.split_once('/').unwrap_or((rest, ""));
        if number(database)? != 0 {
            return Err(wrong("a cluster has no databases"));
        }
        let (user, password, places) = login(rest)?;
        let nodes = hosts_and_ports(places, PORT)?;
        Ok(Self {
            place: Place::Cluster { nodes, is_tls },
            user,
            password,
            database: 0,
        })
    }
}

/// User and password, and the text after them.
type Login<'a> = (Option<String>, Option<String>, &'a str);

/// Splits `[user:password@]place`.
fn login(text: &str) -> Result<Login<'_>, InvalidBrokerUrl> {
    let (login, place) = text.rsplit_once('@').unwrap_or(("", text));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let some = |text: &str| Ok(Some(decoded(text)?).filter(|text| !text.is_empty()));
    Ok((some(user)?, some(password)?, place))
}

/// Splits `host[:port],host[:port]...`.
fn hosts_and_ports(places: &str, default: u16) -> Result<Vec<(String, u16)>, InvalidBrokerUrl> {
    let places = places.split(',');
    places.map(|place| host_and_port(place, default)).collect()
}

/// Splits `host[:port]`. An IPv6 address is in brackets.
fn host_and_port(place: &str, default: u16) -> Result<(String, u16), InvalidBrokerUrl> {
    let bracketed = place.strip_prefix('[');
    let (host, port) = match bracketed.and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => {
            let port = port.strip_prefix(':');
            (
                host,
                Some(port.ok_or_else(|| wrong("a port follows a colon"))?),
            )
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    if host.is_empty() {
        return Err(wrong("a host is missing"));
    }
    let port = port.map_or(Ok(default), str::parse);
    let port = port.map_err(|_| wrong("the port is a number from 0 to 65535"))?;
    Ok((host.to_owned(), port))
}

fn wrong(words: &str) -> InvalidBrokerUrl {
    InvalidBrokerUrl(words.to_owned())
}

/// The value of the only parameter that may stand behind `?`, if it is there; with no name none may.
fn parameter<'a>(query: &'a str, name: &[&str]) -> Result<Option<&'a str>, InvalidBrokerUrl> {
    if query.is_empty() {
        return Ok(None);
    }
    let pair = query
        .split_once('=')
        .filter(|(key, value)| name.contains(key) && !value.contains('&'));
    match pair {
        Some((_, value)) => Ok(Some(value)),
        None => Err(InvalidBrokerUrl(match name.first() {
            Some(name) => format!("behind ? stands {name}=... and nothing else"),
            None => "nothing may stand behind ?".to_owned(),
        })),
    }
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

/// The part that may be shown: everything but the password.
impl std::fmt::Display for BrokerAddress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_tls() { "rediss" } else { "redis" };
        let joined = |places: &[(String, u16)]| {
            let places = places.iter().map(|(host, port)| format!("{host}:{port}"));
            places.collect::<Vec<_>>().join(",")
        };
        match &self.place {
            Place::Tcp { host, port, .. } => write!(formatter, "{scheme}://{host}:{port}"),
            Place::Unix(path) => write!(formatter, "unix://{}", path.display()),
            Place::Sentinel {
                sentinels, name, ..
            } => write!(
                formatter,
                "{scheme}+sentinel://{}/{name}",
                joined(sentinels)
            ),
            Place::Cluster { nodes, .. } => {
                write!(formatter, "{scheme}+cluster://{}", joined(nodes))
            }
        }
    }
}

impl std::fmt::Debug for BrokerAddress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "BrokerAddress({self})")
    }
}

/// The port of a broker if its URL has none.
const PORT: u16 = 6379;

/// The port of a sentinel if the URL has none.
const SENTINEL_PORT: u16 = 26_379;

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
        for (valkey, redis) in [
            ("valkey://a?db=3", "redis://a/3"),
            ("valkeys://ada:secret@a", "rediss://ada:secret@a"),
            ("valkey+sentinel://a/main", "redis+sentinel://a/main"),
        ] {
            assert_eq!(BrokerAddress::parse(valkey), BrokerAddress::parse(redis));
        }
        let unix = BrokerAddress::parse("unix:///run/redis.sock?db=2").expect("a URL");
        assert_eq!(
            (unix.to_string().as_str(), unix.database),
            ("unix:///run/redis.sock", 2)
        );
        assert!(!format!("{whole:?}").contains("p@ss"));
        let text = "redis+sentinel://:secret@a,[::1]:26380/main/4?sentinel_password=p%40ss";
        let sentinels = BrokerAddress::parse(text).expect("a URL");
        assert_eq!(
            sentinels.to_string(),
            "redis+sentinel://a:26379,::1:26380/main"
        );
        assert_eq!(sentinels.password.as_deref(), Some("secret"));
        assert_eq!(sentinels.database, 4);
        let Place::Sentinel { password, .. } = &sentinels.place else {
            panic!("no sentinels: {sentinels}");
        };
        assert_eq!(password.as_deref(), Some("p@ss"));
        let cluster = BrokerAddress::parse("rediss+cluster://ada:secret@a,b:7001").expect("a URL");
        assert_eq!(cluster.to_string(), "rediss+cluster://a:6379,b:7001");
        assert!(cluster.is_tls() && cluster.fails_over());
    }

    #[test]
    fn what_is_no_url_says_what_a_url_is() {
        for (text, words) in [
            ("127.0.0.1:6379", "redis://"),
            ("nats://a", "there is no broker nats://"),
            ("redis://a/b", "the database is a number"),
            ("redis://a/2?db=3", "the database is given twice"),
            ("redis://a?x=3", "behind ? stands db=... and nothing else"),
            ("redis+cluster://a?db=3", "nothing may stand behind ?"),
            (
                "unix:///a?db=3&user=b",
                "behind ? stands db=... and nothing else",
            ),
            ("redis://[::1]6380", "a port follows a colon"),
            ("unix://", "a path is missing"),
            ("redis+sentinel://a,b", "the name of the master is missing"),
            ("redis+sentinel://a,/main", "a host is missing"),
            ("redis+cluster://a,", "a host is missing"),
            ("redis+cluster://a/1", "a cluster has no databases"),
        ] {
            let error = BrokerAddress::parse(text).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_list_is_read_as_several_urls() {
        let clusters = "redis+cluster://a,b:7001";
        let mixed = "redis://ada:secret@a/3, redis+sentinel://b,c/main,unix:///d?db=2";
        for (text, places) in [
            ("redis://a", vec!["redis://a:6379/0"]),
            (clusters, vec!["redis+cluster://a:6379,b:7001/0"]),
            (
                mixed,
                vec![
                    "redis://a:6379/3",
                    "redis+sentinel://b:26379,c:26379/main/0",
                    "unix:///d/2",
                ],
            ),
        ] {
            let list = BrokerAddress::parse_list(text).expect(text);
            let read = list.iter().map(BrokerAddress::place_and_database);
            assert_eq!(read.collect::<Vec<_>>(), places, "{text}");
        }
        assert!(BrokerAddress::parse_list("redis://a,http://b").is_err());
    }

    #[test]
    fn a_list_that_makes_no_sense_is_named() {
        for (list, partitions, words) in [
            ("redis://a,redis://b", 1, "there are fewer partitions"),
            (
                "redis+cluster://a,redis://b",
                2,
                "give one address and broker_partitions",
            ),
            ("redis://ada@a/1,redis://a/1", 2, "in the list twice"),
        ] {
            let addresses = BrokerAddress::parse_list(list).expect(list);
            let mut config = BrokerConfig::new(addresses[0].clone());
            (config.addresses, config.partitions) = (addresses, partitions);
            let error = config.check().expect_err(list);
            assert!(error.contains(words), "{list}: {error}");
        }
        let addresses = BrokerAddress::parse_list("redis://a/1,redis://a/2").expect("URLs");
        let mut config = BrokerConfig::new(addresses[0].clone());
        (config.addresses, config.partitions) = (addresses, 64);
        assert_eq!(config.check(), Ok(()));
    }
}
