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
    /// Its value is kept in [`Seen`]: what it becomes depends on other flags.
    Kept,
    /// It asks for the version, and nothing else happens.
    Version,
    /// It has no counterpart; the text names a replacement.
    Missing(&'static str),
}

impl Flag {
    pub(super) fn takes_value(&self) -> bool {
        matches!(
            self.meaning,
            Meaning::NothingWithValue | Meaning::Value(_) | Meaning::Made(_) | Meaning::Kept
        )
    }
}

/// A tool's command line, for what depends on several of its flags.
#[derive(Default)]
pub(super) struct Seen {
    /// The first spellings of the flags.
    pub(super) flags: Vec<&'static str>,
    /// The values of flags that are [`Meaning::Kept`].
    pub(super) values: Vec<(&'static str, String)>,
    /// The words that are no flags.
    pub(super) urls: Vec<String>,
}

impl Seen {
    /// Whether the command line contains this flag.
    pub(super) fn has(&self, name: &str) -> bool {
        self.flags.contains(&name)
    }

    /// The values of a flag, in their order.
    pub(super) fn values_of(&self, name: &str) -> impl Iterator<Item = &str> {
        let values = self.values.iter().filter(move |one| one.0 == name);
        values.map(|(_, value)| value.as_str())
    }

    /// The value of a flag: the last one, if there are several.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.values_of(name).last()
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

/// Instead of a file with each request.
pub(super) const SERIES: &str = "write --out DIR, and read the series in report.json";
