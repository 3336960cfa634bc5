//! Files with keys and secrets.

use crate::failure::Failure;
use clap::ValueEnum;
use std::fs;
use std::path::Path;
use tidewire_engine::auth::KeyMaterial;

/// The algorithm of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Algorithm {
    Rs256,
    Es256,
    Eddsa,
}

impl Algorithm {
    /// A key in PEM for this algorithm.
    pub(crate) fn material(self, pem: Vec<u8>) -> KeyMaterial {
        match self {
            Self::Rs256 => KeyMaterial::Rs256Pem(pem),
            Self::Es256 => KeyMaterial::Es256Pem(pem),
            Self::Eddsa => KeyMaterial::EdDsaPem(pem),
        }
    }
}

/// The secret in a file, without the line feed at its end.
pub(crate) fn secret_of(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut secret = read("a secret", path)?;
    while secret
        .last()
        .is_some_and(|&byte| byte == b'\n' || byte == b'\r')
    {
        secret.pop();
    }
    Ok(secret)
}

/// The content of a file.
pub(crate) fn read(what: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| {
        Failure::usage(format!(
            "cannot read {what} from {}: {error}",
            path.display()
        ))
    })
}
