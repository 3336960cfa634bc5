//! State of a server, its shards and its connections. Behaviour of connections is in `session`.

pub(crate) mod adoption;
pub(crate) mod broker_operations;
pub(crate) mod busiest;
pub(crate) mod compression;
pub(crate) mod connect_request;
pub(crate) mod connection;
pub(crate) mod core;
pub(crate) mod delivery_times;
pub(crate) mod encryption;
pub(crate) mod expiry;
pub(crate) mod layers;
pub(crate) mod membership;
pub(crate) mod open_calls;
pub(crate) mod pending_questions;
pub(crate) mod producers;
pub(crate) mod publishing;
pub(crate) mod rights;
pub(crate) mod session_topics;
pub(crate) mod shared;
pub(crate) mod signatures;
pub(crate) mod span_identifiers;
pub(crate) mod unfinished_jobs;
