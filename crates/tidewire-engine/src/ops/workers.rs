//! What may take a while: requests that ask the shards, or that carry much, are answered on threads of their own,
//! so that probes never wait for them.

use crate::ops::request::Response;
use crate::ops::task::{Task, TaskContext};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tidewire_net::{ConnectionId, Mailbox};

/// The way to the threads. Dropping it ends them, when they have done what they have.
#[derive(Debug)]
pub(crate) struct Workers(SyncSender<(ConnectionId, Task)>);

impl Workers {
    /// Starts the threads. They answer through `mailbox` and end when the desk is dropped.
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

    /// Hands a task to a thread; `false` if there are too many already.
    pub(crate) fn submit(&self, id: ConnectionId, task: Task) -> bool {
        self.0.try_send((id, task)).is_ok()
    }
}

fn work(
    context: &TaskContext,
    receiver: &Mutex<Receiver<(ConnectionId, Task)>>,
    mailbox: &Mailbox<ListenerMail>,
) {
    loop {
        let next = receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok((id, task)) = next else { return };
        let answer = (task.answer)(context, &task);
        let response = answer.unwrap_or_else(|error| error.response());
        if mailbox.send(ListenerMail::Answer(id, response)).is_err() {
            return;
        }
    }
}

/// Threads that answer.
const THREADS: usize = 2;

/// Requests that may wait for a thread; the next one gets HTTP 503.
const TASKS_MAX: usize = super::CONNECTIONS_MAX;

/// What other threads say to the listener's.
#[derive(Debug)]
pub(crate) enum ListenerMail {
    /// The answer to the request of a connection.
    Answer(ConnectionId, Response),
    /// End.
    Stop,
}
