//! Objects and arrays element by element: each value as the bytes that it stands in, not looked into.

use super::JsonError;
use super::scan::{skip_space, string_end, value_end};
use super::text::string_is;

/// The fields of one object, one after another.
pub(crate) struct Fields<'a> {
    text: &'a [u8],
    at: usize,
    first: bool,
}

/// A name, still escaped, and the bytes of its value.
pub(crate) struct Field<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Starts at the object that `text` begins with, white space aside.
    pub(crate) fn open(text: &'a [u8]) -> Result<Self, JsonError> {
        let at = skip_space(text, 0);
        if text.get(at) != Some(&b'{') {
            return Err(JsonError::NotAnObject);
        }
        Ok(Self {
            text,
            at: at + 1,
            first: true,
        })
    }

    /// The next field; `None` after the last, when only white space may follow.
    pub(crate) fn next(&mut self) -> Result<Option<Field<'a>>, JsonError> {
        let Some(at) = next_element(self.text, self.at, b'}', self.first)? else {
            return Ok(None);
        };
        self.first = false;
        if self.text.get(at) != Some(&b'"') {
            return Err(JsonError::Malformed);
        }
        let name_end = string_end(self.text, at + 1)?;
        let colon = skip_space(self.text, name_end);
        if self.text.get(colon) != Some(&b':') {
            return Err(JsonError::Malformed);
        }
        let start = skip_space(self.text, colon + 1);
        let end = value_end(self.text, start, 1)?;
        self.at = end;
        Ok(Some(Field {
            name: &self.text[at + 1..name_end - 1],
            value: &self.text[start..end],
        }))
    }

    /// The value of the first field whose name is one of `names`.
    pub(crate) fn find(&mut self, names: &[&str]) -> Result<Option<&'a [u8]>, JsonError> {
        while let Some(field) = self.next()? {
            for name in names {
                if string_is(field.name, name)? {
                    return Ok(Some(field.value));
                }
            }
        }
        Ok(None)
    }
}

/// The elements of one array, one after another.
pub(crate) struct Elements<'a> {
    text: &'a [u8],
    at: usize,
    first: bool,
}

impl<'a> Elements<'a> {
    /// Starts at the array that `text` begins with, white space aside.
    pub(crate) fn open(text: &'a [u8]) -> Result<Self, JsonError> {
        let at = skip_space(text, 0);
        if text.get(at) != Some(&b'[') {
            return Err(JsonError::Malformed);
        }
        Ok(Self {
            text,
            at: at + 1,
            first: true,
        })
    }

    /// The bytes of the next element; `None` after the last, when only white space may follow.
    pub(crate) fn next(&mut self) -> Result<Option<&'a [u8]>, JsonError> {
        let Some(start) = next_element(self.text, self.at, b']', self.first)? else {
            return Ok(None);
        };
        self.first = false;
        self.at = value_end(self.text, start, 1)?;
        Ok(Some(&self.text[start..self.at]))
    }
}

/// Calls `each` with the bytes of every element of the array `text`.
///
/// Fails with `Malformed` if it is no array, and with whatever `each` fails.
pub(crate) fn elements<'a, E: From<JsonError>>(
    text: &'a [u8],
    mut each: impl FnMut(&'a [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut elements = Elements::open(text)?;
    while let Some(element) = elements.next()? {
        each(element)?;
    }
    Ok(())
}

/// Where the element after `at` starts, past its comma; `None` at the closing bracket, behind which only white
/// space is allowed.
fn next_element(
    text: &[u8],
    at: usize,
    close: u8,
    first: bool,
) -> Result<Option<usize>, JsonError> {
    let at = skip_space(text, at);
    match text.get(at) {
        Some(&byte) if byte == close => {
            let end = skip_space(text, at + 1);
            if end == text.len() {
                Ok(None)
            } else {
                Err(JsonError::Malformed)
            }
        }
        Some(b',') if !first => Ok(Some(skip_space(text, at + 1))),
        Some(_) if first => Ok(Some(at)),
        _ => Err(JsonError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_behind_others() {
        let text = br#" { "p" : {"t":"no","s":"}\"]"} , "n":-1.5e3,"\u0074" : "yes" } "#;
        let found = Fields::open(text).unwrap().find(&["t"]).unwrap();
        assert_eq!(found, Some(&b"\"yes\""[..]));
        assert_eq!(Fields::open(text).unwrap().find(&["x"]).unwrap(), None);
    }

    #[test]
    fn broken_objects() {
        for text in [
            "{",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":1}x",
            "{\"a\":[}",
            "{\"a\":[1}}",
            "{\"a\":\"\n\"}",
            "{\"a\":\"\\",
            "{a:1}",
        ] {
            let found = Fields::open(text.as_bytes()).unwrap().find(&["x"]);
            assert_eq!(found, Err(JsonError::Malformed), "{text}");
        }
    }

    #[test]
    fn elements_of_an_array() {
        let mut seen = Vec::new();
        let keep = |element: &'static [u8]| {
            seen.push(element);
            Ok(())
        };
        elements::<JsonError>(b" [ {\"a\":[1,2]} ,2, \"]\" ] ", keep).unwrap();
        assert_eq!(seen, [&b"{\"a\":[1,2]}"[..], b"2", b"\"]\""]);
        for text in ["[", "[1", "[1,", "[1,]", "[,1]", "[1]1", "{}", ""] {
            assert_eq!(
                elements::<JsonError>(text.as_bytes(), |_| Ok(())),
                Err(JsonError::Malformed)
            );
        }
        assert_eq!(elements(b"[]", |_| Err(JsonError::Malformed)), Ok(()));
    }
}
