//! Logins to the dashboard: random tokens, and the keys that they stand for; browsers that have logged in before.

use crate::auth::api_key::NamedApiKey;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The logins of a server. They do not survive it.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    logins: Mutex<Vec<Login>>,
    /// Browsers that have logged in, and until when that counts, the oldest first.
    devices: Mutex<Vec<(String, Instant)>>,
    /// How often a login was ended.
    ends: AtomicU64,
    /// When a login with a wrong key was logged last.
    warned: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Login {
    token: String,
    key: NamedApiKey,
    until: Instant,
}

impl Logins {
    /// A new token for a key. With too many logins the oldest ends.
    pub(crate) fn add(&self, key: &NamedApiKey, now: Instant) -> String {
        let token = new_token();
        let mut logins = self.lock();
        logins.retain(|login| login.until > now);
        if logins.len() >= LOGINS_MAX {
            logins.remove(0);
            self.ends.fetch_add(1, Ordering::Relaxed);
        }
        logins.push(Login {
            token: token.clone(),
            key: key.clone(),
            until: now + LOGIN_TIME,
        });
        token
    }

    /// The key of a login that has not ended.
    pub(crate) fn find(&self, token: &str, now: Instant) -> Option<NamedApiKey> {
        let logins = self.lock();
        let mut found = None;
        // All are compared, so that the time does not reveal which one was almost right.
        for login in logins.iter() {
            if is_same(&login.token, token) && login.until > now {
                found = Some(login.key.clone());
            }
        }
        found
    }

    /// Whether a browser with this token has logged in before.
    pub(crate) fn has_device(&self, token: &str, now: Instant) -> bool {
        let devices = self.devices();
        let is_it = |(device, until): &(String, Instant)| is_same(device, token) && *until > now;
        devices
            .iter()
            .fold(false, |found, device| found | is_it(device))
    }

    /// The token of a browser that has logged in, new or `known`.
    pub(crate) fn add_device(&self, known: Option<&str>, now: Instant) -> String {
        let token = known.map_or_else(new_token, str::to_owned);
        let mut devices = self.devices();
        devices.retain(|(device, until)| *device != token && *until > now);
        if devices.len() >= DEVICES_MAX {
            devices.remove(0);
        }
        devices.push((token.clone(), now + Duration::from_secs(DEVICE_TIME_S)));
        token
    }

    /// True if a login with a wrong key should be logged now. Its sender controls how often that happens, so lines are limited.
    pub(crate) fn may_warn(&self, now: Instant) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = warned.is_none_or(|at| now.duration_since(at) >= WARN_EVERY);
        if is_due {
            *warned = Some(now);
        }
        is_due
    }

    /// Ends a login.
    pub(crate) fn remove(&self, token: &str) {
        self.lock().retain(|login| !is_same(&login.token, token));
        self.ends.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a login was ended before its time was over. If the number has changed, a login may have ended.
    pub(crate) fn ends(&self) -> u64 {
        self.ends.load(Ordering::Relaxed)
    }

    fn devices(&self) -> MutexGuard<'_, Vec<(String, Instant)>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Login>> {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 256 random bits as hexadecimal digits.
fn new_token() -> String {
    let mut bytes = [0; 32];
    StdRng::from_os_rng().fill_bytes(&mut bytes);
    bytes.iter().fold(String::new(), |mut token, byte| {
        // Writing to a string cannot fail.
        let _ = write!(token, "{byte:02x}");
        token
    })
}

fn is_same(left: &str, right: &str) -> bool {
    let pairs = left.bytes().zip(right.bytes());
    let difference = pairs.fold(0, |sum, (left, right)| black_box(sum | (left ^ right)));
    left.len() == right.len() && difference == 0
}

const WARN_EVERY: Duration = Duration::from_secs(60);

/// Logins that last at the same time.
const LOGINS_MAX: usize = 64;

/// Browsers that are remembered.
const DEVICES_MAX: usize = 64;

/// How long a browser is remembered, in seconds: 30 days.
pub(crate) const DEVICE_TIME_S: u64 = 30 * 24 * 60 * 60;

/// How long a login lasts.
const LOGIN_TIME: Duration = Duration::from_secs(12 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::api_key::ApiKey;

    #[test]
    fn a_login_ends() {
        let logins = Logins::default();
        let key = ApiKey::new(b"0123456789abcdef".to_vec()).unwrap();
        let key = NamedApiKey::all("ops", key);
        let now = Instant::now();
        let first = logins.add(&key, now);
        assert_eq!(first.len(), 64);
        assert_eq!(logins.find(&first, now), Some(key.clone()));
        assert_eq!(logins.find(&first[..63], now), None);
        assert_eq!(logins.find(&first, now + LOGIN_TIME), None);
        let others: Vec<_> = (0..LOGINS_MAX).map(|_| logins.add(&key, now)).collect();
        assert_eq!(logins.find(&first, now), None);
        assert_eq!(logins.find(&others[0], now), Some(key));
        assert!(logins.may_warn(now) && !logins.may_warn(now));
        assert!(logins.may_warn(now + WARN_EVERY));
        logins.remove(&others[0]);
        assert_eq!(logins.find(&others[0], now), None);
    }

    #[test]
    fn browsers_are_remembered() {
        let (logins, now) = (Logins::default(), Instant::now());
        let device = logins.add_device(None, now);
        assert!(logins.has_device(&device, now) && !logins.has_device("", now));
        assert_eq!(logins.add_device(Some(&device), now), device);
        assert_eq!(logins.devices().len(), 1);
        let later = now + Duration::from_secs(DEVICE_TIME_S);
        assert!(!logins.has_device(&device, later));
        for _ in 0..DEVICES_MAX {
            logins.add_device(None, now);
        }
        assert!(!logins.has_device(&device, now) && logins.devices().len() == DEVICES_MAX);
    }
}
