//! The address of the backend as sockets want it. A separate thread resolves a name, because that may be
//! slow; the link never waits.

use crate::model::url::HttpUrl;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use tidewire_net::tls::{self, ClientConfig};
use tidewire_net::{Address, Connect, Mailbox, Usage};

/// The addresses of the backend's name, or why there are none.
#[derive(Debug)]
pub(crate) struct Found(io::Result<Vec<SocketAddr>>);

/// How the link connects: where to, and by which TLS.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) url: HttpUrl,
    tls: Option<Arc<ClientConfig>>,
    /// Asks for the addresses, if the URL has a name.
    finder: Option<Sender<()>>,
    is_asked: bool,
    addresses: Vec<SocketAddr>,
    /// Until when the addresses of a name are used, on the monotonic clock.
    until_ms: u64,
    /// Connections that were started.
    attempts: usize,
}

impl Route {
    pub(crate) fn new(url: HttpUrl, tls: Option<Arc<ClientConfig>>) -> Self {
        Self {
            url,
            tls,
            finder: None,
            is_asked: false,
            addresses: Vec::new(),
            until_ms: 0,
            attempts: 0,
        }
    }

    /// Starts the thread that resolves the name, if the URL has one. It ends after the route.
    pub(crate) fn find_by(&mut self, link: Mailbox<Found>) -> io::Result<()> {
        if let Ok(address) = self.url.host.parse::<IpAddr>() {
            self.addresses = vec![(address, self.url.port).into()];
            self.until_ms = u64::MAX;
            return Ok(());
        }
        let (sender, questions) = mpsc::channel();
        let (host, port) = (self.url.host.clone(), self.url.port);
        thread::Builder::new()
            .name("tidewire-names".to_owned())
            .spawn(move || {
                for () in questions {
                    let addresses = (host.as_str(), port).to_socket_addrs();
                    // A link that has stopped needs no answer.
                    let _ = link.send(Found(addresses.map(Iterator::collect)));
                }
            })?;
        self.finder = Some(sender);
        Ok(())
    }

    /// Where to connect next; `None` if the name has to be resolved first, which [`Route::learn`] ends.
    pub(crate) fn connect(&mut self, now_ms: u64) -> Option<io::Result<Connect>> {
        if now_ms < self.until_ms {
            return Some(self.next());
        }
        if !self.is_asked
            && let Some(finder) = &self.finder
        {
            // The thread lives as long as the sender.
            self.is_asked = finder.send(()).is_ok();
        }
        None
    }

    /// The name has been resolved.
    ///
    /// # Errors
    /// It has no address.
    pub(crate) fn learn(&mut self, found: Found, now_ms: u64) -> io::Result<()> {
        self.is_asked = false;
        self.addresses = found.0?;
        if self.addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, NO_ADDRESS));
        }
        self.until_ms = now_ms + RESOLVED_MS;
        Ok(())
    }

    /// A connection could not be opened: the name may have other addresses by now.
    pub(crate) fn forget(&mut self) {
        if self.finder.is_some() {
            self.until_ms = 0;
        }
    }

    fn next(&mut self) -> io::Result<Connect> {
        // Another one each time, in case one does not answer.
        let place = self.attempts % self.addresses.len().max(1);
        let none = || io::Error::new(io::ErrorKind::NotFound, NO_ADDRESS);
        let address = *self.addresses.get(place).ok_or_else(none)?;
        self.attempts += 1;
        let tls = match &self.tls {
            Some(config) => {
                let name = tls::server_name(&self.url.host).map_err(io::Error::other)?;
                Some((Arc::clone(config), name))
            }
            None => None,
        };
        Ok(Connect {
            address: Address::Tcp(address),
            source: None,
            tls,
            // A request follows at once.
            usage: Usage::WritesFirst,
        })
    }
}

const NO_ADDRESS: &str = "the name has no address";

/// How long the addresses of a name are used, in milliseconds.
const RESOLVED_MS: u64 = 10_000;
