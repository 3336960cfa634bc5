//! Random bytes of the operating system, so that a process and its fork never draw the same.

use crate::errors::Failure;
use crate::errors::utilities::cryptography;
use rand::TryRngCore;
use rand::rngs::OsRng;
use zeroize::Zeroizing;

/// So many random bytes, wiped when they are dropped.
pub(crate) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, Failure> {
    let mut bytes = Zeroizing::new([0; N]);
    OsRng
        .try_fill_bytes(bytes.as_mut_slice())
        .map_err(cryptography)?;
    Ok(bytes)
}
