//! The life of a server: new, running, stopped. Every method may be called on any thread.

use super::ServerOptions;
use super::connect_requests::WaitingClient;
use crate::failure::{Failure, Fault};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tidewire_engine::queue::{Receiver, queue};
use tidewire_engine::{ConnectRequests, DecidedTopics, Handle, ListeningSockets, Server};
use tidewire_wire::close::{CLOSE_CODES, CloseCode};

/// A server of the engine that is started once. It stops when it is dropped.
pub struct ServerLifecycle {
    options: ServerOptions,
    decided: Arc<DecidedTopics>,
    connect_requests: Arc<ConnectRequests>,
    running: OnceLock<Running>,
    server: Mutex<Option<Server>>,
    is_starting: AtomicBool,
    is_drain_over: AtomicBool,
    is_stopped: AtomicBool,
}

struct Running {
    handle: Handle,
    address: SocketAddr,
    ops_address: Option<SocketAddr>,
}

impl ServerLifecycle {
    /// A server that does not listen yet.
    #[must_use]
    pub fn new(options: ServerOptions) -> Self {
        Self::with(options, Arc::default(), Arc::default())
    }

    /// Another server with the same options, which decides about the same topics and clients.
    #[must_use]
    pub fn renewed(&self) -> Self {
        let decided = Arc::clone(&self.decided);
        let connect_requests = Arc::clone(&self.connect_requests);
        Self::with(self.options.clone(), decided, connect_requests)
    }

    fn with(
        options: ServerOptions,
        decided: Arc<DecidedTopics>,
        connect_requests: Arc<ConnectRequests>,
    ) -> Self {
        Self {
            options,
            decided,
            connect_requests,
            running: OnceLock::new(),
            server: Mutex::new(None),
            is_starting: AtomicBool::new(false),
            is_drain_over: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// The options that the server was made with.
    #[must_use]
    pub fn options(&self) -> &ServerOptions {
        &self.options
    }

    /// Starts to listen, or without `listens` only accepts the connections that are handed over. `wake` is called on a thread of the engine, once after each [`Receiver::arm`], when there is
    /// something to receive.
    ///
    /// # Errors
    /// The address cannot be listened on (the server can be started later), or the server was started before.
    pub fn start(
        &self,
        listens: bool,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Receiver, Failure> {
        if self.is_starting.swap(true, Ordering::AcqRel) {
            let message = "a server can be started once: make a new one";
            return Err(Failure::stopped(message));
        }
        let (sender, receiver) = queue(self.options.queue_bytes_max);
        let sender = sender
            .with_decided(Arc::clone(&self.decided))
            .with_connect_requests(Arc::clone(&self.connect_requests));
        let sender = match self.options.snapshot_requests {
            true => sender.with_syncs(),
            false => sender,
        };
        receiver.on_batch(wake);
        let config = self.options.config.clone();
        let sockets = ListeningSockets {
            adopts_only: !listens,
            ..ListeningSockets::default()
        };
        let started = Server::start_on(sockets, config, |_shard| sender.application());
        let server = started.inspect_err(|_| self.is_starting.store(false, Ordering::Release))?;
        let running = Running {
            handle: server.handle(),
            address: server.address(),
            ops_address: server.ops_address(),
        };
        *locked(&self.server) = Some(server);
        let _ = self.running.set(running);
        Ok(receiver)
    }

    /// The names and patterns of the topics about whose publications by clients the application decides, from now on.
    ///
    /// # Errors
    /// One of them is neither a topic nor a pattern.
    pub fn decide_about(&self, patterns: Vec<String>) -> Result<(), Failure> {
        let set = self.decided.set(patterns);
        set.map_err(Failure::argument)
    }

    /// Has every client wait for a decision of the application from now on. `wake` is called on a thread of the engine when one
    /// waits; only the first one counts.
    pub fn decide_connections(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.connect_requests.decide_all(wake);
    }

    /// The next client that waits for a decision.
    pub fn take_waiting_client(&self) -> Option<WaitingClient> {
        self.connect_requests.take().map(WaitingClient::from)
    }

    /// Ends every connection at once. A server that does not run stays as it is, but cannot be used any more.
    pub fn stop(&self) {
        self.end_drain();
        self.is_stopped.store(true, Ordering::Release);
        let server = locked(&self.server).take();
        if let Some(server) = server {
            server.stop();
        }
        self.connect_requests.forget_gone();
    }

    /// Sends the clients away, evenly over the time, and stops. Gives the number of connections that were left.
    /// [`stop`](Self::stop) and [`end_drain`](Self::end_drain) on another thread end it at once.
    pub fn drain(&self, timeout: Duration) -> usize {
        let server = locked(&self.server).take();
        let is_wanted = || !self.is_drain_over.load(Ordering::Acquire);
        let left = server.map_or(0, |server| server.drain_while(timeout, is_wanted));
        self.is_stopped.store(true, Ordering::Release);
        left
    }

    /// Lets a drain that runs, or that is called later, end at once. A server that was not started stays as it is.
    pub fn end_drain(&self) {
        if self.running.get().is_some() {
            self.is_drain_over.store(true, Ordering::Release);
        }
    }

    /// Accepts new connections, or rejects them with 503 and `Retry-After`. A server that does not run has none.
    pub fn set_admitting(&self, is_admitting: bool) {
        if let Some(running) = self.running.get() {
            running.handle.set_admitting(is_admitting);
        }
    }

    /// Forgets the server without ending it, in a process that was forked from its own: the threads are in the other
    /// process.
    pub fn abandon(&self) {
        self.is_stopped.store(true, Ordering::Release);
        // A thread of the parent may have held the lock at the fork; then nobody will ever open it here.
        if let Ok(mut server) = self.server.try_lock() {
            std::mem::forget(server.take());
        }
    }

    /// `new`, `running` or `stopped`.
    #[must_use]
    pub fn state(&self) -> &'static str {
        if self.is_stopped.load(Ordering::Acquire) {
            "stopped"
        } else if self.running.get().is_some() {
            "running"
        } else {
            "new"
        }
    }

    /// The address of the server.
    ///
    /// # Errors
    /// The server was not started, or does not listen.
    pub fn address(&self) -> Result<SocketAddr, Failure> {
        let address = self.running()?.address;
        if address.port() == 0 {
            let message = "this server has no port of its own: its clients come through the HTTP server that it is attached to";
            return Err(Failure::new(
                "TidewireError",
                "NO_PORT",
                Fault::Caller,
                message,
            ));
        }
        Ok(address)
    }

    /// The address of the operations listener, if there is one.
    ///
    /// # Errors
    /// The server was not started.
    pub fn ops_address(&self) -> Result<Option<SocketAddr>, Failure> {
        Ok(self.running()?.ops_address)
    }

    /// The URL for clients of this machine.
    ///
    /// # Errors
    /// The server was not started, or does not listen.
    pub fn url(&self) -> Result<String, Failure> {
        let address = self.address()?;
        // A server that listens on every address is reached on this machine's own.
        let host = match address.ip() {
            ip if ip.is_unspecified() && ip.is_ipv4() => "127.0.0.1".to_owned(),
            ip if ip.is_unspecified() => "[::1]".to_owned(),
            ip if ip.is_ipv6() => format!("[{ip}]"),
            ip => ip.to_string(),
        };
        let (scheme, path) = (self.options.scheme(), self.options.path());
        Ok(format!("{scheme}://{host}:{}{path}", address.port()))
    }

    /// The way to the running server.
    ///
    /// # Errors
    /// The server was not started, or has stopped.
    pub fn handle(&self) -> Result<&Handle, Failure> {
        let running = self.running()?;
        match self.is_stopped.load(Ordering::Acquire) {
            true => Err(Failure::stopped("the server has stopped")),
            false => Ok(&running.handle),
        }
    }

    /// The way to the server, which may have stopped.
    ///
    /// # Errors
    /// The server was not started.
    pub fn last_handle(&self) -> Result<&Handle, Failure> {
        Ok(&self.running()?.handle)
    }

    /// Looks why there is nothing more to receive.
    ///
    /// # Errors
    /// The server has ended by itself, or was not started.
    pub fn check_failure(&self) -> Result<(), Failure> {
        let failure = self.running()?.handle.failure();
        failure.map_or(Ok(()), |failure| {
            let code = "SERVER_FAILED";
            Err(Failure::new("TidewireError", code, Fault::Nobody, failure))
        })
    }

    fn running(&self) -> Result<&Running, Failure> {
        let message = "the server was not started: call start() first";
        self.running.get().ok_or_else(|| Failure::stopped(message))
    }
}

impl Drop for ServerLifecycle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The code of a close by the application.
///
/// # Errors
/// No close frame may carry it.
pub fn close_code(code: u64) -> Result<CloseCode, Failure> {
    let known = u16::try_from(code).ok();
    let known = known.and_then(CloseCode::from_wire);
    known.ok_or_else(|| Failure::argument(format!("{code}: {CLOSE_CODES}")))
}

/// A thread that panicked has left the server whole: it is replaced in one step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn server(port: u16) -> ServerLifecycle {
        let keywords = json!({"port": port, "no_auth": true, "shards": 1});
        let options = ServerOptions::from_keywords(keywords.as_object().expect("an object"));
        ServerLifecycle::new(options.expect("options"))
    }

    #[test]
    fn a_server_is_new_then_runs_then_has_stopped() {
        let server = server(0);
        assert_eq!(server.state(), "new");
        assert_eq!(server.url().expect_err("not started").code, "STOPPED");
        let _receiver = server.start(true, || {}).expect("it starts");
        assert_eq!(server.state(), "running");
        let port = server.address().expect("an address").port();
        assert_eq!(
            server.url().expect("a URL"),
            format!("ws://127.0.0.1:{port}/ws")
        );
        assert_eq!(
            server.start(true, || {}).expect_err("started before").code,
            "STOPPED"
        );
        server.stop();
        assert_eq!(server.state(), "stopped");
        assert_eq!(server.handle().expect_err("stopped").code, "STOPPED");
        assert_eq!(server.drain(Duration::ZERO), 0);
    }

    /// A client that is let in, and then neither reads nor leaves.
    fn silent_client(address: SocketAddr) -> TcpStream {
        let mut socket = TcpStream::connect(address).expect("a connection");
        let head = format!(
            "GET /ws HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).expect("a request");
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 101");
        socket
    }

    #[test]
    fn a_stop_ends_a_drain() {
        let server = server(0);
        // A server that was not started is not concerned.
        server.end_drain();
        let _receiver = server.start(true, || {}).expect("it starts");
        let address = server.address().expect("an address");
        let clients: Vec<TcpStream> = (0..8).map(|_| silent_client(address)).collect();
        let left = std::thread::scope(|scope| {
            let drain = scope.spawn(|| server.drain(Duration::from_secs(600)));
            let handle = server.last_handle().expect("it was started");
            while !handle.is_draining() {
                std::thread::yield_now();
            }
            assert!(handle.connections() > 0, "the clients leave one by one");
            server.stop();
            drain.join().expect("the drain ends")
        });
        assert!(
            left > 0,
            "the drain has not waited for {} clients",
            clients.len()
        );
        assert_eq!(server.state(), "stopped");
    }

    #[test]
    fn a_server_whose_port_is_in_use_starts_later() {
        let first = server(0);
        let _receiver = first.start(true, || {}).expect("it starts");
        let second = server(first.address().expect("an address").port());
        assert_eq!(
            second.start(true, || {}).expect_err("in use").class,
            "AddressError"
        );
        assert_eq!(second.state(), "new");
        first.stop();
        let _receiver = second.start(true, || {}).expect("the port is free");
    }
}
