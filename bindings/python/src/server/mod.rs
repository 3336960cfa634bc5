//! The server: `tidewire.Server` is a Python class on top of [`ServerCore`].

mod adopting;
mod batch;
mod connect_requests;
mod connection;
mod core;
mod inquiries;
mod message;
mod publishing;
mod waiting;

pub(crate) use batch::{Batch, BatchIterator};
pub(crate) use connect_requests::WaitingClient;
pub(crate) use connection::Connection;
pub(crate) use message::Message;
pub(crate) use waiting::{PendingPublish, Published};

use crate::arguments::{Flag, Names, Str, Whole};
use crate::errors::Failure;
use crate::json;
use crate::signal::{ClientSignal, SIGNALS_CHECKED};
use arc_swap::ArcSwap;
use core::{Core, read_options};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use std::time::Instant;
use tidewire_bindings::server::ServerOptions;
use tidewire_bindings::server::adopting::Newcomer;
use tidewire_engine::settings::nearest;

/// A server: its life and its messages. The other methods are in `publishing` and `inquiries`.
#[pyclass(subclass, frozen, weakref, module = "tidewire._native")]
pub(crate) struct ServerCore(ArcSwap<Core>);

#[pymethods]
impl ServerCore {
    #[new]
    fn new(options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let text = json::dumps(options)?;
        let options = read_options(&text).map_err(PyErr::from)?;
        Ok(Self(ArcSwap::from_pointee(Core::new(options))))
    }

    /// The names of all options.
    #[staticmethod]
    fn option_names() -> Vec<&'static str> {
        ServerOptions::names().collect()
    }

    /// The configuration as text, without secrets; for tests.
    #[pyo3(name = "_describe")]
    fn describe(&self) -> String {
        self.core().server.options().describe()
    }

    /// The configuration that the same options make as a JSON object; for tests.
    #[staticmethod]
    #[pyo3(name = "_describe_json")]
    fn describe_json(text: Str) -> PyResult<String> {
        Ok(read_options(&text)?.describe())
    }

    /// Replaces a server that has stopped by a new one with the same options. An object of the old server,
    /// such as a connection, still belongs to the old one.
    #[pyo3(name = "_renew")]
    fn renew(&self) {
        let old = self.core();
        if old.server.state() == "stopped" {
            self.0.store(Arc::new(old.renewed()));
        }
    }

    /// The topics and patterns about whose publications by clients handlers decide.
    #[pyo3(name = "_decide_about")]
    fn decide_about(&self, topics: Vec<String>) -> PyResult<()> {
        let decided = self.core().server.decide_about(topics);
        decided.map_err(|failure| Failure::from(failure).into())
    }

    /// Has every client of the own port wait for a decision. The signal is given when one waits.
    #[pyo3(name = "_decide_connections")]
    fn decide_connections(&self, signal: &ClientSignal) {
        let signal = signal.signal();
        let core = self.core();
        core.server.decide_connections(move || signal.give());
    }

    /// The next client that waits for a decision.
    #[pyo3(name = "_take_waiting_client")]
    fn take_waiting_client(&self) -> Option<WaitingClient> {
        let core = self.core();
        let client = core.server.take_waiting_client()?;
        Some(WaitingClient::new(core, client))
    }

    /// Starts to listen.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core();
        py.detach(|| core.start()).map_err(Into::into)
    }

    /// Closes every connection at once.
    fn stop(&self, py: Python<'_>) {
        let core = self.core();
        py.detach(|| core.server.stop());
    }

    /// Sends the clients away, evenly, and stops; how many connections were left at the end of the time.
    #[pyo3(signature = (timeout_ms = Whole(10_000)), text_signature = "($self, timeout_ms=10000)")]
    fn drain(&self, py: Python<'_>, timeout_ms: Whole) -> usize {
        let core = self.core();
        py.detach(|| core.server.drain(timeout_ms.ms()))
    }

    /// Accepts new connections, or rejects them for some time with 503 and `Retry-After`.
    fn admit(&self, admitting: Flag) {
        self.core().server.set_admitting(admitting.0);
    }

    /// Makes a connection whose other end the caller relays to a client: the descriptor of that end. The caller writes the request.
    /// `decision` is JSON; null if there is none in time, and `None` if the token decides.
    #[pyo3(name = "_adopt_relayed", signature = (address, listens_at, decision, attachment))]
    fn adopt_relayed(
        &self,
        address: Option<(Str, u16)>,
        listens_at: Option<Str>,
        decision: Option<Str>,
        attachment: Option<Py<PyAny>>,
    ) -> PyResult<i32> {
        let core = self.core();
        let text = |text: Str| text.to_string();
        let (host, port) = address.unzip();
        let newcomer = Newcomer {
            host: host.map(text),
            port,
            listens_at: listens_at.map(text),
            decision: decision.map(text),
        };
        Ok(core.adoptions.relay(core.handle()?, newcomer, attachment)?)
    }

    /// Forgets the server without a word, in a process that was forked from its own.
    #[pyo3(name = "_abandon")]
    fn abandon(&self) {
        self.core().abandon();
    }

    /// `new`, `running` or `stopped`.
    #[getter]
    fn state(&self) -> &'static str {
        self.core().server.state()
    }

    #[getter]
    fn port(&self) -> PyResult<u16> {
        Ok(self.core().address()?.port())
    }

    #[getter]
    fn address(&self) -> PyResult<(String, u16)> {
        let address = self.core().address()?;
        Ok((address.ip().to_string(), address.port()))
    }

    #[getter]
    fn ops_address(&self) -> PyResult<Option<(String, u16)>> {
        let address = self.core().server.ops_address().map_err(Failure::from)?;
        Ok(address.map(|address| (address.ip().to_string(), address.port())))
    }

    #[getter]
    fn url(&self) -> PyResult<String> {
        Ok(self.core().server.url().map_err(Failure::from)?)
    }

    /// Waits at most `timeout_ms` for messages. Returns at most `max_messages` of them, or none.
    #[pyo3(signature = (max_messages = Whole(4096), timeout_ms = Whole(0)), text_signature = "($self, max_messages=4096, timeout_ms=0)")]
    fn receive(&self, py: Python<'_>, max_messages: Whole, timeout_ms: Whole) -> PyResult<Batch> {
        let core = self.core();
        let deadline = Instant::now().checked_add(timeout_ms.ms());
        loop {
            let left = deadline.map_or(SIGNALS_CHECKED, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let wait = left.min(SIGNALS_CHECKED);
            let segments = py.detach(|| core.receive(max_messages.size(), wait))?;
            if !segments.is_empty() || wait == left {
                return Ok(Batch::new(segments));
            }
            py.check_signals()?;
        }
    }

    /// A descriptor that becomes readable when there is something to receive, after `arm`.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.core().fileno()?)
    }

    /// Wants the descriptor to become readable with the next batch; false if one is there already.
    fn arm(&self) -> PyResult<bool> {
        Ok(self.core().arm()?)
    }

    /// Makes the descriptor unreadable again.
    fn disarm(&self) -> PyResult<()> {
        Ok(self.core().disarm()?)
    }
}

impl ServerCore {
    fn core(&self) -> Arc<Core> {
        self.0.load_full()
    }
}

/// The known name that is most like `name`, if one is alike.
#[pyfunction]
#[pyo3(signature = (name, known))]
pub(crate) fn nearest_name(name: Str, known: Names) -> Option<String> {
    let known: Vec<&str> = known.0.iter().map(|known| &**known).collect();
    nearest(&name, known).map(str::to_owned)
}

/// For `?` in functions that return a [`PyResult`].
type ServerResult<T> = Result<T, Failure>;
