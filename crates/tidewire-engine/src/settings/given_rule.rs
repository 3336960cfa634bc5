//! A rule of topics, and where it was given.

use super::origin::Origin;
use crate::topics::config::TopicRule;

/// A rule of topics with its place.
#[derive(Debug, Clone)]
pub(super) struct GivenRule {
    pub(super) rule: TopicRule,
    /// The rule where it stands, for errors.
    pub(super) label: String,
}

impl GivenRule {
    pub(super) fn new(origin: &Origin, rule: TopicRule) -> Self {
        let label = origin.label(&format!("the rule {}", rule.pattern));
        Self { rule, label }
    }
}
