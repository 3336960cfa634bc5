//! The form of the table of options.

/// Options that belong together.
#[derive(Debug, Clone, Copy)]
pub struct GroupSpec {
    /// A short name, such as `limits`.
    pub name: &'static str,
    /// The heading of the group.
    pub title: &'static str,
    /// The text about all of its options; may be empty.
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
    /// The placeholder for the value in a help text, such as `BYTES`.
    pub placeholder: &'static str,
    /// The default as the text of a flag, if there is a fixed one.
    pub default: Option<&'static str>,
    /// The default in words; empty if there is a fixed default.
    pub unset: &'static str,
    /// The effect of the option. Names of other options are in backticks, for [`spelled`](super::spelled).
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
    /// A number from 0 to 1.
    Ratio,
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

/// The kind of the items of a list.
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
