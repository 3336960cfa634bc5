//! Address of the broker: names, and the masters that sentinels or the nodes of a cluster name.
//!
//! Both may be slow to find, so a separate thread searches for them. The link never waits.

use crate::cluster::blocking::Named;
use crate::cluster::handover::Handovers;
use crate::cluster::search::{Search, Wanted};
use crate::cluster::secrets::{Login, Secrets};
use crate::config::broker::{BrokerAddress, Place};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;
use tidewire_net::tls::{self, ClientConfig};
use tidewire_net::{Address, Connect, Mailbox, Usage};
use tidewire_redis::{Handover, Slot};

/// How the link connects: where to, and by which TLS.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) address: BrokerAddress,
    /// Where a cluster has all keys.
    pub(crate) slot: u16,
    /// For an address with TLS.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// Secrets that are read again before each connection.
    pub(crate) secrets: Secrets,
}

/// The thread's report to the link.
#[derive(Debug)]
pub(crate) enum Found {
    /// The answer to a question about this slot.
    Place(Slot, io::Result<Way>),
    /// Another master has replaced the old one.
    Moved,
}

/// How one connection is opened.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) connect: Connect,
    /// The user and the password, if they are others than those of the link's options.
    pub(crate) login: Option<Login>,
    /// How all data came to this place from another one.
    pub(crate) handover: Option<Handover>,
}

impl From<Connect> for Way {
    fn from(connect: Connect) -> Self {
        Self {
            connect,
            login: None,
            handover: None,
        }
    }
}

impl Route {
    /// The place, if nobody need be asked for it.
    pub(crate) fn at_once(&self) -> Option<io::Result<Connect>> {
        // Reading files and running programs may be slow.
        if self.secrets.change() {
            return None;
        }
        self.connect_at_once()
    }

    fn connect_at_once(&self) -> Option<io::Result<Connect>> {
        match &self.address.place {
            Place::Unix(path) => Some(Ok(Connect {
                address: Address::Unix(path.clone()),
                source: None,
                tls: None,
                usage: Usage::Any,
            })),
            Place::Tcp { host, port, .. } => {
                let address: IpAddr = host.parse().ok()?;
                Some(self.connect((address, *port).into(), host))
            }
            Place::Sentinel { .. } | Place::Cluster { .. } => None,
        }
    }

    /// Starts the thread that finds the place. It ends when the questions end.
    pub(crate) fn into_finder(self, link: Mailbox<Found>) -> io::Result<Sender<Slot>> {
        let search = self.search();
        let (sender, questions) = mpsc::channel();
        let finder = Finder {
            route: self,
            search,
            link,
            login: None,
            last: None,
            searches: 0,
            handovers: Handovers::default(),
        };
        let name = "tidewire-names".to_owned();
        thread::Builder::new()
            .name(name)
            .spawn(move || finder.run(&questions))?;
        Ok(sender)
    }

    /// The servers that know the address of the master.
    pub(super) fn search(&self) -> Option<Search> {
        let tls = self.tls.clone();
        match &self.address.place {
            Place::Sentinel {
                sentinels,
                name,
                password,
                ..
            } => Some(Search {
                places: sentinels.clone(),
                wanted: Wanted::Name(name.clone()),
                user: None,
                password: password.clone(),
                tls,
            }),
            Place::Cluster { nodes, .. } => Some(Search {
                places: nodes.clone(),
                wanted: Wanted::Slot(self.slot),
                user: self.address.user.clone(),
                password: self.address.password.clone(),
                tls,
            }),
            Place::Tcp { .. } | Place::Unix(_) => None,
        }
    }

    fn connect(&self, address: SocketAddr, host: &str) -> io::Result<Connect> {
        let tls = match &self.tls {
            Some(config) => {
                let name = tls::server_name(host).map_err(io::Error::other)?;
                Some((Arc::clone(config), name))
            }
            None => None,
        };
        Ok(Connect {
            address: Address::Tcp(address),
            source: None,
            tls,
            usage: Usage::Any,
        })
    }
}

/// The thread that finds the place. Its searches may be as slow as the system's resolver.
struct Finder {
    route: Route,
    search: Option<Search>,
    link: Mailbox<Found>,
    /// As it was read last.
    login: Option<Login>,
    /// The master that the last search found.
    last: Option<Named>,
    searches: usize,
    handovers: Handovers,
}

impl Finder {
    fn run(mut self, questions: &Receiver<Slot>) {
        loop {
            match questions.recv_timeout(SEARCH_INTERVAL) {
                Ok(slot) => {
                    // One search answers all that wait.
                    let mut slots = vec![slot];
                    slots.extend(questions.try_iter());
                    slots.sort_unstable();
                    slots.dedup();
                    self.answer(&slots);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.last.is_some() {
                        // The link may be connected to an old master, which does not know it yet.
                        let _ = self.name();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn answer(&mut self, slots: &[Slot]) {
        let found = self.renew().and_then(|()| match &self.route.address.place {
            Place::Unix(_) => Ok(None),
            _ => self.find().map(Some),
        });
        for slot in slots {
            let place = match &found {
                Ok(Some((address, host))) => self.route.connect(*address, host),
                Ok(None) => self
                    .route
                    .connect_at_once()
                    .unwrap_or_else(|| Err(io::Error::other("it has no name"))),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            let place = place.map(|connect| Way {
                connect,
                login: self.login.clone(),
                handover: self.handovers.last().cloned(),
            });
            // A link that has stopped needs no answer.
            let _ = self.link.send(Found::Place(*slot, place));
        }
    }

    /// Reads again what may be another before each connection.
    fn renew(&mut self) -> io::Result<()> {
        let secrets = &self.route.secrets;
        if !secrets.change() {
            return Ok(());
        }
        if self.route.tls.is_some() {
            self.route.tls = Some(secrets.tls().map_err(io::Error::other)?);
        }
        self.login = secrets.login()?;
        if let Some(search) = &mut self.search {
            search.tls.clone_from(&self.route.tls);
            search.log_in(self.login.as_ref());
        }
        Ok(())
    }

    fn find(&mut self) -> io::Result<(SocketAddr, String)> {
        let (host, port) = self.name()?;
        let addresses: Vec<_> = (host.as_str(), port).to_socket_addrs()?.collect();
        let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        // Another one each time, in case one does not answer.
        self.searches += 1;
        let index = self.searches % addresses.len().max(1);
        Ok((*addresses.get(index).ok_or_else(none)?, host))
    }

    /// The name of the broker. The link is notified of another master.
    fn name(&mut self) -> io::Result<Named> {
        let Some(search) = &mut self.search else {
            return match &self.route.address.place {
                Place::Tcp { host, port, .. } => Ok((host.clone(), *port)),
                _ => Err(io::Error::other("it has no name")),
            };
        };
        let master = search.master(self.last.as_ref())?;
        if let Wanted::Slot(slot) = search.wanted {
            self.handovers.look(search, slot, &master);
        }
        let before = self.last.replace(master.clone());
        if before.is_some_and(|before| before != master) {
            let _ = self.link.send(Found::Moved);
        }
        Ok(master)
    }
}

/// How often it is asked where the master is.
const SEARCH_INTERVAL: Duration = Duration::from_secs(2);
