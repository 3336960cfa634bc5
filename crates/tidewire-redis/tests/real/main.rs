//! Links against a real `redis-server`.

mod basics;
mod peer;
mod server;
