//! Links against a real `redis-server`.

mod access;
mod agreement;
mod basics;
mod clocks;
mod databases;
mod faults;
mod groups;
mod peer;
mod presence;
mod proxy;
mod refusals;
mod server;
