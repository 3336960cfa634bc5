//! Queries that all servers of a cluster answer. A server asks another one as it would ask a client of it, under a shard
//! that no server has: a server of an older version answers that there is no such connection, and counts as silent.

use crate::handle::inspect::ANSWER_TIME_MAX;
use crate::handle::{Handle, SendError};
use crate::model::ConnectionKey;
use crate::model::call_types::{CallFailure, CallOutcome, NewCall};
use crate::model::content::Content;
use crate::model::queries::{
    ConnectionDetails, ConnectionInfo, ConnectionQuery, Listed, ListedEverywhere, OnServers,
    TopicInfo, TopicQuery,
};
use crate::topics::hub::elsewhere::server_name;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tidewire_net::ConnectionId;

/// A question to a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ServerQuery {
    Connections(ConnectionQuery),
    Topics {
        query: TopicQuery,
        with_history: bool,
    },
    Describe {
        connection: ConnectionKey,
        limit: usize,
    },
    Find(String),
    Stats,
}

/// The names of a server, which is one or none, and its statistics, if it answered.
pub(crate) type ServersStats = Vec<(Vec<String>, Option<Value>)>;

impl Handle {
    /// Lists sessions of all servers that share the broker, in the order of their keys; without a broker those of this
    /// server. With the name of a server only its sessions.
    ///
    /// # Errors
    /// [`SendError`] of this server; others that do not answer within two seconds are named.
    pub fn list_connections_everywhere(
        &self,
        query: &ConnectionQuery,
        server: Option<&str>,
    ) -> Result<ListedEverywhere<ConnectionInfo>, SendError> {
        let after = query.after.map_or(0, ConnectionKey::server);
        let servers = self.servers(server);
        let deadline = Instant::now() + ALL_ANSWER_TIME_MAX;
        let mut all = ListedEverywhere::default();
        let mut behind = servers.range(after..).peekable();
        while let Some(&server) = behind.next() {
            let rest = ConnectionQuery {
                after: query.after.filter(|_| server == after),
                limit: query.limit - all.items.len(),
                ..query.clone()
            };
            let question = ServerQuery::Connections(rest);
            for (server, answer) in self.ask_servers(&[server], &question, deadline)? {
                let Some(Listed { items, more }) = answer else {
                    all.silent.push(server_name(server));
                    continue;
                };
                let items = items.into_iter().map(|item| OnServers {
                    nodes: names_of(server),
                    item,
                });
                all.items.extend(items);
                all.more = more;
            }
            if all.items.len() >= query.limit {
                all.more |= behind.peek().is_some();
                break;
            }
        }
        Ok(all)
    }

    /// Lists topics and patterns that have subscribers on any server that shares the broker and, `with_history`, topics
    /// that keep publications, by name. With the name of a server only those of that one.
    ///
    /// # Errors
    /// [`SendError`] of this server; others that do not answer within two seconds are named.
    pub fn list_topics_everywhere(
        &self,
        query: &TopicQuery,
        with_history: bool,
        server: Option<&str>,
    ) -> Result<ListedEverywhere<TopicInfo>, SendError> {
        let question = ServerQuery::Topics {
            query: query.clone(),
            with_history,
        };
        let servers: Vec<u64> = self.servers(server).into_iter().collect();
        let deadline = Instant::now() + ALL_ANSWER_TIME_MAX;
        let mut all = ListedEverywhere::default();
        let mut merged: BTreeMap<String, OnServers<TopicInfo>> = BTreeMap::new();
        for (server, answer) in self.ask_servers(&servers, &question, deadline)? {
            let answer: Option<Listed<TopicInfo>> = answer;
            let Some(Listed { items, more }) = answer else {
                all.silent.push(server_name(server));
                continue;
            };
            all.more |= more;
            for item in items {
                let nodes = names_of(server);
                match merged.get_mut(&item.topic) {
                    Some(known) => {
                        known.item.add(&item);
                        known.nodes.extend(nodes);
                    }
                    None => {
                        let name = item.topic.clone();
                        merged.insert(name, OnServers { nodes, item });
                    }
                }
            }
        }
        // Each server has sent up to a page, and together they may have more than one.
        all.more |= merged.len() > query.limit;
        all.items = merged.into_values().take(query.limit).collect();
        Ok(all)
    }

    /// A session of any server with at most `limit` of its topics; `None` if there is no such session.
    ///
    /// # Errors
    /// [`SendError`]; `Busy` also when a server did not answer in time.
    pub fn describe_connection(
        &self,
        connection: ConnectionKey,
        limit: usize,
    ) -> Result<Option<ConnectionDetails>, SendError> {
        let hub = &self.shared.hub;
        if hub.is_here(connection) {
            return self.describe_own(connection, limit);
        }
        if !hub.has_server(connection.server()) {
            return Ok(None);
        }
        let question = ServerQuery::Describe { connection, limit };
        self.ask_server(connection.server(), &question)
    }

    /// The session, on any server, whose client knows it by this UUID from `server_ready`. Every server searches all its
    /// sessions.
    ///
    /// # Errors
    /// [`SendError`]; `Busy` also when a server did not answer in time and no other one has the session.
    pub fn find_connection(&self, id: &str) -> Result<Option<ConnectionKey>, SendError> {
        let question = ServerQuery::Find(id.to_owned());
        let servers: Vec<u64> = self.servers(None).into_iter().collect();
        let deadline = Instant::now() + ALL_ANSWER_TIME_MAX;
        let answers: Vec<(_, Option<Option<ConnectionKey>>)> =
            self.ask_servers(&servers, &question, deadline)?;
        let found = answers.iter().find_map(|(_, answer)| (*answer)?);
        match found {
            None if answers.iter().any(|(_, answer)| answer.is_none()) => Err(SendError::Busy),
            found => Ok(found),
        }
    }

    /// The statistics of the servers that share the broker, or of the one of a name, each with the server's name, which is
    /// missing without a broker. A server that does not answer within two seconds has none. `own` are those of this server.
    ///
    /// # Errors
    /// [`SendError`] of this server.
    pub(crate) fn stats_of_servers(
        &self,
        name: Option<&str>,
        own: impl FnOnce() -> Value,
    ) -> Result<ServersStats, SendError> {
        let here = self.shared.hub.server;
        let mut servers = self.servers(name);
        let own = servers.remove(&here).then(own);
        let servers: Vec<u64> = servers.into_iter().collect();
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        let answers = self.ask_servers(&servers, &ServerQuery::Stats, deadline)?;
        let answers = answers.into_iter().chain(own.map(|own| (here, Some(own))));
        Ok(answers
            .map(|(server, stats)| (names_of(server), stats))
            .collect())
    }

    /// Answers another server, which may ask for the `stats` of this one. It waits for the shards.
    pub(crate) fn answer_server(
        &self,
        question: &Content,
        stats: impl FnOnce() -> Value,
    ) -> Result<Content, CallFailure> {
        let question = serde_json::from_str(question.as_json());
        let answer = match question.map_err(|_| CallFailure::Unsupported)? {
            ServerQuery::Connections(query) => self.list_connections(&query).map(|it| json(&it)),
            ServerQuery::Topics {
                query,
                with_history: false,
            } => self.list_topics(&query).map(|it| json(&it)),
            ServerQuery::Topics { query, .. } => {
                self.list_topics_with_history(&query).map(|it| json(&it))
            }
            ServerQuery::Describe { connection, limit } => {
                self.describe_own(connection, limit).map(|it| json(&it))
            }
            ServerQuery::Find(id) => self.find_own(&id).map(|it| json(&it)),
            ServerQuery::Stats => Ok(stats().to_string()),
        };
        answer.map(Content::from).map_err(|error| match error {
            SendError::Busy | SendError::Unavailable => CallFailure::Busy,
            SendError::Stopped => CallFailure::Stopped,
        })
    }

    /// Whether one of the servers that share the broker has this name.
    pub fn has_server(&self, name: &str) -> bool {
        !self.servers(Some(name)).is_empty()
    }

    /// The servers that share the broker, or the one of a name.
    fn servers(&self, name: Option<&str>) -> BTreeSet<u64> {
        let mut servers = self.shared.hub.servers();
        servers.retain(|server| name.is_none_or(|name| name == server_name(*server)));
        servers
    }

    /// Asks another server, and waits for the answer.
    fn ask_server<T: DeserializeOwned>(
        &self,
        server: u64,
        question: &ServerQuery,
    ) -> Result<T, SendError> {
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        let mut answers = self.ask_servers(&[server], question, deadline)?;
        let answer = answers.pop().and_then(|(_, answer)| answer);
        answer.ok_or(SendError::Busy)
    }

    /// Asks servers at the same time, this one among them: their answers, or nothing of those that do not answer.
    fn ask_servers<T: DeserializeOwned>(
        &self,
        servers: &[u64],
        question: &ServerQuery,
        deadline: Instant,
    ) -> Result<Vec<(u64, Option<T>)>, SendError> {
        let hub = &self.shared.hub;
        let text = json(question);
        let until = deadline.min(Instant::now() + ANSWER_TIME_MAX);
        let (sender, receiver) = channel();
        let mut answers: BTreeMap<u64, Option<T>> = servers.iter().map(|at| (*at, None)).collect();
        for server in servers.iter().copied().filter(|at| *at != hub.server) {
            let sender = sender.clone();
            let done = move |answer: Result<Content, CallFailure>| {
                // Whoever asked has given up.
                let _ = sender.send((server, answer));
            };
            let call = NewCall::new("server_query", text.as_str())
                .with_timeout(until.saturating_duration_since(Instant::now()));
            hub.call(
                key_of(server),
                call,
                CallOutcome::new(done, CallFailure::Stopped),
            );
        }
        drop(sender);
        if servers.contains(&hub.server) {
            let own = self.answer_server(&Content::from(text.as_str()), Value::default);
            let own = own.map_err(|failure| match failure {
                CallFailure::Stopped => SendError::Stopped,
                _ => SendError::Busy,
            })?;
            answers.insert(hub.server, serde_json::from_str(own.as_json()).ok());
        }
        // It ends early when all have answered.
        while let Ok((server, answer)) =
            receiver.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            let read = answer
                .ok()
                .and_then(|it| serde_json::from_str(it.as_json()).ok());
            answers.insert(server, read);
        }
        Ok(answers.into_iter().collect())
    }
}

/// The key under which a server itself is asked.
fn key_of(server: u64) -> ConnectionKey {
    ConnectionKey::new(server, SERVER_SHARD, ConnectionId::from_u64(0))
}

/// Whether a call asks the server itself and not one of its clients.
pub(crate) fn is_for_server(connection: ConnectionKey) -> bool {
    connection.shard() == SERVER_SHARD
}

/// The names of a server in an answer: none without a broker.
fn names_of(server: u64) -> Vec<String> {
    match server {
        0 => Vec::new(),
        server => vec![server_name(server)],
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// More shards than a server may have.
const SERVER_SHARD: u32 = 0xffff;

/// The time limit for servers that are asked one after another, together.
const ALL_ANSWER_TIME_MAX: Duration = Duration::from_secs(8);
