//! The rules of a conversation, found by what they ask for: a hundred of them cost hardly more than one.

use std::collections::HashMap;

use serde_json::Value;

use super::view::{Reason, Source, Test, View};
use crate::worker::template::Template;

/// What some messages of a server mean.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The messages.
    pub test: Test,
    /// The values to keep of them.
    pub captures: Vec<(usize, Source)>,
    /// What is sent back.
    pub answers: Vec<Template>,
    /// What it means.
    pub meaning: Meaning,
    /// The name under which they are counted.
    pub count: Option<String>,
}

/// The meaning of a message.
#[derive(Debug, Clone)]
pub enum Meaning {
    /// A part of the protocol: nothing more.
    Protocol,
    /// The session is ready for the messages of the load.
    Ready,
    /// It belongs to the load: the answer to a message, or one that was not asked for.
    Message,
    /// It belongs to the load, and answers nothing.
    Event,
    /// The server refuses a message, or the session: the reason.
    Failure(Reason),
    /// The server ends the session, and may give a reason.
    End(Option<Reason>),
}

/// Rules in their order: the first that matches a message applies.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    all: Vec<Rule>,
    /// Those that ask for a whole message.
    by_text: HashMap<Vec<u8>, Vec<usize>>,
    /// Of the others, those that ask for a text at a pointer, by its number.
    by_value: Vec<(usize, HashMap<String, Vec<usize>>)>,
    /// Rules that ask for a first byte, at the place of this byte; empty if no rule does.
    by_first: Vec<Vec<usize>>,
    /// All others.
    others: Vec<usize>,
}

impl Rules {
    /// These rules.
    #[must_use]
    pub fn new(all: Vec<Rule>) -> Self {
        let mut rules = Self::default();
        for (number, rule) in all.iter().enumerate() {
            let test = &rule.test;
            let text = test.values.iter().find_map(|(pointer, wanted)| {
                let wanted = wanted.as_ref().and_then(Value::as_str);
                Some((*pointer, wanted?))
            });
            match (&test.is, text, test.first_bytes()) {
                (Some(is), _, _) => rules.by_text.entry(is.clone()).or_default().push(number),
                (None, Some((pointer, text)), _) => {
                    let texts = rules.at(pointer);
                    texts.entry(text.to_owned()).or_default().push(number);
                }
                (None, None, Some(first)) => {
                    rules.by_first.resize(1 << u8::BITS, Vec::new());
                    for first in first {
                        rules.by_first[usize::from(first)].push(number);
                    }
                }
                (None, None, None) => rules.others.push(number),
            }
        }
        rules.all = all;
        rules
    }

    fn at(&mut self, pointer: usize) -> &mut HashMap<String, Vec<usize>> {
        let known = self
            .by_value
            .iter()
            .position(|(known, _)| *known == pointer);
        let place = known.unwrap_or_else(|| {
            self.by_value.push((pointer, HashMap::new()));
            self.by_value.len() - 1
        });
        &mut self.by_value[place].1
    }

    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.all.iter()
    }

    /// The first rule that matches a message.
    pub(super) fn first(&self, message: &View<'_>) -> Option<&Rule> {
        let by_text = self.by_text.get(message.bytes());
        let first = message.bytes().first();
        let by_first = first.and_then(|first| self.by_first.get(usize::from(*first)));
        let by_value = self
            .by_value
            .iter()
            .filter_map(|(pointer, texts)| texts.get(message.at(*pointer)?.as_str()?));
        let lists = by_text.into_iter().chain(by_first).chain(by_value);
        let lists = lists.chain([&self.others]);
        let mut first = self.all.len();
        for list in lists {
            let mut earlier = list.iter().take_while(|number| **number < first);
            let found = earlier.find(|number| self.all[**number].test.holds(message));
            first = found.copied().unwrap_or(first);
        }
        self.all.get(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::messages::places::Mask;
    use crate::worker::messages::pointers::Pointers;
    use proptest::prelude::*;

    fn rule(test: Test) -> Rule {
        Rule {
            test,
            captures: Vec::new(),
            answers: Vec::new(),
            meaning: Meaning::Protocol,
            count: None,
        }
    }

    /// `is`, `starts`, `json` and `hex` of a rule.
    type Asked = (
        Option<String>,
        Option<String>,
        Vec<(u8, Option<String>)>,
        Option<(u8, String)>,
    );

    fn test() -> impl Strategy<Value = Asked> {
        let text = "\\{\"a\":\"[xy]\"(,\"b\":\"[xy]\")?\\}";
        (
            prop::option::weighted(0.2, text),
            prop::option::weighted(0.2, "\\{\"a\":\"?"),
            prop::collection::vec((0_u8..2, prop::option::of("[xy]")), 0..3),
            prop::option::weighted(0.3, (0_u8..3, "[7?][b?]")),
        )
    }

    proptest! {
        #[test]
        fn the_first_is_the_first_of_all(
            tests in prop::collection::vec(test(), 0..12),
            message in "\\{\"a\":\"[xy]\"(,\"b\":\"[xy]\")?\\}",
        ) {
            let mut pointers = Pointers::default();
            let numbers = [pointers.add("/a"), pointers.add("/b")];
            let all: Vec<Rule> = tests
                .into_iter()
                .map(|(is, starts, values, mask)| {
                    let values = values.into_iter().map(|(at, wanted)| {
                        (numbers[usize::from(at)], wanted.map(Value::from))
                    });
                    rule(Test {
                        is: is.map(String::into_bytes),
                        starts: starts.map(String::into_bytes),
                        contains: None,
                        values: values.collect(),
                        masks: Vec::from_iter(
                            mask.map(|(at, digits)| Mask::new(&at.to_string(), &digits).unwrap()),
                        ),
                    })
                })
                .collect();
            let view = View::new(message.as_bytes(), false, &pointers);
            let expected = all.iter().position(|rule| rule.test.holds(&view));
            let rules = Rules::new(all);
            let found = rules.first(&view);
            let found = found.and_then(|found| rules.iter().position(|one| std::ptr::eq(one, found)));
            prop_assert_eq!(found, expected);
        }
    }
}
