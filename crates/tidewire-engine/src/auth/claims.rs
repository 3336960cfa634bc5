//! The claims of a token (RFC 7519, section 4), read in one pass.

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The registered claims that are checked, and the rest. A repeated claim is an error, because two readers
/// could use different values of it.
#[derive(Debug, Default)]
pub(crate) struct ClaimSet {
    pub(crate) sub: Option<String>,
    pub(crate) exp: Option<NumericDate>,
    pub(crate) nbf: Option<NumericDate>,
    pub(crate) iss: Option<String>,
    pub(crate) aud: Option<Audience>,
    pub(crate) rest: Map<String, Value>,
}

/// Seconds since 1970, UTC, rounded down; a time before that is 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NumericDate(pub(crate) u64);

/// One audience or several.
#[derive(Debug)]
pub(crate) struct Audience(Value);

impl Audience {
    pub(crate) fn contains(&self, audience: &str) -> bool {
        match &self.0 {
            Value::Array(several) => several.iter().any(|one| one == audience),
            one => one == audience,
        }
    }
}

impl ClaimSet {
    /// The name of the user and the end of the token, which every token of a client has.
    pub(crate) fn user(&self) -> Result<(&str, NumericDate), MissingClaim> {
        let subject = self.sub.as_deref().filter(|subject| !subject.is_empty());
        let subject = subject.ok_or(MissingClaim("sub"))?;
        Ok((subject, self.exp.ok_or(MissingClaim("exp"))?))
    }

    /// Whether it is a subscription token, which allows one topic.
    pub(crate) fn is_for_subscription(&self) -> bool {
        self.rest
            .get(USE)
            .is_some_and(|purpose| purpose == SUBSCRIPTION)
    }

    /// The name of the user and the topic, which every subscription token has.
    pub(crate) fn user_and_topic(&self) -> Result<(&str, &str), MissingClaim> {
        let subject = self.sub.as_deref().filter(|subject| !subject.is_empty());
        let subject = subject.ok_or(MissingClaim("sub"))?;
        let topic = self.rest.get(TOPIC).and_then(Value::as_str);
        Ok((subject, topic.ok_or(MissingClaim(TOPIC))?))
    }

    /// Whether `exp` is past for a clock that may differ by `leeway_s`. Without an `exp` it never is.
    pub(crate) fn has_expired(&self, now_unix_s: u64, leeway_s: u64) -> bool {
        let is_past = |exp: NumericDate| now_unix_s >= exp.0.saturating_add(leeway_s);
        self.exp.is_some_and(is_past)
    }
}

/// The name of a claim that a client's token needs and that is missing or empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MissingClaim(pub(crate) &'static str);

impl<'de> Deserialize<'de> for ClaimSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ClaimsVisitor)
    }
}

struct ClaimsVisitor;

impl<'de> Visitor<'de> for ClaimsVisitor {
    type Value = ClaimSet;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of claims")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ClaimSet, M::Error> {
        let mut claims = ClaimSet::default();
        let mut iat = None;
        while let Some(name) = map.next_key::<String>()? {
            let is_first = match name.as_str() {
                "sub" => claims.sub.replace(map.next_value()?).is_none(),
                "exp" => claims.exp.replace(map.next_value()?).is_none(),
                "nbf" => claims.nbf.replace(map.next_value()?).is_none(),
                "iss" => claims.iss.replace(map.next_value()?).is_none(),
                "aud" => claims.aud.replace(Audience(map.next_value()?)).is_none(),
                "iat" => iat.replace(map.next_value::<IgnoredAny>()?).is_none(),
                _ => claims.rest.insert(name, map.next_value()?).is_none(),
            };
            if !is_first {
                return Err(M::Error::custom("a claim comes twice"));
            }
        }
        Ok(claims)
    }
}

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumericDateVisitor)
    }
}

struct NumericDateVisitor;

impl Visitor<'_> for NumericDateVisitor {
    type Value = NumericDate;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number of seconds since 1970")
    }

    fn visit_u64<E>(self, seconds: u64) -> Result<NumericDate, E> {
        Ok(NumericDate(seconds))
    }

    fn visit_i64<E>(self, seconds: i64) -> Result<NumericDate, E> {
        Ok(NumericDate(seconds.max(0) as u64))
    }

    fn visit_f64<E>(self, seconds: f64) -> Result<NumericDate, E> {
        // The cast saturates, also below zero.
        Ok(NumericDate(seconds as u64))
    }
}

/// The claim that marks a subscription token, as opposed to that of a session, and its value.
const USE: &str = "use";
const SUBSCRIPTION: &str = "subscription";

/// The claim with the topic or pattern of a subscription token.
const TOPIC: &str = "topic";
