//! The form of the table of options, and lookups in it.

use super::table::OPTIONS;

/// Options that belong together.
#[derive(Debug, Clone, Copy)]
pub struct GroupSpec {
    /// A short name, such as `limits`.
    pub name: &'static str,
    /// The heading of the group.
    pub title: &'static str,
    /// What holds for all of its options; may be empty.
    pub about: &'static str,
}

/// One option of a server, or one key of a rule of topics.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// The name, such as `message_bytes_max`.
    pub name: &'static str,
    /// The name of its group.
    pub group: &'static str,
    /// The values that it accepts.
    pub kind: Kind,
    /// The unit of an integer, such as `bytes`; empty for other kinds.
    pub unit: &'static str,
    /// What stands for the value in a help text, such as `BYTES`.
    pub placeholder: &'static str,
    /// The default as the text of a flag, if there is a fixed one.
    pub default: Option<&'static str>,
    /// What holds if nothing is given; empty if there is a fixed default.
    pub unset: &'static str,
    /// What the option does. Names of other options stand in backticks, for [`spelled`].
    pub help: &'static str,
    /// Whether `tidewire serve` has a flag for it.
    pub flag: bool,
    /// The variable of the environment, if there is one.
    pub variable: Option<&'static str>,
    /// Whether the configuration file may have it as a key.
    pub file: bool,
    /// Whether bindings have it as a keyword argument.
    pub keyword: bool,
}

/// The values that an option accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number in a range, both ends included.
    Integer {
        /// The smallest value.
        smallest: u64,
        /// The largest value.
        largest: u64,
    },
    /// One of some numbers.
    Numbers(&'static [u64]),
    /// `true` or `false`.
    Boolean,
    /// One of some words. `-` and `_` count as the same.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// A text that no error and no log shows.
    Secret,
    /// The path of a file.
    File,
    /// A host or an address, and a port.
    Address,
    /// One text or several.
    List(Item),
    /// Patterns of topics, each with a number.
    Counts,
    /// Rules of topics: tables with the keys of [`RULE_KEYS`](super::RULE_KEYS).
    Rules,
}

/// What the items of a list are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// A path of a URL, or `any`.
    Path,
    /// The origin of a web page, or `any`.
    Origin,
    /// The name of a host, or `any`.
    Host,
    /// An address or a network.
    Network,
    /// Any name.
    Name,
    /// A topic or a pattern, in which `{sub}` may stand for the user's name.
    Glob,
    /// A topic or a pattern.
    Pattern,
}

/// How an option is given; a later one overrides an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// A key of the configuration file.
    File,
    /// A variable of the environment.
    Variable,
    /// A flag of the command line.
    Flag,
    /// A keyword argument of a binding.
    Keyword,
}

impl OptionSpec {
    /// Whether the option can be given in this way.
    #[must_use]
    pub fn has(&self, way: Way) -> bool {
        match way {
            Way::File => self.file,
            Way::Variable => self.variable.is_some(),
            Way::Flag => self.flag,
            Way::Keyword => self.keyword,
        }
    }

    /// The name as it is given in this way, such as `--message-bytes-max`.
    #[must_use]
    pub fn spelled(&self, way: Way) -> String {
        match (way, self.variable) {
            (Way::Flag, _) => format!("--{}", self.name.replace('_', "-")),
            (Way::Variable, Some(variable)) => variable.to_owned(),
            _ => self.name.to_owned(),
        }
    }
}

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
