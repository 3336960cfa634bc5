//! Publishing from any thread.

use crate::clock::steady_unix_ms;
use crate::handle::Handle;
use crate::handle::wait::{answer_of, wait};
use crate::limits::owner::OwnerId;
use crate::model::ConnectionKey;
use crate::topics::broker::{BrokerAnswer, Moment, Ticket};
use crate::topics::error::PublishError;
use crate::topics::new_publication::NewPublication;
use crate::topics::outlet::{Origin, Target};
use crate::topics::publication::Published;
use std::sync::Arc;

impl Handle {
    /// Publishes to a topic: every subscriber gets it, in the same order as what others publish to
    /// it.
    ///
    /// A topic that is shared with other servers is published by their broker, and this waits for
    /// its answer: not to be called on a shard then, nor on the thread of an event loop. See
    /// [`publish_with`](Self::publish_with).
    ///
    /// # Errors
    /// [`PublishError`]; nobody got it, but for [`PublishError::Unknown`].
    pub fn publish(
        &self,
        topic: &str,
        publication: &NewPublication,
    ) -> Result<Published, PublishError> {
        self.check(publication)?;
        let moment = self.moment();
        let hub = &self.shared.hub;
        let topic: Arc<str> = topic.into();
        let draft = publication.draft();
        wait(
            |tickets| match hub.publish(&topic, &draft, Origin::Outside, moment, tickets) {
                Ok(BrokerAnswer::Now(published)) => BrokerAnswer::Now(Ok(published)),
                Ok(BrokerAnswer::Later) => BrokerAnswer::Later,
                Err(error) => BrokerAnswer::Now(Err(error)),
            },
        )
    }

    /// [`publish`](Self::publish) without waiting: `done` is called with what became of it, at once
    /// or later on the thread of the broker. It must not block.
    pub fn publish_with(
        &self,
        topic: &str,
        publication: &NewPublication,
        done: impl FnOnce(Result<Published, PublishError>) + Send + 'static,
    ) {
        let mut done = Some(done);
        let mut tickets = || match done.take() {
            Some(done) => Ticket::of_caller(move |outcome| {
                done(answer_of(outcome).map_err(PublishError::from));
            }),
            // A broker asks for one ticket.
            None => Ticket::of_caller(drop),
        };
        let answer = self.check(publication).and_then(|()| {
            let moment = self.moment();
            let draft = publication.draft();
            let hub = &self.shared.hub;
            hub.publish(&topic.into(), &draft, Origin::Outside, moment, &mut tickets)
        });
        let result = match answer {
            Ok(BrokerAnswer::Later) => return,
            Ok(BrokerAnswer::Now(published)) => Ok(published),
            Err(error) => Err(error),
        };
        if let Some(done) = done {
            done(result);
        }
    }

    fn moment(&self) -> Moment {
        Moment {
            now_ms: steady_unix_ms(),
            random_epoch: self.shared.hub.random_epoch(),
            owner: OwnerId::SERVER,
        }
    }

    /// Sends to every session of a user, the `sub` of its token, with a broker on all servers. For a user without sessions
    /// the message is dropped without an error.
    ///
    /// # Errors
    /// [`PublishError`]; nobody got it.
    pub fn publish_to_user(
        &self,
        user: &str,
        publication: &NewPublication,
    ) -> Result<(), PublishError> {
        self.send_to(&Target::User(user.into()), None, publication)
    }

    /// Sends to one connection, with a broker also to one of another server, at most once. If the connection
    /// has ended meanwhile, the message is dropped without an error.
    ///
    /// # Errors
    /// [`PublishError`]; it did not get it.
    pub fn publish_to_connection(
        &self,
        connection: ConnectionKey,
        publication: &NewPublication,
    ) -> Result<(), PublishError> {
        let hub = &self.shared.hub;
        if !hub.is_here(connection) {
            self.check(publication)?;
            let draft = publication.draft();
            return hub.send_to(connection, &draft, steady_unix_ms());
        }
        let target = Target::Connection(connection.id);
        self.send_to(&target, Some(connection.shard()), publication)
    }

    /// Sends to every session, with a broker to those of all servers.
    ///
    /// # Errors
    /// [`PublishError`]; nobody got it.
    pub fn publish_to_everyone(&self, publication: &NewPublication) -> Result<(), PublishError> {
        self.send_to(&Target::Everyone, None, publication)
    }

    fn send_to(
        &self,
        target: &Target,
        shard: Option<u32>,
        publication: &NewPublication,
    ) -> Result<(), PublishError> {
        self.check(publication)?;
        let draft = publication.draft();
        self.shared
            .hub
            .send(target, shard, &draft, Origin::Outside, steady_unix_ms())
    }

    fn check(&self, publication: &NewPublication) -> Result<(), PublishError> {
        if self.shared.is_stopped() {
            return Err(PublishError::Stopped);
        }
        publication.check()
    }
}
