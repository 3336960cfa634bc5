//! Templates: constant bytes with values inserted between them.
//!
//! `{{seq}}` and the like stand for a value. A text without values is copied unchanged. `{{'{{'}}` stands for
//! two braces.

mod error;
mod escape;
pub mod form;
mod names;
mod text;
mod values;

pub use error::{TemplateError, Unwritable};
pub use escape::Escape;
pub use names::{Names, Syntax};
pub use text::Template;
#[cfg(test)]
pub(crate) use values::first_values;
pub use values::{Feed, Value, Values};

use error::NESTED_MAX;
use names::{Part, Section};
use text::Piece;

impl Template {
    /// A text with values.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn of(text: &[u8], names: &Names, escape: Escape) -> Result<Self, TemplateError> {
        let mut template = Self::default();
        template.push(text, names, escape)?;
        Ok(template)
    }

    /// A message: a text with values, and with parts that make bytes.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn message(text: &[u8], names: &Names) -> Result<Self, TemplateError> {
        let mut template = Self::default();
        template.push_message(text, names)?;
        Ok(template)
    }

    /// Appends a message: a text with values, and with parts that make bytes.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn push_message(&mut self, text: &[u8], names: &Names) -> Result<(), TemplateError> {
        self.push_parts(text, (names, Content::Bytes), |template, fixed| {
            template.push_fixed(fixed);
            Escape::None
        })
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
        self.push_parts(text, (names, Content::Text), |template, fixed| {
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
        self.push_parts(text, (names, Content::Text), |template, fixed| {
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
        self.push_parts(text, (names, Content::Text), |template, fixed| {
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
        self.push_parts(text, (names, Content::Text), |template, fixed| {
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
        (names, content): (&Names, Content),
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
            Syntax::Braces => return self.push_braces(text, (names, content), fixed),
        }
        fixed(self, rest);
        Ok(())
    }

    /// [`Self::push_parts`] of a text whose values have names in braces.
    fn push_braces(
        &mut self,
        text: &[u8],
        (names, content): (&Names, Content),
        mut fixed: impl FnMut(&mut Self, &[u8]) -> Escape,
    ) -> Result<(), TemplateError> {
        let mut rest = text;
        let mut open = Vec::new();
        while let Some(at) = find(rest, b"{{") {
            let inside = &rest[at + 2..];
            let end = find(inside, b"}}").ok_or(TemplateError::Open)?;
            let name = String::from_utf8_lossy(&inside[..end]);
            let name = name.trim();
            if BRACES.contains(&name) {
                fixed(self, &[&rest[..at], b"{{"].concat());
            } else {
                let escape = fixed(self, &rest[..at]);
                let part = names.part(name, !open.is_empty())?;
                if content == Content::Text && part.is_binary() {
                    return Err(TemplateError::Bytes(name.to_owned()));
                }
                self.push_part(part, escape, &mut open)?;
            }
            rest = &inside[end + 2..];
        }
        fixed(self, rest);
        while let Some(section) = open.pop() {
            self.close(section)?;
        }
        Ok(())
    }

    fn push_part(
        &mut self,
        part: Part<'_>,
        escape: Escape,
        open: &mut Vec<OpenSection>,
    ) -> Result<(), TemplateError> {
        match part {
            Part::Text(mut text) => {
                escape.apply(&mut text, 0);
                self.push_fixed(&text);
            }
            Part::Value(value) => self.pieces.push(Piece::Value(value, escape)),
            Part::Known(known) => self.insert(known, escape),
            Part::Bytes(bytes) => self.push_fixed(&bytes),
            Part::Number(value, form) => self.pieces.push(Piece::Number(value, form)),
            Part::Section(_) if open.len() == NESTED_MAX => return Err(TemplateError::Nested),
            Part::Section(section) => open.push(OpenSection {
                section,
                outer: std::mem::take(self),
            }),
            Part::End => {
                if let Some(section) = open.pop() {
                    self.close(section)?;
                }
            }
        }
        Ok(())
    }

    /// Ends a section, whose text this one is until then.
    fn close(&mut self, open: OpenSection) -> Result<(), TemplateError> {
        let inner = std::mem::replace(self, open.outer);
        match open.section {
            Section::Sized(form) => self.push_sized(form, inner)?,
            Section::Conditional(true) => self.append(&inner),
            Section::Conditional(false) => {}
        }
        Ok(())
    }
}

/// What a text may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Text with values.
    Text,
    /// Any bytes.
    Bytes,
}

/// A section whose end is not read yet, and the text before it.
struct OpenSection {
    section: Section,
    outer: Template,
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    let mut windows = bytes.windows(part.len().max(1));
    windows.position(|window| window == part)
}

/// What stands for two braces.
const BRACES: [&str; 2] = ["'{{'", "\"{{\""];

#[cfg(test)]
mod tests;
