//! Workers of the operations listener: threads for requests that ask the shards or carry a body, so
//! that probes never wait for them.

use crate::ops::error::ApiResult;
use crate::ops::pages;
use crate::ops::request::Response;
use crate::ops::task::{Respond, Task, TaskAnswer, TaskContext};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tidewire_net::{ConnectionId, Mailbox};

/// The queue of the worker threads. When it is dropped, they finish what they have and end.
#[derive(Debug)]
pub(crate) struct Workers(SyncSender<Job>);

/// A job of a worker.
#[derive(Debug)]
pub(crate) enum Job {
    /// It answers the request of a connection.
    Answer(ConnectionId, Task),
    /// It makes a snapshot for the feed.
    Snapshot,
}

impl Workers {
    /// Starts the threads. They answer through `mailbox` and end when this value is dropped.
    pub(crate) fn open(
        context: &Arc<TaskContext>,
        mailbox: &Mailbox<ListenerMail>,
    ) -> std::io::Result<(Self, Vec<JoinHandle<()>>)> {
        let (sender, receiver) = sync_channel(TASKS_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        let mut threads = Vec::new();
        for index in 0..THREADS {
            let (context, mailbox) = (Arc::clone(context), mailbox.clone());
            let receiver = Arc::clone(&receiver);
            let thread = std::thread::Builder::new()
                .name(format!("tidewire-api-{index}"))
                .spawn(move || work(&context, &receiver, &mailbox))?;
            threads.push(thread);
        }
        Ok((Self(sender), threads))
    }

    /// Hands a job to a thread; `false` if there are too many already.
    pub(crate) fn submit(&self, job: Job) -> bool {
        self.0.try_send(job).is_ok()
    }
}

fn work(context: &TaskContext, receiver: &Mutex<Receiver<Job>>, mailbox: &Mailbox<ListenerMail>) {
    loop {
        let next = receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(job) = next else { return };
        let mail = match job {
            Job::Answer(id, task) => match task.answer {
                TaskAnswer::Now(answer) => answered(id, answer(context, &task)),
                TaskAnswer::Later(answer) => {
                    answer(context, &task, respond_later(id, mailbox));
                    continue;
                }
            },
            Job::Snapshot => ListenerMail::Snapshot(pages::snapshot(context)),
        };
        if mailbox.send(mail).is_err() {
            return;
        }
    }
}

fn answered(id: ConnectionId, answer: ApiResult) -> ListenerMail {
    let response = answer.unwrap_or_else(|error| error.response());
    ListenerMail::Answer(id, response)
}

/// Answers from any thread. It may be one of a shard, which must not wait: without room in the mailbox the connection
/// ends when its time is over.
fn respond_later(id: ConnectionId, mailbox: &Mailbox<ListenerMail>) -> Respond {
    let mailbox = mailbox.clone();
    Box::new(move |answer| {
        let _ = mailbox.try_send(answered(id, answer));
    })
}

/// Threads that answer.
const THREADS: usize = 2;

/// Requests that may wait for a thread; the next one gets HTTP 503.
const TASKS_MAX: usize = super::CONNECTIONS_MAX;

/// Mail of the listener.
#[derive(Debug)]
pub(crate) enum ListenerMail {
    /// The answer to the request of a connection.
    Answer(ConnectionId, Response),
    /// The statistics, for the feed.
    Snapshot(String),
    /// Another process accepts from now on.
    StopListening,
    /// End.
    Stop,
}
