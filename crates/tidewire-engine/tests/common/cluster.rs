//! Servers that share topics over one Redis.

use super::topics::open_topics;
use super::{start, wait_until};
use tidewire_engine::apps::Sink;
use tidewire_engine::{BrokerAddress, BrokerConfig, Config, HistoryLimits, Server, TopicRule};

/// Everyone may everything, as often as they like, over the broker of a URL, or several of them. With
/// `TIDEWIRE_TEST_PARTITIONS` the topics are in as many partitions.
pub fn shared_topics(url: &str) -> Config {
    let mut config = open_topics();
    config.limits.rate_limit_capacity = 0;
    let addresses = BrokerAddress::parse_list(url).expect("URLs");
    let mut broker = BrokerConfig::new(addresses[0].clone());
    broker.addresses = addresses;
    broker.partitions = partitions() as u16;
    config.broker = Some(broker);
    config
}

/// Into how many parts the topics are divided.
pub fn partitions() -> u64 {
    let number = std::env::var("TIDEWIRE_TEST_PARTITIONS").ok();
    number.map_or(1, |number| number.parse().expect("a number of partitions"))
}

/// The same, with a history of N publications for each topic of `h.>`.
pub fn shared_history(url: &str, publications_max: usize) -> Config {
    let mut config = shared_topics(url);
    config.topics.rules = vec![TopicRule {
        history: Some(HistoryLimits::of(publications_max)),
        ..TopicRule::new("h.>")
    }];
    config
}

/// A server that has reached its broker, all partitions of it.
pub fn start_connected(config: Config) -> Server {
    let server = start(config, Sink);
    wait_until("a broker", || is_whole(&server));
    server
}

/// Whether a server has reached all partitions of its broker.
pub fn is_whole(server: &Server) -> bool {
    let health = server.handle().broker_health().expect("a broker");
    health.is_connected && health.partitions.iter().all(|it| it.is_connected)
}

pub fn is_connected(server: &Server) -> bool {
    let health = server.handle().broker_health();
    health.is_some_and(|health| health.is_connected)
}
