//! The form of the table of options, and the values of its kinds as text.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::{Value, json};

use super::OptionError;
use super::matching::matching;
use super::quantity;
use super::request::{header, pair, statuses};
use crate::accounting::precision::Precision;
use crate::verdict::expectation::Expectation;

/// One option of a load.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// The name, such as `rate_per_s`.
    pub name: &'static str,
    /// The name of its group.
    pub group: &'static str,
    /// The values that it accepts.
    pub kind: Kind,
    /// The placeholder for the value in a help text, such as `MS`.
    pub placeholder: &'static str,
    /// The default in words; empty for none, and for false.
    pub default: &'static str,
    /// The effect of the option, with the flags of other options.
    pub help: &'static str,
    /// Its flag, without the dashes, if `tidewire load` has one.
    pub flag: Option<&'static str>,
    /// The letter of its flag.
    pub short: Option<char>,
    /// The options that it needs.
    pub needs: &'static [&'static str],
    /// The options that cannot be given beside it.
    pub excludes: &'static [&'static str],
    /// True if Python and Node have an option of this name.
    pub keyword: bool,
}

/// The values that an option accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number in a range, both ends included.
    Integer {
        /// The smallest value.
        smallest: u64,
        /// The largest value.
        largest: u64,
    },
    /// Any number from 0 on.
    Number,
    /// A time in seconds.
    Seconds,
    /// True or false; the value without the option.
    Boolean(bool),
    /// One of some words.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// Times with numbers, such as `10s:1k,30s:5k`.
    Stages,
    /// Statuses of HTTP, such as `2xx,404`.
    Statuses,
    /// A figure and a share of it, such as `p99:5%`.
    Precision,
    /// The confirmation of a message.
    Reply,
    /// Names, each with a text.
    Texts,
    /// Headers of HTTP.
    Headers,
    /// Texts.
    List,
    /// Expectations of figures.
    Expectations,
    /// Addresses of IP.
    Addresses,
}

impl Kind {
    /// True if an option of this kind is a list. Its flag then gives one item.
    #[must_use]
    pub fn is_list(self) -> bool {
        matches!(
            self,
            Self::Texts | Self::Headers | Self::List | Self::Expectations | Self::Addresses
        )
    }

    /// The value that a text means on a command line, in the form of [`LoadOptions::from_values`]; of a list one item.
    ///
    /// [`LoadOptions::from_values`]: super::load::LoadOptions::from_values
    ///
    /// # Errors
    /// It is no value of this kind.
    pub fn read(self, text: &str) -> Result<Value, OptionError> {
        let valid = |checked: Result<(), OptionError>| checked.map(|()| json!(text));
        match self {
            Self::Integer { smallest, largest } => {
                let number = text.parse().or_else(|_| quantity::count(text)).ok();
                Ok(json!(in_range(number, smallest, largest)?))
            }
            Self::Number => Ok(json!(quantity::number(text)?)),
            Self::Seconds => Ok(json!(quantity::duration(text)?.as_secs_f64())),
            Self::Boolean(_) | Self::Choice(_) | Self::Text | Self::List => Ok(json!(text)),
            Self::Stages => valid(quantity::stages(text).map(drop)),
            Self::Statuses => valid(statuses(text).map(drop)),
            Self::Precision => {
                let checked = text.parse::<Precision>();
                valid(checked.map(drop).map_err(OptionError::new))
            }
            Self::Reply => valid(matching(text).map(drop)),
            Self::Texts => Ok(json!(pair(text)?)),
            Self::Headers => Ok(json!(header(text)?)),
            Self::Expectations => {
                let checked = text.parse::<Expectation>();
                valid(checked.map(drop).map_err(OptionError::new))
            }
            Self::Addresses => valid(address(text).map(drop)),
        }
    }
}

/// A whole number, if there is one, and in this range.
pub(super) fn in_range(
    number: Option<u64>,
    smallest: u64,
    largest: u64,
) -> Result<u64, OptionError> {
    let number = number.filter(|number| (smallest..=largest).contains(number));
    number.ok_or_else(|| match largest {
        u64::MAX => OptionError::new(format_args!("expected a whole number from {smallest}")),
        _ => OptionError::new(format_args!(
            "expected a whole number from {smallest} to {largest}"
        )),
    })
}

pub(super) fn address(text: &str) -> Result<IpAddr, OptionError> {
    text.parse()
        .map_err(|_| OptionError::new(format_args!("`{text}` is not an address of IP")))
}

/// Names with texts: a map, or a list of pairs, where a name may occur twice.
#[derive(Debug, Clone, Default)]
pub(super) struct Pairs(pub(super) Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Pairs;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("names with texts")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = list.next_element()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// A list of texts, or one text.
#[derive(Debug, Clone, Default)]
pub(super) struct Texts(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Texts;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts(vec![text.to_owned()]))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}
