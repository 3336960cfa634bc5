//! JSON Web Tokens, signed and checked as the server does.

use crate::arguments::{Flag, Names, Number, Str, Text, Whole, is_text, unix_s};
use crate::errors::{Failure, argument, wrong_type};
use crate::json;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyMapping, PyTzInfo};
use tidewire_bindings::utilities::tokens;
use tidewire_engine::auth::{AuthKey, TokenError};

/// A key for one algorithm.
#[pyclass(frozen, module = "tidewire.jwt")]
pub(crate) struct TokenKey {
    key: AuthKey,
}

#[pymethods]
impl TokenKey {
    #[new]
    #[pyo3(signature = (key, *, algorithm = None, key_id = None))]
    fn new(key: Text, algorithm: Option<Str>, key_id: Option<Str>) -> PyResult<Self> {
        let key = tokens::token_key(&key, algorithm.as_deref(), key_id.map(Str::into_string));
        Ok(Self {
            key: key.map_err(Failure::from)?,
        })
    }

    /// `HS256`, `RS256`, `ES256` or `EdDSA`.
    #[getter]
    fn algorithm(&self) -> &'static str {
        self.key.material.algorithm_name()
    }

    /// The key's name in the header of tokens.
    #[getter]
    fn key_id(&self) -> Option<&str> {
        self.key.kid.as_deref()
    }

    fn __repr__(&self) -> String {
        let kid = self.key.kid.as_ref();
        let kid = kid.map_or_else(String::new, |kid| format!(", key_id={kid:?}"));
        format!("TokenKey({}{kid})", self.algorithm())
    }
}

/// Signs tokens with one key, which is read once.
#[pyclass(frozen, module = "tidewire.jwt")]
pub(crate) struct TokenSigner {
    signer: tokens::TokenSigner,
}

#[pymethods]
impl TokenSigner {
    #[new]
    #[pyo3(signature = (key, *, algorithm = None, key_id = None))]
    fn new(key: &Bound<'_, PyAny>, algorithm: Option<Str>, key_id: Option<Str>) -> PyResult<Self> {
        let mut key = one_key(key, algorithm.as_deref())?;
        key.kid = key_id.map(Str::into_string).or(key.kid);
        let signer = tokens::TokenSigner::new(key).map_err(Failure::from)?;
        Ok(Self { signer })
    }

    /// The token with these claims.
    #[pyo3(signature = (claims, *, check = Flag(true)), text_signature = "($self, claims, *, check=True)")]
    fn encode(&self, claims: &Bound<'_, PyAny>, check: Flag) -> PyResult<String> {
        let claims = json::dumps(&in_seconds(claims)?)?;
        let token = match check.0 {
            true => self.signer.encode_checked(&claims, unix_s(None)?),
            false => self.signer.encode(&claims),
        };
        Ok(token.map_err(Failure::from)?)
    }

    fn __repr__(&self) -> String {
        format!("TokenSigner({})", self.signer.algorithm())
    }
}

/// Checks tokens with some keys, which are read once.
#[pyclass(frozen, module = "tidewire.jwt")]
pub(crate) struct TokenVerifier {
    verifier: tokens::TokenVerifier,
}

#[pymethods]
impl TokenVerifier {
    #[new]
    #[pyo3(signature = (keys, *, algorithms = None, issuer = None, audience = None, leeway_s = Whole(5), required = None), text_signature = "(keys, *, algorithms=None, issuer=None, audience=None, leeway_s=5, required=None)")]
    fn new(
        keys: &Bound<'_, PyAny>,
        algorithms: Option<Names>,
        issuer: Option<Str>,
        audience: Option<Str>,
        leeway_s: Whole,
        required: Option<Names>,
    ) -> PyResult<Self> {
        let rules = tokens::TokenRules {
            algorithms: algorithms.map(Names::into_strings),
            issuer: issuer.map(Str::into_string),
            audience: audience.map(Str::into_string),
            leeway_s: leeway_s.0,
            required: required.map(Names::into_strings),
        };
        let verifier = tokens::TokenVerifier::new(several_keys(keys)?, rules);
        Ok(Self {
            verifier: verifier.map_err(Failure::from)?,
        })
    }

    /// The claims of a good token.
    #[pyo3(signature = (token, *, now = None))]
    fn decode<'py>(
        &self,
        py: Python<'py>,
        token: Text,
        now: Option<Number>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let malformed = || Failure::from(TokenError::Malformed);
        let token = std::str::from_utf8(&token).map_err(|_| malformed())?;
        let claims = self.verifier.decode(token, unix_s(now)?);
        let claims = claims.map_err(Failure::from)?;
        json::loads(py, claims.as_bytes()).map_err(|_| malformed().into())
    }

    fn __repr__(&self) -> String {
        format!("TokenVerifier({} keys)", self.verifier.keys())
    }
}

/// A token with these claims, signed with `key`.
#[pyfunction]
#[pyo3(signature = (claims, key, *, algorithm = None, key_id = None, check = Flag(true)), text_signature = "(claims, key, *, algorithm=None, key_id=None, check=True)")]
pub(crate) fn encode_token(
    claims: &Bound<'_, PyAny>,
    key: &Bound<'_, PyAny>,
    algorithm: Option<Str>,
    key_id: Option<Str>,
    check: Flag,
) -> PyResult<String> {
    TokenSigner::new(key, algorithm, key_id)?.encode(claims, check)
}

/// The claims of a token that one of `keys` signed.
#[expect(clippy::too_many_arguments, reason = "each is something to check")]
#[pyfunction]
#[pyo3(signature = (token, keys, *, algorithms = None, issuer = None, audience = None, leeway_s = Whole(5), required = None, now = None), text_signature = "(token, keys, *, algorithms=None, issuer=None, audience=None, leeway_s=5, required=None, now=None)")]
pub(crate) fn decode_token<'py>(
    py: Python<'py>,
    token: Text,
    keys: &Bound<'py, PyAny>,
    algorithms: Option<Names>,
    issuer: Option<Str>,
    audience: Option<Str>,
    leeway_s: Whole,
    required: Option<Names>,
    now: Option<Number>,
) -> PyResult<Bound<'py, PyAny>> {
    TokenVerifier::new(keys, algorithms, issuer, audience, leeway_s, required)?
        .decode(py, token, now)
}

/// The claims with times as JSON Web Tokens have them: in seconds. A copy, if there is anything to change.
fn in_seconds<'py>(claims: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = claims.py();
    let Ok(mapping) = claims.cast::<PyDict>() else {
        let mapping = claims.cast::<PyMapping>();
        let mapping = mapping.map_err(|_| wrong_type("claims have to be a dict"))?;
        let copy = PyDict::new(py);
        copy.update(mapping)?;
        return in_seconds(&copy);
    };
    let mut copy = None;
    for name in TIMES {
        let Some(value) = mapping.get_item(name)? else {
            continue;
        };
        if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
            continue;
        }
        let copy = match &mut copy {
            Some(copy) => copy,
            copy => copy.insert(mapping.copy()?),
        };
        copy.set_item(name, seconds(name, &value)?)?;
    }
    Ok(copy.unwrap_or_else(|| mapping.clone()).into_any())
}

/// The whole seconds since 1970 of a `datetime`, which is in UTC if it has no time zone.
fn seconds(name: &str, time: &Bound<'_, PyAny>) -> PyResult<i64> {
    let Ok(zone) = time.getattr("tzinfo") else {
        let message = format!("{name} has to be a datetime or a number of seconds since 1970");
        return Err(wrong_type(message).into());
    };
    let time = if zone.is_none() {
        let utc = PyDict::new(time.py());
        utc.set_item("tzinfo", PyTzInfo::utc(time.py())?)?;
        time.call_method("replace", (), Some(&utc))?
    } else {
        time.clone()
    };
    let seconds: f64 = time.call_method0("timestamp")?.extract()?;
    Ok(seconds.floor() as i64)
}

/// One key, some of them, or a mapping from their ids.
fn several_keys(keys: &Bound<'_, PyAny>) -> PyResult<Vec<AuthKey>> {
    if is_text(keys) || keys.is_instance_of::<TokenKey>() {
        return Ok(vec![one_key(keys, None)?]);
    }
    if let Ok(by_id) = keys.cast::<PyMapping>() {
        let mut several = Vec::new();
        for pair in by_id.items()? {
            let (id, key): (Str, Bound<'_, PyAny>) = pair.extract()?;
            let AuthKey { material, .. } = one_key(&key, None)?;
            let kid = Some(id.to_string());
            several.push(AuthKey { material, kid });
        }
        return Ok(several);
    }
    let each = keys.try_iter().map_err(|_| {
        wrong_type("keys have to be a key, a list of keys, or a dict of them by their ids")
    })?;
    each.map(|key| one_key(&key?, None)).collect()
}

fn one_key(key: &Bound<'_, PyAny>, algorithm: Option<&str>) -> PyResult<AuthKey> {
    if let Ok(key) = key.cast::<TokenKey>() {
        let key = key.get().key.clone();
        let own = key.material.algorithm_name();
        return match algorithm {
            Some(wanted) if wanted != own => {
                Err(argument(format!("the key is for {own}, not for {wanted}")).into())
            }
            _ => Ok(key),
        };
    }
    let text: Text = key.extract()?;
    Ok(tokens::token_key(&text, algorithm, None).map_err(Failure::from)?)
}

/// The claims that are times (RFC 7519, section 4.1).
const TIMES: [&str; 3] = ["exp", "nbf", "iat"];
