//! The client: `tidewire.Client` and `tidewire.sync.Client` are Python classes on top of [`ClientCore`].

mod answer;
mod message;
mod options;
mod requests;
mod runtime;

pub(crate) use answer::Ticket;
pub(crate) use message::{ClientBatch, ClientBatchIterator, ClientMessage};

use crate::errors::{Failure, stopped};
use crate::json;
use answer::Finished;
use options::Secrets;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidewire_client::{Client, Config, Error, State};

/// A client: its life and what it receives. What it sends and asks for is in `requests`.
#[pyclass(frozen, weakref, module = "tidewire._native")]
pub(crate) struct ClientCore {
    config: Config,
    running: Mutex<Option<Client>>,
    bell: Arc<Bell>,
    finished: Arc<Finished>,
    /// In which process it was made.
    generation: u64,
}

/// A descriptor that becomes readable when something happened, once for however much.
struct Bell {
    reader: UnixStream,
    writer: UnixStream,
    is_rung: AtomicBool,
}

impl Bell {
    fn new() -> std::io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Self {
            reader,
            writer,
            is_rung: AtomicBool::new(false),
        })
    }

    fn ring(&self) {
        if !self.is_rung.swap(true, Ordering::AcqRel) {
            // A full pipe is readable already.
            let _ = (&self.writer).write(&[1]);
        }
    }

    fn hush(&self) {
        let mut bytes = [0; 16];
        // What happens from here on rings again; who called this looks at all that happened before.
        while matches!((&self.reader).read(&mut bytes), Ok(1..)) {}
        self.is_rung.store(false, Ordering::Release);
    }
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

    /// Runs `work` on the clients' thread; what comes of it is told by the ticket.
    fn spawn<T>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
        answer: impl FnOnce(T) -> answer::Answer + Send + 'static,
    ) -> Result<Ticket, Failure> {
        let (ticket, slot) = Ticket::new();
        let (finished, bell) = (self.finished.clone(), self.bell.clone());
        runtime::runtime()?.spawn(async move {
            let result = work.await.map(answer);
            if slot.fill(result) {
                finished.add(slot.number());
                bell.ring();
            }
        });
        Ok(ticket)
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
        token: Option<String>,
        token_provider: Option<Py<PyAny>>,
        server_identity: Option<Vec<u8>>,
        signature_secret: Option<Vec<u8>>,
    ) -> PyResult<Self> {
        let secrets = Secrets {
            server_identity,
            signature_secret,
        };
        let mut config = options::read(&json::dumps(options)?, secrets)?;
        if let Some(token) = token {
            config = config.with_token(token);
        }
        if let Some(provider) = token_provider {
            let provider = Arc::new(provider);
            config = config.with_token_provider(move || ask_for_token(provider.clone()));
        }
        let no_bell = |error| stopped(format!("no descriptor: {error}"));
        Ok(Self {
            config,
            running: Mutex::new(None),
            bell: Arc::new(Bell::new().map_err(no_bell)?),
            finished: Arc::default(),
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

    /// Forgets the clients of the process that this one was forked from.
    #[staticmethod]
    fn forget_all() {
        runtime::forget();
    }

    /// Starts to connect; with `once` each address is tried once, and the client is closed if none gives a session.
    fn start(&self, once: bool) -> PyResult<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_some() {
            return Err(stopped("a client can be started once: make a new one").into());
        }
        let runtime = runtime::runtime()?;
        let _inside = runtime.enter();
        let config = self.config.clone();
        let started = if once {
            Client::start_once(config)
        } else {
            Client::start(config)
        };
        let client = started.map_err(Failure::from)?;
        let bell = self.bell.clone();
        client.set_bell(Some(Arc::new(move || bell.ring())));
        *running = Some(client);
        Ok(())
    }

    /// What has happened, waited for at most so long; an empty batch if nothing has.
    #[pyo3(signature = (timeout_ms = 0))]
    fn receive(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<ClientBatch> {
        let client = self.client()?;
        if timeout_ms == 0 {
            return Ok(ClientBatch::new(
                client.try_next_batch().map_err(Failure::from)?,
            ));
        }
        let deadline = Instant::now().checked_add(Duration::from_millis(timeout_ms));
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

    /// A descriptor that becomes readable when there is something to receive or a ticket is done, until `hush`.
    fn fileno(&self) -> i32 {
        self.bell.reader.as_raw_fd()
    }

    /// Takes back that the descriptor is readable. Then everything that happened has to be looked at.
    fn hush(&self) {
        self.bell.hush();
    }

    /// The numbers of the tickets that are done since the last call.
    fn finished(&self) -> Vec<u64> {
        self.finished.take()
    }

    /// `new`, `connecting`, `connected`, `waiting` or `closed`.
    #[getter]
    fn state(&self) -> &'static str {
        match self.client().map(|client| client.state()) {
            Err(_) if self.generation != runtime::generation() => "closed",
            Err(_) => "new",
            Ok(State::Connecting) => "connecting",
            Ok(State::Connected) => "connected",
            Ok(State::Waiting) => "waiting",
            Ok(State::Closed(_)) => "closed",
        }
    }
}

/// Calls Python for a token, on a thread where it may take its time.
async fn ask_for_token(provider: Arc<Py<PyAny>>) -> Result<String, String> {
    let asked = tokio::task::spawn_blocking(move || {
        let call = |py: Python<'_>| -> PyResult<String> {
            let helper = py
                .import("tidewire._client_options")?
                .getattr("call_for_token")?;
            helper.call1((&*provider,))?.extract()
        };
        // The interpreter may be on its way out.
        Python::try_attach(|py| call(py).map_err(|error| error.to_string()))
            .unwrap_or_else(|| Err("the program ends".to_owned()))
    });
    asked
        .await
        .unwrap_or_else(|_| Err("the function that gives tokens failed".to_owned()))
}

/// How long a waiting thread may leave Ctrl-C unheard.
const SIGNALS_CHECKED: Duration = Duration::from_millis(100);
