//! Agreeing on a key, and AES-256-GCM with it.

use crate::arguments::{Bytes, Str, Whole, unlocked};
use crate::errors::Failure;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tidewire_bindings::utilities::encryption;

/// One side's keys for one agreement.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct KeyPair {
    pair: encryption::KeyPair,
}

#[pymethods]
impl KeyPair {
    #[new]
    fn new() -> PyResult<Self> {
        let pair = encryption::KeyPair::generate().map_err(Failure::from)?;
        Ok(Self { pair })
    }

    /// The public key for the other side: an uncompressed point, 65 bytes.
    #[getter]
    fn public_key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.pair.public_key())
    }

    /// The side that was spoken to: what both sides seal and open with from now on.
    #[pyo3(signature = (peer_public_key, session, *, version = Whole(2), identity = None), text_signature = "($self, peer_public_key, session, *, version=2, identity=None)")]
    fn accept(
        &self,
        peer_public_key: Bytes,
        session: &Bound<'_, PyAny>,
        version: Whole,
        identity: Option<&Bound<'_, IdentityKey>>,
    ) -> PyResult<SessionCipher> {
        let session = uuid(session)?;
        let identity = identity.map(|identity| &identity.get().key);
        let agreed = self
            .pair
            .accept(&peer_public_key, &session, version.0, identity);
        Ok(SessionCipher {
            cipher: agreed.map_err(Failure::from)?,
        })
    }

    /// The side that spoke first: what both sides seal and open with from now on.
    #[pyo3(signature = (peer_public_key, session, *, version = Whole(2), proof = None, pinned = None), text_signature = "($self, peer_public_key, session, *, version=2, proof=None, pinned=None)")]
    fn finish(
        &self,
        peer_public_key: Bytes,
        session: &Bound<'_, PyAny>,
        version: Whole,
        proof: Option<Bytes>,
        pinned: Option<Bytes>,
    ) -> PyResult<SessionCipher> {
        let session = uuid(session)?;
        let (proof, pinned) = (proof.as_deref(), pinned.as_deref());
        let agreed = self
            .pair
            .finish(&peer_public_key, &session, version.0, proof, pinned);
        Ok(SessionCipher {
            cipher: agreed.map_err(Failure::from)?,
        })
    }

    fn __repr__(&self) -> &'static str {
        "KeyPair(P-256)"
    }
}

/// A lasting key, by which a server is known.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct IdentityKey {
    key: encryption::IdentityKey,
}

#[pymethods]
impl IdentityKey {
    #[new]
    fn new(private_key: Str) -> PyResult<Self> {
        let key = encryption::IdentityKey::from_pkcs8_pem(&private_key).map_err(Failure::from)?;
        Ok(Self { key })
    }

    /// The public key that the other side pins: an uncompressed point, 65 bytes.
    #[getter]
    fn public_key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.key.public_key())
    }

    fn __repr__(&self) -> &'static str {
        "IdentityKey(P-256)"
    }
}

/// The encryption of both sides after a key exchange.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct SessionCipher {
    cipher: encryption::SessionCipher,
}

#[pymethods]
impl SessionCipher {
    /// `plain`, encrypted: 30 bytes more.
    fn seal<'py>(&self, py: Python<'py>, plain: Bytes) -> PyResult<Bound<'py, PyBytes>> {
        let sealed = unlocked(py, plain.len(), || self.cipher.seal(&plain));
        Ok(PyBytes::new(py, &sealed.map_err(Failure::from)?))
    }

    /// The content of a sealed message of the other side.
    fn open<'py>(&self, py: Python<'py>, message: Bytes) -> PyResult<Bound<'py, PyBytes>> {
        let opened = unlocked(py, message.len(), || self.cipher.open(&message));
        Ok(PyBytes::new(py, &opened.map_err(Failure::from)?))
    }

    /// 1 or 2, as agreed.
    #[getter]
    fn version(&self) -> u8 {
        self.cipher.version()
    }

    /// The `proof` for `finish`, if `accept` had an identity.
    #[getter]
    fn proof<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.cipher.proof().map(|proof| PyBytes::new(py, proof))
    }

    /// Whether it is time for another key; never in version 1.
    #[getter]
    fn wants_key_update(&self) -> bool {
        self.cipher.wants_key_update()
    }

    /// Changes the key of this side, after the other side was notified.
    fn update_sealing_key(&self) -> PyResult<()> {
        let updated = self.cipher.update_sealing_key();
        Ok(updated.map_err(Failure::from)?)
    }

    /// Changes the key of the other side, after its notice has arrived.
    fn update_opening_key(&self) -> PyResult<()> {
        let updated = self.cipher.update_opening_key();
        Ok(updated.map_err(Failure::from)?)
    }

    fn __repr__(&self) -> String {
        format!("SessionCipher(AES-256-GCM, version={})", self.version())
    }
}

/// The text of a `uuid.UUID`, or the given text.
fn uuid(session: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(session.str()?.extract::<Str>()?.into_string())
}
