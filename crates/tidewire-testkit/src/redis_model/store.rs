//! Keys and their values.

use crate::redis_model::work::WorkStream;
use std::collections::{BTreeMap, VecDeque};
use tidewire_redis::layout::Position;
use tidewire_redis::script::{EPOCH_MS, EPOCHS_BEGIN_MS};

#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) unix_ms: u64,
    keys: BTreeMap<Vec<u8>, Key>,
}

#[derive(Debug, Clone)]
struct Key {
    value: Stored,
    expires_ms: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) enum Stored {
    Stream(Stream),
    Work(WorkStream),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    Text(Vec<u8>),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Stream {
    pub(super) last: Position,
    pub(super) entries: VecDeque<(Position, Vec<u8>)>,
}

impl Store {
    pub(super) fn new(unix_ms: u64) -> Self {
        Self {
            unix_ms,
            keys: BTreeMap::new(),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Stored> {
        let found = self.keys.get(key)?;
        let is_over = found.expires_ms.is_some_and(|at| at <= self.unix_ms);
        (!is_over).then_some(&found.value)
    }

    /// The value of a key, `make` if there is none.
    pub(super) fn entry(&mut self, key: &[u8], make: impl FnOnce() -> Stored) -> &mut Stored {
        let now_ms = self.unix_ms;
        if self
            .keys
            .get(key)
            .is_some_and(|found| found.expires_ms.is_some_and(|at| at <= now_ms))
        {
            self.keys.remove(key);
        }
        let new = || Key {
            value: make(),
            expires_ms: None,
        };
        &mut self.keys.entry(key.to_vec()).or_insert_with(new).value
    }

    pub(super) fn set(&mut self, key: &[u8], value: Stored, expires_ms: Option<u64>) {
        self.keys.insert(key.to_vec(), Key { value, expires_ms });
    }

    pub(super) fn keep(&mut self, key: &[u8], for_ms: u64) {
        let at = self.unix_ms + for_ms;
        if let Some(found) = self.keys.get_mut(key) {
            found.expires_ms = Some(at);
        }
    }

    pub(super) fn persist(&mut self, key: &[u8]) {
        if let Some(found) = self.keys.get_mut(key) {
            found.expires_ms = None;
        }
    }

    pub(super) fn field(&self, key: &[u8], field: &str) -> Option<&[u8]> {
        match self.get(key) {
            Some(Stored::Hash(fields)) => fields.get(field.as_bytes()).map(Vec::as_slice),
            _ => None,
        }
    }

    pub(super) fn set_field(&mut self, key: &[u8], field: &str, value: &[u8]) {
        if let Stored::Hash(fields) = self.entry(key, || Stored::Hash(BTreeMap::new())) {
            fields.insert(field.as_bytes().to_vec(), value.to_vec());
        }
    }

    /// The fields of a hash and their values.
    pub(super) fn fields(&self, key: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        match self.get(key) {
            Some(Stored::Hash(fields)) => fields.clone().into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Sets a field to a value, or removes it. A hash without fields is removed.
    pub(super) fn put(&mut self, key: &[u8], field: &[u8], value: Option<&[u8]>) {
        let Stored::Hash(fields) = self.entry(key, || Stored::Hash(BTreeMap::new())) else {
            return;
        };
        match value {
            Some(value) => fields.insert(field.to_vec(), value.to_vec()),
            None => fields.remove(field),
        };
        if fields.is_empty() {
            self.remove(key);
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        self.keys.remove(key);
    }

    /// A field by its bytes.
    pub(super) fn value(&self, key: &[u8], field: &[u8]) -> Option<&[u8]> {
        match self.get(key) {
            Some(Stored::Hash(fields)) => fields.get(field).map(Vec::as_slice),
            _ => None,
        }
    }

    pub(super) fn text(&self, key: &[u8]) -> Option<&[u8]> {
        match self.get(key) {
            Some(Stored::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A stream; the error if the key holds something else.
    pub(super) fn stream(&self, key: &[u8]) -> Result<Option<&Stream>, ()> {
        match self.get(key) {
            None => Ok(None),
            Some(Stored::Stream(stream)) => Ok(Some(stream)),
            Some(_) => Err(()),
        }
    }

    /// `XADD key MAXLEN most <epoch>-* d record`, or with the offset 0 the beginning of an epoch.
    pub(super) fn append(
        &mut self,
        key: &[u8],
        epoch: u32,
        most: usize,
        record: Option<&[u8]>,
    ) -> Position {
        let Stored::Stream(stream) = self.entry(key, || Stored::Stream(Stream::default())) else {
            return Position::default();
        };
        let Some(record) = record else {
            stream.entries.clear();
            stream.last = Position { epoch, offset: 0 };
            return stream.last;
        };
        let offset = if stream.last.epoch == epoch {
            stream.last.offset + 1
        } else {
            0
        };
        stream.last = Position { epoch, offset };
        stream.entries.push_back((stream.last, record.to_vec()));
        while stream.entries.len() > most {
            stream.entries.pop_front();
        }
        stream.last
    }

    pub(super) fn entries(&self, key: &[u8]) -> Vec<(Position, Vec<u8>)> {
        match self.get(key) {
            Some(Stored::Stream(stream)) => stream.entries.iter().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// The epoch that begins now.
    pub(super) fn epoch(&self) -> u32 {
        u32::try_from(self.unix_ms.saturating_sub(EPOCHS_BEGIN_MS) / EPOCH_MS).unwrap_or(u32::MAX)
    }
}
