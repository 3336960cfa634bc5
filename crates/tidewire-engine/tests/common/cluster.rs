//! Servers that share topics over one Redis.

use super::topics::open_topics;
use super::{start, wait_until};
use tidewire_engine::apps::Sink;
use tidewire_engine::{BrokerAddress, BrokerConfig, Config, HistoryLimits, Server, TopicRule};

/// Everyone may everything, as often as they like, over the broker of a URL.
pub fn shared_topics(url: &str) -> Config {
    let mut config = open_topics();
    config.limits.rate_limit_capacity = 0;
    config.broker = Some(BrokerConfig::new(BrokerAddress::parse(url).expect("a URL")));
    config
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

/// A server that has reached its broker.
pub fn start_connected(config: Config) -> Server {
    let server = start(config, Sink);
    wait_until("a broker", || is_connected(&server));
    server
}

pub fn is_connected(server: &Server) -> bool {
    let health = server.handle().broker_health();
    health.is_some_and(|health| health.is_connected)
}
