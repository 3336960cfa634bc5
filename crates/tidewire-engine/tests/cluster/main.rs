//! Several servers over one Redis. Each test starts a `redis-server` of its own.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../tidewire-redis/tests/real/proxy.rs"]
#[expect(dead_code, reason = "the tests of the link use the rest")]
mod proxy;

mod access;
mod binary;
mod broker_updates;
mod connections;
mod everywhere;
mod excluded;
mod forgetting;
mod groups;
mod outages;
mod partitions;
mod places;
mod presence;
mod producers;
mod publications;
mod repartition;
mod slots;
mod told;
mod unreadable;
mod volatile;
