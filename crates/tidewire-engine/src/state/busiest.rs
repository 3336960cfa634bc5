//! The busiest topics of the last request: every viewer of the server requests them once a second.

use crate::model::SendError;
use crate::model::queries::TopicInfo;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The last answer of the shards.
#[derive(Debug, Default)]
pub(crate) struct Busiest(Mutex<Option<Known>>);

#[derive(Debug)]
struct Known {
    topics: Arc<[TopicInfo]>,
    /// When they may be asked for again.
    until: Instant,
}

impl Busiest {
    /// Returns the last answer or, if it is old, asks again: at most once a second for all callers
    /// together, and less often where the answer is slow.
    pub(crate) fn get(
        &self,
        ask: impl FnOnce() -> Result<Vec<TopicInfo>, SendError>,
    ) -> Arc<[TopicInfo]> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*known
            && Instant::now() < known.until
        {
            return Arc::clone(&known.topics);
        }
        let asked = Instant::now();
        let (topics, pause) = match ask() {
            Ok(topics) => (
                Arc::from(topics),
                ASK_INTERVAL.max(asked.elapsed() * ASK_PAUSE),
            ),
            // Shards that have no time are not asked again at once.
            Err(_) => (Arc::default(), ASK_INTERVAL * 5),
        };
        *known = Some(Known {
            topics: Arc::clone(&topics),
            until: asked + pause,
        });
        topics
    }
}

/// How often the shards are asked for their busiest topics.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// The pause before the next such question, as a multiple of the answer's duration.
const ASK_PAUSE: u32 = 20;
