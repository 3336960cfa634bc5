//! The claims of a token (RFC 7519, section 4), read in one pass.

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The registered claims that are checked, and the rest. A claim that comes twice is an error,
/// because two readers could take two different ones.
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
