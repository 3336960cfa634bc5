//! What a shard keeps: its core, its connections, their layers and their open calls.

pub(crate) mod calls;
pub(crate) mod connection;
pub(crate) mod core;
pub(crate) mod layers;
