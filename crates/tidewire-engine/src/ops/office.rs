//! What may take a while: requests that ask the shards, or that carry much, are answered on threads of their own,
//! so that probes never wait for them.

use super::api::Answer;
use super::listener::Word;
use super::{ApiKey, OpsSource};
use crate::handle::Handle;
use crate::handle::inspect::{ConnectionInfo, TopicInfo};
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidewire_net::{ConnectionId, Mailbox};

/// What answers need.
pub(crate) struct Office {
    pub(crate) source: Arc<dyn OpsSource>,
    pub(crate) handle: Handle,
    /// Without it the API is off.
    pub(crate) key: Option<ApiKey>,
    busiest: Mutex<Option<Busiest>>,
}

/// The busiest topics, as they were asked for last.
#[derive(Debug, Clone)]
struct Busiest {
    topics: Arc<[TopicInfo]>,
    /// When they may be asked for again.
    until: Instant,
}

/// A request that was read whole and that may be answered.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) answer: fn(&Office, &Task) -> Answer,
    /// What stands in the path for a name, decoded.
    pub(crate) name: String,
    pub(crate) query: String,
    pub(crate) body: Vec<u8>,
}

/// The way to the threads. Dropping it ends them, when they have done what they have.
#[derive(Debug)]
pub(crate) struct Desk(SyncSender<(ConnectionId, Task)>);

impl Office {
    pub(crate) fn new(source: Arc<dyn OpsSource>, handle: Handle, key: Option<ApiKey>) -> Self {
        Self {
            source,
            handle,
            key,
            busiest: Mutex::new(None),
        }
    }

    /// The topics with the most publications a second; asked for once a second at most, however many want to know.
    pub(crate) fn busiest_topics(&self) -> Arc<[TopicInfo]> {
        let mut busiest = self.busiest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*busiest
            && Instant::now() < known.until
        {
            return Arc::clone(&known.topics);
        }
        let asked = Instant::now();
        let (topics, pause) = match self.handle.busiest_topics(BUSIEST_TOPICS) {
            Ok(topics) => (Arc::from(topics), ASK_INTERVAL),
            // Shards that have no time are not asked again at once.
            Err(_) => (Arc::default(), ASK_INTERVAL * 5),
        };
        *busiest = Some(Busiest {
            topics: Arc::clone(&topics),
            until: asked + pause,
        });
        topics
    }

    pub(crate) fn slowest_connections(&self, limit: usize) -> Vec<ConnectionInfo> {
        self.handle.slowest_connections(limit).unwrap_or_default()
    }
}

impl fmt::Debug for Office {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Office")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl Desk {
    /// Starts the threads. They answer through `mailbox` and end when the desk is dropped.
    pub(crate) fn open(
        office: &Arc<Office>,
        mailbox: &Mailbox<Word>,
    ) -> std::io::Result<(Self, Vec<JoinHandle<()>>)> {
        let (sender, receiver) = sync_channel(TASKS_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        let mut threads = Vec::new();
        for index in 0..THREADS {
            let (office, mailbox) = (Arc::clone(office), mailbox.clone());
            let receiver = Arc::clone(&receiver);
            let thread = std::thread::Builder::new()
                .name(format!("tidewire-api-{index}"))
                .spawn(move || work(&office, &receiver, &mailbox))?;
            threads.push(thread);
        }
        Ok((Self(sender), threads))
    }

    /// Hands a task to a thread; `false` if there are too many already.
    pub(crate) fn submit(&self, id: ConnectionId, task: Task) -> bool {
        self.0.try_send((id, task)).is_ok()
    }
}

fn work(
    office: &Office,
    receiver: &Mutex<Receiver<(ConnectionId, Task)>>,
    mailbox: &Mailbox<Word>,
) {
    loop {
        let next = receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok((id, task)) = next else { return };
        let answer = (task.answer)(office, &task);
        let response = answer.unwrap_or_else(|error| error.response());
        if mailbox.send(Word::Answer(id, response)).is_err() {
            return;
        }
    }
}

/// Threads that answer.
const THREADS: usize = 2;

/// Requests that may wait for a thread; the next one gets HTTP 503.
const TASKS_MAX: usize = super::CONNECTIONS_MAX;

/// Topics that `/stats` names.
const BUSIEST_TOPICS: usize = 20;

/// How often the shards are asked for their busiest topics.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
