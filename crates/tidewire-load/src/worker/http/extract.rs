//! Extraction of values from the body of a response.

use std::collections::HashMap;

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use serde_json::value::RawValue;

use crate::worker::pointer::{index_of, tokens};

/// The value at a pointer (RFC 6901), as it is written: a number keeps its digits. A string comes without its
/// quotes, and `null` is no value.
pub(super) fn json_value(json: &[u8], pointer: &str) -> Option<Vec<u8>> {
    value_at(json, pointer).and_then(text_of)
}

fn value_at<'a>(json: &'a [u8], pointer: &str) -> Option<&'a RawValue> {
    let mut value: &RawValue = serde_json::from_slice(json).ok()?;
    for token in tokens(pointer) {
        value = match value.get().as_bytes().first() {
            Some(b'{') => {
                let mut fields: HashMap<String, &RawValue> =
                    serde_json::from_str(value.get()).ok()?;
                fields.remove(&token)?
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(value.get()).ok()?;
                *items.get(index_of(&token)?)?
            }
            _ => return None,
        };
    }
    Some(value)
}

fn text_of(value: &RawValue) -> Option<Vec<u8>> {
    match value.get() {
        "null" => None,
        text if text.starts_with('"') => {
            let text: String = serde_json::from_str(text).ok()?;
            Some(text.into_bytes())
        }
        other => Some(other.as_bytes().to_vec()),
    }
}

/// The value that a browser sends for the field with this name if nobody changes it: the value of an `input` or a
/// `button`, the text of a `textarea`, the selected or first option of a `select`. Of several fields with this name it
/// is the first one. A box that is not checked has no value.
pub(super) fn form_field(html: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut emitter = DefaultEmitter::default();
    // The contents of a script, for one, are no tags.
    emitter.naively_switch_states(true);
    let mut open = Open::Nothing;
    for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
        match token {
            Token::StartTag(tag) => match (&mut open, &tag.name[..]) {
                (Open::Nothing, kind) if attribute(&tag, "name") == Some(name.as_bytes()) => {
                    let value = || attribute(&tag, "value").unwrap_or_default().to_vec();
                    match kind {
                        b"input" if !is_unchecked(&tag) => return Some(value()),
                        b"button" => return Some(value()),
                        b"textarea" => open = Open::Textarea(Vec::new()),
                        b"select" => open = Open::Select(Select::default()),
                        _ => {}
                    }
                }
                (Open::Select(select), b"option") => {
                    select.end_option();
                    select.option = Some(Choice {
                        value: attribute(&tag, "value").map(<[u8]>::to_vec),
                        is_selected: attribute(&tag, "selected").is_some(),
                        text: Vec::new(),
                    });
                }
                _ => {}
            },
            Token::String(text) => match &mut open {
                Open::Textarea(value) => value.extend_from_slice(&text),
                Open::Select(select) => {
                    if let Some(option) = &mut select.option {
                        option.text.extend_from_slice(&text);
                    }
                }
                Open::Nothing => {}
            },
            Token::EndTag(tag) => match (&mut open, &tag.name[..]) {
                (Open::Textarea(value), b"textarea") => {
                    // A line end directly after the tag is not part of the text.
                    let text = value.strip_prefix(b"\n").unwrap_or(value);
                    return Some(text.to_vec());
                }
                (Open::Select(select), b"option") => select.end_option(),
                (Open::Select(select), b"select") => {
                    select.end_option();
                    return std::mem::take(&mut select.value);
                }
                _ => {}
            },
            _ => {}
        }
    }
    None
}

/// A field whose value follows its tag.
enum Open {
    Nothing,
    Textarea(Vec<u8>),
    Select(Select),
}

#[derive(Default)]
struct Select {
    /// The value so far: that of the first option, or of the selected one.
    value: Option<Vec<u8>>,
    is_selected: bool,
    option: Option<Choice>,
}

struct Choice {
    value: Option<Vec<u8>>,
    is_selected: bool,
    text: Vec<u8>,
}

impl Select {
    fn end_option(&mut self) {
        let Some(option) = self.option.take() else {
            return;
        };
        let is_better = option.is_selected && !self.is_selected;
        if self.value.is_none() || is_better {
            let text = || option.text.trim_ascii().to_vec();
            self.value = Some(option.value.unwrap_or_else(text));
            self.is_selected = option.is_selected;
        }
    }
}

fn attribute<'a>(tag: &'a StartTag<()>, name: &str) -> Option<&'a [u8]> {
    tag.attributes.get(name.as_bytes()).map(|value| &value[..])
}

/// Whether the tag is a check box or a radio button that is not checked.
fn is_unchecked(tag: &StartTag<()>) -> bool {
    let kind = attribute(tag, "type").unwrap_or_default();
    let is_box = [&b"checkbox"[..], b"radio"]
        .iter()
        .any(|name| kind.eq_ignore_ascii_case(name));
    is_box && attribute(tag, "checked").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_the_form_in_which_they_were_sent() {
        let json =
            br#"{"a/b":[1.10,123456789012345678901234567890,"x\u00e4",null,{"c": [ 1E400 ]}]}"#;
        let captured = |pointer| {
            let text = json_value(json, pointer)?;
            Some(String::from_utf8(text).unwrap())
        };
        for (pointer, expected) in [
            ("/a~1b/0", Some("1.10")),
            ("/a~1b/1", Some("123456789012345678901234567890")),
            ("/a~1b/2", Some("x\u{e4}")),
            ("/a~1b/4/c", Some("[ 1E400 ]")),
            ("/a~1b/3", None),
            ("/a~1b/5", None),
            ("/a~1b/00", None),
            ("/a~1b/0/x", None),
            ("/b", None),
        ] {
            assert_eq!(captured(pointer).as_deref(), expected, "{pointer}");
        }
    }

    #[test]
    fn a_form_gives_what_a_browser_would_send() {
        let html = br#"<!doctype html><meta name=a content=no><form>
            <!-- <input name="a" value="comment"> -->
            <script>var x = '<input name="a" value="script">';</script>
            <INPUT type=hidden value='x&amp;y"z' NAME="a"><input name=a value=second>
            <input name=empty>
            <input type=checkbox name=box value=1><input type=CheckBox name=box value=2 checked>
            <textarea name=text>
&lt;b&gt; <b>not a tag</b></textarea>
            <select name=first><option>one <option value=2>two</select>
            <select name=chosen><option value=1>one</option><option selected value=>none</option></select>
            <button name=go value=now>Go</button>"#;
        let field = |name| Some(String::from_utf8(form_field(html, name)?).unwrap());
        for (name, expected) in [
            ("a", Some("x&y\"z")),
            ("empty", Some("")),
            ("box", Some("2")),
            ("text", Some("<b> <b>not a tag</b>")),
            ("first", Some("one")),
            ("chosen", Some("")),
            ("go", Some("now")),
            ("none", None),
        ] {
            assert_eq!(field(name).as_deref(), expected, "{name}");
        }
        assert_eq!(form_field(b"<textarea name=a>no end", "a"), None);
        assert_eq!(
            form_field(b"\xff\x00<<<input name=a value=\xff>", "b"),
            None
        );
    }
}
