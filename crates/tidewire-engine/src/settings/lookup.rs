//! Lookups in the table of options, and the nearest of several names.

use super::spec::{OptionSpec, Way};
use super::table::OPTIONS;

/// The option of this name, if it can be given in this way.
#[must_use]
pub fn option(name: &str, way: Way) -> Option<&'static OptionSpec> {
    let mut known = OPTIONS.iter().filter(|option| option.has(way));
    known.find(|option| option.name == name)
}

/// The names of all options that can be given in this way.
pub fn names(way: Way) -> impl Iterator<Item = &'static str> {
    let known = OPTIONS.iter().filter(move |option| option.has(way));
    known.map(|option| option.name)
}

/// A text in which names of options in backticks are spelled as they are given in this way.
///
/// ```
/// use tidewire_engine::settings::{Way, spelled};
///
/// assert_eq!(spelled("give `tls_key`, not `any`", Way::Flag), "give --tls-key, not `any`");
/// ```
#[must_use]
pub fn spelled(text: &str, way: Way) -> String {
    let mut parts = text.split('`');
    let mut out = parts.next().unwrap_or_default().to_owned();
    while let Some(quoted) = parts.next() {
        match option(quoted, way) {
            Some(option) => out.push_str(&option.spelled(way)),
            None => {
                out.push('`');
                out.push_str(quoted);
                out.push('`');
            }
        }
        out.push_str(parts.next().unwrap_or_default());
    }
    out
}

/// The known name that is most like this one, if one is alike. Case does not count, and neither does the difference
/// between `-` and `_`.
///
/// ```
/// use tidewire_engine::settings::nearest;
///
/// assert_eq!(nearest("no-auht", ["port", "no_auth"]), Some("no_auth"));
/// assert_eq!(nearest("zzz", ["port", "no_auth"]), None);
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.to_ascii_lowercase().replace('-', "_");
    let name = plain(name);
    let likeness = |known: &str| strsim::jaro_winkler(&plain(known), &name);
    let scored = known.into_iter().map(|known| (likeness(known), known));
    scored
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .map(|(_, known)| known)
}

/// From 0, nothing in common, to 1, the same.
const LIKENESS_MIN: f64 = 0.8;
