//! Utilities that need no server: bindings of the code of the engine and of the protocol.

mod compression;
mod encryption;
mod envelope;
mod filter;
mod jwt;
mod priority_queue;
mod sequencer;
mod signatures;
mod token_bucket;

pub(crate) use compression::{compress, decompress, json_to_msgpack, msgpack_to_json};
pub(crate) use encryption::{IdentityKey, KeyPair, SessionCipher};
pub(crate) use envelope::{Envelope, encode_envelope, parse_envelope};
pub(crate) use filter::Filter;
pub(crate) use jwt::{TokenKey, TokenSigner, TokenVerifier, decode_token, encode_token};
pub(crate) use priority_queue::PriorityQueue;
pub(crate) use sequencer::{Gap, Sequencer};
pub(crate) use signatures::{Signer, Verifier, hmac_sha256, sign, verify};
pub(crate) use token_bucket::{RateVerdict, TokenBucket};
