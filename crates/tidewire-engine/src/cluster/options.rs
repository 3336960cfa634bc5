//! The way to a partition: the options of its link, and the route to its broker.

use crate::cluster::resolve::Route;
use crate::cluster::secrets::Secrets;
use crate::config::broker::BrokerConfig;
use tidewire_net::tls::TlsError;
use tidewire_redis::{Layout, Lineage, LinkOptions, Partition};

/// How the link of a partition reaches its broker.
pub(super) fn link_options(config: &BrokerConfig, partition: Partition) -> LinkOptions {
    let address = config.address_of(partition);
    LinkOptions {
        prefix: config.prefix.clone(),
        partition,
        servers: config.servers(),
        user: config.username.clone().or_else(|| address.user.clone()),
        password: address.password.clone(),
        database: address.database,
        lineage: match config.is_durable && !address.fails_over() {
            true => Lineage::Single,
            false => Lineage::Replaced,
        },
        broker_wait_ms: config.wait_ms,
        linger_ms: LINGER_MS,
        ..LinkOptions::default()
    }
}

/// How a partition is found.
pub(super) fn route(config: &BrokerConfig, partition: Partition) -> Result<Route, TlsError> {
    let address = config.address_of(partition);
    let secrets = Secrets::of(config);
    Ok(Route {
        address: address.clone(),
        slot: Layout::of(&config.prefix, address.database, partition).slot(),
        tls: match address.is_tls() {
            true => Some(secrets.tls()?),
            false => None,
        },
        secrets,
    })
}

/// How long the link stays subscribed to a topic that the exchange has let go, in milliseconds.
const LINGER_MS: u64 = 1_000;
