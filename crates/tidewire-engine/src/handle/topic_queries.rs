//! Topics from other threads: histories and presence.

use crate::clock::steady_unix_ms;
use crate::handle::Handle;
use crate::handle::wait::wait;
use crate::model::queries::{HistoryPage, HistoryQuery, Kept, PresentMember, TopicPresence};
use crate::topics::broker::{PageQuery, Prepare, Refusal};
use crate::topics::error::BrokerUnavailable;
use crate::topics::hub::NotReady;
use std::sync::Arc;

impl Handle {
    /// A page of the stored publications of a topic that have not expired; `None` for a topic that keeps no
    /// history. On a topic that is shared with other servers it waits for their broker: not to be called on a
    /// shard then.
    ///
    /// # Errors
    /// [`BrokerUnavailable`].
    pub fn history(
        &self,
        topic: &str,
        query: HistoryQuery,
    ) -> Result<Option<HistoryPage>, BrokerUnavailable> {
        let topic: Arc<str> = topic.into();
        let mut query = PageQuery {
            since: query.since,
            limit: query.limit,
            newest_first: query.newest_first,
        };
        let everything = Prepare {
            since: None,
            newest: u64::MAX,
        };
        let hub = &self.shared.hub;
        wait(|tickets| hub.prepare(&topic, everything, tickets))
            .map_err(|_: Refusal| BrokerUnavailable)?;
        let now_ms = steady_unix_ms();
        loop {
            let page = hub.history(&topic, query, now_ms);
            let Some(page) = page.map_err(|NotReady| BrokerUnavailable)? else {
                return Ok(None);
            };
            let last = page.publications.last().and_then(|last| last.position);
            let kept = page.publications.iter().filter_map(|publication| {
                Some(Kept {
                    position: publication
                        .position
                        .filter(|_| !publication.is_expired(now_ms))?,
                    json: String::from_utf8_lossy(publication.json()).into_owned(),
                })
            });
            let publications: Vec<Kept> = kept.collect();
            // Callers go on behind the last publication: a page of nothing but expired ones is skipped.
            if let Some(last) = last.filter(|_| page.more && publications.is_empty()) {
                query.since = Some(last.offset);
                continue;
            }
            return Ok(Some(HistoryPage {
                position: page.position,
                oldest: page.oldest,
                publications,
                more: page.more,
            }));
        }
    }

    /// Forgets the stored publications of a topic: nobody recovers from before this. Returns whether there
    /// were any. Waits for the broker as [`history`](Self::history) does.
    ///
    /// # Errors
    /// [`BrokerUnavailable`]; it may have been forgotten.
    pub fn forget_history(&self, topic: &str) -> Result<bool, BrokerUnavailable> {
        let topic: Arc<str> = topic.into();
        let hub = &self.shared.hub;
        wait(|tickets| hub.forget_history(&topic, tickets)).map_err(|_: Refusal| BrokerUnavailable)
    }

    /// The users on a topic, and up to `members_max` of them by name. If other servers share the
    /// topic and this server has no subscriber of it, the call waits for the broker; do not call it on
    /// a shard then.
    ///
    /// # Errors
    /// [`BrokerUnavailable`].
    pub fn presence(
        &self,
        topic: &str,
        members_max: usize,
    ) -> Result<TopicPresence, BrokerUnavailable> {
        let hub = &self.shared.hub;
        if hub.shares_presence(topic) {
            let topic: Arc<str> = topic.into();
            wait(|tickets| hub.prepare(&topic, Prepare::default(), tickets))
                .map_err(|_| BrokerUnavailable)?;
        }
        let view = hub.present(topic, members_max);
        let members = view.members.into_iter().map(|member| PresentMember {
            user: member.user.to_string(),
            data: member.data.map(|data| data.to_string()),
            connections: member.connections,
        });
        Ok(TopicPresence {
            users: view.users,
            connections: view.connections,
            members: members.collect(),
        })
    }
}
