//! Templates: constant bytes with values inserted between them.
//!
//! `{{seq}}` and the like stand for a value. A text without values is copied unchanged. `{{'{{'}}` stands for
//! two braces.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::Rng;
use rand::rngs::SmallRng;

/// A text with values in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Fixed(Range<usize>),
    Value(Value, Escape),
    /// Another text, in base64.
    Base64(Template),
}

/// A value that is inserted into a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// 1, 2, 3 … over all users and workers, each number once.
    Sequence,
    /// A number between two, both included, drawn for each request.
    Random(u64, u64),
    /// A random UUID of version 4.
    Uuid,
    /// The number of the user, counted from 0.
    User,
    /// Milliseconds since 1970.
    UnixMs,
    /// Microseconds since 1970.
    UnixUs,
    /// The captured variable with this index.
    Captured(usize),
    /// A column of the row of a data file: the file's index and the column's.
    Column(usize, usize),
}

/// The restrictions of a value at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Escape {
    /// None.
    #[default]
    None,
    /// At the start of a request's target, where a value is a path with its query, such as a captured
    /// `Location`: characters that are not valid in a URL are percent-encoded.
    Target,
    /// In the path of a request's target: what would end the path or is not valid in it is
    /// percent-encoded. A slash stays, so that a value may name several segments.
    Path,
    /// In the query of a request's target: everything but letters, digits and `-._~` is percent-encoded.
    Query,
    /// In a header: control characters become spaces.
    Header,
    /// Within quotes in JSON: quotes, backslashes and control characters are escaped.
    JsonString,
    /// Within quotes of a part of a form: quotes and line ends are percent-encoded.
    Quoted,
    /// In a form: everything but letters, digits and a few signs is percent-encoded, and a space is
    /// a plus sign.
    Form,
}

/// The sources of the values of one request.
#[derive(Debug)]
pub struct Values<'a> {
    /// See [`Value::Sequence`].
    pub sequence: u64,
    /// See [`Value::User`].
    pub user: u64,
    /// See [`Value::UnixMs`], in microseconds.
    pub unix_us: u64,
    /// Draws random values.
    pub random: &'a mut SmallRng,
    /// Captured variables; empty for one that has no value yet.
    pub captured: &'a [Vec<u8>],
    /// The rows of each data file.
    pub feeds: &'a [Feed],
    /// The current row of each data file.
    pub rows: &'a [usize],
}

/// A data file: its columns' names and its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Feed {
    /// Its file.
    pub name: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Each with one value per column.
    pub rows: Vec<Vec<Vec<u8>>>,
    /// Each row belongs to one user.
    pub is_unique: bool,
}

/// Names that a template may use, and their values.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Variables for values captured from responses.
    pub captured: Vec<String>,
    /// Each data file's columns.
    pub columns: Vec<Vec<String>>,
    /// Which texts stand for values.
    pub syntax: Syntax,
}

/// The texts that stand for values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Syntax {
    /// Names in double braces.
    #[default]
    Braces,
    /// None: each text is sent as it is.
    Literal,
    /// Only this text, for [`Value::Sequence`]; in targets and bodies, not in headers.
    Index(String),
}

/// A template that is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `{{` without `}}`.
    #[error("`{{{{` has no `}}}}` after it: for two braces write `{{{{'{{{{'}}}}`")]
    Open,
    /// A name that is not defined.
    #[error(
        "`{{{{{0}}}}}` stands for nothing: use seq, rand:FROM:TO, uuid, user, now_ms, now_us, env:NAME, the name of a \
         captured variable or of a column; for two braces write `{{{{'{{{{'}}}}`"
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
}

impl Template {
    /// A text without values.
    #[must_use]
    pub fn fixed(bytes: &[u8]) -> Self {
        let mut template = Self::default();
        template.push_fixed(bytes);
        template
    }

    /// A text with values.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn of(text: &[u8], names: &Names, escape: Escape) -> Result<Self, TemplateError> {
        let mut template = Self::default();
        template.push(text, names, escape)?;
        Ok(template)
    }

    /// Appends constant bytes.
    pub fn push_fixed(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len();
        match self.pieces.last_mut() {
            Some(Piece::Fixed(range)) => range.end = end,
            _ => self.pieces.push(Piece::Fixed(start..end)),
        }
    }

    /// Appends a text with values.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn push(
        &mut self,
        text: &[u8],
        names: &Names,
        escape: Escape,
    ) -> Result<(), TemplateError> {
        self.push_parts(text, names, |template, fixed| {
            template.push_fixed(fixed);
            escape
        })
    }

    /// Appends another text.
    pub fn append(&mut self, other: &Self) {
        for piece in &other.pieces {
            match piece {
                Piece::Fixed(range) => self.push_fixed(&other.bytes[range.clone()]),
                value => self.pieces.push(value.clone()),
            }
        }
    }

    /// Appends another text in base64.
    pub fn push_base64(&mut self, text: Template) {
        self.pieces.push(Piece::Base64(text));
    }

    /// Appends JSON with values: those within quotes are escaped as parts of a string, the others
    /// are inserted as they are.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn push_json(&mut self, text: &[u8], names: &Names) -> Result<(), TemplateError> {
        let (mut is_quoted, mut is_escaped) = (false, false);
        self.push_parts(text, names, |template, fixed| {
            for byte in fixed {
                match byte {
                    _ if is_escaped => is_escaped = false,
                    b'\\' => is_escaped = is_quoted,
                    b'"' => is_quoted = !is_quoted,
                    _ => {}
                }
            }
            template.push_fixed(fixed);
            match is_quoted {
                true => Escape::JsonString,
                false => Escape::None,
            }
        })
    }

    /// Appends a text of which the constant parts are escaped, too, such as a name in a form.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn push_escaped(
        &mut self,
        text: &[u8],
        names: &Names,
        escape: Escape,
    ) -> Result<(), TemplateError> {
        self.push_parts(text, names, |template, fixed| {
            let mut encoded = fixed.to_vec();
            escape.apply(&mut encoded, 0);
            template.push_fixed(&encoded);
            escape
        })
    }

    /// Appends the path and the query of a request's target, each value encoded for its place. A value at
    /// the very start is both.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn push_target(&mut self, text: &[u8], names: &Names) -> Result<(), TemplateError> {
        let (mut is_first, mut is_query) = (true, false);
        self.push_parts(text, names, |template, fixed| {
            // After a value with a query of its own, an ampersand goes on with that query.
            is_query |= fixed.contains(&b'?') || fixed.contains(&b'&');
            template.push_fixed(fixed);
            match std::mem::take(&mut is_first) && fixed.is_empty() {
                true => Escape::Target,
                false if is_query => Escape::Query,
                false => Escape::Path,
            }
        })
    }

    /// Passes each constant part to `fixed`, which returns the escape of the value after it.
    fn push_parts(
        &mut self,
        text: &[u8],
        names: &Names,
        mut fixed: impl FnMut(&mut Self, &[u8]) -> Escape,
    ) -> Result<(), TemplateError> {
        let mut rest = text;
        match &names.syntax {
            Syntax::Literal => {}
            Syntax::Index(index) => {
                let index = index.as_bytes();
                while let Some(at) = find(rest, index) {
                    let escape = fixed(self, &rest[..at]);
                    self.pieces.push(Piece::Value(Value::Sequence, escape));
                    rest = &rest[at + index.len()..];
                }
            }
            Syntax::Braces => {
                while let Some(at) = find(rest, b"{{") {
                    let inside = &rest[at + 2..];
                    let end = find(inside, b"}}").ok_or(TemplateError::Open)?;
                    let name = String::from_utf8_lossy(&inside[..end]);
                    let name = name.trim();
                    if BRACES.contains(&name) {
                        let text = [&rest[..at], b"{{"].concat();
                        fixed(self, &text);
                    } else if let Some(variable) = name.strip_prefix("env:") {
                        let escape = fixed(self, &rest[..at]);
                        let mut value = of_environment(variable.trim())?;
                        escape.apply(&mut value, 0);
                        self.push_fixed(&value);
                    } else {
                        let escape = fixed(self, &rest[..at]);
                        self.pieces
                            .push(Piece::Value(value_of(name, names)?, escape));
                    }
                    rest = &inside[end + 2..];
                }
            }
        }
        fixed(self, rest);
        Ok(())
    }

    /// The text with a digit in the place of each value.
    #[must_use]
    pub fn with_digits(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Fixed(range) => text.extend_from_slice(&self.bytes[range.clone()]),
                Piece::Value(..) | Piece::Base64(_) => text.push(b'0'),
            }
        }
        text
    }

    /// Whether the template is constant.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        let mut pieces = self.pieces.iter();
        pieces.all(|piece| matches!(piece, Piece::Fixed(_)))
    }

    /// Whether this value stands in it.
    #[must_use]
    pub fn has(&self, wanted: impl Fn(&Value) -> bool) -> bool {
        let mut pieces = self.pieces.iter();
        pieces.any(|piece| matches!(piece, Piece::Value(value, _) if wanted(value)))
    }

    /// Its bytes, if it is constant.
    #[must_use]
    pub fn as_fixed(&self) -> Option<&[u8]> {
        self.is_fixed().then_some(&self.bytes)
    }

    /// Appends the text with its values.
    pub fn write(&self, values: &mut Values<'_>, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Fixed(range) => out.extend_from_slice(&self.bytes[range.clone()]),
                Piece::Value(value, escape) => {
                    let start = out.len();
                    values.write(value, out);
                    escape.apply(out, start);
                }
                Piece::Base64(text) => {
                    let mut plain = Vec::new();
                    text.write(values, &mut plain);
                    out.extend_from_slice(STANDARD.encode(plain).as_bytes());
                }
            }
        }
    }
}

impl Values<'_> {
    fn write(&mut self, value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Sequence => write_number(self.sequence, out),
            Value::Random(from, to) => write_number(self.random.random_range(*from..=*to), out),
            Value::Uuid => write_uuid(self.random.random(), out),
            Value::User => write_number(self.user, out),
            // Rounded, so that an age has no bias.
            Value::UnixMs => write_number((self.unix_us + 500) / 1_000, out),
            Value::UnixUs => write_number(self.unix_us, out),
            Value::Captured(index) => {
                out.extend_from_slice(self.captured.get(*index).map_or(b"", Vec::as_slice));
            }
            Value::Column(feed, column) => {
                let row = self.rows.get(*feed).copied().unwrap_or(0);
                let rows = self.feeds.get(*feed).map(|feed| &feed.rows);
                let value = rows.and_then(|rows| rows.get(row)?.get(*column));
                out.extend_from_slice(value.map_or(b"", Vec::as_slice));
            }
        }
    }
}

impl Escape {
    fn apply(self, out: &mut Vec<u8>, start: usize) {
        let is_bad = |byte: &u8| match self {
            Self::None => false,
            Self::Header => byte.is_ascii_control(),
            Self::Target => !byte.is_ascii_graphic() || b"\"#<>\\^`{|}".contains(byte),
            // RFC 3986, section 3.3: unreserved, sub-delims, `:`, `@`, and the slash between segments.
            Self::Path => !byte.is_ascii_alphanumeric() && !b"-._~!$&'()*+,;=:@/".contains(byte),
            Self::Query => !byte.is_ascii_alphanumeric() && !b"-._~".contains(byte),
            Self::JsonString => *byte < b' ' || b"\"\\".contains(byte),
            Self::Quoted => b"\"\r\n".contains(byte),
            Self::Form => !byte.is_ascii_alphanumeric() && !b"-._*".contains(byte),
        };
        if !out[start..].iter().any(is_bad) {
            return;
        }
        let raw = out.split_off(start);
        for byte in raw {
            match self {
                _ if !is_bad(&byte) => out.push(byte),
                Self::Form if byte == b' ' => out.push(b'+'),
                Self::Target | Self::Path | Self::Query | Self::Form | Self::Quoted => {
                    out.push(b'%');
                    out.extend(digits(byte).map(|digit| digit.to_ascii_uppercase()));
                }
                Self::JsonString if byte >= b' ' => out.extend([b'\\', byte]),
                Self::JsonString => {
                    out.extend_from_slice(b"\\u00");
                    out.extend(digits(byte));
                }
                Self::None | Self::Header => out.push(b' '),
            }
        }
    }
}

/// The two hexadecimal digits of a byte.
fn digits(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)])
}

/// The value of a variable of the environment, as it is when the load is planned.
fn of_environment(name: &str) -> Result<Vec<u8>, TemplateError> {
    let value = std::env::var_os(name).filter(|_| !name.is_empty());
    let value = value.ok_or_else(|| TemplateError::NoVariable(name.to_owned()))?;
    Ok(value.into_encoded_bytes())
}

fn value_of(name: &str, names: &Names) -> Result<Value, TemplateError> {
    if let Some(bounds) = name.strip_prefix("rand:") {
        let bounds = bounds.split_once(':').and_then(|(from, to)| {
            let (from, to): (u64, u64) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
            (from <= to).then_some(Value::Random(from, to))
        });
        return bounds.ok_or_else(|| TemplateError::Bounds(name.to_owned()));
    }
    let built_in = match name {
        "seq" => Some(Value::Sequence),
        "uuid" => Some(Value::Uuid),
        "user" => Some(Value::User),
        "now_ms" => Some(Value::UnixMs),
        "now_us" => Some(Value::UnixUs),
        _ => None,
    };
    let captured = names.captured.iter().position(|other| other == name);
    let columns = (0..).zip(&names.columns).filter_map(|(feed, columns)| {
        let column = columns.iter().position(|other| other == name)?;
        Some(Value::Column(feed, column))
    });
    let meanings = [
        built_in.map(|value| (value, "a built-in value")),
        captured.map(|index| (Value::Captured(index), "a captured variable")),
    ];
    let columns = columns.map(|value| (value, "a column of a data file"));
    let mut meanings = meanings.into_iter().flatten().chain(columns);
    let (value, first) = meanings
        .next()
        .ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
    match meanings.next() {
        None => Ok(value),
        Some((_, second)) => Err(TemplateError::Ambiguous {
            name: name.to_owned(),
            first,
            second,
        }),
    }
}

fn write_number(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// A UUID of version 4 (RFC 9562, section 5.4) from 128 random bits.
fn write_uuid(random: u128, out: &mut Vec<u8>) {
    let bits = (random & !(0xF << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    for digit in 0..32 {
        if [8, 12, 16, 20].contains(&digit) {
            out.push(b'-');
        }
        let nibble = (bits >> (124 - 4 * digit)) & 0xF;
        out.push(HEX[nibble as usize]);
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    let mut windows = bytes.windows(part.len().max(1));
    windows.position(|window| window == part)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// What stands for two braces.
const BRACES: [&str; 2] = ["'{{'", "\"{{\""];

/// Names of values that no column and no variable may have.
const BUILT_IN: &str = "seq, user, uuid, now_ms, now_us, rand:FROM:TO and env:NAME";

/// The values of a first request, for tests.
#[cfg(test)]
pub(crate) fn first_values<'a>(
    random: &'a mut SmallRng,
    captured: &'a [Vec<u8>],
    feeds: &'a [Feed],
) -> Values<'a> {
    Values {
        sequence: 7,
        user: 0,
        unix_us: 0,
        random,
        captured,
        feeds,
        rows: &[0],
    }
}

#[cfg(test)]
mod tests;
