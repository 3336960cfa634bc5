//! Texts: constant bytes with values between them, as they are written for each message.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::{TemplateError, Unwritable};
use super::escape::Escape;
use super::form::Form;
use super::values::{Value, Values};

/// A text with values in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    bytes: Vec<u8>,
    pub(super) pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Fixed(Range<usize>),
    Value(Value, Escape),
    /// A value that is a number, in bytes.
    Number(Value, Form),
    /// Another text after the number of its bytes.
    Sized(Form, Template),
    /// Another text, in base64.
    Base64(Template),
    /// The place of another text, see [`Template::filled`].
    Hole,
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

    /// Appends another text.
    pub fn append(&mut self, other: &Self) {
        self.insert(other, Escape::None);
    }

    /// Appends another text at a place with restrictions, which those of its values give way to.
    pub(super) fn insert(&mut self, other: &Self, escape: Escape) {
        for piece in &other.pieces {
            match piece {
                Piece::Fixed(range) => {
                    let mut bytes = other.bytes[range.clone()].to_vec();
                    escape.apply(&mut bytes, 0);
                    self.push_fixed(&bytes);
                }
                Piece::Value(value, _) if escape != Escape::None => {
                    self.pieces.push(Piece::Value(value.clone(), escape));
                }
                other => self.pieces.push(other.clone()),
            }
        }
    }

    /// Appends another text in base64.
    pub fn push_base64(&mut self, text: Template) {
        self.pieces.push(Piece::Base64(text));
    }

    /// Appends another text after the number of its bytes.
    pub(super) fn push_sized(&mut self, form: Form, text: Template) -> Result<(), TemplateError> {
        let Some(fixed) = text.as_fixed() else {
            self.pieces.push(Piece::Sized(form, text));
            return Ok(());
        };
        let mut sized = Vec::new();
        form.write(within(fixed.len() as u64, form)?, &mut sized);
        sized.extend_from_slice(fixed);
        self.push_fixed(&sized);
        Ok(())
    }

    /// A place for another text.
    #[must_use]
    pub fn hole() -> Self {
        Self {
            pieces: vec![Piece::Hole],
            ..Self::default()
        }
    }

    /// Whether it has a place for another text.
    #[must_use]
    pub fn has_hole(&self) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Hole => true,
            Piece::Sized(_, text) => text.has_hole(),
            _ => false,
        })
    }

    /// The text with another one in each of its holes. A constant part that is too long then cannot be written, see
    /// [`Self::check`].
    #[must_use]
    pub fn filled(&self, content: &Self) -> Self {
        let mut filled = Self::default();
        for piece in &self.pieces {
            match piece {
                Piece::Fixed(range) => filled.push_fixed(&self.bytes[range.clone()]),
                Piece::Hole => filled.append(content),
                Piece::Sized(form, text) => {
                    let text = text.filled(content);
                    if filled.push_sized(*form, text.clone()).is_err() {
                        filled.pieces.push(Piece::Sized(*form, text));
                    }
                }
                other => filled.pieces.push(other.clone()),
            }
        }
        filled
    }

    /// Checks that its constant parts fit into their sizes.
    ///
    /// # Errors
    /// [`TemplateError::TooLarge`].
    pub fn check(&self) -> Result<(), TemplateError> {
        self.pieces.iter().try_for_each(|piece| match piece {
            Piece::Sized(form, text) => match text.as_fixed() {
                Some(fixed) => within(fixed.len() as u64, *form).map(drop),
                None => text.check(),
            },
            _ => Ok(()),
        })
    }

    /// The text with a digit in the place of each value.
    #[must_use]
    pub fn with_digits(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Fixed(range) => text.extend_from_slice(&self.bytes[range.clone()]),
                _ => text.push(b'0'),
            }
        }
        text
    }

    /// Whether it is text (UTF-8) if its values are.
    #[must_use]
    pub fn is_text(&self) -> bool {
        let is_binary = |piece: &Piece| matches!(piece, Piece::Number(..) | Piece::Sized(..));
        !self.pieces.iter().any(is_binary) && std::str::from_utf8(&self.with_digits()).is_ok()
    }

    /// Whether the template is constant.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        let mut pieces = self.pieces.iter();
        pieces.all(|piece| matches!(piece, Piece::Fixed(_)))
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether its values may be such that it cannot be written.
    #[must_use]
    pub fn may_be_unwritable(&self) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Fixed(_) | Piece::Value(..) | Piece::Hole => false,
            Piece::Number(value, _) => matches!(value, Value::Captured(_) | Value::Column(..)),
            Piece::Sized(form, text) => {
                form.largest() < LARGEST_TEXT_BYTES || text.may_be_unwritable()
            }
            Piece::Base64(text) => text.may_be_unwritable(),
        })
    }

    /// Whether this value is in it.
    #[must_use]
    pub fn has(&self, wanted: impl Fn(&Value) -> bool) -> bool {
        let mut pieces = self.pieces.iter();
        pieces.any(|piece| matches!(piece, Piece::Value(value, _) if wanted(value)))
    }

    /// Whether the number of the message is in it in this form.
    #[must_use]
    pub fn has_sequence(&self, wanted: Form) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Number(value, form) => (value, *form) == (&Value::Sequence, wanted),
            Piece::Sized(_, text) => text.has_sequence(wanted),
            _ => false,
        })
    }

    /// Its bytes, if it is constant.
    #[must_use]
    pub fn as_fixed(&self) -> Option<&[u8]> {
        self.is_fixed().then_some(&self.bytes)
    }

    /// Its value, if it is nothing else.
    pub(super) fn as_value(&self) -> Option<&Value> {
        match &self.pieces[..] {
            [Piece::Value(value, _)] => Some(value),
            _ => None,
        }
    }

    /// Appends the text with its values.
    ///
    /// # Errors
    /// A value does not fit. What was appended is not usable.
    pub fn write(&self, values: &mut Values<'_>, out: &mut Vec<u8>) -> Result<(), Unwritable> {
        for piece in &self.pieces {
            match piece {
                Piece::Fixed(range) => out.extend_from_slice(&self.bytes[range.clone()]),
                Piece::Value(value, escape) => {
                    let start = out.len();
                    values.write(value, out);
                    escape.apply(out, start);
                }
                Piece::Number(value, form) => {
                    let number = values.number(value).ok_or(Unwritable::NoNumber)?;
                    form.write(form.wrapped(number), out);
                }
                Piece::Sized(form, text) => {
                    let start = out.len();
                    text.write(values, out)?;
                    let bytes = (out.len() - start) as u64;
                    if bytes > form.largest() {
                        return Err(Unwritable::TooLong);
                    }
                    form.insert(bytes, out, start);
                }
                Piece::Hole => {}
                Piece::Base64(text) => {
                    let mut plain = Vec::new();
                    text.write(values, &mut plain)?;
                    out.extend_from_slice(STANDARD.encode(plain).as_bytes());
                }
            }
        }
        Ok(())
    }
}

/// A constant number, if it fits into its form.
pub(super) fn within(number: u64, form: Form) -> Result<u64, TemplateError> {
    match number <= form.largest() {
        true => Ok(number),
        false => Err(TemplateError::TooLarge {
            number,
            form: form.name(),
            largest: form.largest(),
        }),
    }
}

/// No text with its values is longer.
const LARGEST_TEXT_BYTES: u64 = (1 << 28) - 1;
