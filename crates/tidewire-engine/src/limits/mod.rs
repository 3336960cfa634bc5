//! Limits and budgets: messages, errors, handshakes, work and memory. Those of subscriptions are checked in
//! `session/membership.rs`.

pub(crate) mod accounts;
pub(crate) mod budget;
pub(crate) mod errors;
pub(crate) mod fair;
pub(crate) mod lines;
pub(crate) mod owner;
pub(crate) mod pace;
pub(crate) mod pending_handshakes;
pub(crate) mod published;
pub mod rate;
pub(crate) mod source;
pub(crate) mod undecided;
pub(crate) mod unfinished;
pub(crate) mod work;
