//! Links against a real `redis-server`.

mod access;
mod basics;
mod faults;
mod groups;
mod peer;
mod presence;
mod proxy;
mod server;
