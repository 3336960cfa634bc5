//! Connections and requests under small numbers: a place, which is used again, and a generation, which is not.

use rustc_hash::FxHashMap;
use slab::Slab;
use std::time::{Duration, Instant};
use tidewire_engine::{ConnectionKey, Responder};

/// The open connections that JavaScript knows.
#[derive(Default)]
pub(super) struct Connections {
    places: FxHashMap<ConnectionKey, u32>,
    entries: Slab<(ConnectionKey, u32)>,
    generation: u32,
}

impl Connections {
    /// The place and the generation of a new connection.
    pub(super) fn insert(&mut self, key: ConnectionKey) -> (u32, u32) {
        self.generation = self.generation.wrapping_add(1);
        let place = self.entries.insert((key, self.generation)) as u32;
        self.places.insert(key, place);
        (place, self.generation)
    }

    pub(super) fn place(&self, key: ConnectionKey) -> Option<u32> {
        self.places.get(&key).copied()
    }

    pub(super) fn remove(&mut self, key: ConnectionKey) -> Option<u32> {
        let place = self.places.remove(&key)?;
        self.entries.try_remove(place as usize);
        Some(place)
    }

    /// `None` if the connection is gone.
    pub(super) fn key(&self, place: u32, generation: u32) -> Option<ConnectionKey> {
        let (key, own) = self.entries.get(place as usize)?;
        (*own == generation).then_some(*key)
    }
}

/// The requests that JavaScript has not answered.
pub(super) struct Requests {
    entries: Slab<Unanswered>,
    generation: u32,
    /// At this number of entries those whose time is over are removed.
    sweep_at: usize,
}

struct Unanswered {
    responder: Responder,
    generation: u32,
    deadline: Instant,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            entries: Slab::new(),
            generation: 0,
            sweep_at: SWEEP_MIN,
        }
    }
}

impl Requests {
    /// The place and the generation of a new request.
    pub(super) fn insert(&mut self, responder: Responder, timeout_ms: u64) -> (u32, u32) {
        let now = Instant::now();
        if self.entries.len() >= self.sweep_at {
            // JavaScript may have forgotten them. The engine has notified their clients.
            self.entries.retain(|_, entry| entry.deadline > now);
            self.sweep_at = (self.entries.len() * 2).max(SWEEP_MIN);
        }
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let deadline = now + Duration::from_millis(timeout_ms.min(TIMEOUT_MS_MAX));
        let place = self.entries.insert(Unanswered {
            responder,
            generation,
            deadline,
        });
        (place as u32, generation)
    }

    /// Removes the request; `None` if it was answered before or its time is over.
    pub(super) fn remove(&mut self, place: u32, generation: u32) -> Option<Responder> {
        let entry = self.entries.get(place as usize)?;
        if entry.generation != generation {
            return None;
        }
        let entry = self.entries.try_remove(place as usize)?;
        Some(entry.responder)
    }

    pub(super) fn contains(&self, place: u32, generation: u32) -> bool {
        let entry = self.entries.get(place as usize);
        entry.is_some_and(|entry| entry.generation == generation)
    }
}

const SWEEP_MIN: usize = 1024;

/// A day: a longer time would not fit every clock.
const TIMEOUT_MS_MAX: u64 = 86_400_000;
