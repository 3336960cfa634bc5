//! Topics: who subscribes to what, what was published, and how it gets from the one to the other.
//!
//! A publication goes through the [`hub`], which all threads share: it gets its place in the history from the
//! [`broker`] and, under the topic's lock, a number and a place in the [`outlet`] of every shard that has subscribers.
//! Each shard empties its outlet once per turn ([`deliver`]) and knows which of its connections subscribe to what
//! ([`local`]). What a lagging subscription does not take waits in [`lag`]. [`subscription`] and [`publish`] are what
//! clients ask for, [`catch_up`] what a new subscriber gets first, [`read_history`] what is kept, [`manage`] what the application does.
//!
//! Structures without lock, clock or randomness of their own: [`name`], [`trie`], [`access`], [`filter`], [`history`],
//! [`presence`], [`group`], [`remembered`], [`producer`].

pub(crate) mod access;
pub(crate) mod broker;
pub(crate) mod config;
pub(crate) mod dense;
pub(crate) mod error;
pub(crate) mod filter;
pub(crate) mod form;
pub(crate) mod group;
pub(crate) mod groups;
pub(crate) mod held_filters;
pub(crate) mod history;
pub(crate) mod hub;
pub(crate) mod lag;
pub(crate) mod local;
pub(crate) mod lru;
pub(crate) mod member;
pub(crate) mod name;
pub(crate) mod outlet;
pub(crate) mod presence;
pub(crate) mod producer;
pub(crate) mod publication;
pub(crate) mod random;
pub(crate) mod remembered;
pub(crate) mod round;
pub(crate) mod run;
pub(crate) mod trie;
pub(crate) mod users;
