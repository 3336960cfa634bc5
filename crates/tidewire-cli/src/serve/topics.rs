//! The options about topics, and the rules of the configuration file.

use crate::config_file::{Entry, Rule};
use crate::failure::Failure;
use clap::Args;
use std::str::FromStr;
use tidewire_engine::{
    AccessRules, GroupOverload, HistoryLimits, InvalidRules, Overload, Priority, Rules,
    TopicLimits, TopicRule, Topics,
};

#[derive(Debug, Args)]
#[command(next_help_heading = "Topics")]
pub(crate) struct TopicFlags {
    /// Clients may subscribe to everything, publish everywhere and see who is present
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    topics_open: bool,
    /// Topics that clients may subscribe to: names or patterns such as `orders.*` and `orders.>`, with
    /// `{sub}` for the user's name; may be given several times
    #[arg(long, value_name = "GLOB", value_parser = glob, value_delimiter = ',')]
    client_subscribe_allow: Vec<String>,
    /// Topics that clients may not subscribe to, though they be allowed
    #[arg(long, value_name = "GLOB", value_parser = glob, value_delimiter = ',')]
    client_subscribe_deny: Vec<String>,
    /// Topics that clients may publish to
    #[arg(long, value_name = "GLOB", value_parser = glob, value_delimiter = ',')]
    client_publish_allow: Vec<String>,
    /// Topics that clients may not publish to, though they be allowed
    #[arg(long, value_name = "GLOB", value_parser = glob, value_delimiter = ',')]
    client_publish_deny: Vec<String>,
    /// Topics of which clients may ask who is present [default: those they may subscribe to]
    #[arg(long, value_name = "GLOB", value_parser = glob, value_delimiter = ',')]
    client_presence_allow: Vec<String>,
    /// Topics of which clients may not ask who is present, though they be allowed
    #[arg(long, value_name = "GLOB", value_parser = glob, value_delimiter = ',')]
    client_presence_deny: Vec<String>,
    /// Topics of which clients may be members of queue groups, if they may subscribe to them
    #[arg(long, value_name = "GLOB", value_parser = glob, value_delimiter = ',')]
    client_queue_group_allow: Vec<String>,
    /// Topics of which clients may not be members of queue groups, though they be allowed
    #[arg(long, value_name = "GLOB", value_parser = glob, value_delimiter = ',')]
    client_queue_group_deny: Vec<String>,
    /// The claim of a token with rules for its user, in place of those above; empty to look at none
    #[arg(long, value_name = "NAME", default_value = "topics")]
    topic_access_claim: String,
    /// Keep so many publications of each of these topics, such as `orders.>=1000`; may be given several times
    #[arg(long, value_name = "PATTERN=COUNT", value_delimiter = ',')]
    history: Vec<HistoryFlag>,
    /// Tell the subscribers of these topics who else is there; may be given several times
    #[arg(long, value_name = "PATTERN", value_parser = pattern, value_delimiter = ',')]
    presence: Vec<String>,
}

/// The engine's limits of topics under the engine's names, with the engine's defaults.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of topics (of the whole server unless they say otherwise)")]
pub(crate) struct TopicLimitFlags {
    /// Topics and patterns that one connection may have
    #[arg(long, value_name = "N", default_value_t = TopicLimits::default().subscriptions_per_connection_max)]
    subscriptions_per_connection_max: usize,
    /// What the subscriptions of one connection may take, as estimated
    #[arg(long, value_name = "BYTES", default_value_t = TopicLimits::default().subscription_bytes_per_connection_max)]
    subscription_bytes_per_connection_max: usize,
    /// What the subscriptions of one user or, without tokens, of one address may take, as estimated
    #[arg(long, value_name = "BYTES", default_value_t = TopicLimits::default().subscription_bytes_per_owner_max)]
    subscription_bytes_per_owner_max: usize,
    /// What all subscriptions may take, as estimated
    #[arg(long, value_name = "BYTES", default_value_t = TopicLimits::default().subscription_bytes_max)]
    subscription_bytes_max: usize,
    /// Patterns that one connection may have
    #[arg(long, value_name = "N", default_value_t = TopicLimits::default().patterns_per_connection_max)]
    patterns_per_connection_max: usize,
    /// Subscribers of one topic on one shard
    #[arg(long, value_name = "N", default_value_t = TopicLimits::default().subscribers_per_topic_max)]
    subscribers_per_topic_max: usize,
    /// The payload of a publication
    #[arg(long, value_name = "BYTES", default_value_t = TopicLimits::default().payload_bytes_max)]
    payload_bytes_max: usize,
    /// Publications that a shard has yet to deliver, before publishing fails
    #[arg(long, value_name = "BYTES", default_value_t = TopicLimits::default().backlog_bytes_max)]
    backlog_bytes_max: usize,
    /// All histories together
    #[arg(long, value_name = "BYTES", default_value_t = TopicLimits::default().history_bytes_max)]
    history_bytes_max: usize,
    /// Topics whose position is remembered
    #[arg(long, value_name = "N", default_value_t = TopicLimits::default().history_topics_max)]
    history_topics_max: usize,
    /// What a subscriber may tell others about itself, as JSON
    #[arg(long, value_name = "BYTES", default_value_t = TopicLimits::default().presence_data_bytes_max)]
    presence_data_bytes_max: usize,
    /// Ids remembered to drop repeated publications
    #[arg(long, value_name = "N", default_value_t = TopicLimits::default().remembered_ids_max)]
    remembered_ids_max: usize,
    /// Publications that may wait for a lagging subscription that conflates or drops
    #[arg(long, value_name = "N", default_value_t = TopicLimits::default().lag_publications_max)]
    lag_publications_max: usize,
    /// The same in bytes
    #[arg(long, value_name = "BYTES", default_value_t = TopicLimits::default().lag_bytes_max)]
    lag_bytes_max: usize,
    /// Publications that wait for the members of a queue group
    #[arg(long, value_name = "N", default_value_t = TopicLimits::default().group_waiting_max)]
    group_waiting_max: usize,
    /// The same in bytes
    #[arg(long, value_name = "BYTES", default_value_t = TopicLimits::default().group_waiting_bytes_max)]
    group_waiting_bytes_max: usize,
    /// Queue groups of one topic
    #[arg(long, value_name = "N", default_value_t = TopicLimits::default().groups_per_topic_max)]
    groups_per_topic_max: usize,
    /// What a full queue group drops: what has waited longest, or the new publication
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = GroupOverloadName::DropOldest)]
    group_overload: GroupOverloadName,
}

/// `PATTERN=COUNT`
#[derive(Debug, Clone, PartialEq, Eq)]
struct HistoryFlag {
    pattern: String,
    publications_max: usize,
}

impl FromStr for HistoryFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A pattern may end with `>`, and then there is no other `=` than the last one.
        let expected = || "expected a pattern and a number, such as orders.>=1000".to_owned();
        let (name, count) = text.rsplit_once('=').ok_or_else(expected)?;
        Ok(Self {
            pattern: pattern(name)?,
            publications_max: count.parse().map_err(|_| expected())?,
        })
    }
}

impl TopicFlags {
    /// What the engine is told of topics; rules of options come before those of the file.
    ///
    /// # Errors
    /// A rule of the file has an unknown key or a bad value.
    pub(crate) fn topics(&self, rules: &[Rule], limits: TopicLimits) -> Result<Topics, Failure> {
        let history: Vec<_> = self
            .history
            .iter()
            .map(|flag| (flag.pattern.clone(), flag.publications_max))
            .collect();
        let mut all = TopicRule::keeping(&history, &self.presence);
        for rule in rules {
            all.push(rule_of(rule)?);
        }
        Ok(Topics {
            access: self.access(),
            access_claim: Some(self.topic_access_claim.clone()).filter(|name| !name.is_empty()),
            rules: all,
            limits,
        })
    }

    fn access(&self) -> AccessRules {
        let everything = AccessRules::open().subscribe.allow;
        let rules = |allow: &[String], deny: &[String]| Rules {
            allow: match self.topics_open {
                true => everything.clone(),
                false => allow.to_vec(),
            },
            deny: deny.to_vec(),
        };
        let names_presence =
            !self.client_presence_allow.is_empty() || !self.client_presence_deny.is_empty();
        let presence = rules(&self.client_presence_allow, &self.client_presence_deny);
        AccessRules {
            subscribe: rules(&self.client_subscribe_allow, &self.client_subscribe_deny),
            publish: rules(&self.client_publish_allow, &self.client_publish_deny),
            presence: names_presence.then_some(presence),
            queue_group: rules(
                &self.client_queue_group_allow,
                &self.client_queue_group_deny,
            ),
        }
    }
}

/// The policies of a full queue group, as options name them.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum GroupOverloadName {
    DropOldest,
    DropNewest,
}

impl From<GroupOverloadName> for GroupOverload {
    fn from(name: GroupOverloadName) -> Self {
        match name {
            GroupOverloadName::DropOldest => Self::DropOldest,
            GroupOverloadName::DropNewest => Self::DropNewest,
        }
    }
}

impl TopicLimitFlags {
    pub(crate) fn limits(&self) -> TopicLimits {
        TopicLimits {
            subscriptions_per_connection_max: self.subscriptions_per_connection_max,
            subscription_bytes_per_connection_max: self.subscription_bytes_per_connection_max,
            subscription_bytes_per_owner_max: self.subscription_bytes_per_owner_max,
            subscription_bytes_max: self.subscription_bytes_max,
            patterns_per_connection_max: self.patterns_per_connection_max,
            subscribers_per_topic_max: self.subscribers_per_topic_max,
            payload_bytes_max: self.payload_bytes_max,
            backlog_bytes_max: self.backlog_bytes_max,
            history_bytes_max: self.history_bytes_max,
            history_topics_max: self.history_topics_max,
            presence_data_bytes_max: self.presence_data_bytes_max,
            remembered_ids_max: self.remembered_ids_max,
            lag_publications_max: self.lag_publications_max,
            lag_bytes_max: self.lag_bytes_max,
            group_waiting_max: self.group_waiting_max,
            group_waiting_bytes_max: self.group_waiting_bytes_max,
            groups_per_topic_max: self.groups_per_topic_max,
            group_overload: self.group_overload.into(),
        }
    }
}

/// A table `[[topics.rule]]`.
fn rule_of(table: &Rule) -> Result<TopicRule, Failure> {
    let mut rule = TopicRule::new("");
    let mut history = HistoryLimits::of(0);
    let mut history_keys = None;
    for entry in &table.entries {
        let name = entry.key.as_str();
        match name {
            "pattern" => rule.pattern = read(entry, pattern)?,
            "history_publications" => history.publications_max = read(entry, number)?,
            "history_bytes" => history.bytes_max = read(entry, number)?,
            "history_age_s" => {
                let seconds: u64 = read(entry, number)?;
                history.age_max_ms = seconds.saturating_mul(1000);
            }
            "last_value" => rule.last_value = read(entry, flag)?,
            "presence" => rule.presence = read(entry, flag)?,
            "priority" => rule.priority = read(entry, priority)?,
            "overload" => rule.overload = read(entry, overload)?,
            _ => {
                let Entry { key, place, .. } = entry;
                let text =
                    format!("{place}: unknown key {key} in [[topics.rule]], there are {KEYS}");
                return Err(Failure::usage(text));
            }
        }
        if name.starts_with("history_") {
            history_keys.get_or_insert(entry);
        }
        if name == "history_publications" {
            rule.history = Some(history);
        }
    }
    if rule.pattern.is_empty() {
        let text = format!("{}: a [[topics.rule]] needs a pattern", table.place);
        return Err(Failure::usage(text));
    }
    match (&mut rule.history, history_keys) {
        (Some(kept), _) => *kept = history,
        (None, Some(Entry { key, place, .. })) => {
            let text = format!("{place}: {key} needs history_publications beside it");
            return Err(Failure::usage(text));
        }
        (None, None) if rule.last_value => {
            let text = format!(
                "{}: last_value needs history_publications beside it",
                table.place
            );
            return Err(Failure::usage(text));
        }
        (None, None) => {}
    }
    Ok(rule)
}

fn read<T>(entry: &Entry, parse: fn(&str) -> Result<T, String>) -> Result<T, Failure> {
    let Entry { key, values, place } = entry;
    let value = match values.as_slice() {
        [value] => parse(value).map_err(|why| format!("{value:?}: {why}")),
        _ => Err("one value only".to_owned()),
    };
    value.map_err(|why| Failure::usage(format!("{place}: {key}: {why}")))
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| "expected a whole number".to_owned())
}

fn flag(text: &str) -> Result<bool, String> {
    text.parse()
        .map_err(|_| "expected true or false".to_owned())
}

fn priority(text: &str) -> Result<Priority, String> {
    let number = text.parse().ok().and_then(Priority::from_number);
    number.ok_or_else(|| "expected 1, 3, 5, 8 or 10".to_owned())
}

fn overload(text: &str) -> Result<Overload, String> {
    Overload::parse(text).ok_or_else(|| "expected disconnect, conflate or drop_oldest".to_owned())
}

/// A glob of access, as the engine checks it.
fn glob(text: &str) -> Result<String, String> {
    let rules = AccessRules {
        subscribe: Rules {
            allow: vec![text.to_owned()],
            deny: Vec::new(),
        },
        ..AccessRules::closed()
    };
    rules.check().map_err(|error| match error {
        InvalidRules::Glob { problem, .. } => problem.to_string(),
        InvalidRules::Placeholder { .. } => "only {sub} may stand in braces".to_owned(),
        other => other.to_string(),
    })?;
    Ok(text.to_owned())
}

fn pattern(text: &str) -> Result<String, String> {
    if text.contains(['{', '}']) {
        return Err("a rule holds for every user, so that braces have no meaning".to_owned());
    }
    glob(text)
}

const KEYS: &str = "pattern, history_publications, history_bytes, history_age_s, last_value, presence, priority \
    and overload";

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(history: &[&str], presence: &[&str]) -> TopicFlags {
        TopicFlags {
            topics_open: false,
            client_subscribe_allow: vec!["a".to_owned()],
            client_subscribe_deny: vec!["b".to_owned()],
            client_publish_allow: Vec::new(),
            client_publish_deny: Vec::new(),
            client_presence_allow: Vec::new(),
            client_presence_deny: Vec::new(),
            client_queue_group_allow: Vec::new(),
            client_queue_group_deny: Vec::new(),
            topic_access_claim: String::new(),
            history: history.iter().map(|text| text.parse().unwrap()).collect(),
            presence: presence.iter().map(|&text| text.to_owned()).collect(),
        }
    }

    fn rule(fields: &[(&str, &str)]) -> Result<TopicRule, String> {
        let entries = fields.iter().enumerate().map(|(line, (key, value))| Entry {
            key: (*key).to_owned(),
            values: vec![(*value).to_owned()],
            place: format!("f:{}", line + 2),
        });
        let table = Rule {
            entries: entries.collect(),
            place: "f:1".to_owned(),
        };
        rule_of(&table).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_narrow_pattern_has_what_a_wide_one_says_besides() {
        let flags = flags(&[">=100", "rooms.>=7"], &["rooms.*", "users.>"]);
        let rules = flags.topics(&[], TopicLimits::default()).unwrap().rules;
        let seen: Vec<_> = rules
            .iter()
            .map(|rule| {
                let count = rule.history.map(|history| history.publications_max);
                (rule.pattern.as_str(), count, rule.presence)
            })
            .collect();
        let expected = [
            ("rooms.*", Some(7), true),
            ("rooms.>", Some(7), false),
            ("users.>", Some(100), true),
            (">", Some(100), false),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn one_pattern_may_have_both() {
        let flags = flags(&["a.*=3"], &["a.*"]);
        let rules = flags.topics(&[], TopicLimits::default()).unwrap().rules;
        assert_eq!(rules.len(), 1);
        assert!(rules[0].presence && rules[0].history.is_some());
    }

    #[test]
    fn access_is_closed_unless_something_is_allowed() {
        let mut flags = flags(&[], &[]);
        let access = flags.access();
        assert_eq!(
            (access.subscribe.allow, access.subscribe.deny),
            (vec!["a".to_owned()], vec!["b".to_owned()])
        );
        assert!(access.publish.allow.is_empty() && access.presence.is_none());
        flags.topics_open = true;
        let access = flags.access();
        assert_eq!(
            (access.publish.allow, access.subscribe.deny),
            (vec![">".to_owned()], vec!["b".to_owned()])
        );
        let topics = flags.topics(&[], TopicLimits::default()).unwrap();
        assert_eq!(topics.access_claim, None);
    }

    #[test]
    fn a_rule_has_every_key() {
        let rule = rule(&[
            ("pattern", "orders.>"),
            ("history_age_s", "60"),
            ("history_publications", "1000"),
            ("history_bytes", "65536"),
            ("last_value", "true"),
            ("presence", "true"),
            ("priority", "8"),
            ("overload", "drop_oldest"),
        ])
        .unwrap();
        let history = HistoryLimits {
            publications_max: 1000,
            bytes_max: 65536,
            age_max_ms: 60_000,
        };
        assert_eq!(
            (rule.pattern.as_str(), rule.history),
            ("orders.>", Some(history))
        );
        assert!(rule.last_value && rule.presence);
        assert_eq!(
            (rule.priority, rule.overload),
            (Priority::High, Overload::DropOldest)
        );
    }

    #[test]
    fn mistakes_of_rules_name_the_line_and_the_key() {
        let cases: [(&[(&str, &str)], &str); 9] = [
            (
                &[("presence", "true")],
                "f:1: a [[topics.rule]] needs a pattern",
            ),
            (&[("pattern", "a..b")], "f:2: pattern: \"a..b\": "),
            (
                &[("pattern", "users.{sub}")],
                "f:2: pattern: \"users.{sub}\": a rule holds",
            ),
            (
                &[("pattern", "a"), ("priority", "4")],
                "f:3: priority: \"4\": expected 1, 3",
            ),
            (
                &[("pattern", "a"), ("overload", "drop")],
                "f:3: overload: \"drop\": expected disconnect",
            ),
            (
                &[("pattern", "a"), ("history", "4")],
                "f:3: unknown key history in",
            ),
            (
                &[("pattern", "a"), ("history_bytes", "-4")],
                "f:3: history_bytes: \"-4\": expected a whole",
            ),
            (
                &[("pattern", "a"), ("history_age_s", "4")],
                "f:3: history_age_s needs history_publications",
            ),
            (
                &[("pattern", "a"), ("last_value", "true")],
                "f:1: last_value needs history_publications",
            ),
        ];
        for (fields, expected) in cases {
            let message = rule(fields).unwrap_err();
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn shorthands_are_read() {
        let read = |text: &str| {
            text.parse::<HistoryFlag>()
                .map(|flag| (flag.pattern, flag.publications_max))
        };
        assert_eq!(read("a.>=10"), Ok(("a.>".to_owned(), 10)));
        assert_eq!(read("a=0"), Ok(("a".to_owned(), 0)));
        for bad in ["a", "a=", "a=x", "=1", "a..b=1", "a.{sub}=1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
