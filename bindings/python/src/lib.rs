//! The native module of the Python package `tidewire`: a translation layer, without rules of its own.
//!
//! - `arguments`: arguments of callers
//! - `client`: the client
//! - `decoded`: the content of a message, decoded once
//! - `errors`: the one place where Rust errors become Python exceptions
//! - `json`: Python values and JSON text
//! - `lab`: loads, their reports, and histograms
//! - `log`: the engine's log, for Python's `logging`
//! - `relay`: the client's side of a WebSocket connection, for ASGI
//! - `server`: the engine
//! - `signal`: a descriptor that wakes an event loop
//! - `utilities`: utilities that need no server

mod arguments;
mod client;
mod decoded;
mod errors;
mod json;
mod lab;
mod log;
mod relay;
mod server;
mod signal;
mod utilities;

use pyo3::prelude::*;

/// The native base of the Python files of the package.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use crate::client::{ClientBatch, ClientBatchIterator, ClientCore, ClientMessage, Ticket};
    #[pymodule_export]
    use crate::lab::{lab_load, lab_save, lab_tables, latency_buckets};
    #[pymodule_export]
    use crate::log::{log_after_fork, log_before_fork, log_start, log_take, log_wake};
    #[pymodule_export]
    use crate::relay::{Relay, RelayClosed, RelayOpened, RelayRefused};
    #[pymodule_export]
    use crate::server::{
        Batch, BatchIterator, Connection, Message, PendingPublish, Published, ServerCore,
        WaitingClient, nearest_name,
    };
    #[pymodule_export]
    use crate::signal::ClientSignal;
    #[pymodule_export]
    use crate::utilities::{
        Envelope, Filter, Gap, IdentityKey, KeyPair, PriorityQueue, RateVerdict, Sequencer,
        SessionCipher, Signer, TokenBucket, TokenKey, TokenSigner, TokenVerifier, Verifier,
        compress, decode_token, decompress, encode_envelope, encode_token, hmac_sha256,
        json_to_msgpack, msgpack_to_json, parse_envelope, sign, verify,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("version", env!("CARGO_PKG_VERSION"))
    }
}
