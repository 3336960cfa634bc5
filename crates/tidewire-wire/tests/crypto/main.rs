//! Encryption and signatures: properties, and the vectors of the protocol.

mod secure;
mod signature;
mod vectors;
