//! Configuration of topics.

use super::access::AccessRules;
use super::history::HistoryLimits;
use super::name::{InvalidTopic, check_topic_or_pattern, matches};
use std::sync::Arc;
use tidewire_wire::envelope::Priority;
use tidewire_wire::session::Overload;

/// Topics: the rights of clients, the rules for history and delivery, and the limits.
#[derive(Debug, Clone)]
pub struct Topics {
    /// The rights of clients. Default: none. An application may do everything.
    pub access: AccessRules,
    /// The claim of a token that holds its user's own rules, in place of `access`; `None` to look
    /// at no claim. Default `topics`.
    pub access_claim: Option<String>,
    /// How topics are kept and delivered: the first rule that matches a topic's name applies. A topic
    /// without a rule keeps nothing. Default: empty.
    pub rules: Vec<TopicRule>,
    /// The limits of topics.
    pub limits: TopicLimits,
}

/// How the topics that match a pattern are kept and delivered: history, presence, priority, scope, and
/// what happens to subscribers that read too slowly (`overload`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRule {
    /// A topic's name, or a pattern such as `orders.*` or `orders.>`; `>` is all.
    pub pattern: String,
    /// Publications kept for those who were away; without it nothing can be recovered, and
    /// publications have no position. Default `None`.
    pub history: Option<HistoryLimits>,
    /// Subscribers get the newest publication at once; needs `history`. Default `false`.
    pub last_value: bool,
    /// Subscribers are notified of who else is present. Default `false`.
    pub presence: bool,
    /// The overload policy of a subscription that names none. Default: its connection
    /// ends.
    pub overload: Overload,
    /// The priority of its publications; those of a topic with history all have this one, so that
    /// they arrive in their order. Default normal.
    pub priority: Priority,
    /// The servers that share its topics. Without a broker every topic is this server's own. Default: all
    /// servers of the cluster.
    pub scope: Scope,
}

/// The servers that share a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// All servers that have the same broker.
    #[default]
    Cluster,
    /// Each server has a topic of this name of its own, which needs no broker.
    Node,
}

/// The limits of topics. Each applies to the whole server unless its name states another scope.
#[derive(Debug, Clone)]
pub struct TopicLimits {
    /// Topics and patterns that one connection may have. Default 10,000.
    pub subscriptions_per_connection_max: usize,
    /// The memory of the subscriptions of one connection, in bytes as estimated: names, patterns,
    /// filters, queue groups and presence data. Default 16 MiB.
    pub subscription_bytes_per_connection_max: usize,
    /// The same for all connections of one user or, without authentication, of one address. Default
    /// 256 MiB.
    pub subscription_bytes_per_owner_max: usize,
    /// The same for the whole server. Default 2 GiB.
    pub subscription_bytes_max: usize,
    /// Patterns that one connection may have: each that matches a topic costs time for each
    /// publication of it. Default 256.
    pub patterns_per_connection_max: usize,
    /// Subscribers of one topic on one shard. Default 1,000,000.
    pub subscribers_per_topic_max: usize,
    /// Names of topics may have characters that change the direction of writing (U+202A to U+202E, U+2066 to U+2069), by
    /// which a name can look like another. Default `false`.
    pub bidi_controls: bool,
    /// The payload of a publication, in bytes. Default 1 MiB.
    pub payload_bytes_max: usize,
    /// Publications that a shard has yet to deliver, in bytes; past it publishing fails with
    /// [`PublishError::Busy`](crate::PublishError::Busy), and clients that publish are not read.
    /// Default 16 MiB.
    pub backlog_bytes_max: usize,
    /// All histories together, in bytes. The topic that was not used for the longest time loses its
    /// own first. Default 256 MiB.
    pub history_bytes_max: usize,
    /// Topics whose position is remembered. Default 1,000,000.
    pub history_topics_max: usize,
    /// The limit of a subscriber's presence data (`presence`), in bytes of JSON. Default 4
    /// KiB.
    pub presence_data_bytes_max: usize,
    /// The bytes of presence events that one user or, without authentication, one address may cause in a second, counted
    /// for each receiver; beyond it other presence data is refused. 0 for no limit. Default 8 MiB.
    pub presence_bytes_per_s: u64,
    /// Ids remembered to drop repeated publications. Default 50,000.
    pub remembered_ids_max: usize,
    /// The limit of one lagging subscription that conflates or drops, in publications. Default
    /// 1,000.
    pub lag_publications_max: usize,
    /// The same in bytes; all lagging subscriptions of a connection together may have 16 times as
    /// much. Default 1 MiB.
    pub lag_bytes_max: usize,
    /// Publications that wait for the members of one queue group. Default 100,000.
    pub group_waiting_max: usize,
    /// The same in bytes. Default 16 MiB.
    pub group_waiting_bytes_max: usize,
    /// Queue groups of one topic. Default 64.
    pub groups_per_topic_max: usize,
    /// The message that a full queue group drops; publishers are never held back. Default: the message that has waited
    /// longest.
    pub group_overload: GroupOverload,
}

/// The treatment of a publication that a queue group has no room for. A drop is counted, logged and
/// reported as a gap to the member that is served next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupOverload {
    /// It drops what has waited longest.
    #[default]
    DropOldest,
    /// It drops the publication.
    DropNewest,
}

impl Scope {
    /// The scope with this spelling.
    pub(crate) fn parse(spelling: &str) -> Option<Self> {
        match spelling {
            "cluster" => Some(Self::Cluster),
            "node" => Some(Self::Node),
            _ => None,
        }
    }
}

impl Default for Topics {
    fn default() -> Self {
        Self {
            access: AccessRules::closed(),
            access_claim: Some("topics".to_owned()),
            rules: Vec::new(),
            limits: TopicLimits::default(),
        }
    }
}

impl TopicRule {
    /// A rule that keeps nothing yet.
    #[must_use]
    pub fn new(pattern: impl Into<String>) -> Self {
        Self {
            pattern: pattern.into(),
            history: None,
            last_value: false,
            presence: false,
            overload: Overload::Disconnect,
            priority: Priority::Normal,
            scope: Scope::Cluster,
        }
    }

    /// The rules that keep N publications of the topics of each pattern in `history`, and show
    /// presence on the topics of each pattern in `presence`. A narrow pattern precedes a wide one
    /// and inherits the settings that it does not have itself, so that every entry keeps its full
    /// effect.
    #[must_use]
    pub fn keeping(history: &[(String, usize)], presence: &[String]) -> Vec<Self> {
        let histories_over = |narrow: &str| {
            history
                .iter()
                .filter(|(wide, _)| covers(wide, narrow))
                .count()
        };
        let presences_over =
            |narrow: &str| presence.iter().filter(|wide| covers(wide, narrow)).count();
        let named = history.iter().map(|(pattern, _)| pattern);
        let mut patterns: Vec<&String> = named.chain(presence).collect();
        patterns.sort();
        patterns.dedup();
        patterns.sort_by_key(|pattern| {
            std::cmp::Reverse(histories_over(pattern) + presences_over(pattern))
        });
        let rules = patterns.into_iter().map(|pattern| {
            let narrowest = history
                .iter()
                .filter(|(wide, _)| covers(wide, pattern))
                .max_by_key(|(wide, _)| histories_over(wide));
            Self {
                history: narrowest
                    .map(|(_, publications_max)| HistoryLimits::of(*publications_max)),
                presence: presences_over(pattern) > 0,
                ..Self::new(pattern.clone())
            }
        });
        rules.collect()
    }
}

/// Whether every topic of the pattern `narrow` is one of `wide`; both are checked.
fn covers(wide: &str, narrow: &str) -> bool {
    let mut narrow = narrow.split('.');
    for segment in wide.split('.') {
        match (segment, narrow.next()) {
            (_, None) => return false,
            (">", Some(_)) => return true,
            (_, Some(">")) => return false,
            ("*", Some(_)) => {}
            (name, Some(other)) if name == other => {}
            _ => return false,
        }
    }
    narrow.next().is_none()
}

impl Default for TopicLimits {
    fn default() -> Self {
        Self {
            subscriptions_per_connection_max: 10_000,
            subscription_bytes_per_connection_max: 16 * 1024 * 1024,
            subscription_bytes_per_owner_max: 256 * 1024 * 1024,
            subscription_bytes_max: 2 * 1024 * 1024 * 1024,
            patterns_per_connection_max: 256,
            subscribers_per_topic_max: 1_000_000,
            bidi_controls: false,
            payload_bytes_max: 1024 * 1024,
            backlog_bytes_max: 16 * 1024 * 1024,
            history_bytes_max: 256 * 1024 * 1024,
            history_topics_max: 1_000_000,
            presence_data_bytes_max: 4096,
            presence_bytes_per_s: 8 * 1024 * 1024,
            remembered_ids_max: 50_000,
            lag_publications_max: 1_000,
            lag_bytes_max: 1024 * 1024,
            group_waiting_max: 100_000,
            group_waiting_bytes_max: 16 * 1024 * 1024,
            groups_per_topic_max: 64,
            group_overload: GroupOverload::DropOldest,
        }
    }
}

/// The rules of a server, the last of them for topics that none matches.
#[derive(Debug)]
pub(crate) struct RuleSet {
    rules: Vec<Rule>,
    fallback: Rule,
    /// The rules that the server was started with: who is present cannot begin or cease to be known in between.
    presence: Arc<[TopicRule]>,
    /// Patterns that had history under earlier rules.
    numbered: Vec<String>,
}

#[derive(Debug)]
struct Rule {
    rule: TopicRule,
    /// The same for topics that had history earlier and have none now. Their publications are still numbered: otherwise
    /// a client that was away would not notice what it missed.
    numbered: TopicRule,
}

impl Rule {
    fn new(rule: &TopicRule) -> Self {
        let nothing = HistoryLimits::of(0);
        Self {
            rule: rule.clone(),
            numbered: TopicRule {
                history: Some(rule.history.unwrap_or(nothing)),
                ..rule.clone()
            },
        }
    }
}

impl RuleSet {
    /// Fails with the pattern that is none.
    pub(crate) fn new(rules: &[TopicRule]) -> Result<Self, (String, InvalidTopic)> {
        for rule in rules {
            check_topic_or_pattern(&rule.pattern).map_err(|error| (rule.pattern.clone(), error))?;
        }
        Ok(Self {
            rules: rules.iter().map(Rule::new).collect(),
            fallback: Rule::new(&TopicRule::new(">")),
            presence: rules.into(),
            numbered: Vec::new(),
        })
    }

    /// Other rules in the place of these. Topics keep or do not keep who is present as before.
    pub(crate) fn replaced(&self, rules: &[TopicRule]) -> Result<Self, (String, InvalidTopic)> {
        let mut numbered = self.numbered.clone();
        let with_history = self.rules.iter().filter(|rule| rule.rule.history.is_some());
        for pattern in with_history.map(|rule| &rule.rule.pattern) {
            if !numbered.contains(pattern) {
                numbered.push(pattern.clone());
            }
        }
        Ok(Self {
            presence: Arc::clone(&self.presence),
            numbered,
            ..Self::new(rules)?
        })
    }

    /// The rules that decide which topics show presence; they stay the same until the server ends.
    pub(crate) fn of_presence(&self) -> &[TopicRule] {
        &self.presence
    }

    pub(crate) fn of(&self, topic: &str) -> &TopicRule {
        let rule = self
            .rules
            .iter()
            .find(|rule| matches(&rule.rule.pattern, topic))
            .unwrap_or(&self.fallback);
        let was_numbered = |pattern: &String| matches(pattern, topic);
        if rule.rule.history.is_none() && self.numbered.iter().any(was_numbered) {
            return &rule.numbered;
        }
        &rule.rule
    }

    /// Whether the subscribers of a topic learn who else is there.
    pub(crate) fn shows_presence(&self, topic: &str) -> bool {
        let mut rules = self.presence.iter();
        let rule = rules.find(|rule| matches(&rule.pattern, topic));
        rule.is_some_and(|rule| rule.presence)
    }

    /// The patterns in their order, with the history limits of their topics. `None` for a pattern
    /// whose topics have no history or belong to a single server.
    pub(crate) fn histories(&self) -> impl Iterator<Item = (&str, Option<HistoryLimits>)> {
        self.rules.iter().map(|Rule { rule, .. }| {
            let is_shared = rule.scope == Scope::Cluster;
            (&*rule.pattern, rule.history.filter(|_| is_shared))
        })
    }

    pub(crate) fn keep_history(&self) -> bool {
        !self.numbered.is_empty() || self.rules.iter().any(|rule| rule.rule.history.is_some())
    }

    pub(crate) fn keep_presence(&self) -> bool {
        self.presence.iter().any(|rule| rule.presence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_history(pattern: &str, publications_max: usize) -> TopicRule {
        TopicRule {
            history: Some(HistoryLimits::of(publications_max)),
            ..TopicRule::new(pattern)
        }
    }

    #[test]
    fn rules_can_be_replaced_but_for_presence() {
        let present = TopicRule {
            presence: true,
            ..with_history("rooms.*", 5)
        };
        let first = RuleSet::new(&[present, with_history("news", 3)]).unwrap();
        let second = first.replaced(&[with_history("news", 4)]).unwrap();
        let kept = |rules: &RuleSet, topic: &str| {
            let history = rules.of(topic).history;
            history.map(|limits| limits.publications_max)
        };
        assert_eq!(kept(&second, "news"), Some(4));
        // It keeps nothing any more, but its publications are still numbered.
        assert_eq!(kept(&second, "rooms.a"), Some(0));
        assert_eq!(kept(&second, "other"), None);
        assert!(second.shows_presence("rooms.a") && !second.shows_presence("news"));
        let third = second.replaced(&[with_history("rooms.a", 7)]).unwrap();
        assert_eq!(kept(&third, "rooms.a"), Some(7));
        assert_eq!(kept(&third, "rooms.b"), Some(0));
        assert_eq!(kept(&third, "news"), Some(0));
        assert!(third.replaced(&[TopicRule::new("a..b")]).is_err());
    }

    #[test]
    fn which_pattern_covers_which() {
        for (wide, narrow) in [
            (">", "a"),
            (">", "a.>"),
            ("a.*", "a.b"),
            ("a.>", "a.*"),
            ("a.*", "a.*"),
            ("*.b", "a.b"),
        ] {
            assert!(covers(wide, narrow), "{wide} {narrow}");
        }
        for (wide, narrow) in [
            ("a", "b"),
            ("a.*", "a.>"),
            ("*", ">"),
            ("a.b", "a.*"),
            ("a", "a.b"),
            ("a.b", "a"),
            ("a.>", "a"),
        ] {
            assert!(!covers(wide, narrow), "{wide} {narrow}");
        }
    }
}
