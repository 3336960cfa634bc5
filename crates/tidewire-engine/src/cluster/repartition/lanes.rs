//! The brokers of a cluster, and the keys of each partition in them.

use super::keys::Key;
use super::outcome::RepartitionError;
use crate::cluster::blocking::{Blocking, Commands, Patience, Reply};
use crate::cluster::options::{link_options, route};
use crate::config::broker::{BrokerConfig, Place};
use std::io;
use std::time::Duration;
use tidewire_redis::{Layout, Partition};

/// All keys of a partition at its broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane(usize);

/// The lanes that were opened, and connections to their brokers.
#[derive(Default)]
pub(super) struct Lanes {
    brokers: Vec<Broker>,
    lanes: Vec<Opened>,
}

struct Opened {
    broker: usize,
    layout: Layout,
    is_cluster: bool,
    /// The address as it was given.
    place: String,
}

struct Broker {
    /// Host and port or path, and the database.
    name: String,
    /// With the database it is the identity of the broker: one that is named in two ways is one.
    run_id: String,
    database: u32,
    connection: Blocking,
}

impl Broker {
    fn failed(&self, error: io::Error) -> RepartitionError {
        RepartitionError::Broker {
            broker: self.name.clone(),
            error,
        }
    }
}

impl Lanes {
    /// The lane of a partition, by a connection to the broker that has it.
    pub(super) fn open(
        &mut self,
        config: &BrokerConfig,
        partition: Partition,
    ) -> Result<Lane, RepartitionError> {
        let address = config.address_of(partition);
        let layout = Layout::of(&config.prefix, address.database, partition);
        let place = address.place_and_database();
        let failed = |error| RepartitionError::Broker {
            broker: place.clone(),
            error,
        };
        let route = route(config, partition)?;
        let login = route.secrets.login().map_err(failed)?;
        let named = match (&address.place, route.search()) {
            (Place::Tcp { host, port, .. }, _) => Some((host.clone(), *port)),
            (_, Some(mut search)) => {
                search.log_in(login.as_ref());
                Some(search.master(None).map_err(failed)?)
            }
            _ => None,
        };
        let name = match (&named, &address.place) {
            (Some((host, port)), _) => format!("{host}:{port}/{}", address.database),
            _ => place.clone(),
        };
        let known = self.brokers.iter().position(|broker| broker.name == name);
        let broker = match known {
            Some(known) => known,
            None => {
                let connection = match (&named, &address.place) {
                    (Some(named), _) => {
                        Blocking::tcp(named, route.tls.as_ref(), PATIENCE, REPLY_BYTES_MAX)
                    }
                    (None, Place::Unix(path)) => Blocking::unix(path, PATIENCE, REPLY_BYTES_MAX),
                    (None, _) => Err(io::Error::other("it has no name")),
                };
                let mut connection = connection.map_err(failed)?;
                let options = link_options(config, partition);
                let (user, password) = match login {
                    Some(login) => (login.user, login.password),
                    None => (options.user, options.password),
                };
                let database = options.database;
                let run_id = enter(&mut connection, (user, password), database);
                let run_id = run_id.map_err(failed)?;
                let mut known = self.brokers.iter();
                let is_it = |known: &Broker| (&known.run_id, known.database) == (&run_id, database);
                let known = known.position(is_it);
                known.unwrap_or_else(|| {
                    self.brokers.push(Broker {
                        name,
                        run_id,
                        database,
                        connection,
                    });
                    self.brokers.len() - 1
                })
            }
        };
        self.lanes.push(Opened {
            broker,
            layout,
            is_cluster: address.is_cluster(),
            place,
        });
        Ok(Lane(self.lanes.len() - 1))
    }

    /// Whether a lane is in a Redis Cluster, which has keys of one slot at one of its nodes only.
    pub(super) fn is_of_cluster(&self, lane: Lane) -> bool {
        self.lanes[lane.0].is_cluster
    }

    /// The broker of a lane, for a person.
    pub(super) fn name(&self, lane: Lane) -> &str {
        &self.brokers[self.lanes[lane.0].broker].name
    }

    /// Whether two lanes are the same keys.
    pub(super) fn is_same(&self, one: Lane, two: Lane) -> bool {
        let [one, two] = [one, two].map(|lane| &self.lanes[lane.0]);
        one.broker == two.broker && one.layout.lane() == two.layout.lane()
    }

    /// Whether one of `lanes` has the same keys as `lane`.
    pub(super) fn is_among(&self, lane: Lane, lanes: &[Lane]) -> bool {
        lanes.iter().any(|other| self.is_same(*other, lane))
    }

    /// Whether two lanes are at brokers that share their keys: of one address, or of one Redis Cluster.
    pub(super) fn is_one_server(&self, one: Lane, two: Lane) -> bool {
        let [one, two] = [one, two].map(|lane| &self.lanes[lane.0]);
        one.broker == two.broker || (one.is_cluster && two.is_cluster && one.place == two.place)
    }

    /// Whether a lane has the keys of the first partition.
    pub(super) fn is_lane_of_first(&self, lane: Lane) -> bool {
        self.lanes[lane.0].layout.agreement() == self.first_agreement(lane)
    }

    /// The key of the agreement of the first partition, at the broker of a lane.
    pub(super) fn first_agreement(&self, lane: Lane) -> Vec<u8> {
        self.lanes[lane.0].layout.first_agreement()
    }

    /// The run id of the process that has a lane.
    pub(super) fn run_id(&self, lane: Lane) -> &str {
        &self.brokers[self.lanes[lane.0].broker].run_id
    }

    /// A key of a lane.
    pub(super) fn key(&self, lane: Lane, rest: impl AsRef<[u8]>) -> Vec<u8> {
        [self.lanes[lane.0].layout.lane().as_bytes(), rest.as_ref()].concat()
    }

    pub(super) fn ask(&mut self, lane: Lane, words: &[&[u8]]) -> Result<Reply, RepartitionError> {
        let mut commands = Commands::default();
        commands.push(words);
        let replies = self.ask_all(lane, commands)?;
        Ok(replies.into_iter().next().unwrap_or(Reply::Nothing))
    }

    pub(super) fn ask_all(
        &mut self,
        lane: Lane,
        commands: Commands,
    ) -> Result<Vec<Reply>, RepartitionError> {
        let broker = &mut self.brokers[self.lanes[lane.0].broker];
        let replies = broker.connection.ask_all(commands);
        replies.map_err(|error| broker.failed(error))
    }

    /// The same; some commands may be refused.
    pub(super) fn ask_each(
        &mut self,
        lane: Lane,
        commands: Commands,
    ) -> Result<Vec<Reply>, RepartitionError> {
        let broker = &mut self.brokers[self.lanes[lane.0].broker];
        let replies = broker.connection.ask_each(commands);
        replies.map_err(|error| broker.failed(error))
    }

    /// The clock of a lane's broker, in milliseconds since 1970.
    pub(super) fn now_ms(&mut self, lane: Lane) -> Result<i64, RepartitionError> {
        let time = self.ask(lane, &[b"TIME"])?;
        let part = |index: usize| time.items().get(index).and_then(Reply::number);
        Ok(part(0).unwrap_or(0) * 1_000 + part(1).unwrap_or(0) / 1_000)
    }

    /// Some of the keys of a lane; the last ones when the cursor is 0 again.
    pub(super) fn scan(
        &mut self,
        lane: Lane,
        cursor: &mut Vec<u8>,
    ) -> Result<Vec<Key>, RepartitionError> {
        let beginning = self.key(lane, "");
        let glob = self.lanes[lane.0].layout.glob_of_lane();
        let words: [&[u8]; 6] = [b"SCAN", cursor, b"MATCH", &glob, b"COUNT", b"1000"];
        let reply = self.ask(lane, &words)?;
        let [next, keys] = reply.items() else {
            return Ok(Vec::new());
        };
        *cursor = next.text().unwrap_or(b"0").to_vec();
        let keys = keys.items().iter().filter_map(Reply::text);
        let rests = keys.filter_map(|key| key.strip_prefix(beginning.as_slice()));
        Ok(rests.map(Key::of).collect())
    }
}

/// Logs in and selects the database; the run id of the process.
fn enter(
    connection: &mut Blocking,
    (user, password): (Option<String>, Option<String>),
    database: u32,
) -> io::Result<String> {
    let mut commands = Commands::default();
    commands.log_in(user.as_deref(), password.as_deref());
    if database != 0 {
        commands.push(&[b"SELECT", database.to_string().as_bytes()]);
    }
    commands.push(&[b"INFO", b"server"]);
    let replies = connection.ask_all(commands)?;
    let info = replies.last().and_then(Reply::text).unwrap_or_default();
    let info = String::from_utf8_lossy(info);
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    let none = || io::Error::other("it has no run id; is it Redis or Valkey?");
    run_id.map(str::to_owned).ok_or_else(none)
}

/// A large stream takes some time.
const PATIENCE: Patience = Patience {
    deadline: None,
    step: Duration::from_secs(60),
};

/// The most that Redis stores in one key.
const REPLY_BYTES_MAX: usize = 512 * 1024 * 1024;
