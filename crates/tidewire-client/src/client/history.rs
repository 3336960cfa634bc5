//! Reading the history of a topic.

use crate::client::Client;
use crate::command::Command;
use crate::error::Error;
use crate::event::Message;
use crate::request::{HistoryPage, HistoryQuery};
use crate::sequencer::Position;
use tidewire_wire::session::{self as wire, HISTORY_LIMIT_MAX};

impl Client {
    /// Reads the history of a topic. It needs no subscription and changes none: a publication may be in the answer and
    /// also arrive live. After a lost connection the client sends the request again.
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
    /// The server rejects the request: the user may not subscribe to the topic (`TOPIC_FORBIDDEN`), or the topic has no
    /// history (`NOT_FOUND`). Or no answer arrived in time, for example from a server that does not know this request;
    /// or the client is closed.
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
    /// The position of the last publication of this page, for a query of the next page; `None` if the page is empty.
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
