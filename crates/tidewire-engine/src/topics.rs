//! Topics: who subscribes to what, what was published, and how it gets from the one to the other.

pub(crate) mod access;
pub(crate) mod broker;
pub(crate) mod config;
mod deliver;
pub(crate) mod dense;
pub(crate) mod filter;
pub(crate) mod group;
mod groups;
pub(crate) mod history;
pub(crate) mod hub;
mod lag;
pub(crate) mod local;
pub(crate) mod lru;
pub(crate) mod manage;
pub(crate) mod name;
pub(crate) mod outlet;
pub(crate) mod presence;
pub(crate) mod producer;
pub(crate) mod publication;
mod publish;
pub(crate) mod remembered;
pub(crate) mod subscribe;
pub(crate) mod trie;
pub(crate) mod users;
