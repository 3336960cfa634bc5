//! Keys of the HTTP API, and what each of them permits.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The credential of a backend for the HTTP API. Cheap to clone; never printed.
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

/// A key of the HTTP API with a name, for logs, and rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedApiKey {
    /// The name that log lines show.
    pub name: String,
    /// The permissions of the key.
    pub rights: ApiRights,
    /// The key.
    pub key: ApiKey,
}

/// The permissions of a key of the HTTP API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ApiRights {
    /// To list connections and topics, and to read histories, presence and statistics.
    pub read: bool,
    /// To publish.
    pub publish: bool,
    /// To change subscriptions, end connections, forget histories and reload the configuration.
    pub admin: bool,
}

/// One of the rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiRight {
    Read,
    Publish,
    Admin,
}

/// A line that is no named key. The caller's fault. The key itself is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNamedKey {
    /// Not three words.
    #[error("expected a name, rights and a key, such as: backend read,publish 0123456789abcdef")]
    Form,
    /// A right that there is not.
    #[error("{0:?} is not one of the rights read, publish, admin and all")]
    Right(String),
    /// A key that cannot be used.
    #[error(transparent)]
    Key(#[from] InvalidApiKey),
}

impl NamedApiKey {
    /// A key that permits everything.
    #[must_use]
    pub fn all(name: &str, key: ApiKey) -> Self {
        Self {
            name: name.to_owned(),
            rights: ApiRights::ALL,
            key,
        }
    }

    /// Reads a line such as `backend read,publish 0123456789abcdef`.
    ///
    /// # Errors
    /// [`InvalidNamedKey`].
    pub fn parse(line: &str) -> Result<Self, InvalidNamedKey> {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(rights), Some(key), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(InvalidNamedKey::Form);
        };
        Ok(Self {
            name: name.to_owned(),
            rights: ApiRights::parse(rights)?,
            key: ApiKey::new(key.as_bytes().to_vec())?,
        })
    }
}

impl ApiRights {
    /// Everything.
    pub const ALL: Self = Self {
        read: true,
        publish: true,
        admin: true,
    };

    fn parse(words: &str) -> Result<Self, InvalidNamedKey> {
        let mut rights = Self::default();
        for word in words.split(',') {
            match word {
                "read" => rights.read = true,
                "publish" => rights.publish = true,
                "admin" => rights.admin = true,
                "all" => rights = Self::ALL,
                other => return Err(InvalidNamedKey::Right(other.to_owned())),
            }
        }
        Ok(rights)
    }

    pub(crate) fn permit(self, right: ApiRight) -> bool {
        match right {
            ApiRight::Read => self.read,
            ApiRight::Publish => self.publish,
            ApiRight::Admin => self.admin,
        }
    }
}

impl ApiRight {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Publish => "publish",
            Self::Admin => "admin",
        }
    }
}

impl PartialEq for ApiKey {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for ApiKey {}

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

    /// True if this is the key. The duration of the comparison depends on the length of `shown` alone.
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
    fn a_named_key_is_three_words() {
        let key = NamedApiKey::parse(" backend\tread,publish  0123456789abcdef ").unwrap();
        assert_eq!((key.name.as_str(), key.rights.admin), ("backend", false));
        assert!(key.rights.permit(ApiRight::Read) && key.rights.permit(ApiRight::Publish));
        let every = NamedApiKey::parse("ops all 0123456789abcdef").unwrap();
        assert_eq!(every.rights, ApiRights::ALL);
        assert_eq!(every.key, key.key);
        for (line, words) in [
            ("backend 0123456789abcdef", "expected a name"),
            ("a read 0123456789abcdef b", "expected a name"),
            (
                "a write 0123456789abcdef",
                "\"write\" is not one of the rights",
            ),
            ("a read, 0123456789abcdef", "\"\" is not one of the rights"),
            ("a read secret", "has 6 bytes"),
        ] {
            let error = NamedApiKey::parse(line).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
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
