//! What the tests of the other crates share. Never more than a dev-dependency.
//!
//! - [`vectors`]: the protocol's test vectors, `protocol/vectors/*.json`, as values.
//! - [`schema`]: a check of JSON against the schemas beside them.
//!
//! All of it panics on what should not be: a test that goes on without its data proves nothing.

pub mod schema;
pub mod vectors;
