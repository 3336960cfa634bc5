//! A search for the most expensive message of each type of the protocol.
//!
//! The grammar is the protocol's own: the types are those of [`SystemType`], and the fields of each with values of their
//! kind are those that the vectors of `protocol/vectors/server-dialogues.json` and the instances of `protocol/hostile.json`
//! have. So a new type or field is searched as soon as it has its vector. A [`Candidate`] is one of these messages with
//! some fields replaced by [`Filling`]s, in a format, a batch and layers. [`climb`] varies a candidate step by step and
//! keeps what costs more; the cost is the caller's oracle. All of it is a function of the seed.

mod filling;
mod grammar;

pub use filling::{Filling, Shape};
pub use grammar::Grammar;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidewire_wire::envelope::SystemType;
use tidewire_wire::format::{MESSAGEPACK_PREFIX, ZLIB_PREFIX, deflate, json_to_msgpack};
use tidewire_wire::frame::OpCode;

/// A message to be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The type.
    pub t: String,
    /// The fields of the payload that are no fillings.
    pub payload: Map<String, Value>,
    /// The fields that are, by name.
    pub fillings: Vec<(String, Filling)>,
    /// The message is MessagePack, not JSON.
    pub is_packed: bool,
    /// It is in the zlib form.
    pub is_compressed: bool,
    /// It is sent encrypted.
    #[serde(default)]
    pub is_encrypted: bool,
    /// As many of it are in a batch; 0 for none.
    pub batch: usize,
}

impl Candidate {
    /// The smallest message of a type.
    #[must_use]
    pub fn bare(t: &str) -> Self {
        Self {
            t: t.to_owned(),
            payload: Map::new(),
            fillings: Vec::new(),
            is_packed: false,
            is_compressed: false,
            is_encrypted: false,
            batch: 0,
        }
    }

    /// The message as JSON text of about `bytes_max` bytes at most.
    #[must_use]
    pub fn text(&self, bytes_max: usize) -> String {
        let copies = self.batch.max(1);
        let room = (bytes_max / copies).saturating_sub(200 + self.t.len());
        let message = self.single(room);
        if self.batch == 0 {
            return message;
        }
        let fits = (bytes_max.saturating_sub(100) / (message.len() + 1)).max(1);
        let messages = vec![message; copies.min(fits)].join(",");
        format!("{{\"t\":\"batch\",\"p\":{{\"messages\":[{messages}]}}}}")
    }

    fn single(&self, bytes_max: usize) -> String {
        let mut text = format!("{{\"t\":\"{}\",\"cid\":\"x\",\"p\":{{", self.t);
        let mut is_first = true;
        let mut name = |name: &str, text: &mut String| {
            let comma = if std::mem::take(&mut is_first) {
                ""
            } else {
                ","
            };
            text.push_str(comma);
            text.push_str(&Value::from(name).to_string());
            text.push(':');
        };
        for (field, value) in &self.payload {
            if self.fillings.iter().all(|(filled, _)| filled != field) {
                name(field, &mut text);
                text.push_str(&value.to_string());
            }
        }
        let room = bytes_max.saturating_sub(text.len()) / self.fillings.len().max(1);
        for (field, filling) in &self.fillings {
            name(field, &mut text);
            filling.write(self.payload.get(field), room, &mut text);
        }
        text.push_str("}}");
        text
    }

    /// The message as it goes into a frame, or is encrypted, of at most about `bytes_max` bytes before its layers.
    ///
    /// # Panics
    /// If it is not JSON, which would be a fault of the search.
    #[must_use]
    pub fn encode(&self, bytes_max: usize) -> (OpCode, Vec<u8>) {
        let (mut opcode, mut bytes) = match self.is_packed {
            // Most values are half as long or less in MessagePack.
            true => (OpCode::Binary, self.packed(2 * bytes_max)),
            false => (OpCode::Text, self.text(bytes_max).into_bytes()),
        };
        if self.is_packed && bytes.len() > bytes_max {
            bytes = self.packed(bytes_max);
        }
        if self.is_compressed {
            let mut stream = ZLIB_PREFIX.to_vec();
            deflate(&bytes, 9, &mut stream);
            (opcode, bytes) = (OpCode::Binary, stream);
        }
        (opcode, bytes)
    }

    fn packed(&self, text_bytes_max: usize) -> Vec<u8> {
        let mut packed = MESSAGEPACK_PREFIX.to_vec();
        let text = self.text(text_bytes_max);
        json_to_msgpack(text.as_bytes(), &mut packed).expect("JSON that is not too deep");
        packed
    }

    /// Another candidate, one step away.
    #[must_use]
    pub fn varied(&self, grammar: &Grammar, system: SystemType, random: &mut Random) -> Self {
        let mut next = self.clone();
        let fields = grammar.fields(system);
        match random.below(9) {
            0 => next.payload = random.pick(grammar.samples(system)).clone(),
            1 | 2 => {
                let name = random.pick(&fields).clone();
                next.fillings.retain(|(filled, _)| *filled != name);
                next.fillings.push((name, Filling::any(random)));
                if next.fillings.len() > FILLINGS_MAX {
                    next.fillings.remove(0);
                }
            }
            3 | 4 if !next.fillings.is_empty() => {
                let at = random.below(next.fillings.len());
                next.fillings[at].1.vary(random);
            }
            5 if !next.fillings.is_empty() => {
                let at = random.below(next.fillings.len());
                next.fillings.remove(at);
            }
            6 => next.is_packed = !next.is_packed,
            7 if system != SystemType::Batch => {
                next.batch = *random.pick(&[0, 0, 1, 10, 100, 1_000]);
            }
            8 => next.is_encrypted = !next.is_encrypted,
            _ => next.is_compressed = !next.is_compressed,
        }
        if !grammar.may_be_in_batch(system) {
            next.batch = 0;
        }
        next
    }
}

/// Climbs from the samples of a type: tries `steps` candidates and returns the one with the greatest cost.
pub fn climb(
    grammar: &Grammar,
    system: SystemType,
    seed: u64,
    steps: usize,
    mut cost: impl FnMut(&Candidate) -> f64,
) -> (Candidate, f64) {
    let mut random = Random::new(seed ^ (system as u64) << 32);
    let mut best = Candidate::bare(system.as_str());
    best.payload = random.pick(grammar.samples(system)).clone();
    let mut best_cost = cost(&best);
    for _ in 0..steps {
        let mut next = best.varied(grammar, system, &mut random);
        // Steps of more than one change leave places from which no single change leads up.
        while random.below(3) == 0 {
            next = next.varied(grammar, system, &mut random);
        }
        let next_cost = cost(&next);
        if next_cost >= best_cost {
            (best, best_cost) = (next, next_cost);
        }
    }
    (best, best_cost)
}

/// Numbers that look random, the same for the same seed (SplitMix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((number ^ (number >> 31)) % end as u64) as usize
    }

    /// One of some values.
    pub fn pick<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[self.below(values.len())]
    }
}

/// Fields that are fillings at once.
const FILLINGS_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds::number_of_seeds;
    use tidewire_wire::envelope::{Kind, classify_json};

    #[test]
    fn candidates_are_messages_of_their_type_in_every_shape() {
        let grammar = Grammar::load();
        for system in SystemType::ALL {
            for seed in 0..number_of_seeds(5) {
                let mut shapes = 0;
                let (found, _) = climb(&grammar, system, seed, 20, |candidate| {
                    shapes += 1;
                    let text = candidate.text(10_000);
                    assert!(text.len() < 20_000, "{} bytes", text.len());
                    let outer = if candidate.batch > 0 {
                        SystemType::Batch
                    } else {
                        system
                    };
                    assert_eq!(classify_json(text.as_bytes()), Ok(Kind::System(outer)));
                    serde_json::from_str::<Value>(&text).expect("JSON");
                    let (_, bytes) = candidate.encode(10_000);
                    bytes.len() as f64
                });
                assert_eq!(shapes, 21);
                let kept = serde_json::to_string(&found).expect("JSON");
                assert_eq!(
                    serde_json::from_str::<Candidate>(&kept).expect("JSON"),
                    found
                );
            }
        }
    }

    #[test]
    fn a_seed_finds_the_same_again_and_a_climb_climbs() {
        let grammar = Grammar::load();
        let depth = |candidate: &Candidate| {
            let depths = candidate.fillings.iter().map(|(_, filling)| filling.depth);
            depths.max().unwrap_or_default() as f64
        };
        let find = || climb(&grammar, SystemType::ConfigUpdate, 7, 300, depth);
        assert_eq!(find(), find());
        assert!(find().1 > 40.0, "{:?}", find());
    }

    #[test]
    fn the_grammar_is_that_of_the_vectors() {
        let grammar = Grammar::load();
        let fields = grammar.fields(SystemType::SubscriptionUpdate);
        for name in [
            "topics",
            "recovery",
            "filter",
            "presence",
            "tokens",
            "queue_group",
        ] {
            assert!(fields.iter().any(|field| field == name), "{name}");
        }
        assert!(
            grammar
                .fields(SystemType::CallRequest)
                .iter()
                .any(|name| name == "payload")
        );
    }
}
