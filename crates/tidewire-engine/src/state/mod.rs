//! State of a server, its shards and its connections. Behaviour of connections is in `session`.

pub(crate) mod adoption;
pub(crate) mod backend;
pub(crate) mod busiest;
pub(crate) mod calls;
pub(crate) mod compression;
pub(crate) mod connect_request;
pub(crate) mod connection;
pub(crate) mod core;
pub(crate) mod delivery_times;
pub(crate) mod encryption;
pub(crate) mod expiry;
pub(crate) mod jobs;
pub(crate) mod layers;
pub(crate) mod membership;
pub(crate) mod operations;
pub(crate) mod producers;
pub(crate) mod publishing;
pub(crate) mod rights;
pub(crate) mod shared;
pub(crate) mod signatures;
pub(crate) mod topics;
pub(crate) mod trace;
