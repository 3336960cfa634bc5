//! Sealing and opening the messages of one connection.

use crate::session::EncryptionVersion;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use std::fmt;
use zeroize::Zeroizing;

/// One connection's keys and counters, on one side. They are wiped when it is dropped.
pub struct SessionCipher {
    version: EncryptionVersion,
    /// The first four bytes of this side's IVs.
    iv_prefix: [u8; 4],
    sealing: Direction,
    /// `None` in version 1, whose only key is the sealing one.
    opening: Option<Direction>,
}

/// Why nothing was sealed: the caller's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// This key has sealed all that it may. In version 2 the next key helps
    /// ([`SessionCipher::update_sealing_key`]), in version 1 only a new connection.
    #[error("the key is used up")]
    KeyExhausted,
    /// The message is larger than the limit of AES-GCM, some 64 GiB.
    #[error("the message is too large to be encrypted")]
    TooLarge,
}

/// Why a message was not opened: the peer's fault, or that of someone in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Not `E:` with an IV and a tag.
    #[error("the message is not encrypted")]
    NotEncrypted,
    /// Sealed by this side: somebody sent it back.
    #[error("the message is one of our own")]
    Reflected,
    /// Not the next message of version 2: one was replayed, dropped or moved.
    #[error("the message is out of order")]
    OutOfOrder,
    /// Sealed with another key, or changed on the way.
    #[error("the message cannot be decrypted")]
    Tampered,
}

impl SessionCipher {
    /// The cipher of version 1. `random` makes this side's IVs differ from those of anyone else; its
    /// first bit is replaced by which side this is.
    pub(super) fn version_one(
        key: Zeroizing<[u8; KEY_BYTES]>,
        is_server: bool,
        random: [u8; 4],
    ) -> Result<Self, Unspecified> {
        let mut iv_prefix = random;
        iv_prefix[0] = (iv_prefix[0] & 0x7f) | (u8::from(is_server) << 7);
        Ok(Self {
            version: EncryptionVersion::One,
            iv_prefix,
            sealing: Direction::new(key)?,
            opening: None,
        })
    }

    pub(super) fn version_two(
        sealing: Zeroizing<[u8; KEY_BYTES]>,
        opening: Zeroizing<[u8; KEY_BYTES]>,
    ) -> Result<Self, Unspecified> {
        Ok(Self {
            version: EncryptionVersion::Two,
            iv_prefix: [0; 4],
            sealing: Direction::new(sealing)?,
            opening: Some(Direction::new(opening)?),
        })
    }

    /// The version that both sides use.
    pub fn version(&self) -> EncryptionVersion {
        self.version
    }

    /// Appends `E:`, the IV, the encrypted `plain` and the tag: [`SEALED_OVERHEAD_BYTES`] more than
    /// `plain` has. Allocates only if `out` has no room for them.
    ///
    /// # Errors
    /// [`SealError`]; `out` is as it was before.
    #[inline]
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        let sealing = &mut self.sealing;
        if sealing.messages >= limit(self.version) {
            return Err(SealError::KeyExhausted);
        }
        let iv = iv(self.iv_prefix, sealing.messages);
        let start = out.len();
        out.reserve(plain.len() + SEALED_OVERHEAD_BYTES);
        out.extend_from_slice(ENCRYPTION_PREFIX);
        out.extend_from_slice(&iv);
        out.extend_from_slice(plain);
        let body = &mut out[start + HEAD_BYTES..];
        let nonce = Nonce::assume_unique_for_key(iv);
        let sealed = sealing
            .key
            .seal_in_place_separate_tag(nonce, aad(self.version), body);
        let Ok(tag) = sealed else {
            out.truncate(start);
            return Err(SealError::TooLarge);
        };
        out.extend_from_slice(tag.as_ref());
        sealing.messages += 1;
        sealing.bytes += plain.len() as u64;
        Ok(())
    }

    /// Appends the content of `message`, which starts with `E:`. Allocates only if `out` has no room for as
    /// many bytes as follow the IV.
    ///
    /// # Errors
    /// [`OpenError`]; `out` is as it was before. In version 2 the connection cannot go on: something was
    /// lost, repeated or made up.
    #[inline]
    pub fn open(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), OpenError> {
        let (head, body) = message
            .split_first_chunk::<HEAD_BYTES>()
            .filter(|(head, body)| head.starts_with(ENCRYPTION_PREFIX) && body.len() >= TAG_BYTES)
            .ok_or(OpenError::NotEncrypted)?;
        let mut iv = [0; IV_BYTES];
        iv.copy_from_slice(&head[ENCRYPTION_PREFIX.len()..]);
        let key = self.opening_key(&iv)?;
        let start = out.len();
        out.extend_from_slice(body);
        let nonce = Nonce::assume_unique_for_key(iv);
        let opened = key.open_in_place(nonce, aad(self.version), &mut out[start..]);
        if opened.is_err() {
            out.truncate(start);
            return Err(OpenError::Tampered);
        }
        out.truncate(out.len() - TAG_BYTES);
        if let Some(opening) = &mut self.opening {
            opening.messages += 1;
        }
        Ok(())
    }

    /// Whether this side should change its sealing key: send `key_update`, sealed as any message, and call
    /// [`Self::update_sealing_key`]. Always false in version 1.
    #[inline]
    pub fn wants_key_update(&self) -> bool {
        self.version == EncryptionVersion::Two
            && (self.sealing.messages >= KEY_MESSAGES_MAX || self.sealing.bytes >= KEY_BYTES_MAX)
    }

    /// Changes the sealing key; to be called right after a `key_update` of this side was sealed. False,
    /// and nothing done, in version 1, which has no such message.
    #[must_use]
    pub fn update_sealing_key(&mut self) -> bool {
        self.version == EncryptionVersion::Two && self.sealing.update().is_ok()
    }

    /// Changes the opening key; to be called right after a `key_update` of the peer was opened. False,
    /// and nothing done, in version 1, where such a message is to be refused.
    #[must_use]
    pub fn update_opening_key(&mut self) -> bool {
        self.opening
            .as_mut()
            .is_some_and(|opening| opening.update().is_ok())
    }

    fn opening_key(&self, iv: &[u8; IV_BYTES]) -> Result<&LessSafeKey, OpenError> {
        if let Some(opening) = &self.opening {
            return if *iv == self::iv(self.iv_prefix, opening.messages) {
                Ok(&opening.key)
            } else {
                Err(OpenError::OutOfOrder)
            };
        }
        let (prefix, counter) = iv
            .split_first_chunk::<4>()
            .expect("an IV has more than four bytes");
        let counter = counter
            .iter()
            .fold(0, |counter, byte| (counter << 8) | u64::from(*byte));
        if *prefix == self.iv_prefix && counter < self.sealing.messages {
            return Err(OpenError::Reflected);
        }
        Ok(&self.sealing.key)
    }
}

impl fmt::Debug for SessionCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCipher")
            .field("version", &self.version)
            .field("sealed", &self.sealing.messages)
            .finish_non_exhaustive()
    }
}

/// One key and what it has been used for. The provider wipes its own copy.
struct Direction {
    key: LessSafeKey,
    secret: Zeroizing<[u8; KEY_BYTES]>,
    messages: u64,
    bytes: u64,
}

impl Direction {
    fn new(secret: Zeroizing<[u8; KEY_BYTES]>) -> Result<Self, Unspecified> {
        Ok(Self {
            key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, secret.as_slice())?),
            secret,
            messages: 0,
            bytes: 0,
        })
    }

    /// From one key to the next; there is no way back.
    fn update(&mut self) -> Result<(), Unspecified> {
        let prk = Prk::new_less_safe(HKDF_SHA256, self.secret.as_slice());
        *self = Self::new(expand(&prk, KEY_UPDATE_INFO)?)?;
        Ok(())
    }
}

/// HKDF-Expand to one key.
pub(super) fn expand(prk: &Prk, info: &[u8]) -> Result<Zeroizing<[u8; KEY_BYTES]>, Unspecified> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    prk.expand(&[info], KeyLength)?.fill(key.as_mut_slice())?;
    Ok(key)
}

struct KeyLength;

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

fn iv(prefix: [u8; 4], counter: u64) -> [u8; IV_BYTES] {
    let mut iv = [0; IV_BYTES];
    iv[..4].copy_from_slice(&prefix);
    iv[4..].copy_from_slice(&counter.to_be_bytes());
    iv
}

fn aad(version: EncryptionVersion) -> Aad<&'static [u8]> {
    match version {
        EncryptionVersion::One => Aad::from(&[]),
        EncryptionVersion::Two => Aad::from(ENCRYPTION_PREFIX),
    }
}

/// Messages after which a key seals no more. In version 2 a side that follows
/// [`SessionCipher::wants_key_update`] never reaches it; in version 1 it only keeps the counter from wrapping around.
const fn limit(version: EncryptionVersion) -> u64 {
    match version {
        EncryptionVersion::One => 1 << 48,
        EncryptionVersion::Two => 1 << 32,
    }
}

/// The first bytes of an encrypted message.
pub const ENCRYPTION_PREFIX: &[u8; 2] = b"E:";

/// Bytes of an encrypted message beside those that are inside: prefix, IV and tag.
pub const SEALED_OVERHEAD_BYTES: usize = HEAD_BYTES + TAG_BYTES;

/// Messages after which a side changes its key in version 2.
pub const KEY_MESSAGES_MAX: u64 = 1 << 24;

/// Bytes after which a side changes its key in version 2.
pub const KEY_BYTES_MAX: u64 = 1 << 34;

/// Bytes of an AES-256 key.
pub(super) const KEY_BYTES: usize = 32;

const HEAD_BYTES: usize = ENCRYPTION_PREFIX.len() + IV_BYTES;
const IV_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
const KEY_UPDATE_INFO: &[u8] = b"tidewire/2 key update";

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (SessionCipher, SessionCipher) {
        let key = |byte| Zeroizing::new([byte; KEY_BYTES]);
        (
            SessionCipher::version_two(key(1), key(2)).unwrap(),
            SessionCipher::version_two(key(2), key(1)).unwrap(),
        )
    }

    #[test]
    fn a_key_update_is_wanted_in_time() {
        let (mut ours, mut peer) = pair();
        for (messages, bytes, wanted) in [
            (KEY_MESSAGES_MAX - 1, 0, false),
            (KEY_MESSAGES_MAX, 0, true),
            (0, KEY_BYTES_MAX - 1, false),
            (0, KEY_BYTES_MAX, true),
        ] {
            (ours.sealing.messages, ours.sealing.bytes) = (messages, bytes);
            assert_eq!(ours.wants_key_update(), wanted, "{messages} {bytes}");
        }
        assert!(ours.update_sealing_key() && !ours.wants_key_update());
        let mut sealed = Vec::new();
        ours.seal(b"a", &mut sealed).unwrap();
        assert_eq!(sealed[2..14], [0; 12]);
        assert_eq!(
            peer.open(&sealed, &mut Vec::new()),
            Err(OpenError::Tampered)
        );
        assert!(peer.update_opening_key());
        assert_eq!(peer.open(&sealed, &mut Vec::new()), Ok(()));
    }

    #[test]
    fn bytes_count() {
        let (mut ours, _) = pair();
        ours.sealing.bytes = KEY_BYTES_MAX - 3;
        ours.seal(b"ab", &mut Vec::new()).unwrap();
        assert!(!ours.wants_key_update());
        ours.seal(b"c", &mut Vec::new()).unwrap();
        assert!(ours.wants_key_update());
    }

    #[test]
    fn a_key_that_is_used_up_seals_nothing() {
        let key = Zeroizing::new([1; KEY_BYTES]);
        let one = SessionCipher::version_one(key, true, [0; 4]).unwrap();
        for (mut cipher, limit, updates) in [(one, 1 << 48, false), (pair().0, 1 << 32, true)] {
            cipher.sealing.messages = limit - 1;
            let mut out = Vec::new();
            cipher.seal(b"a", &mut out).unwrap();
            let sealed = out.clone();
            assert_eq!(cipher.seal(b"a", &mut out), Err(SealError::KeyExhausted));
            assert_eq!(out, sealed);
            assert_eq!(cipher.update_sealing_key(), updates);
            assert_eq!(cipher.seal(b"a", &mut out).is_ok(), updates);
        }
    }
}
