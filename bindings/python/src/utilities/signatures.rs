//! HMAC, and the signatures of messages.

use crate::arguments::{Bytes, Number, Str, Text, Whole, unix_s, unlocked};
use crate::errors::Failure;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tidewire_bindings::utilities::signatures::{
    self, NONCES_MAX_DEFAULT, SignedMessage, find_parts,
};

/// HMAC-SHA256 of a message: 32 bytes.
#[pyfunction]
pub(crate) fn hmac_sha256<'py>(py: Python<'py>, key: Text, message: Text) -> Bound<'py, PyBytes> {
    let mac = unlocked(py, message.len(), || {
        signatures::hmac_sha256(&key, &message)
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
    let signer = signatures::Signer::new(Some(&secret), None).map_err(Failure::from)?;
    let message = SignedMessage {
        payload: &payload,
        ..SignedMessage::default()
    };
    Ok(signed(py, &signer, &message, version, now)?)
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
    let verifier = signatures::Verifier::new(Some(&secret), None, 0).map_err(Failure::from)?;
    let message = SignedMessage {
        payload: &payload,
        signature: Some((&*signature).into()),
        ..SignedMessage::default()
    };
    let now_unix_s = unix_s(now)?;
    let checked = unlocked(py, payload.len(), || verifier.check(&message, now_unix_s));
    Ok(checked.map_err(Failure::from)?)
}

/// A key that signs.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct Signer {
    signer: signatures::Signer,
}

#[pymethods]
impl Signer {
    #[new]
    #[pyo3(signature = (secret = None, *, private_key = None))]
    fn new(secret: Option<Text>, private_key: Option<Str>) -> PyResult<Self> {
        let signer = signatures::Signer::new(secret.as_deref(), private_key.as_deref());
        Ok(Self {
            signer: signer.map_err(Failure::from)?,
        })
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
        Ok(signed(py, &self.signer, &message, version, now)?)
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
        let message = find_parts(&message).map_err(Failure::from)?;
        Ok(signed(py, &self.signer, &message, version, now)?)
    }

    /// The key for a `Verifier`, if this key is not a secret: 65 bytes.
    #[getter]
    fn public_key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let key = self.signer.public_key();
        key.map(|key| PyBytes::new(py, key))
    }

    fn __repr__(&self) -> &'static str {
        match self.signer.public_key() {
            None => "Signer(HMAC-SHA256)",
            Some(_) => "Signer(ECDSA P-256)",
        }
    }
}

/// A key that checks, and what it has seen.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct Verifier {
    verifier: signatures::Verifier,
}

#[pymethods]
impl Verifier {
    #[new]
    #[pyo3(signature = (secret = None, *, public_key = None, nonces_max = Whole(NONCES_MAX_DEFAULT)), text_signature = "(secret=None, *, public_key=None, nonces_max=1000000)")]
    fn new(secret: Option<Text>, public_key: Option<Bytes>, nonces_max: Whole) -> PyResult<Self> {
        let (secret, public_key) = (secret.as_deref(), public_key.as_deref());
        let verifier = signatures::Verifier::new(secret, public_key, nonces_max.size());
        Ok(Self {
            verifier: verifier.map_err(Failure::from)?,
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
        let message = find_parts(&message).map_err(Failure::from)?;
        Ok(self.accept(py, &message, now)?)
    }

    /// The number of stored signatures.
    #[getter]
    fn nonces(&self) -> usize {
        self.verifier.nonces()
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
        let accepted = unlocked(py, message.payload.len(), || {
            self.verifier.accept(message, now_unix_s)
        });
        Ok(accepted?)
    }
}

fn signed(
    py: Python<'_>,
    signer: &signatures::Signer,
    message: &SignedMessage<'_>,
    version: Whole,
    now: Option<Number>,
) -> Result<String, Failure> {
    let now_unix_s = unix_s(now)?;
    let signature = unlocked(py, message.payload.len(), || {
        signer.sign(message, version.0, now_unix_s)
    });
    Ok(signature?)
}

fn text(given: Option<&Str>) -> std::borrow::Cow<'_, str> {
    given.map_or_else(Default::default, |given| (&**given).into())
}
