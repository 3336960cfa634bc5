//! Links against a real `redis-server`.

mod basics;
mod faults;
mod peer;
mod proxy;
mod server;
