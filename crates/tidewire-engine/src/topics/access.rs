//! Access rules: who may subscribe to topics, publish to them and see presence.

use super::name::{InvalidTopic, check_topic, check_topic_or_pattern, covers, overlaps};
use crate::limits::work::cost;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// Allowed and denied names as globs: topic names and patterns (`orders.*`, `orders.>`,
/// `>` for everything). `{sub}` in a glob stands for the user's name. What no glob allows is
/// denied, and what a glob denies stays denied, whatever else allows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// The allowed names. Default: none.
    pub allow: Vec<String>,
    /// The denied names, even if they are allowed. Default: none.
    pub deny: Vec<String>,
}

/// The rules for a connection, as they stand in the configuration or in a claim of its token:
///
/// ```
/// use tidewire_engine::AccessRules;
///
/// let claim = serde_json::json!({
///     "subscribe": {"allow": ["orders.>", "users.{sub}.>"], "deny": ["orders.internal.>"]},
///     "publish": {"allow": ["chat.*"]},
/// });
/// let rules = AccessRules::from_claim(&claim)?;
/// assert_eq!(rules.presence, None);
/// # Ok::<(), tidewire_engine::InvalidRules>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessRules {
    /// For subscriptions and recovery. Default: nothing is allowed.
    pub subscribe: Rules,
    /// For publications of the client. Default: nothing is allowed.
    pub publish: Rules,
    /// For presence queries. Default: the rules of `subscribe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence: Option<Rules>,
    /// For membership in queue groups, besides the rules of `subscribe`: a member receives
    /// publications in place of the others. Default: nothing is allowed.
    pub queue_group: Rules,
}

/// Why a document does not hold access rules. It is the fault of whoever wrote the document, and a
/// retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRules {
    /// It has not the shape of [`AccessRules`].
    #[error("access rules of the wrong shape: {0}")]
    Shape(String),
    /// There are more globs than a claim may have.
    #[error("{globs} access globs, and {CLAIM_GLOBS_MAX} is the most of a claim")]
    TooManyGlobs {
        /// How many there are.
        globs: usize,
    },
    /// A glob is not a topic name or pattern.
    #[error("{place}: {problem}")]
    Glob {
        /// Which one, such as `subscribe.allow[3]`.
        place: String,
        /// The fault of the glob.
        problem: InvalidTopic,
    },
    /// A glob has a brace that is not part of `{sub}`.
    #[error("{place}: only {{sub}} may stand in braces")]
    Placeholder {
        /// Which one, such as `subscribe.allow[3]`.
        place: String,
    },
}

impl AccessRules {
    /// Everything is allowed.
    pub fn open() -> Self {
        let everything = || Rules {
            allow: vec![">".to_owned()],
            deny: Vec::new(),
        };
        Self {
            subscribe: everything(),
            publish: everything(),
            presence: None,
            queue_group: everything(),
        }
    }

    /// Nothing is allowed.
    pub fn closed() -> Self {
        Self::default()
    }

    /// Reads and checks the rules in a claim of a token.
    ///
    /// # Errors
    /// [`InvalidRules`] if it has another shape or unknown names, more than 256 globs, or a glob
    /// that is not a topic name or pattern.
    pub fn from_claim(claim: &Value) -> Result<Self, InvalidRules> {
        // Derived deserializers also accept an array for a structure, which is more lenient than
        // the documentation.
        let sections = claim.as_object();
        if !sections.is_some_and(|sections| sections.values().all(|rules| !rules.is_array())) {
            return Err(InvalidRules::Shape(
                "an object of objects is needed".to_owned(),
            ));
        }
        let rules =
            Self::deserialize(claim).map_err(|error| InvalidRules::Shape(error.to_string()))?;
        let globs = rules
            .sections()
            .map(|(_, rules)| rules.allow.len() + rules.deny.len())
            .sum();
        if globs > CLAIM_GLOBS_MAX {
            return Err(InvalidRules::TooManyGlobs { globs });
        }
        rules.check()?;
        Ok(rules)
    }

    /// Checks every glob, as [`from_claim`](Self::from_claim) does for those of a claim.
    ///
    /// # Errors
    /// [`InvalidRules`] if a glob is not a topic name or pattern.
    pub fn check(&self) -> Result<(), InvalidRules> {
        for (section, rules) in self.sections() {
            for (list, globs) in [("allow", &rules.allow), ("deny", &rules.deny)] {
                for (index, glob) in globs.iter().enumerate() {
                    check_glob(glob, || format!("{section}.{list}[{index}]"))?;
                }
            }
        }
        Ok(())
    }

    fn sections(&self) -> impl Iterator<Item = (&'static str, &Rules)> {
        let named = [
            ("subscribe", &self.subscribe),
            ("publish", &self.publish),
            ("queue_group", &self.queue_group),
        ];
        named
            .into_iter()
            .chain(self.presence.iter().map(|rules| ("presence", rules)))
    }

    fn presence(&self) -> &Rules {
        self.presence.as_ref().unwrap_or(&self.subscribe)
    }

    fn names_the_user(&self) -> bool {
        self.sections().any(|(_, rules)| {
            rules
                .allow
                .iter()
                .chain(&rules.deny)
                .any(|glob| glob.contains(PLACEHOLDER))
        })
    }
}

/// The rules of one connection. Cheap to clone; connections whose rules do not name the user share
/// them.
#[derive(Debug, Clone)]
pub struct Access(Arc<AccessRules>);

impl Access {
    /// Puts the user's name in the place of `{sub}`.
    ///
    /// A name can never widen a rule: if it is not fit to be one segment of a topic (it is empty,
    /// or has a `.`, `*`, `>`, white space or a control character), or if there is none, a rule
    /// that allows with `{sub}` allows nothing. A rule that denies with `{sub}` uses a name with
    /// dots unchanged, since there are topics of that name, and denies nothing if no topic can have
    /// the name.
    pub fn bind(rules: &Arc<AccessRules>, user: Option<&str>) -> Self {
        if !rules.names_the_user() {
            return Self(Arc::clone(rules));
        }
        let user = user.filter(|name| check_topic(name).is_ok());
        let bind = |rules: &Rules| Rules {
            allow: bind_globs(&rules.allow, user.filter(|name| !name.contains('.'))),
            deny: bind_globs(&rules.deny, user),
        };
        Self(Arc::new(AccessRules {
            subscribe: bind(&rules.subscribe),
            publish: bind(&rules.publish),
            presence: rules.presence.as_ref().map(bind),
            queue_group: bind(&rules.queue_group),
        }))
    }

    /// Whether a subscription to this checked topic or pattern is allowed: a pattern must be
    /// covered as a whole by one glob that allows, and must not have a topic in common with one
    /// that denies.
    pub fn may_subscribe(&self, topic_or_pattern: &str) -> bool {
        self.0.subscribe.allows(topic_or_pattern)
    }

    /// Whether a subscription to this checked topic or pattern stays denied, whatever else allows it.
    pub(crate) fn denies_subscription(&self, topic_or_pattern: &str) -> bool {
        self.0.subscribe.denies(topic_or_pattern)
    }

    /// The cost of a check, in units of [work](crate::limits::work).
    pub(crate) fn cost(&self) -> u64 {
        let rules = &self.0;
        let globs = rules.subscribe.allow.len() + rules.subscribe.deny.len();
        globs as u64 * cost::GLOB
    }

    /// Whether the client may publish to this checked topic.
    pub fn may_publish(&self, topic: &str) -> bool {
        self.0.publish.allows(topic)
    }

    /// Whether the client may be a member of queue groups of this checked topic, if it may
    /// subscribe to it.
    pub fn may_join_group(&self, topic: &str) -> bool {
        self.0.queue_group.allows(topic)
    }

    /// Whether the client may ask who is on this checked topic.
    pub fn may_see_presence(&self, topic: &str) -> bool {
        self.0.presence().allows(topic)
    }
}

impl Rules {
    fn denies(&self, topic_or_pattern: &str) -> bool {
        let mut globs = self.deny.iter();
        globs.any(|glob| overlaps(glob, topic_or_pattern))
    }

    fn allows(&self, topic_or_pattern: &str) -> bool {
        !self.denies(topic_or_pattern)
            && self.allow.iter().any(|glob| covers(glob, topic_or_pattern))
    }
}

/// The globs of this user; those with `{sub}` fall away if there is no name to put there, or if
/// they become longer than a topic can be.
fn bind_globs(globs: &[String], user: Option<&str>) -> Vec<String> {
    let bind = |glob: &String| {
        if !glob.contains(PLACEHOLDER) {
            return Some(glob.clone());
        }
        let bound = glob.replace(PLACEHOLDER, user?);
        check_topic_or_pattern(&bound).is_ok().then_some(bound)
    };
    globs.iter().filter_map(bind).collect()
}

fn check_glob(glob: &str, place: impl Fn() -> String) -> Result<(), InvalidRules> {
    check_topic_or_pattern(glob).map_err(|problem| InvalidRules::Glob {
        place: place(),
        problem,
    })?;
    if glob
        .split(PLACEHOLDER)
        .any(|text| text.contains(['{', '}']))
    {
        return Err(InvalidRules::Placeholder { place: place() });
    }
    Ok(())
}

const PLACEHOLDER: &str = "{sub}";

/// The most globs of one claim.
pub(crate) const CLAIM_GLOBS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn access(rules: Value, user: Option<&str>) -> Access {
        Access::bind(&Arc::new(AccessRules::from_claim(&rules).unwrap()), user)
    }

    fn subscriber(allow: &[&str], deny: &[&str], user: Option<&str>) -> Access {
        access(json!({"subscribe": {"allow": allow, "deny": deny}}), user)
    }

    #[test]
    fn what_is_not_allowed_is_denied() {
        let closed = Access::bind(&Arc::new(AccessRules::closed()), Some("ann"));
        let open = Access::bind(&Arc::new(AccessRules::open()), None);
        for topic in ["a", "a.b", "a.*", ">"] {
            assert!(
                !closed.may_subscribe(topic) && open.may_subscribe(topic),
                "{topic}"
            );
            assert!(
                !closed.may_publish(topic) && open.may_publish(topic),
                "{topic}"
            );
            assert!(
                !closed.may_see_presence(topic) && open.may_see_presence(topic),
                "{topic}"
            );
        }
    }

    #[test]
    fn a_pattern_is_allowed_only_as_a_whole() {
        let access = subscriber(&["orders.>", "news.*"], &["orders.internal.>"], None);
        for (wanted, expected) in [
            ("orders.eu", true),
            ("orders.internal", true),
            ("orders.internal.x", false),
            ("orders.eu.>", true),
            ("orders.*", true),
            ("orders.>", false),
            ("orders.*.x", false),
            ("orders.*.*", false),
            ("orders", false),
            ("news.*", true),
            ("news.>", false),
            ("*.eu", false),
            (">", false),
        ] {
            assert_eq!(access.may_subscribe(wanted), expected, "{wanted}");
        }
    }

    #[test]
    fn each_verb_has_rules_of_its_own() {
        let rules = json!({"subscribe": {"allow": ["a"]}, "publish": {"allow": ["b"]}});
        let same = access(rules, None);
        assert!(same.may_subscribe("a") && same.may_see_presence("a") && !same.may_publish("a"));
        assert!(!same.may_subscribe("b") && !same.may_see_presence("b") && same.may_publish("b"));
        let own = access(json!({"subscribe": {"allow": ["a"]}, "presence": {}}), None);
        assert!(own.may_subscribe("a") && !own.may_see_presence("a"));
    }

    #[test]
    fn the_users_name_is_put_in() {
        let ann = subscriber(
            &["users.{sub}.>", "inbox-{sub}"],
            &["users.{sub}.secret"],
            Some("ann"),
        );
        assert!(ann.may_subscribe("users.ann.mail") && ann.may_subscribe("inbox-ann"));
        assert!(!ann.may_subscribe("users.ann.secret") && !ann.may_subscribe("users.ann.*"));
        assert!(!ann.may_subscribe("users.bob.mail") && !ann.may_subscribe("users.{sub}.mail"));
    }

    #[test]
    fn a_users_name_widens_nothing() {
        let hostile = [
            "*", ">", "a.>", "ann.>", "", "a b", "a.b", "x*", "a\n", "{sub}.>", ".",
        ];
        let long = "x".repeat(255);
        for user in hostile
            .into_iter()
            .map(Some)
            .chain([None, Some(long.as_str())])
        {
            let access = subscriber(&["users.{sub}", "rooms.{sub}.>"], &[], user);
            for wanted in [
                "users.ann",
                "users.*",
                "users.>",
                "rooms.ann.a",
                "users.a.b",
                ">",
            ] {
                assert!(!access.may_subscribe(wanted), "{user:?} {wanted}");
            }
            let denying = subscriber(&["users.*"], &["users.{sub}"], user);
            assert!(denying.may_subscribe("users.ann"), "{user:?}");
        }
        // A name that is itself the placeholder is not put in twice.
        let odd = subscriber(&["users.{sub}"], &[], Some("{sub}"));
        assert!(odd.may_subscribe("users.{sub}") && !odd.may_subscribe("users.ann"));
    }

    #[test]
    fn a_denial_holds_for_a_name_with_dots() {
        let access = subscriber(&["audit.>"], &["audit.{sub}"], Some("ann@example.org"));
        assert!(!access.may_subscribe("audit.ann@example.org"));
        assert!(access.may_subscribe("audit.bob@example.org"));
    }

    #[test]
    fn rules_without_a_name_are_shared() {
        let rules = Arc::new(AccessRules::open());
        let (ann, bob) = (
            Access::bind(&rules, Some("ann")),
            Access::bind(&rules, Some("bob")),
        );
        assert!(Arc::ptr_eq(&ann.0, &bob.0));
    }

    #[test]
    fn bad_claims_are_refused() {
        let message = |claim: Value| AccessRules::from_claim(&claim).unwrap_err().to_string();
        for (claim, expected) in [
            (json!([]), "wrong shape"),
            (json!("orders.>"), "wrong shape"),
            (json!(null), "wrong shape"),
            (json!({"subscribe": ["a"]}), "wrong shape"),
            (json!({"subscibe": {}}), "subscibe"),
            (json!({"subscribe": {"allowed": []}}), "allowed"),
            (json!({"subscribe": {"allow": "a"}}), "wrong shape"),
            (
                json!({"subscribe": {"allow": ["a", "b..c"]}}),
                "subscribe.allow[1]",
            ),
            (json!({"publish": {"deny": ["a*"]}}), "publish.deny[0]"),
            (
                json!({"presence": {"deny": ["a.{user}"]}}),
                "presence.deny[0]",
            ),
            (
                json!({"presence": {"deny": ["a.{sub"]}}),
                "presence.deny[0]",
            ),
            (json!({"publish": {"allow": vec!["a"; 257]}}), "257"),
        ] {
            let message = message(claim.clone());
            assert!(message.contains(expected), "{claim}: {message}");
        }
        let full = json!({"publish": {"allow": vec!["a"; 256]}});
        assert!(AccessRules::from_claim(&full).is_ok());
        let round = serde_json::to_value(AccessRules::open()).unwrap();
        assert_eq!(AccessRules::from_claim(&round), Ok(AccessRules::open()));
    }
}
