//! The Tidewire server.
//!
//! A [`Server`] runs one [shard](tidewire_net::Shard) per thread. Each shard owns its connections: it
//! makes the opening handshake, checks the token, keeps the limits, answers the protocol's own messages
//! and calls the [`Application`] with the others, on the shard. An application that lives on another
//! thread takes its events in batches from a bounded [`queue`].
//!
//! ```no_run
//! use tidewire_engine::{Config, Server, apps::Echo};
//!
//! let config = Config { auth: None, ..Config::default() };
//! let server = Server::start(config, |_shard| Echo)?;
//! println!("listening on {}", server.address());
//! server.drain(std::time::Duration::from_secs(10));
//! # Ok::<(), tidewire_engine::StartError>(())
//! ```

mod admission;
mod application;
pub mod apps;
pub mod auth;
mod config;
mod connection;
mod core;
pub mod counters;
mod encryption;
mod handshake;
mod layers;
mod openings;
pub mod ops;
mod outgoing;
pub mod queue;
pub mod rate;
mod requests;
mod server;
mod shard;
mod signing;
pub mod token;
mod turn;
mod v1;

pub use application::{
    Application, CloseReason, ConnectionKey, Context, Encoding, Message, Outgoing, Peer,
};
pub use config::{
    Compression, Config, Deflate, Encryption, Limits, OriginPolicy, Protocol, SignatureKey,
    Signing, TlsFiles,
};
pub use server::{Handle, SendError, Server, StartError};
