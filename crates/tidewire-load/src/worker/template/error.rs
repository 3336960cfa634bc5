//! Errors of templates: texts that are wrong, and values that do not fit.

/// A template that is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `{{` without `}}`.
    #[error("`{{{{` has no `}}}}` after it: for two braces write `{{{{'{{{{'}}}}`")]
    Open,
    /// A name that is not defined.
    #[error(
        "`{{{{{0}}}}}` stands for nothing: use seq, rand:FROM:TO, uuid, user, now_ms, now_us, env:NAME, the name of a \
         captured variable, of a column or of a value of the profile; for two braces write `{{{{'{{{{'}}}}`"
    )]
    Unknown(String),
    /// A variable of the environment that is not set.
    #[error("`{{{{env:{0}}}}}`: the environment has no variable {0}")]
    NoVariable(String),
    /// A name with two meanings.
    #[error(
        "`{{{{{name}}}}}` is {first}, and {second}, too: rename the column or the variable. The names {taken} are taken",
        taken = BUILT_IN
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// The meaning that would count.
        first: &'static str,
        /// The meaning that would be hidden.
        second: &'static str,
    },
    /// The bounds of a random number are not numbers, or in the wrong order.
    #[error("`{{{{{0}}}}}` needs two whole numbers, the smaller first: {{{{rand:1:100}}}}")]
    Bounds(String),
    /// Bytes where a text is needed.
    #[error(
        "`{{{{{0}}}}}` makes bytes: they are for messages and bodies, and not for JSON, URLs, headers and values of a profile"
    )]
    Bytes(String),
    /// Not the digits of bytes.
    #[error("`{{{{{0}}}}}` needs two hexadecimal digits for each byte: {{{{hex:10 04 ff}}}}")]
    Hex(String),
    /// An unknown form of a number.
    #[error(
        "`{{{{{0}}}}}` has no form of a number that is known: use varint, u8, u16, u32, u16le or u32le"
    )]
    Form(String),
    /// A number of bytes that is none.
    #[error(
        "`{{{{{0}}}}}` needs a number: {{{{u16:seq}}}}, or in place of seq one of user, rand:FROM:TO, now_ms, now_us, a \
         captured variable, a column or a value of the profile"
    )]
    NoNumber(String),
    /// A constant that is too large for its form.
    #[error(
        "{number} does not fit into {form}, whose largest number is {largest}: use a larger form"
    )]
    TooLarge {
        /// The number, or the length of a text.
        number: u64,
        /// The name of the form.
        form: &'static str,
        /// Its largest number.
        largest: u64,
    },
    /// An end of nothing.
    #[error(
        "`{{{{end}}}}` ends nothing: write {{{{size:u16}}}}, {{{{with:NAME}}}} or {{{{without:NAME}}}} before it"
    )]
    End,
    /// Too many parts within parts.
    #[error(
        "more than {NESTED_MAX} sizes or conditions within each other: write {{{{end}}}} after each"
    )]
    Nested,
    /// A condition on something that is no value.
    #[error("`{{{{{0}}}}}` needs the name of a value of the profile")]
    NoValue(String),
}

/// Values that do not fit into a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwritable {
    /// A part of it is longer than its size can state.
    TooLong,
    /// A value that has to be a number is none.
    NoNumber,
}

impl Unwritable {
    /// Its name among the errors of a report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TooLong => "message-exceeds-its-size",
            Self::NoNumber => "value-is-no-number",
        }
    }
}

/// Names of values that no column and no variable may have.
const BUILT_IN: &str = "seq, user, uuid, now_ms, now_us, rand:FROM:TO and env:NAME";

/// The largest number of parts within each other.
pub(super) const NESTED_MAX: usize = 32;
