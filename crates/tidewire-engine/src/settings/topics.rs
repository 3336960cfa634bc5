//! The settings about topics.

use super::{SettingError, Settings, read, wrong};
use crate::topics::access::{AccessRules, InvalidRules, Rules};
use crate::topics::config::{GroupOverload, TopicRule, Topics};
use crate::topics::history::HistoryLimits;
use crate::topics::name::check_topic_or_pattern;
use serde_json::{Map, Value};
use tidewire_wire::envelope::Priority;
use tidewire_wire::session::Overload;

pub(super) const NAMES: &[&str] = &[
    "topics_open",
    "client_subscribe_allow",
    "client_subscribe_deny",
    "client_publish_allow",
    "client_publish_deny",
    "client_presence_allow",
    "client_presence_deny",
    "client_queue_group_allow",
    "client_queue_group_deny",
    "group_overload",
    "topic_access_claim",
    "history",
    "presence",
    "topic_rules",
];

pub(super) fn set(settings: Settings<'_>, topics: &mut Topics) -> Result<(), SettingError> {
    topics.access = access(settings)?;
    if let Some(claim) = settings.text("topic_access_claim")? {
        topics.access_claim = Some(claim).filter(|name| !name.is_empty());
    }
    topics.limits.group_overload = match settings.text("group_overload")?.as_deref() {
        None | Some("drop_oldest") => GroupOverload::DropOldest,
        Some("drop_newest") => GroupOverload::DropNewest,
        Some(_) => {
            let problem = "expected drop_oldest or drop_newest";
            return Err(wrong("group_overload", problem));
        }
    };
    let presence = settings.texts("presence")?.unwrap_or_default();
    for pattern in &presence {
        check_pattern("presence", pattern)?;
    }
    topics.rules = TopicRule::keeping(&history(settings)?, &presence);
    let tables: Vec<Map<String, Value>> = settings.get("topic_rules")?.unwrap_or_default();
    for (index, table) in tables.iter().enumerate() {
        let rule = rule_of(table).map_err(|why| wrong(&format!("topic_rules[{index}]"), why))?;
        topics.rules.push(rule);
    }
    Ok(())
}

fn access(settings: Settings<'_>) -> Result<AccessRules, SettingError> {
    let is_open = settings.flag("topics_open")?;
    let rules = |what: &str| -> Result<Option<Rules>, SettingError> {
        let allow = settings.texts(&format!("client_{what}_allow"))?;
        let deny = settings.texts(&format!("client_{what}_deny"))?;
        if allow.is_none() && deny.is_none() {
            return Ok(None);
        }
        Ok(Some(Rules {
            allow: match is_open {
                true => AccessRules::open().subscribe.allow,
                false => allow.unwrap_or_default(),
            },
            deny: deny.unwrap_or_default(),
        }))
    };
    let default = match is_open {
        true => AccessRules::open(),
        false => AccessRules::closed(),
    };
    let access = AccessRules {
        subscribe: rules("subscribe")?.unwrap_or(default.subscribe),
        publish: rules("publish")?.unwrap_or(default.publish),
        presence: rules("presence")?.or(default.presence),
        queue_group: rules("queue_group")?.unwrap_or(default.queue_group),
    };
    access.check().map_err(|error| {
        let name = match &error {
            InvalidRules::Glob { .. } | InvalidRules::Placeholder { .. } => {
                "client_*_allow, client_*_deny"
            }
            _ => "client access",
        };
        wrong(name, error.to_string())
    })?;
    Ok(access)
}

/// `{"orders.>": 1000}` or `["orders.>=1000"]`.
fn history(settings: Settings<'_>) -> Result<Vec<(String, usize)>, SettingError> {
    let expected = || {
        let problem = "expected patterns and numbers of publications, such as {\"orders.>\": 1000}";
        wrong("history", problem)
    };
    let kept: Vec<(String, usize)> = match settings.value("history") {
        None => Vec::new(),
        Some(Value::Object(kept)) => {
            let pairs = kept.iter().map(|(pattern, count)| {
                Ok((pattern.clone(), read(count).map_err(|_| expected())?))
            });
            pairs.collect::<Result<_, _>>()?
        }
        Some(_) => {
            let texts = settings.texts("history")?.unwrap_or_default();
            let pairs = texts.iter().map(|text| {
                let (pattern, count) = text.rsplit_once('=').ok_or_else(expected)?;
                Ok((pattern.to_owned(), count.parse().map_err(|_| expected())?))
            });
            pairs.collect::<Result<_, _>>()?
        }
    };
    for (pattern, _) in &kept {
        check_pattern("history", pattern)?;
    }
    Ok(kept)
}

fn check_pattern(name: &str, pattern: &str) -> Result<(), SettingError> {
    match check_topic_or_pattern(pattern) {
        Ok(_) => Ok(()),
        Err(error) => Err(wrong(name, format!("{pattern}: {error}"))),
    }
}

/// One of `topic_rules`, with the keys of a `[[topics.rule]]` of the configuration file.
fn rule_of(table: &Map<String, Value>) -> Result<TopicRule, String> {
    let mut rule = TopicRule::new("");
    let mut history = HistoryLimits::of(0);
    for (key, value) in table {
        let in_context = |problem: String| format!("{key}: {problem}");
        match key.as_str() {
            "pattern" => rule.pattern = read(value).map_err(in_context)?,
            "history_publications" => history.publications_max = read(value).map_err(in_context)?,
            "history_bytes" => history.bytes_max = read(value).map_err(in_context)?,
            "history_age_s" => {
                let seconds: u64 = read(value).map_err(in_context)?;
                history.age_max_ms = seconds.saturating_mul(1000);
            }
            "last_value" => rule.last_value = read(value).map_err(in_context)?,
            "presence" => rule.presence = read(value).map_err(in_context)?,
            "priority" => {
                let priority = value.as_u64().and_then(Priority::from_number);
                rule.priority = priority.ok_or("priority: expected 1, 3, 5, 8 or 10")?;
            }
            "overload" => {
                let overload = value.as_str().and_then(Overload::parse);
                rule.overload =
                    overload.ok_or("overload: expected disconnect, conflate or drop_oldest")?;
            }
            _ => return Err(format!("unknown key {key}, there are {KEYS}")),
        }
    }
    check_topic_or_pattern(&rule.pattern).map_err(|error| format!("pattern: {error}"))?;
    if table.contains_key("history_publications") {
        rule.history = Some(history);
    } else if let Some(key) = NEED_HISTORY.iter().find(|key| table.contains_key(**key)) {
        return Err(format!("{key} needs history_publications beside it"));
    }
    Ok(rule)
}

/// Keys that mean nothing without history.
const NEED_HISTORY: &[&str] = &["history_bytes", "history_age_s", "last_value"];

const KEYS: &str = "pattern, history_publications, history_bytes, history_age_s, last_value, presence, priority \
    and overload";
