//! Topics: subscriptions, publications, and the structures between a publisher and its subscribers.
//!
//! A publication goes through the [`hub`], which all threads share: it gets its place in the
//! history from the [`broker`] and, under the topic's lock, a number and a place in the [`outlet`]
//! of every shard that has subscribers. Each shard delivers its outlet once per turn
//! (`shard/fan_out.rs`); [`local`] records which of its connections subscribe to which topic.
//! Publications that a lagging subscription cannot accept wait in [`lag`]. The requests of clients
//! and applications are handled in `session/`.
//!
//! Structures without lock, clock or randomness of their own: [`name`], [`trie`], [`access`],
//! [`filter`], [`history`], [`presence`], [`group`], [`remembered`], [`producer`].

pub(crate) mod access;
pub(crate) mod broker;
pub(crate) mod config;
pub(crate) mod decided;
pub(crate) mod dense;
pub(crate) mod error;
pub(crate) mod excluded;
pub(crate) mod filter;
pub(crate) mod form;
pub(crate) mod group;
pub(crate) mod groups;
pub(crate) mod held_filters;
pub(crate) mod history;
pub(crate) mod hub;
pub(crate) mod item;
pub(crate) mod lag;
pub(crate) mod local;
pub(crate) mod lru;
pub(crate) mod member;
pub(crate) mod name;
pub(crate) mod new_publication;
pub(crate) mod outlet;
mod place_hasher;
pub(crate) mod presence;
pub(crate) mod producer;
pub(crate) mod publication;
pub(crate) mod random;
pub(crate) mod rates;
pub(crate) mod remembered;
pub(crate) mod round;
pub(crate) mod run;
pub(crate) mod skipped;
pub(crate) mod trie;
pub(crate) mod users;
