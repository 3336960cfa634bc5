//! Checks of a session's subscriptions, after its rights have changed or tokens of topics have expired.

use crate::topics::local::Slot;
use std::sync::Arc;

/// A check under way. It is no job, because it waits for nothing: a client could put off the end of a right otherwise.
#[derive(Debug)]
pub(crate) enum RightsCheck {
    Changed(ChangedRights),
    TokensEnded(EndedTokens),
}

/// The subscriptions of a session that have to be checked against new rights.
#[derive(Debug)]
pub(crate) struct ChangedRights {
    pub(crate) slots: std::vec::IntoIter<Slot>,
    /// Those that have ended.
    pub(crate) ended: Vec<String>,
}

/// Subscriptions whose tokens have expired.
#[derive(Debug)]
pub(crate) struct EndedTokens {
    pub(crate) topics: std::vec::IntoIter<Arc<str>>,
    /// Those that have ended.
    pub(crate) ended: Vec<String>,
}
