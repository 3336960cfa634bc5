//! Templates: constant bytes with values inserted between them.
//!
//! `{{seq}}` and the like stand for a value. A text without values is copied unchanged.

use std::ops::Range;

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
    /// In a request's target: characters that are not valid in a URL are percent-encoded.
    Target,
    /// In a header: control characters become spaces.
    Header,
    /// Within quotes in JSON: quotes, backslashes and control characters are escaped.
    JsonString,
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
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Each with one value per column.
    pub rows: Vec<Vec<Vec<u8>>>,
}

/// Names that a template may use, and their values.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Variables for values captured from responses.
    pub captured: Vec<String>,
    /// Each data file's columns.
    pub columns: Vec<Vec<String>>,
}

/// A template that is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `{{` without `}}`.
    #[error("`{{{{` has no `}}}}` after it")]
    Open,
    /// A name that is not defined.
    #[error(
        "`{{{{{0}}}}}` stands for nothing: use seq, rand:FROM:TO, uuid, user, now_ms, now_us, the name of a captured \
         variable or of a column"
    )]
    Unknown(String),
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

    /// Appends a name or a value of a form, percent-encoded with its values.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn push_form(&mut self, text: &[u8], names: &Names) -> Result<(), TemplateError> {
        self.push_parts(text, names, |template, fixed| {
            let mut encoded = fixed.to_vec();
            Escape::Form.apply(&mut encoded, 0);
            template.push_fixed(&encoded);
            Escape::Form
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
        while let Some(at) = find(rest, b"{{") {
            let escape = fixed(self, &rest[..at]);
            let inside = &rest[at + 2..];
            let end = find(inside, b"}}").ok_or(TemplateError::Open)?;
            let name = String::from_utf8_lossy(&inside[..end]);
            let value = value_of(name.trim(), names)?;
            self.pieces.push(Piece::Value(value, escape));
            rest = &inside[end + 2..];
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
                Piece::Value(..) => text.push(b'0'),
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
            Self::JsonString => *byte < b' ' || b"\"\\".contains(byte),
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
                Self::Target | Self::Form => {
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
    bytes.windows(part.len()).position(|window| window == part)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Names of values that no column and no variable may have.
const BUILT_IN: &str = "seq, user, uuid, now_ms, now_us and rand:FROM:TO";

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    /// The text as one user writes it, with these captured values and one row of a feed.
    fn rendered(template: &Template, captured: &[Vec<u8>], feed: Feed) -> String {
        let mut random = SmallRng::seed_from_u64(1);
        let mut values = Values {
            sequence: 17,
            user: 3,
            unix_us: 1_000_000,
            random: &mut random,
            captured,
            feeds: &[feed],
            rows: &[0],
        };
        let mut out = Vec::new();
        template.write(&mut values, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn written(text: &str, escape: Escape) -> String {
        let names = Names {
            captured: vec!["token".into()],
            columns: vec![vec!["name".into(), "city".into()]],
        };
        let mut template = Template::default();
        template.push(text.as_bytes(), &names, escape).unwrap();
        let feed = Feed {
            columns: names.columns[0].clone(),
            rows: vec![vec![b"Ada".to_vec(), b"New York\r\n".to_vec()]],
        };
        rendered(&template, &[b"abc".to_vec()], feed)
    }

    #[test]
    fn values_stand_in_their_places() {
        let text = r#"{"id":{{seq}},"user":{{ user }},"at":{{now_ms}},"name":"{{name}}","token":"{{token}}"}"#;
        assert_eq!(
            written(text, Escape::None),
            r#"{"id":17,"user":3,"at":1000,"name":"Ada","token":"abc"}"#
        );
        assert_eq!(written("no value } {x}", Escape::None), "no value } {x}");
    }

    #[test]
    fn random_values_are_within_their_bounds_and_of_their_form() {
        let number: u64 = written("{{rand:5:7}}", Escape::None).parse().unwrap();
        assert!((5..=7).contains(&number));
        let uuid = written("{{uuid}}", Escape::None);
        let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&uuid[14..15], "4");
        assert!("89ab".contains(&uuid[19..20]), "{uuid}");
    }

    #[test]
    fn a_value_cannot_break_out_of_its_place() {
        assert_eq!(
            written("/x/{{city}}", Escape::Target),
            "/x/New%20York%0D%0A"
        );
        assert_eq!(written("{{city}}", Escape::Header), "New York  ");
    }

    /// The text as it is written with this value in the column `v`.
    fn with(
        value: &str,
        push: impl Fn(&mut Template, &Names) -> Result<(), TemplateError>,
    ) -> String {
        let names = Names {
            captured: Vec::new(),
            columns: vec![vec!["v".into()]],
        };
        let mut template = Template::default();
        push(&mut template, &names).unwrap();
        let feed = Feed {
            columns: names.columns[0].clone(),
            rows: vec![vec![value.as_bytes().to_vec()]],
        };
        rendered(&template, &[], feed)
    }

    #[test]
    fn a_value_within_the_quotes_of_json_stays_a_string() {
        let json = |text: &str, value: &str| {
            with(value, |template, names| {
                template.push_json(text.as_bytes(), names)
            })
        };
        for value in [
            "plain",
            "a \"b\" \\ c",
            "line\nend\t\u{1}",
            "Zoë\u{7f}",
            "\\",
        ] {
            let text = json(r#"{"a \" {{v}}":1,"b":"x{{v}}","c":["{{v}}"]}"#, value);
            let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(parsed["c"][0], value, "{text}");
            assert_eq!(parsed["b"], format!("x{value}"), "{text}");
            assert_eq!(parsed[format!("a \" {value}")], 1, "{text}");
        }
        // Outside of quotes it is JSON itself.
        assert_eq!(json(r#"{"a":{{v}}}"#, r#"{"b":1}"#), r#"{"a":{"b":1}}"#);
        assert_eq!(json(r#"["\\",{{v}}]"#, r#""q""#), r#"["\\","q"]"#);
    }

    #[test]
    fn a_value_in_a_form_stays_in_its_field() {
        let form = with("a&b=c d%é", |template, names| {
            template.push_form(b"x y{{v}}&", names)
        });
        assert_eq!(form, "x+ya%26b%3Dc+d%25%C3%A9%26");
    }

    #[test]
    fn a_name_with_two_meanings_is_refused() {
        let names = Names {
            captured: vec!["token".into(), "uuid".into()],
            columns: vec![
                vec!["user".into(), "id".into()],
                vec!["id".into(), "token".into(), "city".into()],
            ],
        };
        let error = |name: &str| {
            let text = format!("{{{{{name}}}}}");
            let mut template = Template::default();
            let pushed = template.push(text.as_bytes(), &names, Escape::None);
            pushed.unwrap_err().to_string()
        };
        for name in ["user", "uuid", "id", "token"] {
            let error = error(name);
            assert!(
                error.contains(&format!("`{{{{{name}}}}}` is a ")),
                "{error}"
            );
            assert!(error.contains("rename the column"), "{error}");
            assert!(
                error.contains("seq, user, uuid, now_ms, now_us and rand:"),
                "{error}"
            );
        }
        let mut template = Template::default();
        assert!(template.push(b"{{city}}", &names, Escape::None).is_ok());
    }

    #[test]
    fn a_wrong_template_says_what_is_possible() {
        let error = |text: &str| {
            let mut template = Template::default();
            let error = template.push(text.as_bytes(), &Names::default(), Escape::None);
            error.unwrap_err().to_string()
        };
        assert!(error("{{nope}}").contains("`{{nope}}` stands for nothing"));
        assert!(error("a {{seq").contains("has no `}}`"));
        assert!(error("{{rand:9:1}}").contains("{{rand:1:100}}"));
    }

    #[test]
    fn a_fixed_template_is_one_piece() {
        let mut template = Template::fixed(b"ab");
        template.push_fixed(b"cd");
        assert_eq!(template.as_fixed(), Some(&b"abcd"[..]));
        assert_eq!(template.pieces.len(), 1);
    }
}
