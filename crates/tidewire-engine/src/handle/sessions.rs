//! Changes of sessions from other threads: their end, their subscriptions and their rights. The shards carry them out
//! (`shard/session_changes.rs`); the end of all for a drain is in `shard/drain.rs`.

use crate::handle::Handle;
use crate::handle::wait::wait;
use crate::model::{ConnectionKey, SendError};
use crate::shard::mailbox::{ChangeKind, ChangedSessions, Mail, SessionChange};
use crate::topics::access::AccessRules;
use crate::topics::broker::{Control, Refusal};
use crate::topics::error::ManageError;
use crate::topics::name::check_topic_or_pattern;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidewire_wire::close::CloseCode;
use tidewire_wire::session::Action;

impl Handle {
    /// Ends a session with a code and a reason. For a session of another server it waits until the broker has the
    /// command: not to be called on a shard then.
    ///
    /// # Errors
    /// [`SendError`]; the session goes on.
    pub fn close(
        &self,
        connection: ConnectionKey,
        code: CloseCode,
        reason: &'static str,
    ) -> Result<(), SendError> {
        if !self.shared.hub.is_here(connection) {
            return self.close_with(connection, code, reason);
        }
        self.post(connection.shard(), Mail::Close(connection.id, code, reason))
    }

    /// Ends a session with a code and a reason of at most 123 bytes. For a session of another server it waits until
    /// the broker has the command: not to be called on a shard then.
    ///
    /// # Errors
    /// [`SendError`]; the session goes on.
    pub fn close_with(
        &self,
        connection: ConnectionKey,
        code: CloseCode,
        reason: &str,
    ) -> Result<(), SendError> {
        self.change_one(connection, ChangeKind::End(code, reason.into()))
    }

    /// Subscribes a session to a topic or pattern, whatever its access rules are. A `subscription_update`
    /// notifies the client, also if a limit prevents the subscription. A session that has ended meanwhile is
    /// not an error.
    ///
    /// # Errors
    /// [`ManageError`]; nothing was changed.
    pub fn subscribe(&self, connection: ConnectionKey, topic: &str) -> Result<(), ManageError> {
        self.shared.hub.check_new_topic_or_pattern(topic)?;
        let what = ChangeKind::Subscription(Action::Subscribe, topic.into());
        Ok(self.change_one(connection, what)?)
    }

    /// Removes a session from a topic or pattern. The client is notified.
    ///
    /// # Errors
    /// [`ManageError`]; nothing was changed.
    pub fn unsubscribe(&self, connection: ConnectionKey, topic: &str) -> Result<(), ManageError> {
        check_topic_or_pattern(topic)?;
        let what = ChangeKind::Subscription(Action::Unsubscribe, topic.into());
        Ok(self.change_one(connection, what)?)
    }

    /// [`Context::set_access`](crate::Context::set_access) for a session. One that is gone meanwhile is not an error.
    ///
    /// # Errors
    /// [`ManageError`]; nothing was changed.
    pub fn set_access(
        &self,
        connection: ConnectionKey,
        rules: AccessRules,
    ) -> Result<(), ManageError> {
        rules.check()?;
        Ok(self.change_one(connection, ChangeKind::Access(Arc::new(rules)))?)
    }

    /// [`subscribe`](Self::subscribe) for all sessions that a user has now.
    ///
    /// # Errors
    /// [`ManageError`]; the sessions of some shards may have been changed.
    pub fn subscribe_user(&self, user: &str, topic: &str) -> Result<(), ManageError> {
        self.shared.hub.check_new_topic_or_pattern(topic)?;
        let what = ChangeKind::Subscription(Action::Subscribe, topic.into());
        self.change_user(user, &what, None)?;
        Ok(self.tell(&Control::Subscribe {
            user: user.to_owned(),
            topic: topic.to_owned(),
        })?)
    }

    /// [`unsubscribe`](Self::unsubscribe) for all sessions that a user has now.
    ///
    /// # Errors
    /// [`ManageError`]; the sessions of some shards may have been changed.
    pub fn unsubscribe_user(&self, user: &str, topic: &str) -> Result<(), ManageError> {
        check_topic_or_pattern(topic)?;
        let what = ChangeKind::Subscription(Action::Unsubscribe, topic.into());
        self.change_user(user, &what, None)?;
        Ok(self.tell(&Control::Unsubscribe {
            user: user.to_owned(),
            topic: topic.to_owned(),
        })?)
    }

    /// Ends all sessions that a user has now, with a code and a reason of at most 123 bytes.
    ///
    /// # Errors
    /// [`SendError`]; the sessions of some shards may have been ended.
    pub fn close_user(&self, user: &str, code: CloseCode, reason: &str) -> Result<(), SendError> {
        self.change_user(user, &ChangeKind::End(code, reason.into()), None)?;
        self.tell(&Control::Close {
            user: user.to_owned(),
            code: code.value(),
            reason: reason.to_owned(),
        })
    }

    /// Sends a command to the other servers for the change that was made here, and waits until their broker
    /// has it.
    fn tell(&self, control: &Control) -> Result<(), SendError> {
        let hub = &self.shared.hub;
        wait(|tickets| hub.tell(control, tickets)).map_err(|refusal| match refusal {
            Refusal::Busy => SendError::Busy,
            Refusal::Unavailable | Refusal::Unknown => SendError::Unavailable,
        })
    }

    /// Executes a command that another server sent to all at this time. Sessions that began later are not
    /// concerned. Returns false if a shard has no room: then the caller has to repeat it.
    pub(crate) fn obey(&self, control: Control, told_unix_ms: Option<u64>) -> bool {
        let until = told_unix_ms.map(|at| at.saturating_add(CLOCK_ERROR_MS));
        let end = |code, reason: String| {
            let code = CloseCode::from_wire(code).unwrap_or(CloseCode::POLICY_VIOLATION);
            ChangeKind::End(code, reason.into())
        };
        let subscription = |action, topic: String| ChangeKind::Subscription(action, topic.into());
        let done = match control {
            Control::Close { user, code, reason } => {
                self.change_user(&user, &end(code, reason), until)
            }
            Control::Subscribe { user, topic } => {
                self.change_user(&user, &subscription(Action::Subscribe, topic), until)
            }
            Control::Unsubscribe { user, topic } => {
                self.change_user(&user, &subscription(Action::Unsubscribe, topic), until)
            }
            Control::CloseAll { code, reason } => {
                self.change_in_all_shards(&ChangedSessions::All, &end(code, reason), told_unix_ms)
            }
            Control::TellBroker { is_away } => {
                self.shared
                    .life
                    .broker_is_away
                    .store(is_away, Ordering::Release);
                self.change_in_all_shards(&ChangedSessions::All, &ChangeKind::BrokerUpdate, None)
            }
            Control::CloseConnection {
                connection,
                code,
                reason,
            } => self.change_own(connection, end(code, reason)),
            Control::SubscribeConnection { connection, topic } => {
                self.change_own(connection, subscription(Action::Subscribe, topic))
            }
            Control::UnsubscribeConnection { connection, topic } => {
                self.change_own(connection, subscription(Action::Unsubscribe, topic))
            }
            Control::SetAccess { connection, rules } => {
                self.change_own(connection, ChangeKind::Access(Arc::new(rules)))
            }
        };
        // Without shards there are no sessions.
        done != Err(SendError::Busy)
    }

    /// Executes a command of another server about a connection, if the connection is one of this server.
    fn change_own(&self, connection: ConnectionKey, what: ChangeKind) -> Result<(), SendError> {
        if connection.server() != self.shared.hub.server {
            return Ok(());
        }
        self.change_one(connection, what)
    }

    pub(crate) fn change_one(
        &self,
        connection: ConnectionKey,
        what: ChangeKind,
    ) -> Result<(), SendError> {
        if !self.shared.hub.is_here(connection) {
            return control_of(connection, what).map_or(Ok(()), |control| self.tell(&control));
        }
        let whose = ChangedSessions::Connection(connection.id);
        let change = SessionChange {
            whose,
            what,
            until_unix_ms: None,
        };
        self.post(connection.shard(), Mail::Change(change))
    }

    fn change_user(
        &self,
        user: &str,
        what: &ChangeKind,
        until_unix_ms: Option<u64>,
    ) -> Result<(), SendError> {
        let whose = ChangedSessions::User(user.into());
        self.change_in_all_shards(&whose, what, until_unix_ms)
    }

    fn change_in_all_shards(
        &self,
        whose: &ChangedSessions,
        what: &ChangeKind,
        until_unix_ms: Option<u64>,
    ) -> Result<(), SendError> {
        for shard in 0..self.shards() {
            let change = SessionChange {
                whose: whose.clone(),
                what: what.clone(),
                until_unix_ms,
            };
            self.post(shard, Mail::Change(change))?;
        }
        Ok(())
    }
}

/// How much later than a command to all servers a session may have begun that it still concerns, in
/// milliseconds: the clocks of two servers are compared with that of the broker, and not exactly.
const CLOCK_ERROR_MS: u64 = 1_000;

/// A command to the server of a connection; `None` for a change that each server notices itself.
fn control_of(connection: ConnectionKey, what: ChangeKind) -> Option<Control> {
    Some(match what {
        ChangeKind::End(code, reason) => Control::CloseConnection {
            connection,
            code: code.value(),
            reason: reason.to_string(),
        },
        ChangeKind::Subscription(Action::Subscribe, topic) => Control::SubscribeConnection {
            connection,
            topic: topic.to_string(),
        },
        ChangeKind::Subscription(Action::Unsubscribe, topic) => Control::UnsubscribeConnection {
            connection,
            topic: topic.to_string(),
        },
        ChangeKind::Access(rules) => Control::SetAccess {
            connection,
            rules: AccessRules::clone(&rules),
        },
        ChangeKind::BrokerUpdate => return None,
    })
}
