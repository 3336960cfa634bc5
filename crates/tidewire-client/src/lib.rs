//! The Rust client of Tidewire. It reconnects by itself, recovers missed publications, and stores messages until the
//! server acknowledges them.
//!
//! Start with [`Client`]. Its parts are state machines that receive time and randomness as arguments; each of them can
//! be used without a client: [`sequencer`], [`priority_queue`], [`backoff`], [`breaker`], [`rate`],
//! [`endpoints`], [`quality`].

/// The snippets of the guide to this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/client.md")]
struct Guide;

/// The snippets of the front page for Rust developers.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/for-rust.md")]
struct FrontPage;

pub mod backoff;
pub mod breaker;
mod check;
mod client;
mod clock;
mod command;
pub mod config;
mod driver;
pub mod endpoints;
mod error;
pub mod event;
mod message;
pub mod options;
mod outbox;
mod payload;
pub mod priority_queue;
pub mod quality;
mod queue;
pub mod rate;
pub mod request;
mod responder;
pub mod sequencer;
mod session;
mod shared;
mod url;

pub use client::Client;
pub use client::acknowledged::{Acknowledgement, QueueOptions};
pub use client::events::Events;
pub use config::Config;
pub use error::Error;
pub use event::{Batch, Event, Message, QueuedMessage};
pub use payload::Payload;
pub use priority_queue::Priority;
pub use queue::QueueDepth;
pub use request::{
    HistoryPage, HistoryQuery, Publication, Published, SubscribeOptions, Subscribed, TopicTokens,
};
pub use responder::Responder;
pub use shared::life::ClientState;
pub use tidewire_wire::close::CloseCode;
pub use tidewire_wire::codes::Fault;
pub use tidewire_wire::format::Format;
