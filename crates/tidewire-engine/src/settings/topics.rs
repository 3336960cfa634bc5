//! Topics: who may use them, and which data of each is kept.

use super::SettingError;
use super::given::Settings;
use super::given_rule::GivenRule;
use crate::topics::access::{AccessRules, Rules};
use crate::topics::config::{GroupOverload, TopicRule, Topics};

/// The limits of topics are plain fields.
pub(super) fn set(settings: &Settings, topics: &mut Topics) -> Result<(), SettingError> {
    topics.access = access(settings);
    let claim = settings.text("topic_access_claim");
    topics.access_claim = claim.filter(|name| !name.is_empty());
    topics.limits.bidi_controls = settings.flag("topic_bidi_controls");
    topics.limits.group_overload = match settings.text("group_overload").as_deref() {
        Some("drop_newest") => GroupOverload::DropNewest,
        _ => GroupOverload::DropOldest,
    };
    let presence = settings.texts("presence").unwrap_or_default();
    topics.rules = TopicRule::keeping(&settings.counts("history"), &presence);
    check_rules(settings.rules())?;
    let detailed = settings.rules().iter().map(|given| given.rule.clone());
    topics.rules.extend(detailed);
    Ok(())
}

/// Of two rules with the same pattern the second would never apply.
fn check_rules(rules: &[GivenRule]) -> Result<(), SettingError> {
    for (index, later) in rules.iter().enumerate() {
        let is_same = |earlier: &&GivenRule| earlier.rule.pattern == later.rule.pattern;
        if let Some(earlier) = rules[..index].iter().find(is_same) {
            return Err(SettingError::Value {
                option: later.label.clone(),
                value: None,
                problem: format!(
                    "another rule has the same pattern ({}), and only the first one applies: \
                     give the keys of both in one rule",
                    earlier.label
                ),
            });
        }
    }
    Ok(())
}

fn access(settings: &Settings) -> AccessRules {
    let is_open = settings.flag("topics_open");
    let rules = |what: &str| -> Option<Rules> {
        let allow = settings.texts(&format!("client_{what}_allow"));
        let deny = settings.texts(&format!("client_{what}_deny"));
        if allow.is_none() && deny.is_none() {
            return None;
        }
        Some(Rules {
            allow: match is_open {
                true => AccessRules::open().subscribe.allow,
                false => allow.unwrap_or_default(),
            },
            deny: deny.unwrap_or_default(),
        })
    };
    let default = match is_open {
        true => AccessRules::open(),
        false => AccessRules::closed(),
    };
    AccessRules {
        subscribe: rules("subscribe").unwrap_or(default.subscribe),
        publish: rules("publish").unwrap_or(default.publish),
        presence: rules("presence").or(default.presence),
        queue_group: rules("queue_group").unwrap_or(default.queue_group),
    }
}
