//! The agreement: what all nodes of a cluster must have in common is kept in Redis, and compared before a node begins.
//!
//! Terms, such as the durability, must be the same everywhere: a node whose terms differ does not join. Rules of topics
//! and limits may differ for a time, as in a rolling restart: each node knows the rules of the others, and publishes with
//! history what any of them keeps.

use crate::connection::{ErrorKind, ServerError};
use crate::layout::number;
use crate::link::Link;
use crate::link::clock::LEASE_MS;
use crate::link::event::{History, Keep};
use crate::link::options::{Now, PARTITIONS_TERM, PROTOCOL_TERM, SERVERS_TERM, Slot};
use crate::link::problem::Problem;
use crate::link::state::Tag;
use crate::partition::Partition;
use crate::resp::Value;
use crate::script::{AgreeCall, AgreeReply, Agreed};

/// Which topics keep history: the first rule whose pattern matches decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryRules(Vec<(String, History)>);

impl HistoryRules {
    /// Patterns in their order, each with what Redis keeps of its topics.
    #[must_use]
    pub fn new(rules: Vec<(String, History)>) -> Self {
        Self(rules)
    }

    /// A line for each rule: the pattern and, if history is kept, its two limits, separated by spaces.
    fn text(&self) -> String {
        let lines = self.0.iter().map(|(pattern, history)| match history {
            Some(keep) => format!("{pattern} {} {}\n", keep.publications_max, keep.idle_ms),
            None => format!("{pattern}\n"),
        });
        lines.collect()
    }

    /// Reads the text of another node. A line that is not understood has no effect.
    fn read(text: &str) -> Self {
        let rules = text.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let pattern = words.next()?.to_owned();
            let history = match (words.next(), words.next()) {
                (None, _) => None,
                (Some(publications_max), Some(idle_ms)) => Some(Keep {
                    publications_max: publications_max.parse().ok()?,
                    idle_ms: idle_ms.parse().ok()?,
                }),
                _ => return None,
            };
            Some((pattern, history))
        });
        Self(rules.collect())
    }

    fn of(&self, topic: &str) -> History {
        let mut rules = self.0.iter();
        rules.find(|(pattern, _)| matches(pattern, topic))?.1
    }
}

/// Whether a topic matches a pattern, by segments: `*` is any one, `>` at the end any number.
fn matches(pattern: &str, topic: &str) -> bool {
    let mut topic = topic.split('.');
    for segment in pattern.split('.') {
        let is_same = match (segment, topic.next()) {
            (">", Some(_)) => return true,
            (_, None) => false,
            (segment, Some(other)) => segment == "*" || segment == other,
        };
        if !is_same {
            return false;
        }
    }
    topic.next().is_none()
}

/// The rules and limits of this node, and its knowledge of the other nodes.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// The permission of this partition, which depends on the others.
    pub(super) allowed: Allowed,
    /// Redis does not refuse this node.
    is_accepted: bool,
    rules: HistoryRules,
    limits: String,
    /// Since when this node belongs to the cluster, in milliseconds of Redis.
    joined_ms: Option<u64>,
    /// It belongs to the cluster, as far as the present connection knows.
    pub(super) is_joined: bool,
    is_asking: bool,
    /// Something has changed: Redis is asked again.
    is_stale: bool,
    /// Redis is not asked again before.
    hold_until_ms: u64,
    /// The others get this time to learn the rules of a new node.
    waits_until_ms: Option<u64>,
    /// The stamp with which this node began to wait.
    registered: Vec<u8>,
    stamp: Vec<u8>,
    /// The rules of other nodes that differ from those of this one.
    others: Vec<HistoryRules>,
    /// Those of nodes that Redis may have forgotten stay until then.
    others_until_ms: u64,
}

impl Agreement {
    pub(super) fn new(partition: Partition) -> Self {
        Self {
            allowed: match partition.count() {
                1 => Allowed::Use,
                _ => Allowed::Nothing,
            },
            ..Self::default()
        }
    }

    pub(super) fn standing(&self) -> Standing {
        match self.joined_ms {
            Some(_) => Standing::Joined,
            None if self.is_accepted => Standing::Accepted,
            None => Standing::Unknown,
        }
    }

    /// What another node keeps of a topic of which this node keeps nothing.
    pub(super) fn history_of(&self, topic: &str) -> History {
        self.others.iter().find_map(|rules| rules.of(topic))
    }

    /// Redis has reported the latest stamp.
    pub(super) fn note_stamp(&mut self, stamp: &[u8]) {
        self.is_stale |= stamp != self.stamp;
    }

    /// Other nodes may have changed or gone.
    pub(super) fn look_again(&mut self) {
        self.is_stale = true;
    }

    /// Redis may have forgotten the agreement.
    pub(super) fn doubt(&mut self) {
        self.is_joined = false;
    }

    /// The connection for commands is gone.
    pub(super) fn lose(&mut self) {
        self.is_joined = false;
        self.is_asking = false;
        self.hold_until_ms = 0;
    }
}

impl Link {
    pub(super) fn agree_on(&mut self, rules: HistoryRules, limits: &str) {
        let agreement = &mut self.agreement;
        if agreement.rules != rules || agreement.limits != limits {
            agreement.rules = rules;
            limits.clone_into(&mut agreement.limits);
            agreement.is_stale = true;
        }
    }

    /// Asks Redis whether this node belongs to the cluster, if that is not known; whether it does.
    pub(super) fn ask_agreement(&mut self, now: Now) -> bool {
        let agreement = &self.agreement;
        let is_due = !agreement.is_joined || agreement.is_stale;
        if agreement.allowed == Allowed::Nothing {
            self.health.reason = Some(NOT_BY_FIRST.to_owned());
            return false;
        }
        if !is_due || agreement.is_asking || agreement.hold_until_ms > now.ms {
            return agreement.is_joined;
        }
        let terms = self.options.terms();
        let servers = self.options.servers.join(" ");
        let deadline_ms = now.ms + self.options.command_ms;
        let (layout, agreement) = (&self.names.layout, &mut self.agreement);
        let rules = agreement.rules.text();
        let is_elsewhere = self.options.is_elsewhere();
        let first_agreement = is_elsewhere.then(|| layout.first_agreement());
        let call = AgreeCall {
            agreement_key: &layout.agreement(),
            nodes_key: &layout.nodes(),
            fence_key: &self.names.fence,
            node: self.node,
            joined_ms: agreement.joined_ms,
            rules: &rules,
            limits: &agreement.limits,
            lease_ms: LEASE_MS,
            own_channels: layout.own_channels(),
            were_shared: self.channels.were_shared,
            may_begin: agreement.allowed == Allowed::Use,
            servers: &servers,
            first_agreement_key: first_agreement.as_deref(),
            terms: &terms,
        };
        if let Some(connection) = self.slots.ready(Slot::Command) {
            agreement.is_asking = true;
            agreement.is_stale = false;
            connection.send(Tag::Agree, deadline_ms, |out| call.write(&self.hashes, out));
        }
        agreement.is_joined
    }

    pub(super) fn agreement_deadline_ms(&self) -> Option<u64> {
        let agreement = &self.agreement;
        let is_due = !agreement.is_joined || agreement.is_stale;
        let waits = is_due && !agreement.is_asking && agreement.hold_until_ms != 0;
        (waits && self.slots.is_ready(Slot::Command)).then_some(agreement.hold_until_ms)
    }

    pub(super) fn handle_agreed(&mut self, result: Result<Value<'_>, ServerError>, now: Now) {
        self.agreement.is_asking = false;
        self.agreement.hold_until_ms = now.ms + RETRY_MS;
        match result.map(AgreeReply::read) {
            Ok(Ok(reply)) => self.take_agreement(reply, now),
            Ok(Err(error)) => self.health.reason = Some(error.to_string()),
            Err(error) if error.kind == ErrorKind::NoScript => {
                self.agreement.hold_until_ms = 0;
                self.load_scripts(Slot::Command, now);
            }
            Err(error) if error.is_wrong_server() => self.give_up_all(&error.to_string(), now),
            Err(error) => {
                self.agreement.is_stale = true;
                self.health.reason = Some(error.to_string());
                self.note_refused_write(&error);
            }
        }
    }

    fn take_agreement(&mut self, reply: AgreeReply, now: Now) {
        self.note_terms(&reply);
        self.agreement.is_accepted = reply.state != Agreed::Differs;
        if reply.state == Agreed::Unbegun {
            self.health.reason = Some(
                "the cluster begins when this server has reached all partitions of the broker"
                    .to_owned(),
            );
            return;
        }
        if reply.state == Agreed::Differs {
            // What began later than the cluster, and differs, ends.
            self.agreement.is_joined = false;
            self.agreement.joined_ms = None;
            self.agreement.hold_until_ms = now.ms + DIFFERS_RETRY_MS;
            return self.lose_fence();
        }
        self.take_channels(reply.channels, now);
        let agreement = &mut self.agreement;
        agreement.stamp = reply.stamp;
        let own = agreement.rules.text();
        let others: Vec<_> = reply.others.iter().filter(|it| it.rules != own).collect();
        let read = others.iter().map(|other| HistoryRules::read(&other.rules));
        let mut rules: Vec<_> = read.collect();
        if agreement.joined_ms.is_some() && rules.is_empty() && !agreement.others.is_empty() {
            // Redis may have forgotten the others, which register again within the time of a lease.
            if agreement.others_until_ms == 0 {
                agreement.others_until_ms = now.ms + LEASE_MS;
            }
            if now.ms < agreement.others_until_ms {
                rules.append(&mut agreement.others);
                agreement.is_stale = true;
            }
        } else {
            agreement.others_until_ms = 0;
        }
        agreement.others = rules;
        if agreement.joined_ms.is_none() && !others.is_empty() {
            let until_ms = agreement.waits_until_ms.get_or_insert_with(|| {
                agreement.registered.clone_from(&agreement.stamp);
                now.ms + LEARN_MS
            });
            let has_seen = |seen: &[u8]| number(seen) >= number(&agreement.registered);
            if now.ms < *until_ms && !others.iter().all(|other| has_seen(&other.seen)) {
                return;
            }
        }
        agreement.waits_until_ms = None;
        agreement.is_joined = true;
        agreement.joined_ms.get_or_insert(reply.redis_ms);
        if !agreement.is_stale {
            agreement.hold_until_ms = 0;
        }
    }

    /// Ends the earlier problems, and begins a new one if terms, rules or limits differ.
    fn note_terms(&mut self, reply: &AgreeReply) {
        let own = self.options.terms();
        let partitions_differ = reply
            .differing
            .iter()
            .any(|(name, _)| name == PARTITIONS_TERM);
        let differing = reply.differing.iter();
        // It follows from the number of partitions.
        let differing = differing.filter(|(name, _)| !partitions_differ || name != PROTOCOL_TERM);
        let differing = differing.map(|(name, theirs)| {
            let mut own = own.iter();
            let ours = own.find(|(own, _)| own == name);
            let ours = ours.map_or("unknown", |(_, value)| value);
            // A Redis without the first partition says where that is.
            if name == SERVERS_TERM && theirs.starts_with("moved to ") {
                return format!("the topics of this broker were {theirs}");
            }
            if name == SERVERS_TERM && theirs == IS_FIRST {
                return "this broker has the first partition of a cluster already".to_owned();
            }
            let shown = |value: &str| match value {
                "" => "nothing".to_owned(),
                value => value.to_owned(),
            };
            format!(
                "{name} is {} here and {} in the cluster",
                shown(ours),
                shown(theirs)
            )
        });
        let differing = differing.collect::<Vec<_>>().join(", ");
        let advice = "correct the setting of this server, or change what the cluster has agreed on as \
                      docs/scale-out.md says under \"Agreement\"";
        self.end_problem(Problem::DoesNotAgree);
        self.end_problem(Problem::SettingsDiffer);
        match reply.state {
            Agreed::Differs => {
                let text = format!("this server does not join the cluster: {differing}; {advice}");
                self.health.reason = Some(text.clone());
                self.begin_problem(Problem::DoesNotAgree, text);
            }
            Agreed::Changed => {
                let text = format!("{differing}; restart this server with the new setting");
                self.begin_problem(Problem::SettingsDiffer, text);
            }
            Agreed::Joined if !reply.others.is_empty() => {
                let nodes = reply.others.iter().map(|other| other.node.to_string());
                let nodes = nodes.collect::<Vec<_>>().join(", ");
                let text = format!(
                    "the rules of topics or the limits differ from those of {nodes}: right while servers are \
                     restarted one after the other, and else a mistake"
                );
                self.begin_problem(Problem::SettingsDiffer, text);
            }
            Agreed::Joined | Agreed::Unbegun => {}
        }
    }
}

/// The permission of a partition, which depends on the other partitions of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Allowed {
    /// Nothing: the first partition has not been asked, or refuses this node.
    #[default]
    Nothing,
    /// It may join a cluster that has begun.
    Join,
    /// It may begin a cluster, and be used.
    Use,
}

/// What one partition knows about the cluster of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nothing, or that the node differs from it.
    Unknown,
    /// It does not refuse the node: it has not begun, or its nodes learn the rules of this one.
    Accepted,
    /// The node belongs to it.
    Joined,
}

/// Why a partition is not used although its broker answers.
pub(super) const NOT_BY_FIRST: &str =
    "this server has not joined the cluster by its first partition";

/// What the script of the agreement says of a Redis that has a first partition.
const IS_FIRST: &str = "a first partition";

/// How long the link waits until it asks again, in milliseconds.
const RETRY_MS: u64 = 200;

/// The same after an answer that this node differs.
const DIFFERS_RETRY_MS: u64 = 2_000;

/// How long a new node waits for the others to learn its rules. They look each second.
const LEARN_MS: u64 = 3_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written_and_the_first_that_matches_counts() {
        let keep = |publications_max| {
            Some(Keep {
                publications_max,
                idle_ms: 5,
            })
        };
        let rules = vec![
            ("a.b".to_owned(), None),
            ("a.*".to_owned(), keep(3)),
            ("c.>".to_owned(), keep(0)),
        ];
        let rules = HistoryRules::new(rules);
        assert_eq!(HistoryRules::read(&rules.text()), rules);
        for (topic, history) in [
            ("a.b", None),
            ("a.c", keep(3)),
            ("a.c.d", None),
            ("a", None),
            ("c.d.e", keep(0)),
            ("c", None),
        ] {
            assert_eq!(rules.of(topic), history, "{topic}");
        }
        assert_eq!(
            HistoryRules::read("a.* x y\nb.* 1\n"),
            HistoryRules::default()
        );
    }
}
