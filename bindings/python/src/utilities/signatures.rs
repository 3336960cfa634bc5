//! HMAC, and the signatures of messages.

use crate::arguments::{Bytes, Number, Str, Text, Whole, exactly, unix_s, unlocked};
use crate::errors::{Failure, argument};
use crate::utilities::random::random;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};
use tidewire_wire::format::{Format, Framing, identify};
use tidewire_wire::secure::{
    IdentityKey, NONCES_DEFAULT_MAX, NonceWindow, SignatureVersion, SignedMessage, SigningKey,
    VerifyingKey,
};

/// HMAC-SHA256 of a message: 32 bytes.
#[pyfunction]
pub(crate) fn hmac_sha256<'py>(py: Python<'py>, key: Text, message: Text) -> Bound<'py, PyBytes> {
    let mac = unlocked(py, message.len(), || {
        tidewire_wire::secure::hmac_sha256(&key, &message)
    });
    PyBytes::new(py, &mac)
}

/// A signature of `payload`, with the time and a nonce in it.
#[pyfunction]
#[pyo3(signature = (payload, secret, *, version = Whole(2), now = None), text_signature = "(payload, secret, *, version=2, now=None)")]
pub(crate) fn sign(
    py: Python<'_>,
    payload: Text,
    secret: Text,
    version: Whole,
    now: Option<Number>,
) -> PyResult<String> {
    let key = SigningKey::hmac(&secret).map_err(Failure::from)?;
    let message = SignedMessage {
        payload: &payload,
        ..SignedMessage::default()
    };
    Ok(signed(py, &key, &message, version, now)?)
}

/// Checks a signature of `sign`, but not that it is new.
#[pyfunction]
#[pyo3(signature = (payload, signature, secret, *, now = None))]
pub(crate) fn verify(
    py: Python<'_>,
    payload: Text,
    signature: Str,
    secret: Text,
    now: Option<Number>,
) -> PyResult<u8> {
    let key = VerifyingKey::hmac(&secret).map_err(Failure::from)?;
    let message = SignedMessage {
        payload: &payload,
        signature: Some((&*signature).into()),
        ..SignedMessage::default()
    };
    let now_unix_s = unix_s(now)?;
    let checked = unlocked(py, payload.len(), || key.check(&message, now_unix_s));
    Ok(number(checked.map_err(Failure::from)?.version()))
}

/// A key that signs.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct Signer {
    key: SigningKey,
    public_key: Option<[u8; 65]>,
}

#[pymethods]
impl Signer {
    #[new]
    #[pyo3(signature = (secret = None, *, private_key = None))]
    fn new(secret: Option<Text>, private_key: Option<Str>) -> PyResult<Self> {
        match (secret, private_key) {
            (Some(secret), None) => Ok(Self {
                key: SigningKey::hmac(&secret).map_err(Failure::from)?,
                public_key: None,
            }),
            (None, Some(pem)) => {
                let identity = IdentityKey::from_pkcs8_pem(&pem).map_err(Failure::from)?;
                Ok(Self {
                    public_key: Some(*identity.public_key()),
                    key: SigningKey::ecdsa(identity),
                })
            }
            _ => Err(argument("give either a secret or a private_key").into()),
        }
    }

    /// A signature of a message's parts.
    #[expect(clippy::too_many_arguments, reason = "each is a field of the message")]
    #[pyo3(signature = (payload, *, r#type = None, id = None, topic = None, correlation_id = None, version = Whole(2), now = None), text_signature = "($self, payload, *, type=None, id=None, topic=None, correlation_id=None, version=2, now=None)")]
    fn sign(
        &self,
        py: Python<'_>,
        payload: Text,
        r#type: Option<Str>,
        id: Option<Str>,
        topic: Option<Str>,
        correlation_id: Option<Str>,
        version: Whole,
        now: Option<Number>,
    ) -> PyResult<String> {
        let message = SignedMessage {
            t: text(r#type.as_ref()),
            id: text(id.as_ref()),
            topic: text(topic.as_ref()),
            correlation_id: text(correlation_id.as_ref()),
            payload: &payload,
            signature: None,
        };
        Ok(signed(py, &self.key, &message, version, now)?)
    }

    /// A signature of a whole message, JSON or MessagePack.
    #[pyo3(signature = (message, *, version = Whole(2), now = None), text_signature = "($self, message, *, version=2, now=None)")]
    fn sign_message(
        &self,
        py: Python<'_>,
        message: Text,
        version: Whole,
        now: Option<Number>,
    ) -> PyResult<String> {
        let message = find(&message).map_err(Failure::from)?;
        Ok(signed(py, &self.key, &message, version, now)?)
    }

    /// What a `Verifier` takes, if the key is not a secret: 65 bytes.
    #[getter]
    fn public_key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.public_key.map(|key| PyBytes::new(py, &key))
    }

    fn __repr__(&self) -> &'static str {
        match self.public_key {
            None => "Signer(HMAC-SHA256)",
            Some(_) => "Signer(ECDSA P-256)",
        }
    }
}

/// A key that checks, and what it has seen.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct Verifier {
    key: VerifyingKey,
    nonces: Mutex<NonceWindow>,
}

#[pymethods]
impl Verifier {
    #[new]
    #[pyo3(signature = (secret = None, *, public_key = None, nonces_max = Whole(NONCES_DEFAULT_MAX as u64)), text_signature = "(secret=None, *, public_key=None, nonces_max=1000000)")]
    fn new(secret: Option<Text>, public_key: Option<Bytes>, nonces_max: Whole) -> PyResult<Self> {
        let key = match (secret, public_key) {
            (Some(secret), None) => VerifyingKey::hmac(&secret),
            (None, Some(point)) => VerifyingKey::ecdsa(&exactly(&point, "a public key")?),
            _ => return Err(argument("give either a secret or a public_key").into()),
        };
        let nonces_max = usize::try_from(nonces_max.0).unwrap_or(usize::MAX);
        Ok(Self {
            key: key.map_err(Failure::from)?,
            nonces: Mutex::new(NonceWindow::new(nonces_max)),
        })
    }

    /// Checks the signature of a message's parts, and that it is new.
    #[expect(clippy::too_many_arguments, reason = "each is a field of the message")]
    #[pyo3(signature = (payload, signature, *, r#type = None, id = None, topic = None, correlation_id = None, now = None))]
    fn verify(
        &self,
        py: Python<'_>,
        payload: Text,
        signature: Str,
        r#type: Option<Str>,
        id: Option<Str>,
        topic: Option<Str>,
        correlation_id: Option<Str>,
        now: Option<Number>,
    ) -> PyResult<u8> {
        let message = SignedMessage {
            t: text(r#type.as_ref()),
            id: text(id.as_ref()),
            topic: text(topic.as_ref()),
            correlation_id: text(correlation_id.as_ref()),
            payload: &payload,
            signature: Some((&*signature).into()),
        };
        Ok(self.accept(py, &message, now)?)
    }

    /// Checks the signature in a whole message, and that it is new.
    #[pyo3(signature = (message, *, now = None))]
    fn verify_message(&self, py: Python<'_>, message: Text, now: Option<Number>) -> PyResult<u8> {
        let message = find(&message).map_err(Failure::from)?;
        Ok(self.accept(py, &message, now)?)
    }

    /// How many signatures are remembered.
    #[getter]
    fn nonces(&self) -> usize {
        let nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        nonces.len()
    }

    fn __repr__(&self) -> String {
        format!("Verifier({} nonces remembered)", self.nonces())
    }
}

impl Verifier {
    fn accept(
        &self,
        py: Python<'_>,
        message: &SignedMessage<'_>,
        now: Option<Number>,
    ) -> Result<u8, Failure> {
        let now_unix_s = unix_s(now)?;
        let checked = unlocked(py, message.payload.len(), || {
            self.key.check(message, now_unix_s)
        })?;
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(number(checked.accept(&mut nonces)?))
    }
}

fn signed(
    py: Python<'_>,
    key: &SigningKey,
    message: &SignedMessage<'_>,
    version: Whole,
    now: Option<Number>,
) -> Result<String, Failure> {
    let version = match version.0 {
        1 => SignatureVersion::One,
        2 => SignatureVersion::Two,
        other => return Err(argument(format!("version has to be 1 or 2, not {other}"))),
    };
    let (now_unix_s, nonce) = (unix_s(now)?, random()?);
    let signature = unlocked(py, message.payload.len(), || {
        key.sign(version, message, now_unix_s, &nonce)
    });
    Ok(signature?)
}

/// The parts of a message: JSON, or MessagePack behind its prefix.
fn find(message: &[u8]) -> Result<SignedMessage<'_>, tidewire_wire::secure::SignatureError> {
    match identify(message) {
        framing @ Framing::MessagePack => {
            SignedMessage::find(Format::MessagePack, &message[framing.prefix_bytes()..])
        }
        _ => SignedMessage::find(Format::Json, message),
    }
}

fn text(given: Option<&Str>) -> std::borrow::Cow<'_, str> {
    given.map_or_else(Default::default, |given| (&**given).into())
}

fn number(version: SignatureVersion) -> u8 {
    match version {
        SignatureVersion::One => 1,
        SignatureVersion::Two => 2,
    }
}
