//! The real engine on a simulated network, for tests.

use crate::cluster::exchange::Exchange;
use crate::cluster::{Cluster, LinkLimits};
use crate::config::Config;
use crate::handle::Handle;
use crate::server::neighbour::ThisServer;
use crate::server::{StartError, assemble};
use crate::session::application::Application;
use crate::topics::broker::Broker;
use crate::topics::broker::late::{Fate, LateBroker};
use crate::topics::broker::memory::{MemoryBroker, MemoryLimits};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use tidewire_net::{Handler, Shard};
use tidewire_redis::{Link, Now};

/// The shards of a server for [`Driver::add`](tidewire_net::simulation::Driver::add). All their
/// random numbers derive from `seed`. A run stays reproducible only with the methods of the handle
/// that read counters, histories and presence: publishing from outside reads the real clock.
///
/// # Errors
/// As [`Server::start`](crate::Server::start). Addresses and TLS are not looked at.
pub fn shards<A: Application>(
    config: Config,
    application: impl FnMut(usize) -> A,
    seed: u64,
) -> Result<(Vec<Shard<impl Handler>>, Handle), StartError> {
    assemble(config, application, seeded(seed), None)
}

/// [`shards`], with topics that are shared over a broker that answers late. It answers when
/// [`LateAnswers::step`] is called.
///
/// # Errors
/// As [`shards`].
pub fn shards_with_late_broker<A: Application>(
    config: Config,
    application: impl FnMut(usize) -> A,
    seed: u64,
) -> Result<(Vec<Shard<impl Handler>>, Handle, LateAnswers), StartError> {
    let limits = &config.topics.limits;
    let broker = Arc::new(LateBroker::new(MemoryBroker::new(&MemoryLimits {
        history_bytes_max: limits.history_bytes_max,
        history_topics_max: limits.history_topics_max,
        remembered_ids_max: limits.remembered_ids_max,
    })));
    let shared = Arc::clone(&broker) as Arc<dyn Broker>;
    let (shards, handle) = assemble(config, application, seeded(seed), Some(shared))?;
    let hub = Arc::downgrade(&handle.shared.hub);
    broker.attach(hub);
    let random = StdRng::seed_from_u64(seed.rotate_left(17));
    Ok((shards, handle, LateAnswers { broker, random }))
}

/// [`shards`], with topics that are shared over the broker of the configuration. The test carries
/// the bytes between the link of each partition and that broker.
///
/// # Errors
/// As [`shards`].
///
/// # Panics
/// The configuration has no broker.
pub fn shards_with_link<A: Application>(
    config: Config,
    application: impl FnMut(usize) -> A,
    seed: u64,
) -> Result<(Vec<Shard<impl Handler>>, Handle, Vec<SimulatedLink>), StartError> {
    let broker = config.broker.as_ref().expect("a broker");
    let (broker, exchanges) = Cluster::simulated(broker, &LinkLimits::of(&config), seed);
    let (shards, handle) = assemble(config, application, seeded(seed), Some(broker))?;
    let this = ThisServer {
        handle: handle.clone(),
        address: String::new(),
        questions: Arc::default(),
    };
    let links = exchanges.into_iter().map(|mut exchange| {
        exchange.attach(Arc::downgrade(&handle.shared.hub), Box::new(this.clone()));
        SimulatedLink { exchange }
    });
    let links = links.collect();
    Ok((shards, handle, links))
}

/// The link of a partition of a simulated server.
#[derive(Debug)]
pub struct SimulatedLink {
    exchange: Exchange,
}

impl SimulatedLink {
    /// The link: the caller reports the events of its connections and asks it for the bytes to send.
    pub fn link(&mut self) -> &mut Link {
        &mut self.exchange.link
    }

    /// One turn of its event loop, after everything else.
    pub fn turn(&mut self, now: Now) {
        self.exchange.turn(now);
    }
}

fn seeded(seed: u64) -> impl Fn(usize) -> StdRng {
    move |index| StdRng::seed_from_u64(seed ^ ((index as u64) << 32))
}

/// The answers of a broker that a test hurries or holds back.
#[derive(Debug)]
pub struct LateAnswers {
    broker: Arc<LateBroker>,
    random: StdRng,
}

impl LateAnswers {
    /// Does one thing: what the broker was asked first, or gives one of the answers. One question
    /// in `one_in` is refused and one loses its answer; none with 0. False if there is nothing left
    /// to do.
    pub fn step(&mut self, one_in: u32) -> bool {
        let fate = match one_in {
            0 => Fate::Done,
            _ => match self.random.random_range(0..one_in) {
                0 => Fate::Refused,
                1 => Fate::Lost,
                _ => Fate::Done,
            },
        };
        let pick = self.random.random::<u32>() as usize;
        let acts_first = self.random.random();
        (acts_first && self.broker.act(fate))
            || self.broker.tell(pick)
            || (!acts_first && self.broker.act(fate))
    }

    /// Does everything that is left, without faults.
    pub fn settle(&mut self) {
        while self.step(0) {}
    }

    /// How many questions the broker was asked so far: publications, and topics to be read.
    #[must_use]
    pub fn questions(&self) -> u64 {
        self.broker.questions()
    }

    /// The broker forgets which topics are ready.
    pub fn cool_down(&self) {
        self.broker.cool_down();
    }
}
