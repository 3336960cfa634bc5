//! The key of the HTTP API.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;
use zeroize::Zeroizing;

/// What a backend has to show to use the HTTP API. Cheap to clone; never printed.
#[derive(Clone)]
pub struct ApiKey(Arc<Zeroizing<Vec<u8>>>);

/// Why bytes cannot be a key. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidApiKey {
    /// It could be guessed.
    #[error("the key of the API has {bytes} bytes, and {KEY_BYTES_MIN} is the least")]
    TooShort {
        /// How long it is.
        bytes: usize,
    },
    /// It could not be sent in a header.
    #[error("the key of the API has a byte other than the visible letters of ASCII")]
    NotVisible,
}

impl ApiKey {
    /// A key of at least 16 bytes, all of them visible letters of ASCII, as headers carry them.
    ///
    /// # Errors
    /// [`InvalidApiKey`].
    pub fn new(key: Vec<u8>) -> Result<Self, InvalidApiKey> {
        let key = Zeroizing::new(key);
        if key.len() < KEY_BYTES_MIN {
            return Err(InvalidApiKey::TooShort { bytes: key.len() });
        }
        if !key.iter().all(u8::is_ascii_graphic) {
            return Err(InvalidApiKey::NotVisible);
        }
        Ok(Self(Arc::new(key)))
    }

    /// Whether this is the key; how long that takes depends on the length of `shown` alone.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        let key = &*self.0;
        let mut difference = u8::from(key.len() != shown.len());
        for (index, byte) in shown.iter().enumerate() {
            difference = black_box(difference | (byte ^ key[index % key.len()]));
        }
        difference == 0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ApiKey(..)")
    }
}

/// The shortest key, in bytes.
const KEY_BYTES_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_is_the_key() {
        let text = b"0123456789abcdef";
        let key = ApiKey::new(text.to_vec()).unwrap();
        assert!(key.is(text));
        for index in 0..text.len() {
            let mut other = *text;
            other[index] ^= 1;
            assert!(!key.is(&other));
            assert!(!key.is(&text[..index]));
        }
        assert!(!key.is(&[text.as_slice(), text].concat()));
        assert_eq!(format!("{key:?}"), "ApiKey(..)");
    }

    #[test]
    fn keys_that_are_none() {
        let short = ApiKey::new(b"0123456789abcde".to_vec()).unwrap_err();
        assert_eq!(short, InvalidApiKey::TooShort { bytes: 15 });
        for bad in [
            "0123456789 abcdef",
            "0123456789abcdef\n",
            "0123456789abcd\u{e4}",
        ] {
            let error = ApiKey::new(bad.as_bytes().to_vec()).unwrap_err();
            assert_eq!(error, InvalidApiKey::NotVisible);
        }
    }
}
