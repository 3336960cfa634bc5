//! Reading a topic's history, for those who were not there.

use crate::client::Client;
use crate::command::Command;
use crate::error::Error;
use crate::event::Message;
use crate::request::{HistoryPage, HistoryQuery};
use crate::sequencer::Position;
use tidewire_wire::session::{self as wire, HISTORY_LIMIT_MAX};

impl Client {
    /// Reads what the server keeps of a topic. No subscription is needed, and none is changed: a publication may be in
    /// the answer and come live as well. If the connection is lost meanwhile, the question is asked again.
    ///
    /// ```no_run
    /// # async fn example(client: tidewire_client::Client) -> Result<(), tidewire_client::Error> {
    /// use tidewire_client::HistoryQuery;
    ///
    /// let mut query = HistoryQuery::new("prices.eu").newest_first();
    /// let page = client.history(query.clone()).await?;
    /// for message in &page.publications {
    ///     println!("{}", String::from_utf8_lossy(&message.payload().unwrap_or_default()));
    /// }
    /// if page.more {
    ///     query.since = page.last();
    ///     let _older = client.history(query).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The server refuses it: this user may not have the topic (`TOPIC_FORBIDDEN`), or the topic keeps no history
    /// (`NOT_FOUND`). No answer in time, for example from a server that does not know the question. Or the client is
    /// closed.
    pub async fn history(&self, query: HistoryQuery) -> Result<HistoryPage, Error> {
        if query.topic.is_empty() {
            return Err(Error::invalid("a topic that is not empty"));
        }
        if !(1..=HISTORY_LIMIT_MAX).contains(&query.limit) {
            return Err(Error::invalid("limit is 1 to 1000"));
        }
        let query = query.into_wire();
        let command = |reply| Command::History { query, reply };
        self.send_command(self.shared.config.request_timeout, command)
            .await
    }
}

impl HistoryPage {
    /// The position of the last publication of this page, to ask for what follows it; `None` if the page is empty.
    #[must_use]
    pub fn last(&self) -> Option<Position> {
        let outline = self.publications.last()?.outline().ok()?;
        let (epoch, offset) = outline.position?;
        Some(Position { epoch, offset })
    }

    pub(crate) fn of(page: wire::HistoryPage, session: u32) -> Self {
        let publications = page.publications.into_iter();
        Self {
            position: Position {
                epoch: page.epoch,
                offset: page.offset,
            },
            oldest: page.oldest,
            publications: publications
                .map(|json| Message::of_json(json, session))
                .collect(),
            more: page.more,
            complete: page.complete,
        }
    }
}
