//! The grammar of the search: the sample payloads of each type, from the tables of the protocol.

use super::Candidate;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};
use tidewire_wire::envelope::SystemType;

/// The payloads of each type in the protocol's vectors and hostile instances.
#[derive(Debug)]
pub struct Grammar {
    samples: HashMap<&'static str, Vec<Map<String, Value>>>,
}

impl Grammar {
    /// Reads the tables.
    ///
    /// # Panics
    /// If one is missing.
    #[must_use]
    pub fn load() -> Self {
        let vectors: Value = serde_json::from_str(VECTORS).expect("JSON");
        let mut samples: HashMap<&'static str, Vec<Map<String, Value>>> = HashMap::new();
        let mut add = |message: &Value| {
            let Some(system) = message["t"].as_str().and_then(SystemType::parse) else {
                return;
            };
            let payload = message["p"].as_object().cloned().unwrap_or_default();
            let of_type = samples.entry(system.as_str()).or_default();
            if !of_type.contains(&payload) {
                of_type.push(payload);
            }
        };
        let cases = vectors["cases"].as_array().expect("cases");
        for step in cases
            .iter()
            .flat_map(|case| case["steps"].as_array())
            .flatten()
        {
            let text = step["receive"]["json"].as_str();
            if let Some(message) = text.and_then(|text| serde_json::from_str(text).ok()) {
                add(&message);
            }
        }
        let hostile: Vec<Value> = serde_json::from_str(HOSTILE).expect("JSON");
        hostile.iter().for_each(&mut add);
        for system in SystemType::ALL {
            add(&serde_json::json!({"t": system.as_str()}));
        }
        Self { samples }
    }

    /// Payloads of a type; at least the empty one.
    #[must_use]
    pub fn samples(&self, system: SystemType) -> &[Map<String, Value>] {
        &self.samples[system.as_str()]
    }

    /// The names of the fields of a type's payload, and one that no type has.
    #[must_use]
    pub fn fields(&self, system: SystemType) -> Vec<String> {
        let payloads = self.samples(system).iter();
        let names: BTreeSet<&String> = payloads.flat_map(Map::keys).collect();
        let names = names.into_iter().cloned();
        names.chain([UNKNOWN.to_owned()]).collect()
    }

    /// Whether a batch may have a message of this type.
    #[must_use]
    pub fn may_be_in_batch(&self, system: SystemType) -> bool {
        !matches!(
            system,
            SystemType::Batch | SystemType::ClientHello | SystemType::KeyUpdate
        )
    }

    /// The samples of a type as candidates.
    pub fn candidates(&self, system: SystemType) -> impl Iterator<Item = Candidate> {
        self.samples(system).iter().map(move |payload| Candidate {
            payload: payload.clone(),
            ..Candidate::bare(system.as_str())
        })
    }
}

const VECTORS: &str = include_str!("../../../../protocol/vectors/server-dialogues.json");
const HOSTILE: &str = include_str!("../../../../protocol/hostile.json");
const UNKNOWN: &str = "unknown";
