//! The server: `Server` of `lib/server.js` is a class on top of [`NativeServer`].
//!
//! - `adopting`: connections of HTTP servers of Node
//! - `connect_requests`: clients about whom JavaScript decides
//! - `inbox`: received events, as rows of numbers and bytes in a buffer of JavaScript
//! - `inquiries`: what the application asks of the running server
//! - `later`: what a broker answers later, as promises
//! - `outbox`: what JavaScript sends in batches
//! - `publishing`: what JavaScript sends at once
//! - `tables`: connections and requests under small numbers

mod adopting;
mod connect_requests;
mod inbox;
mod inquiries;
mod later;
mod outbox;
mod publishing;
mod tables;

use crate::errors::{Failure, stopped};
use crate::options;
use inbox::{Inbox, Received};
use napi::Task;
use napi::bindgen_prelude::{AsyncTask, BufferSlice, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tidewire_bindings::server::ServerLifecycle;
use tidewire_bindings::server::adopting::EndedAdoptions;
use tidewire_engine::{ConnectionKey, Handle, NewPublication};

/// Calls the function of JavaScript that receives. It does not keep the process alive.
type Waker = ThreadsafeFunction<(), (), (), napi::Status, false, true>;

/// A server: its life and what it receives. The other methods are in `publishing`, `outbox` and `inquiries`.
#[napi]
pub struct NativeServer {
    core: Arc<ServerLifecycle>,
    /// There once the server was started.
    inbox: RefCell<Option<Inbox>>,
    /// Why a record of the outbox was refused.
    refusal: Cell<Option<Failure>>,
    ended_adoptions: EndedAdoptions,
}

#[napi]
impl NativeServer {
    /// Accepts the options as a JSON object with names in camelCase.
    #[napi(constructor)]
    pub fn new(options: String) -> napi::Result<Self> {
        let options = options::read(&options)?;
        Ok(Self {
            core: Arc::new(ServerLifecycle::new(options)),
            inbox: RefCell::new(None),
            refusal: Cell::new(None),
            ended_adoptions: EndedAdoptions::default(),
        })
    }

    /// The names of all options.
    #[napi]
    pub fn option_names() -> Vec<String> {
        options::names()
    }

    /// Starts to listen, or without `listens` only to adopt connections. `wake` is called once after each `receive` without a
    /// batch, when there is one.
    #[napi]
    pub fn start(&self, listens: bool, wake: Function<'_, (), ()>) -> napi::Result<()> {
        let waker: Waker = wake
            .build_threadsafe_function()
            .weak::<true>()
            .callee_handled::<false>()
            .build()?;
        let receiver = self.core.start(listens, move || {
            // An environment that is about to end receives nothing more.
            waker.call((), ThreadsafeFunctionCallMode::NonBlocking);
        });
        let receiver = receiver.map_err(Failure::from)?;
        *self.inbox.borrow_mut() = Some(Inbox::new(receiver));
        Ok(())
    }

    /// Writes the next batch into `buffer`, starting at `at`, and returns the offset of its end.
    /// Returns 0 if there is no batch; `wake` is called when there is one. Returns -1 if the server
    /// has stopped and every batch was received. Returns any other negative number, -N, if the batch
    /// needs N bytes.
    #[napi]
    pub fn receive(&self, mut buffer: BufferSlice<'_>, at: u32) -> napi::Result<i32> {
        let mut inbox = self.inbox.borrow_mut();
        let inbox = inbox.as_mut().ok_or_else(not_started)?;
        Ok(match inbox.receive(&mut buffer, at as usize) {
            Received::Batch(end) => end as i32,
            Received::Nothing => 0,
            Received::NoRoom(bytes) => -(bytes as i32),
            Received::Finished => {
                self.core.check_failure().map_err(Failure::from)?;
                -1
            }
        })
    }

    /// The types of messages and of requests that have handlers of their own: rows name them by their places.
    #[napi]
    pub fn route(&self, messages: Vec<String>, requests: Vec<String>) -> napi::Result<()> {
        let mut inbox = self.inbox.borrow_mut();
        let inbox = inbox.as_mut().ok_or_else(not_started)?;
        inbox.route(messages, requests);
        Ok(())
    }

    /// The topics about whose publications by clients JavaScript decides: rows name them by their places.
    #[napi]
    pub fn decide_about(&self, topics: Vec<String>) -> napi::Result<()> {
        Ok(self.core.decide_about(topics).map_err(Failure::from)?)
    }

    /// Ends every connection at once.
    #[napi]
    pub fn stop(&self) -> AsyncTask<Ending> {
        AsyncTask::new(Ending(Arc::clone(&self.core), None))
    }

    /// Sends the clients away, evenly, and stops; how many connections were left after this time.
    #[napi]
    pub fn drain(&self, timeout_ms: u32) -> AsyncTask<Ending> {
        let timeout = Duration::from_millis(timeout_ms.into());
        AsyncTask::new(Ending(Arc::clone(&self.core), Some(timeout)))
    }

    /// Lets a drain end at once.
    #[napi]
    pub fn end_drain(&self) {
        self.core.end_drain();
    }

    /// Lets new connections in, or rejects them with 503 and `Retry-After`.
    #[napi]
    pub fn admit(&self, is_admitting: bool) {
        self.core.set_admitting(is_admitting);
    }

    /// `new`, `running` or `stopped`.
    #[napi(getter)]
    pub fn state(&self) -> &'static str {
        self.core.state()
    }

    /// The address of its listener.
    #[napi(getter)]
    pub fn address(&self) -> napi::Result<NativeAddress> {
        Ok(self.core.address().map_err(Failure::from)?.into())
    }

    /// The address of the operations listener, if there is one.
    #[napi(getter)]
    pub fn ops_address(&self) -> napi::Result<Option<NativeAddress>> {
        let address = self.core.ops_address().map_err(Failure::from)?;
        Ok(address.map(NativeAddress::from))
    }

    /// Address for clients.
    #[napi(getter)]
    pub fn url(&self) -> napi::Result<String> {
        Ok(self.core.url().map_err(Failure::from)?)
    }
}

impl NativeServer {
    fn handle(&self) -> Result<&Handle, Failure> {
        Ok(self.core.handle()?)
    }

    /// The same for everybody but the connections of these places and generations.
    fn without(&self, new: NewPublication, numbers: Option<&[u32]>) -> NewPublication {
        let Some(numbers) = numbers else {
            return new;
        };
        let pairs = numbers.as_chunks::<2>().0.iter();
        new.without_all(
            pairs.filter_map(|[place, generation]| self.connection(*place, *generation)),
        )
    }

    /// The connection under this number; `None` if it is gone.
    fn connection(&self, place: u32, generation: u32) -> Option<ConnectionKey> {
        let inbox = self.inbox.borrow();
        inbox.as_ref()?.connections.key(place, generation)
    }
}

/// An address of a listener.
#[napi(object)]
pub struct NativeAddress {
    pub host: String,
    pub port: u16,
}

impl From<SocketAddr> for NativeAddress {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

/// The end of a server, on another thread: at once, or after a time in which its clients leave.
pub struct Ending(Arc<ServerLifecycle>, Option<Duration>);

impl Task for Ending {
    type Output = u32;
    type JsValue = u32;

    fn compute(&mut self) -> napi::Result<u32> {
        Ok(match self.1 {
            Some(timeout) => self.0.drain(timeout) as u32,
            None => {
                self.0.stop();
                0
            }
        })
    }

    fn resolve(&mut self, _env: napi::Env, left: u32) -> napi::Result<u32> {
        Ok(left)
    }
}

fn not_started() -> Failure {
    stopped("the server was not started: call start() first")
}
