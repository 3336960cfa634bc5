//! Publishing from any thread.

use crate::clock::unix_ms;
use crate::handle::Handle;
use crate::limits::owner::OwnerId;
use crate::model::ConnectionKey;
use crate::topics::broker::Moment;
use crate::topics::error::PublishError;
use crate::topics::outlet::{Origin, Target};
use crate::topics::publication::{NewPublication, Published};

impl Handle {
    /// Publishes to a topic: every subscriber gets it, in the same order as what others publish to it.
    ///
    /// # Errors
    /// [`PublishError`]; nobody got it.
    pub fn publish(
        &self,
        topic: &str,
        publication: &NewPublication,
    ) -> Result<Published, PublishError> {
        self.check(publication)?;
        let moment = Moment {
            now_ms: unix_ms(),
            random_epoch: self.shared.hub.random_epoch(),
            owner: OwnerId::SERVER,
        };
        let hub = &self.shared.hub;
        hub.publish(&topic.into(), &publication.draft(), Origin::Outside, moment)
    }

    /// Sends to every session of a user, the `sub` of its token. A user without sessions takes nothing, without an
    /// error.
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

    /// Sends to one connection. One that is gone meanwhile takes nothing, without an error.
    ///
    /// # Errors
    /// [`PublishError`]; it did not get it.
    pub fn publish_to_connection(
        &self,
        connection: ConnectionKey,
        publication: &NewPublication,
    ) -> Result<(), PublishError> {
        let target = Target::Connection(connection.id);
        self.send_to(&target, Some(connection.shard), publication)
    }

    /// Sends to every session.
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
            .send(target, shard, &draft, Origin::Outside, unix_ms())
    }

    fn check(&self, publication: &NewPublication) -> Result<(), PublishError> {
        if self.shared.is_stopped() {
            return Err(PublishError::Stopped);
        }
        publication.check_payload()
    }
}
