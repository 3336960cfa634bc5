//! The client: `tidewire.Client` and `tidewire.sync.Client` are Python classes on top of [`ClientCore`].

mod answer;
mod message;
mod position;
mod requests;
mod runtime;

pub(crate) use answer::Ticket;
pub(crate) use message::{ClientBatch, ClientBatchIterator, ClientMessage};

use crate::arguments::{Flag, Str, Whole};
use crate::errors::{Failure, Fault, stopped};
use crate::json;
use crate::signal::{ClientSignal, SIGNALS_CHECKED, Signal};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Instant;
use tidewire_client::options::{self, Secrets};
use tidewire_client::{Client, ClientState, Config, Error};
use tokio::sync::oneshot;

/// A client: its life and what it receives. What it sends and asks for is in `requests`.
#[pyclass(frozen, weakref, module = "tidewire._native")]
pub(crate) struct ClientCore {
    config: Config,
    running: Mutex<Option<Client>>,
    signal: Arc<Signal>,
    /// In which process it was made.
    generation: u64,
}

impl ClientCore {
    /// The client, if it is this process's and was started.
    fn client(&self) -> Result<Client, Failure> {
        if self.generation != runtime::generation() {
            return Err(stopped(
                "the client was made before this process was forked: make a new one",
            ));
        }
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running
            .clone()
            .ok_or_else(|| stopped("the client was not started"))
    }

    /// Runs `work` on the clients' thread; the ticket has the result. Its first step is done here, so that
    /// calls are queued in the order in which they were made, and a close follows all of them.
    fn spawn<T>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
        answer: impl FnOnce(T) -> answer::TicketAnswer + Send + 'static,
    ) -> Result<Ticket, Failure> {
        let runtime = runtime::runtime()?;
        Ok(Ticket::start(self.signal.clone(), |answerer| {
            let mut done = Box::pin(async move { answerer.answer(work.await.map(answer)) });
            let _entered = runtime.enter();
            let first = done.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            // The thread polls it again at once, with a waker of its own.
            first
                .is_pending()
                .then(|| runtime.spawn(done).abort_handle())
        }))
    }
}

impl Drop for ClientCore {
    fn drop(&mut self) {
        if self.generation != runtime::generation() {
            // Its thread is in another process, and whatever lock it held will never be opened here.
            if let Ok(mut running) = self.running.try_lock() {
                std::mem::forget(running.take());
            }
        }
    }
}

#[pymethods]
impl ClientCore {
    /// `options` without the secrets, which are no JSON, and without the function that gives tokens.
    #[new]
    #[pyo3(signature = (options, *, token = None, token_provider = None, server_identity = None, signature_secret = None))]
    fn new(
        options: &Bound<'_, PyDict>,
        token: Option<Str>,
        token_provider: Option<Py<PyAny>>,
        server_identity: Option<Vec<u8>>,
        signature_secret: Option<Vec<u8>>,
    ) -> PyResult<Self> {
        let secrets = Secrets {
            server_identity,
            signature_secret,
        };
        let read = options::read(&json::dumps(options)?, secrets);
        let mut config = read.map_err(configuration)?;
        if let Some(token) = token {
            config = config.with_token(token.into_string());
        }
        if let Some(provider) = token_provider {
            let provider = Arc::new(provider);
            config = config.with_token_provider(move || ask_for_token(provider.clone()));
        }
        let no_signal = |error| stopped(format!("no descriptor: {error}"));
        Ok(Self {
            config,
            running: Mutex::new(None),
            signal: Signal::new().map_err(no_signal)?,
            generation: runtime::generation(),
        })
    }

    /// The names of all options.
    #[staticmethod]
    fn option_names() -> Vec<&'static str> {
        options::NAMES
            .into_iter()
            .filter(|name| *name != "urls")
            .collect()
    }

    /// The configuration as text, without secrets; for tests.
    #[pyo3(name = "_describe")]
    fn describe(&self) -> String {
        format!("{:#?}", self.config)
    }

    /// Forgets the clients of the process that this one was forked from.
    #[staticmethod]
    fn forget_all() {
        runtime::forget();
    }

    /// Starts to connect; with `once` each address is tried once, and the client is closed if none gives a session.
    fn start(&self, once: Flag) -> PyResult<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_some() {
            return Err(stopped("a client can be started once: make a new one").into());
        }
        let runtime = runtime::runtime()?;
        let _inside = runtime.enter();
        let config = self.config.clone();
        let started = if once.0 {
            Client::start_once(config)
        } else {
            Client::start(config)
        };
        let client = started.map_err(Failure::from)?;
        let signal = self.signal.clone();
        client.set_waker(Some(Arc::new(move || signal.give())));
        *running = Some(client);
        Ok(())
    }

    /// Waits at most `timeout_ms` for events; an empty batch if there are none.
    #[pyo3(signature = (timeout_ms = Whole(0)), text_signature = "($self, timeout_ms=0)")]
    fn receive(&self, py: Python<'_>, timeout_ms: Whole) -> PyResult<ClientBatch> {
        let client = self.client()?;
        if timeout_ms.0 == 0 {
            return Ok(ClientBatch::new(
                client.try_next_batch().map_err(Failure::from)?,
            ));
        }
        let deadline = Instant::now().checked_add(timeout_ms.ms());
        loop {
            let left = deadline.map_or(SIGNALS_CHECKED, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let wait = left.min(SIGNALS_CHECKED);
            let batch = py
                .detach(|| client.blocking_next_batch(wait))
                .map_err(Failure::from)?;
            if batch.is_some() || wait == left {
                return Ok(ClientBatch::new(batch));
            }
            py.check_signals()?;
        }
    }

    /// The signal for an event loop: there are events to receive, a ticket is done, or the client has ended.
    #[getter]
    fn signal(&self) -> ClientSignal {
        self.signal.clone().into()
    }

    /// The reason for the end of the client, an exception; `None` before its end.
    fn reason(&self) -> Option<PyErr> {
        match self.client().ok()?.state() {
            ClientState::Closed(reason) => Some(Failure::from(reason).into()),
            ClientState::Connecting | ClientState::Connected | ClientState::Waiting => None,
        }
    }

    /// `new`, `connecting`, `connected`, `waiting` or `closed`.
    #[getter]
    fn state(&self) -> &'static str {
        match self.client().map(|client| client.state()) {
            Err(_) if self.generation != runtime::generation() => "closed",
            Err(_) => "new",
            Ok(ClientState::Connecting) => "connecting",
            Ok(ClientState::Connected) => "connected",
            Ok(ClientState::Waiting) => "waiting",
            Ok(ClientState::Closed(_)) => "closed",
        }
    }
}

/// Calls Python for a token, on a thread of its own: the call may be slow, and the threads that all clients
/// share are few. The client asks for one token at a time.
async fn ask_for_token(provider: Arc<Py<PyAny>>) -> Result<String, String> {
    let (answer, answered) = oneshot::channel();
    let call = move || {
        let call = |py: Python<'_>| -> PyResult<String> {
            let helper = py
                .import("tidewire._client_options")?
                .getattr("call_for_token")?;
            Ok(helper.call1((&*provider,))?.extract::<Str>()?.into_string())
        };
        // The interpreter may be on its way out.
        let token = Python::try_attach(|py| call(py).map_err(|error| error.to_string()))
            .unwrap_or_else(|| Err("the program ends".to_owned()));
        // A client that was closed meanwhile needs none.
        let _ = answer.send(token);
    };
    let thread = std::thread::Builder::new().name("tidewire-token".to_owned());
    thread.spawn(call).map_err(|error| error.to_string())?;
    let failed = "the function that gives tokens failed";
    answered.await.unwrap_or_else(|_| Err(failed.to_owned()))
}

fn configuration(error: Error) -> Failure {
    Failure::new("ConfigurationError", "CONFIGURATION", Fault::Caller, error)
}
