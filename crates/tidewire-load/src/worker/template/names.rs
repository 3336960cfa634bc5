//! Names between braces, and what they stand for.

use super::error::TemplateError;
use super::form::Form;
use super::text::{Template, within};
use super::values::Value;
use crate::worker::inputs;

/// Names that a template may use, and their values.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Variables for values captured from responses.
    pub captured: Vec<String>,
    /// Each data file's columns.
    pub columns: Vec<Vec<String>>,
    /// Texts that are known before, such as the values of a profile.
    pub known: Vec<(String, Template)>,
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

/// What a text between braces stands for.
pub(super) enum Part<'n> {
    /// A text that is escaped for its place.
    Text(Vec<u8>),
    Value(Value),
    Known(&'n Template),
    Bytes(Vec<u8>),
    Number(Value, Form),
    Section(Section),
    End,
}

/// A part of a text that ends with `{{end}}`.
pub(super) enum Section {
    /// Its length stands before it.
    Sized(Form),
    /// It depends on a value: whether it stays.
    Conditional(bool),
}

impl Part<'_> {
    /// Whether it makes bytes that may be no text.
    pub(super) fn is_binary(&self) -> bool {
        matches!(
            self,
            Self::Bytes(_) | Self::Number(..) | Self::Section(Section::Sized(_))
        )
    }
}

impl Names {
    /// What a text between braces stands for. `{{end}}` ends a section, or is a value of that name outside of one.
    pub(super) fn part(&self, text: &str, is_in_section: bool) -> Result<Part<'_>, TemplateError> {
        if text == END && (is_in_section || self.value(END).is_err()) {
            return match is_in_section {
                true => Ok(Part::End),
                false => Err(TemplateError::End),
            };
        }
        let (kind, argument) = text.split_once(':').unwrap_or(("", text));
        let (kind, argument) = (kind.trim(), argument.trim());
        let whole = || text.to_owned();
        if let Some(form) = Form::of(kind) {
            return self.number(text, argument, form);
        }
        match kind {
            "env" => of_environment(argument).map(Part::Text),
            "hex" => of_hex(argument)
                .map(Part::Bytes)
                .ok_or_else(|| TemplateError::Hex(whole())),
            "size" => Form::of(argument)
                .map(|form| Part::Section(Section::Sized(form)))
                .ok_or_else(|| TemplateError::Form(whole())),
            "with" | "without" => {
                let value = self.known(argument);
                let value = value.ok_or_else(|| TemplateError::NoValue(whole()))?;
                let is_wanted = value.is_empty() == (kind == "without");
                Ok(Part::Section(Section::Conditional(is_wanted)))
            }
            // A mistaken form such as u24.
            _ if is_like_form(kind) => Err(TemplateError::Form(whole())),
            _ => self.value(text),
        }
    }

    /// A number in bytes.
    fn number(&self, text: &str, name: &str, form: Form) -> Result<Part<'_>, TemplateError> {
        let none = || TemplateError::NoNumber(text.to_owned());
        let value = match self.value(name).map_err(|error| match name.is_empty() {
            true => none(),
            false => error,
        })? {
            Part::Value(value) => value,
            Part::Known(known) => match (known.as_value(), known.as_fixed()) {
                (Some(value), _) => value.clone(),
                (None, Some(digits)) => {
                    let digits = std::str::from_utf8(digits).map_err(|_| none())?;
                    let number = digits.trim().parse().map_err(|_| none())?;
                    let mut bytes = Vec::new();
                    form.write(within(number, form)?, &mut bytes);
                    return Ok(Part::Bytes(bytes));
                }
                (None, None) => return Err(none()),
            },
            _ => return Err(none()),
        };
        match value {
            Value::Uuid => Err(none()),
            value => Ok(Part::Number(value, form)),
        }
    }

    fn known(&self, name: &str) -> Option<&Template> {
        let known = self.known.iter().find(|(known, _)| known == name);
        known.map(|(_, template)| template)
    }

    /// The value with this name.
    fn value(&self, name: &str) -> Result<Part<'_>, TemplateError> {
        if let Some(bounds) = name.strip_prefix("rand:") {
            let bounds = bounds.split_once(':').and_then(|(from, to)| {
                let (from, to): (u64, u64) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
                (from <= to).then_some(Value::Random(from, to))
            });
            let bounds = bounds.ok_or_else(|| TemplateError::Bounds(name.to_owned()));
            return bounds.map(Part::Value);
        }
        let built_in = match name {
            "seq" => Some(Value::Sequence),
            "uuid" => Some(Value::Uuid),
            "user" => Some(Value::User),
            "now_ms" => Some(Value::UnixMs),
            "now_us" => Some(Value::UnixUs),
            _ => None,
        };
        let captured = self.captured.iter().position(|other| other == name);
        let columns = (0..).zip(&self.columns).filter_map(|(feed, columns)| {
            let column = columns.iter().position(|other| other == name)?;
            Some(Value::Column(feed, column))
        });
        let meanings = [
            built_in.map(|value| (Part::Value(value), "a built-in value")),
            captured.map(|index| (Part::Value(Value::Captured(index)), "a captured variable")),
            self.known(name)
                .map(|known| (Part::Known(known), "a value of the profile")),
        ];
        let columns = columns.map(|value| (Part::Value(value), "a column of a data file"));
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
}

/// The value of a variable of the environment, as it is when the load is planned.
fn of_environment(name: &str) -> Result<Vec<u8>, TemplateError> {
    inputs::variable(name).ok_or_else(|| TemplateError::NoVariable(name.to_owned()))
}

/// Bytes from their digits, which may have spaces between them.
fn of_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
    let digits = digits.map(|byte| char::from(byte).to_digit(16));
    let digits: Vec<u8> = digits
        .map(|digit| digit.map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let is_whole = digits.len().is_multiple_of(2) && !digits.is_empty();
    let bytes = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]);
    is_whole.then(|| bytes.collect())
}

/// Whether a word may be meant as a form of a number.
fn is_like_form(word: &str) -> bool {
    let digits = word.strip_prefix(['u', 'i']).unwrap_or_default();
    digits.starts_with(|first: char| first.is_ascii_digit())
}

/// The end of a section.
const END: &str = "end";
