//! Flags of other load generators: their spellings, and their meaning for `tidewire load`.

use tidewire_load::options::quantity;

/// A flag of another tool.
pub(super) struct Flag {
    /// Its spellings; messages show the first.
    pub(super) names: &'static [&'static str],
    pub(super) meaning: Meaning,
}

/// The meaning of a flag for `tidewire load`.
pub(super) enum Meaning {
    /// It does not affect the measurement.
    Nothing,
    /// The same, with a value.
    NothingWithValue,
    /// These words replace it.
    Words(&'static [&'static str]),
    /// This flag replaces it, with the same value.
    Value(&'static str),
    /// A function translates its value.
    Made(fn(&str) -> Result<Vec<String>, String>),
    /// It asks for the version, and nothing else happens.
    Version,
    /// It has no counterpart; the text names a replacement.
    Missing(&'static str),
}

impl Flag {
    pub(super) fn takes_value(&self) -> bool {
        matches!(
            self.meaning,
            Meaning::NothingWithValue | Meaning::Value(_) | Meaning::Made(_)
        )
    }
}

/// A flag with these spellings.
pub(super) const fn flag(names: &'static [&'static str], meaning: Meaning) -> Flag {
    Flag { names, meaning }
}

pub(super) const OUT: Flag = flag(&["--out"], Meaning::Value("--out"));
pub(super) const JUNIT: Flag = flag(&["--junit"], Meaning::Value("--junit"));
pub(super) const CSV: Flag = flag(&["--csv"], Meaning::Value("--csv"));
pub(super) const EXPECT: Flag = flag(&["--expect"], Meaning::Value("--expect"));
pub(super) const BASELINE: Flag = flag(&["--baseline"], Meaning::Value("--baseline"));
pub(super) const FAIL_IF_SLOWER: Flag =
    flag(&["--fail-if-slower"], Meaning::Words(&["--fail-if-slower"]));
pub(super) const JSON: Flag = flag(&["--json"], Meaning::Words(&["--json"]));
/// A time in seconds, or with its unit.
pub(super) fn timeout(text: &str) -> Result<Vec<String>, String> {
    let time = quantity::duration(text).map_err(|error| error.to_string())?;
    Ok(vec![
        "--timeout-ms".to_owned(),
        time.as_millis().max(1).to_string(),
    ])
}
