//! A set of keys that may be replaced while the server runs, and which of them a token is checked with.

use crate::auth::jwks::{self, Place, ReadKeys};
use crate::auth::key::{AuthConfigError, VerifyingKey};
use crate::model::url::HttpUrl;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use tidewire_net::Waker;

/// Where the keys of a JSON Web Key Set (RFC 7517) are.
#[derive(Clone, PartialEq, Eq)]
pub enum KeySetSource {
    /// The set itself: JSON.
    Text(Vec<u8>),
    /// A server answers with it. Boxed because it is rare and large.
    Url(Box<KeySetUrl>),
}

/// A server that answers with a set of keys, and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySetUrl {
    /// `https://`, or `http://` of this machine.
    pub url: HttpUrl,
    /// Certificates of the authorities that the server is checked with, PEM. `None`: those of the web.
    pub authorities: Option<PathBuf>,
    /// The time from one answer to the next request, in seconds, at least 1.
    pub refresh_s: u64,
}

impl KeySetSource {
    /// Reads the set of a text, and looks at a URL; nothing is fetched.
    ///
    /// # Errors
    /// [`AuthConfigError::KeySet`].
    pub fn check(&self) -> Result<(), AuthConfigError> {
        self.load().map(drop)
    }
}

impl KeySetSource {
    /// The keys of a text, or none yet of a URL.
    fn load(&self) -> Result<ReadKeys, AuthConfigError> {
        match self {
            Self::Text(text) => jwks::read(text, Place::File).map_err(AuthConfigError::KeySet),
            Self::Url(source) if !source.url.is_tls && !source.url.is_loopback() => {
                let problem = format!("{}: {NOT_SAFE}", source.url);
                Err(AuthConfigError::KeySet(problem))
            }
            Self::Url(_) => Ok(ReadKeys::default()),
        }
    }
}

impl KeySetUrl {
    /// The set at a URL, with the default interval.
    #[must_use]
    pub fn new(url: HttpUrl) -> Self {
        Self {
            url,
            authorities: None,
            refresh_s: 300,
        }
    }
}

/// The keys in force. Threads that check tokens share it with the one that fetches keys.
pub(crate) struct KeySet {
    /// Where they are fetched; `None` for keys that stay.
    pub(crate) source: Option<KeySetUrl>,
    keys: RwLock<Arc<[VerifyingKey]>>,
    is_loaded: AtomicBool,
    wish: AtomicUsize,
    /// Set once the link runs.
    waker: OnceLock<Waker>,
    is_stopped: AtomicBool,
    pub(crate) counts: KeySetCounts,
}

/// Counters of one set, since the start.
#[derive(Debug, Default)]
pub(crate) struct KeySetCounts {
    /// Sets that were fetched.
    pub(crate) fetched: AtomicU64,
    /// Attempts that brought none.
    pub(crate) failed: AtomicU64,
    /// When the server answered last with a set, in milliseconds since 1970; 0 before.
    pub(crate) fetched_unix_ms: AtomicU64,
}

/// Which key a token names.
pub(crate) enum Selection {
    /// One of these keys.
    Key(Arc<[VerifyingKey]>, usize),
    /// None has its `kid`, or it names none and several would fit.
    UnknownKey,
    /// None is for its `alg`.
    WrongAlgorithm,
}

/// A fetch before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    None,
    /// A token names a key that is not known.
    Early,
    /// An operator reloads.
    Now,
}

impl KeySet {
    /// The keys of a text, or none yet of a URL. Logs the keys of a text that are ignored.
    pub(crate) fn new(source: &KeySetSource) -> Result<Self, AuthConfigError> {
        let ReadKeys { keys, problems } = source.load()?;
        for problem in problems {
            tracing::warn!("a key of the set in a file is left out: {problem}");
        }
        let source = match source {
            KeySetSource::Text(_) => None,
            KeySetSource::Url(source) => Some((**source).clone()),
        };
        Ok(Self {
            is_loaded: AtomicBool::new(source.is_none()),
            source,
            keys: RwLock::new(keys.into()),
            wish: AtomicUsize::new(Wish::None as usize),
            waker: OnceLock::new(),
            is_stopped: AtomicBool::new(false),
            counts: KeySetCounts::default(),
        })
    }

    /// Whether keys were loaded. It stays true: a failed fetch keeps the old keys.
    pub(crate) fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::Acquire)
    }

    /// Whether there are keys, or an attempt to fetch them has failed.
    pub(crate) fn is_tried(&self) -> bool {
        self.is_loaded() || self.counts.failed.load(Ordering::Relaxed) > 0
    }

    /// The keys in force.
    pub(crate) fn keys(&self) -> Arc<[VerifyingKey]> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key for tokens with this `alg` and `kid`. A `kid` that no key has makes an early fetch.
    pub(crate) fn select(&self, alg: &str, kid: Option<&str>) -> Selection {
        let keys = self.keys();
        let fits = |key: &VerifyingKey| key.algorithm_name == alg;
        let Some(kid) = kid else {
            let mut fitting = (0..keys.len()).filter(|place| fits(&keys[*place]));
            return match (fitting.next(), fitting.next()) {
                (Some(place), None) => Selection::Key(keys, place),
                (Some(_), Some(_)) => Selection::UnknownKey,
                (None, _) => Selection::WrongAlgorithm,
            };
        };
        let is_named = |key: &VerifyingKey| key.kid.as_deref() == Some(kid);
        let mut named = (0..keys.len()).filter(|place| is_named(&keys[*place]));
        let Some(first) = named.next() else {
            self.wish(Wish::Early);
            return Selection::UnknownKey;
        };
        let mut named = std::iter::once(first).chain(named);
        match named.find(|place| fits(&keys[*place])) {
            Some(place) => Selection::Key(keys, place),
            None => Selection::WrongAlgorithm,
        }
    }

    /// Other keys from now on.
    pub(crate) fn replace(&self, keys: Vec<VerifyingKey>) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.into();
        self.is_loaded.store(true, Ordering::Release);
    }

    /// Reads the answer of the server, and puts its keys in force.
    ///
    /// # Errors
    /// The fault of the answer; the keys stay.
    pub(crate) fn accept(&self, text: &[u8]) -> Result<Vec<String>, String> {
        let ReadKeys { keys, problems } = jwks::read(text, Place::Url)?;
        self.replace(keys);
        Ok(problems)
    }

    /// Asks for a fetch before its time.
    pub(crate) fn wish(&self, wish: Wish) {
        if self.source.is_some()
            && self.wish.fetch_max(wish as usize, Ordering::AcqRel) < wish as usize
        {
            self.wake();
        }
    }

    /// The requests since the last call.
    pub(crate) fn take_wish(&self) -> Wish {
        match self.wish.swap(Wish::None as usize, Ordering::AcqRel) {
            0 => Wish::None,
            1 => Wish::Early,
            _ => Wish::Now,
        }
    }

    /// Lets those who ask wake the link.
    pub(crate) fn connect(&self, waker: Waker) {
        // A set has one link.
        let _ = self.waker.set(waker);
    }

    /// The link ends with its next turn.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeySet({} keys)", self.keys().len())
    }
}

/// A text may hold secrets, which never reach a log.
impl fmt::Debug for KeySetSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => formatter.write_str("Text(…)"),
            Self::Url(source) => source.fmt(formatter),
        }
    }
}

const NOT_SAFE: &str = "whoever sits in between could put keys of their own into the set; give https://, or an address of this machine";
