//! The order of the parts, as `xtask/layers.toml` has it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;

use crate::tree::Tree;

/// The whole table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layers {
    /// From each crate to the crates of ours that it may depend on; `bindings` is each package of a language.
    pub(crate) arrows: BTreeMap<String, Vec<String>>,
    /// Libraries that only the packages under `bindings/` may use.
    pub(crate) binding_libraries: Vec<String>,
    /// The crates that take bytes, time and randomness as arguments, and what they must not use.
    pub(crate) protocol: Protocol,
    /// The crates whose modules are rooms on top of each other.
    #[serde(rename = "house")]
    pub(crate) houses: Vec<House>,
    /// Circles of files that stay.
    #[serde(rename = "circle", default)]
    pub(crate) circles: Vec<Circle>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Protocol {
    pub(crate) crates: Vec<String>,
    /// Crates that bring a network, a clock, a random source or a logger.
    pub(crate) libraries: Vec<String>,
    /// Modules of `std`.
    pub(crate) modules: Vec<String>,
    /// Types, wherever they come from.
    pub(crate) types: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct House {
    /// The folder of its sources.
    pub(crate) sources: PathBuf,
    /// The rooms from the top to the bottom: each may use those below it.
    pub(crate) rooms: Vec<String>,
    /// Rooms beside them, which no other room uses and which use none.
    #[serde(default)]
    pub(crate) apart: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Circle {
    pub(crate) files: Vec<PathBuf>,
    /// Why it stays; only people read it.
    #[serde(rename = "reason")]
    pub(crate) _reason: String,
}

impl Layers {
    /// Reads the table of the repository.
    pub(crate) fn load(tree: &Tree) -> anyhow::Result<Self> {
        Self::parse(&tree.text(Path::new(SOURCE)).context(SOURCE)?)
    }

    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        toml::from_str(text).context(SOURCE)
    }

    /// The table of the repository, for tests.
    #[cfg(test)]
    pub(crate) fn own() -> Self {
        Self::parse(include_str!("../layers.toml")).unwrap()
    }
}

pub(crate) const SOURCE: &str = "xtask/layers.toml";
