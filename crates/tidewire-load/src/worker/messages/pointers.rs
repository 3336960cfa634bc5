//! Values at some places of a JSON text, read in one pass that keeps nothing else.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::worker::pointer::{index_of, tokens};

/// Places in a JSON text, as JSON pointers (RFC 6901).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pointers {
    root: Node,
    count: usize,
}

/// A place on the way to others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    /// The number of the pointer that ends here.
    wanted: Option<usize>,
    children: Vec<(String, Node)>,
}

impl Pointers {
    /// The number of a pointer, which is added unless it is known.
    pub fn add(&mut self, pointer: &str) -> usize {
        let mut node = &mut self.root;
        for token in tokens(pointer) {
            let known = node.children.iter().position(|(name, _)| *name == token);
            let at = known.unwrap_or_else(|| {
                node.children.push((token, Node::default()));
                node.children.len() - 1
            });
            node = &mut node.children[at].1;
        }
        let count = &mut self.count;
        *node.wanted.get_or_insert_with(|| {
            *count += 1;
            *count - 1
        })
    }

    /// The values of a text, by the numbers of their pointers. The JSON may begin after a prefix such as `42`, which
    /// may contain a bracket by chance; of a text that is not JSON there are none.
    pub(super) fn read(&self, text: &[u8]) -> Vec<Option<Value>> {
        let mut start = 0;
        if text.trim_ascii_start().first() != Some(&b'"') {
            start = bracket(text).unwrap_or(0);
            for _ in 1..STARTS_MAX {
                if let Some(found) = self.read_from(text, start) {
                    return found;
                }
                match bracket(text.get(start + 1..).unwrap_or_default()) {
                    Some(after) => start += 1 + after,
                    None => return vec![None; self.count],
                }
            }
        }
        let found = self.read_from(text, start);
        found.unwrap_or_else(|| vec![None; self.count])
    }

    /// [`Self::read`] of JSON that begins at this place; `None` if there is none.
    fn read_from(&self, text: &[u8], start: usize) -> Option<Vec<Option<Value>>> {
        let mut found = vec![None; self.count];
        let mut reader = serde_json::Deserializer::from_slice(&text[start..]);
        let place = Place {
            node: &self.root,
            found: &mut found,
        };
        place.deserialize(&mut reader).is_ok().then_some(found)
    }
}

/// The place of the first bracket.
fn bracket(text: &[u8]) -> Option<usize> {
    text.iter().position(|byte| b"{[".contains(byte))
}

/// The most places at which JSON is looked for in a text.
const STARTS_MAX: usize = 8;

impl Node {
    /// Takes the values out of one that is read already.
    fn take(&self, value: &Value, found: &mut [Option<Value>]) {
        for (name, child) in &self.children {
            let inside = match value {
                Value::Object(fields) => fields.get(name),
                Value::Array(items) => index_of(name).and_then(|index| items.get(index)),
                _ => None,
            };
            if let Some(inside) = inside {
                child.take(inside, found);
            }
        }
        if let Some(wanted) = self.wanted {
            found[wanted] = Some(value.clone());
        }
    }

    fn child(&self, is_it: impl Fn(&str) -> bool) -> Option<&Self> {
        let mut children = self.children.iter();
        children.find(|(name, _)| is_it(name)).map(|(_, node)| node)
    }
}

/// A place that is being read.
struct Place<'a> {
    node: &'a Node,
    found: &'a mut [Option<Value>],
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        if self.node.wanted.is_some() {
            let value = serde::Deserialize::deserialize(reader)?;
            self.node.take(&value, self.found);
            return Ok(());
        }
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(child) = map.next_key_seed(Name(self.node))? {
            match child {
                Some(node) => map.next_value_seed(Place {
                    node,
                    found: &mut *self.found,
                })?,
                None => map.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for index in 0.. {
            let child = self.node.child(|name| index_of(name) == Some(index));
            let more = match child {
                Some(node) => items.next_element_seed(Place {
                    node,
                    found: &mut *self.found,
                })?,
                None => items.next_element::<IgnoredAny>()?.map(drop),
            };
            if more.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// The name of a field: the place below, if it is on the way to a wanted one.
struct Name<'a>(&'a Node);

impl<'de, 'a> DeserializeSeed<'de> for Name<'a> {
    type Value = Option<&'a Node>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Name<'a> {
    type Value = Option<&'a Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.child(|known| known == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str, pointers: &[&str]) -> Vec<Option<String>> {
        let mut all = Pointers::default();
        let numbers: Vec<usize> = pointers.iter().map(|pointer| all.add(pointer)).collect();
        let found = all.read(text.as_bytes());
        let shown = numbers.iter().map(|number| found[*number].as_ref());
        shown.map(|value| value.map(Value::to_string)).collect()
    }

    #[test]
    fn only_the_wanted_values_are_read() {
        let text =
            r#"{"type":"a","deep":{"x":[1,{"y":null},true]},"a/b":"~","n":{"m":2},"type2":0}"#;
        let pointers = [
            "/type",
            "/deep/x/1/y",
            "/deep/x/2",
            "/deep/x/9",
            "/a~1b",
            "/n/m",
            "/n",
            "/none",
            "/type",
        ];
        let expected = [
            Some("\"a\""),
            Some("null"),
            Some("true"),
            None,
            Some("\"~\""),
            Some("2"),
            Some("{\"m\":2}"),
            None,
            Some("\"a\""),
        ];
        assert_eq!(
            read(text, &pointers),
            expected.map(|text| text.map(str::to_owned))
        );
    }

    #[test]
    fn a_prefix_is_skipped_and_what_is_no_json_has_no_values() {
        let first = |text: &str| read(text, &["/0"])[0].clone();
        assert_eq!(first(r#"42["a",1]"#).as_deref(), Some("\"a\""));
        assert_eq!(first(r#"["a",1] and more"#).as_deref(), Some("\"a\""));
        for none in ["", "42", "no [JSON", r#""[1]""#, r#"["a","#, "[1,]", "[01]"] {
            assert_eq!(first(none), None, "{none}");
        }
        assert_eq!(read("{\"a\":1}", &[""])[0].as_deref(), Some("{\"a\":1}"));
    }

    #[test]
    fn a_bracket_in_a_binary_head_is_not_the_beginning() {
        let first = |head: &[u8]| {
            let mut all = Pointers::default();
            all.add("/at");
            let found = all.read(&[head, b"{\"at\":5}"].concat());
            found[0].as_ref().and_then(Value::as_u64)
        };
        for head in [&b"\x30\x7b\x00\x01a"[..], b"\x30\x5b\x00\x01[", b"[{[{[{["] {
            assert_eq!(first(head), Some(5), "{head:?}");
        }
        assert_eq!(first(&[b'['; 8]), None, "the search ends");
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-c~/\"é]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c~/0-2\"é]{0,2}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_values_are_those_of_a_whole_parser(
            value in json(),
            pointers in prop::collection::vec("(/([a-c]|0|1|~0|~1){0,2}){0,3}", 1..5),
        ) {
            // A scalar has no JSON after a prefix.
            prop_assume!(value.is_object() || value.is_array());
            let mut all = Pointers::default();
            let numbers: Vec<usize> = pointers.iter().map(|pointer| all.add(pointer)).collect();
            let found = all.read(value.to_string().as_bytes());
            for (number, pointer) in numbers.iter().zip(&pointers) {
                prop_assert_eq!(found[*number].as_ref(), value.pointer(pointer), "{}", pointer);
            }
        }
    }
}
