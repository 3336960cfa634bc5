//! Agreeing on a key, and AES-256-GCM with it.

use crate::arguments::{Bytes, Str, Whole, exactly, unlocked};
use crate::errors::utilities::cryptography;
use crate::errors::{Failure, argument};
use crate::utilities::random::random;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidewire_wire::secure::{
    ExchangeKeyPair, IdentityKey as Identity, SEALED_OVERHEAD_BYTES, SessionCipher as Cipher,
};
use tidewire_wire::session::{
    EncryptionVersion, HelloEncryption, HelloIdentity, KeyOffer, PUBLIC_KEY_BYTES, SIGNATURE_BYTES,
};
use tidewire_wire::uuid::Uuid;

/// One side's keys for one agreement.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct KeyPair {
    public_key: [u8; PUBLIC_KEY_BYTES],
    pair: Mutex<Option<ExchangeKeyPair>>,
}

#[pymethods]
impl KeyPair {
    #[new]
    fn new() -> PyResult<Self> {
        // One seed in four billion is no key.
        for _ in 0..SEEDS_MAX {
            if let Ok(pair) = ExchangeKeyPair::from_seed(&*random()?) {
                return Ok(Self {
                    public_key: *pair.public_key(),
                    pair: Mutex::new(Some(pair)),
                });
            }
        }
        Err(cryptography("no random seed makes a key").into())
    }

    /// What the other side needs: an uncompressed point, 65 bytes.
    #[getter]
    fn public_key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.public_key)
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
        let offer = KeyOffer {
            public_key: exactly(&peer_public_key, "a public key")?,
            version: numbered(version)?,
        };
        let session = uuid(session)?;
        let identity = identity.map(|identity| &identity.get().key);
        let accepted = self.take()?.accept(&offer, session, identity, *random()?);
        let (cipher, hello) = accepted.map_err(Failure::from)?;
        Ok(SessionCipher::new(cipher, hello.identity))
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
        let version = numbered(version)?;
        let hello = HelloEncryption {
            public_key: exactly(&peer_public_key, "a public key")?,
            version,
            identity: proof.map(|proof| read_proof(&proof)).transpose()?,
        };
        let pinned = pinned
            .map(|key| exactly(&key, "a pinned key"))
            .transpose()?;
        let session = uuid(session)?.to_string();
        let finished = self
            .take()?
            .finish(version, &hello, &session, pinned.as_ref(), *random()?);
        Ok(SessionCipher::new(finished.map_err(Failure::from)?, None))
    }

    fn __repr__(&self) -> &'static str {
        "KeyPair(P-256)"
    }
}

impl KeyPair {
    fn take(&self) -> Result<ExchangeKeyPair, Failure> {
        let mut pair = self.pair.lock().unwrap_or_else(PoisonError::into_inner);
        pair.take()
            .ok_or_else(|| argument("a key pair agrees once; make another KeyPair()"))
    }
}

/// A lasting key, by which a server is known.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct IdentityKey {
    key: Identity,
}

#[pymethods]
impl IdentityKey {
    #[new]
    fn new(private_key: Str) -> PyResult<Self> {
        let key = Identity::from_pkcs8_pem(&private_key).map_err(Failure::from)?;
        Ok(Self { key })
    }

    /// What the other side pins: an uncompressed point, 65 bytes.
    #[getter]
    fn public_key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.key.public_key())
    }

    fn __repr__(&self) -> &'static str {
        "IdentityKey(P-256)"
    }
}

/// What both sides seal and open with once they agreed.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct SessionCipher {
    cipher: Mutex<Cipher>,
    proof: Option<Vec<u8>>,
}

#[pymethods]
impl SessionCipher {
    /// `plain`, encrypted: 30 bytes more.
    fn seal<'py>(&self, py: Python<'py>, plain: Bytes) -> PyResult<Bound<'py, PyBytes>> {
        let mut out = Vec::with_capacity(plain.len() + SEALED_OVERHEAD_BYTES);
        let sealed = unlocked(py, plain.len(), || self.cipher().seal(&plain, &mut out));
        sealed.map_err(Failure::from)?;
        Ok(PyBytes::new(py, &out))
    }

    /// What a sealed message of the other side holds.
    fn open<'py>(&self, py: Python<'py>, message: Bytes) -> PyResult<Bound<'py, PyBytes>> {
        let mut out = Vec::with_capacity(message.len());
        let opened = unlocked(py, message.len(), || self.cipher().open(&message, &mut out));
        opened.map_err(Failure::from)?;
        Ok(PyBytes::new(py, &out))
    }

    /// 1 or 2, as agreed.
    #[getter]
    fn version(&self) -> u8 {
        self.cipher().version().number()
    }

    /// What `finish` takes as `proof`, if `accept` was given an identity.
    #[getter]
    fn proof<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.proof.as_ref().map(|proof| PyBytes::new(py, proof))
    }

    /// Whether it is time for another key; never in version 1.
    #[getter]
    fn wants_key_update(&self) -> bool {
        self.cipher().wants_key_update()
    }

    /// Changes the key of this side, when the other side has been told.
    fn update_sealing_key(&self) -> PyResult<()> {
        updated(self.cipher().update_sealing_key())
    }

    /// Changes the key of the other side, when it has said so.
    fn update_opening_key(&self) -> PyResult<()> {
        updated(self.cipher().update_opening_key())
    }

    fn __repr__(&self) -> String {
        format!("SessionCipher(AES-256-GCM, version={})", self.version())
    }
}

impl SessionCipher {
    fn new(cipher: Cipher, identity: Option<HelloIdentity>) -> Self {
        Self {
            cipher: Mutex::new(cipher),
            proof: identity
                .map(|identity| [identity.public_key.as_slice(), &identity.signature].concat()),
        }
    }

    fn cipher(&self) -> MutexGuard<'_, Cipher> {
        self.cipher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn updated(done: bool) -> PyResult<()> {
    if done {
        return Ok(());
    }
    Err(
        argument("version 1 has one key for as long as it lasts; agree on another with version=2")
            .into(),
    )
}

fn numbered(version: Whole) -> Result<EncryptionVersion, Failure> {
    match version.0 {
        1 => Ok(EncryptionVersion::One),
        2 => Ok(EncryptionVersion::Two),
        other => Err(argument(format!("version has to be 1 or 2, not {other}"))),
    }
}

/// A `uuid.UUID`, or its text.
fn uuid(session: &Bound<'_, PyAny>) -> PyResult<Uuid> {
    let text: Str = session.str()?.extract()?;
    Uuid::parse(&text).ok_or_else(|| {
        argument("session has to be a uuid.UUID or its 36 characters, the same on both sides")
            .into()
    })
}

fn read_proof(proof: &[u8]) -> Result<HelloIdentity, Failure> {
    let proof: [u8; PUBLIC_KEY_BYTES + SIGNATURE_BYTES] = exactly(proof, "a proof")?;
    let (public_key, signature) = proof.split_at(PUBLIC_KEY_BYTES);
    Ok(HelloIdentity {
        public_key: exactly(public_key, "a public key")?,
        signature: exactly(signature, "a signature")?,
    })
}

const SEEDS_MAX: usize = 8;
