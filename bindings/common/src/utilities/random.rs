//! Random bytes of the operating system: a process and its fork never draw the same.

use crate::failure::Failure;
use rand::TryRngCore;
use rand::rngs::OsRng;
use zeroize::Zeroizing;

/// N random bytes, wiped when they are dropped.
pub(crate) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, Failure> {
    let mut bytes = Zeroizing::new([0; N]);
    let filled = OsRng.try_fill_bytes(bytes.as_mut_slice());
    filled.map_err(Failure::cryptography)?;
    Ok(bytes)
}
