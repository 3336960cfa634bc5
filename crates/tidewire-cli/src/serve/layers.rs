//! The options about what lies between messages and frames: compression, encryption, signatures.

use super::keys::{read, secret_of};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use tidewire_engine::settings::p256_point_of_pem;
use tidewire_engine::{Compression, Deflate, Encryption, SignatureKey, Signing};

#[derive(Debug, Args)]
#[command(next_help_heading = "Compression")]
pub(crate) struct CompressionFlags {
    /// permessage-deflate for clients that offer it: with the shards' own compressors, at no memory for
    /// each connection, or with a memory of what each connection said before (340 to 430 KB of it)
    #[arg(long, value_enum, default_value = "off")]
    deflate: DeflateFlag,
    /// 1 (fastest) to 9 (smallest), also of messages sent as `C:`
    #[arg(long, value_name = "LEVEL", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=9))]
    compression_level: u32,
    /// Shorter messages are not compressed
    #[arg(long, value_name = "BYTES", default_value_t = Compression::default().threshold_bytes)]
    compression_threshold_bytes: usize,
    /// How far back compressed messages refer, as a power of two
    #[arg(long, value_name = "BITS", default_value_t = 15, value_parser = clap::value_parser!(u8).range(9..=15))]
    deflate_window_bits: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DeflateFlag {
    Off,
    Shared,
    PerConnection,
}

#[derive(Debug, Args)]
#[command(
    next_help_heading = "Encryption and signatures inside the WebSocket (protocol version 1)"
)]
pub(crate) struct SecurityFlags {
    /// Whether clients can encrypt their messages, or must
    #[arg(long, value_enum, default_value = "off")]
    encryption: EncryptionFlag,
    /// The private key, PEM (PKCS#8, P-256), by which clients tell this server from somebody in between
    #[arg(long, value_name = "FILE")]
    identity_key: Option<PathBuf>,
    /// Check the signatures of messages with the secret in this file, at least 32 bytes
    #[arg(long, value_name = "FILE")]
    signature_secret_file: Option<PathBuf>,
    /// Check the signatures of messages with this ECDSA key, PEM (P-256)
    #[arg(long, value_name = "FILE")]
    signature_public_key: Option<PathBuf>,
    /// Refuse messages without a signature
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    require_signatures: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EncryptionFlag {
    Off,
    Optional,
    Required,
}

impl CompressionFlags {
    pub(crate) fn compression(&self) -> Compression {
        Compression {
            deflate: match self.deflate {
                DeflateFlag::Off => Deflate::Off,
                DeflateFlag::Shared => Deflate::Shared,
                DeflateFlag::PerConnection => Deflate::PerConnection,
            },
            level: self.compression_level,
            threshold_bytes: self.compression_threshold_bytes,
            window_bits: self.deflate_window_bits,
        }
    }
}

impl SecurityFlags {
    pub(crate) fn encryption(&self) -> Encryption {
        match self.encryption {
            EncryptionFlag::Off => Encryption::Off,
            EncryptionFlag::Optional => Encryption::Optional,
            EncryptionFlag::Required => Encryption::Required,
        }
    }

    /// Where the identity key is.
    ///
    /// # Errors
    /// It is given though nothing is encrypted.
    pub(crate) fn identity_key(&self) -> Result<Option<PathBuf>, Failure> {
        if self.identity_key.is_some() && self.encryption == EncryptionFlag::Off {
            return Err(Failure::usage(
                "--identity-key is of use with encryption only: give --encryption optional or required",
            ));
        }
        Ok(self.identity_key.clone())
    }

    /// How signatures are checked.
    ///
    /// # Errors
    /// A file cannot be read or is no key, there are two, or none though signatures are required.
    pub(crate) fn signing(&self) -> Result<Option<Signing>, Failure> {
        let key = match (&self.signature_secret_file, &self.signature_public_key) {
            (None, None) if self.require_signatures => {
                return Err(Failure::usage(
                    "--require-signatures needs a key to check them with: give --signature-secret-file or \
                     --signature-public-key",
                ));
            }
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err(Failure::usage(
                    "--signature-secret-file and --signature-public-key exclude each other: give one of them",
                ));
            }
            (Some(path), None) => SignatureKey::Hmac(secret_of(path)?),
            (None, Some(path)) => SignatureKey::Ecdsa(public_point(path)?),
        };
        Ok(Some(Signing::new(key, self.require_signatures)))
    }
}

/// The point in a PEM file with a public key on P-256.
fn public_point(path: &Path) -> Result<[u8; 65], Failure> {
    let pem = read("a public key", path)?;
    p256_point_of_pem(&pem).ok_or_else(|| {
        Failure::usage(format!(
            "{} is not a public key on P-256 in PEM: `openssl pkey -pubout` writes one",
            path.display()
        ))
    })
}
