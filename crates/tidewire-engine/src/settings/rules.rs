//! Rules of topics, key by key.

use super::SettingError;
use super::given_rule::GivenRule;
use super::lookup::nearest;
use super::origin::{Origin, unusable};
use super::spec::{Item, OptionSpec};
use super::table::RULE_KEYS;
use super::value::{self, Checked, check_item, shown};
use crate::topics::config::{Scope, TopicRule};
use crate::topics::history::HistoryLimits;
use serde_json::Value;
use tidewire_wire::envelope::Priority;
use tidewire_wire::session::Overload;

/// The rules of an array of tables.
pub(super) fn read(
    spec: &OptionSpec,
    origin: &Origin,
    tables: &Value,
) -> Result<Vec<GivenRule>, SettingError> {
    let wrong = |label: String, value: &Value| SettingError::Value {
        option: origin.label(&label),
        value: Some(shown(value)),
        problem: "expected a list of rules, each with a pattern".to_owned(),
    };
    let list = tables
        .as_array()
        .ok_or_else(|| wrong(spec.name.to_owned(), tables))?;
    let rules = list.iter().enumerate().map(|(index, table)| {
        let label = format!("{}[{index}]", spec.name);
        let fields = table
            .as_object()
            .ok_or_else(|| wrong(label.clone(), table))?;
        let origin = origin.within(&label);
        let given = fields.iter().filter(|(_, value)| !value.is_null());
        let keys = given.map(|(key, value)| (key.clone(), value.clone(), origin.clone()));
        let rule = rule(&origin, &keys.collect::<Vec<_>>())?;
        Ok(GivenRule::new(&origin, rule))
    });
    rules.collect()
}

/// One rule. `origin` is that of the whole; each key has its own.
pub(super) fn rule(
    origin: &Origin,
    keys: &[(String, Value, Origin)],
) -> Result<TopicRule, SettingError> {
    let mut rule = TopicRule::new("");
    let mut history = HistoryLimits::of(0);
    for (key, value, place) in keys {
        let Some(spec) = RULE_KEYS.iter().find(|spec| spec.name == key) else {
            return Err(unknown(key, place));
        };
        let checked = value::check(spec, value, place.is_text())
            .map_err(|error| unusable(place.label(key), error))?;
        set(&mut rule, &mut history, spec.name, checked)
            .map_err(|problem| wrong(place.label(key), Some(shown(value)), problem))?;
    }
    if rule.pattern.is_empty() {
        let problem = "a rule needs a pattern, such as orders.>";
        return Err(wrong(origin.label("pattern"), None, problem.to_owned()));
    }
    let has = |name: &str| keys.iter().any(|(key, ..)| key == name);
    if has("history_publications") {
        rule.history = Some(history);
    } else if let Some((key, _, place)) = keys.iter().find(|(key, ..)| needs_history(key)) {
        let problem = "it needs history_publications beside it".to_owned();
        return Err(wrong(place.label(key), None, problem));
    }
    Ok(rule)
}

fn set(
    rule: &mut TopicRule,
    history: &mut HistoryLimits,
    key: &str,
    value: Checked,
) -> Result<(), String> {
    match (key, value) {
        ("pattern", Checked::Text(pattern)) => {
            check_item(Item::Pattern, &pattern)?;
            rule.pattern = pattern;
        }
        ("history_publications", Checked::Integer(number)) => {
            history.publications_max = saturated(number);
        }
        ("history_bytes", Checked::Integer(number)) => history.bytes_max = saturated(number),
        ("history_age_s", Checked::Integer(seconds)) => {
            history.age_max_ms = seconds.saturating_mul(1000);
        }
        ("last_value", Checked::Boolean(yes)) => rule.last_value = yes,
        ("presence", Checked::Boolean(yes)) => rule.presence = yes,
        ("priority", Checked::Integer(number)) => {
            let priority = Priority::from_number(number);
            rule.priority = priority.ok_or("there is no such priority")?;
        }
        ("overload", Checked::Text(word)) => {
            rule.overload = Overload::parse(&word).ok_or("there is no such policy")?;
        }
        ("scope", Checked::Text(word)) => {
            rule.scope = Scope::parse(&word).ok_or("there is no such scope")?;
        }
        _ => return Err("this key has no effect".to_owned()),
    }
    Ok(())
}

fn needs_history(key: &str) -> bool {
    matches!(key, "history_bytes" | "history_age_s" | "last_value")
}

/// A number that is larger than any size of this machine counts as the largest.
pub(super) fn saturated(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn unknown(key: &str, place: &Origin) -> SettingError {
    let known: Vec<&str> = RULE_KEYS.iter().map(|spec| spec.name).collect();
    let nearest = nearest(key, known.iter().copied());
    let hint = nearest.map_or(String::new(), |name| format!("did you mean {name}? "));
    wrong(
        place.label(&format!("unknown key {key}")),
        None,
        format!("{hint}A rule has the keys {}", known.join(", ")),
    )
}

fn wrong(option: String, value: Option<String>, problem: String) -> SettingError {
    SettingError::Value {
        option,
        value,
        problem,
    }
}
