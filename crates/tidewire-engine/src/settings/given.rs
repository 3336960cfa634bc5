//! Options as they were given: by flags, variables, a file or keywords, the strongest source for each.

use super::given_rule::GivenRule;
use super::lookup::{names, nearest, option, spelled};
use super::origin::{Origin, unusable};
use super::spec::{Kind, OptionSpec, Way};
use super::table::OPTIONS;
use super::value::{self, Checked};
use super::{SettingError, rules};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use tidewire_net::io_words;

/// The options that were given, each with its source.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How options are spelled that were not given.
    way: Way,
    pub(super) given: BTreeMap<&'static str, Given>,
    pub(super) rules: Vec<GivenRule>,
}

#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) spec: &'static OptionSpec,
    pub(super) value: Checked,
    origin: Origin,
}

impl Settings {
    /// No settings yet. Errors about options that were not given spell them as in `way`.
    #[must_use]
    pub fn new(way: Way) -> Self {
        Self {
            way,
            given: BTreeMap::new(),
            rules: Vec::new(),
        }
    }

    /// The keyword arguments of a binding, as JSON; `null` counts as not given.
    ///
    /// # Errors
    /// [`SettingError`] of the first option that is unknown or has a wrong value.
    pub fn from_keywords(keywords: &Map<String, Value>) -> Result<Self, SettingError> {
        let mut settings = Self::new(Way::Keyword);
        let given = || keywords.iter().filter(|(_, value)| !value.is_null());
        for (name, _) in given() {
            if option(name, Way::Keyword).is_none() {
                return Err(unknown(Origin::of(Way::Keyword), name));
            }
        }
        for (name, value) in given() {
            settings.set(Origin::of(Way::Keyword), name, value)?;
        }
        Ok(settings)
    }

    /// Gives one option. A value from a weaker source than the one that is there is checked and then ignored.
    ///
    /// # Errors
    /// [`SettingError`] if there is no such option in this way, or its value cannot be used.
    pub fn set(&mut self, origin: Origin, name: &str, value: &Value) -> Result<(), SettingError> {
        let Some(spec) = option(name, origin.way) else {
            return Err(unknown(origin, name));
        };
        if spec.kind == Kind::Rules {
            self.rules = rules::read(spec, &origin, value)?;
            return Ok(());
        }
        let checked = value::check(spec, value, origin.is_text())
            .map_err(|error| unusable(origin.label(&spec.spelled(origin.way)), error))?;
        let is_stronger = |known: &Given| known.origin.way <= origin.way;
        if self.given.get(spec.name).is_none_or(is_stronger) {
            let value = checked;
            self.given.insert(
                spec.name,
                Given {
                    spec,
                    value,
                    origin,
                },
            );
        }
        Ok(())
    }

    /// Adds a rule of topics whose keys have places of their own.
    ///
    /// # Errors
    /// [`SettingError`] if a key is unknown, has a wrong value or needs another.
    pub fn add_rule(
        &mut self,
        origin: &Origin,
        keys: &[(String, Value, Origin)],
    ) -> Result<(), SettingError> {
        let rule = rules::rule(origin, keys)?;
        self.rules.push(GivenRule::new(origin, rule));
        Ok(())
    }

    /// How options are spelled that were not given.
    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// The rules of topics in detail.
    pub(super) fn rules(&self) -> &[GivenRule] {
        &self.rules
    }

    /// Whether an option was given.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Whether an option was given, other than as `false`.
    pub(super) fn is_given(&self, name: &str) -> bool {
        let given = self.given.get(name);
        given.is_some_and(|given| given.value != Checked::Boolean(false))
    }

    /// A whole number: the one given, or the default of the table.
    pub fn integer(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            Checked::Integer(number) => Some(number),
            _ => None,
        }
    }

    /// Whether a switch is on.
    pub fn flag(&self, name: &str) -> bool {
        self.value(name) == Some(Checked::Boolean(true))
    }

    /// A text, choice, path or address: the one given, or the default of the table.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.value(name)? {
            Checked::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A list, if it was given.
    pub(super) fn texts(&self, name: &str) -> Option<Vec<String>> {
        match &self.given.get(name)?.value {
            Checked::List(items) => Some(items.clone()),
            _ => None,
        }
    }

    /// Patterns with numbers; none if none were given.
    pub(super) fn counts(&self, name: &str) -> Vec<(String, usize)> {
        match self.given.get(name).map(|given| &given.value) {
            Some(Checked::Counts(counts)) => counts.clone(),
            _ => Vec::new(),
        }
    }

    /// The bytes of a file whose path was given.
    pub(super) fn file(&self, name: &str) -> Result<Option<Vec<u8>>, SettingError> {
        let Some(path) = self.text(name) else {
            return Ok(None);
        };
        let bytes = fs::read(&path).map_err(|error| {
            self.wrong(name, format!("cannot read {path}: {}", io_words(&error)))
        })?;
        Ok(Some(bytes))
    }

    /// The same of a file with a secret; a line feed at its end does not count.
    pub(super) fn secret_file(&self, name: &str) -> Result<Option<Vec<u8>>, SettingError> {
        let mut secret = self.file(name)?;
        if let Some(secret) = &mut secret {
            while matches!(secret.last(), Some(b'\n' | b'\r')) {
                secret.pop();
            }
        }
        Ok(secret)
    }

    /// Of options that exclude each other, the one from the strongest source; `None` if none is given.
    ///
    /// # Errors
    /// Two options have the same source.
    pub(super) fn strongest(
        &self,
        names: &[&'static str],
    ) -> Result<Option<&'static str>, SettingError> {
        let way = |name: &str| self.given.get(name).map(|given| given.origin.way);
        let given = names.iter().copied().filter(|name| self.is_given(name));
        let mut best: Option<&'static str> = None;
        for name in given {
            match best {
                Some(other) if way(other) == way(name) => {
                    return Err(SettingError::Conflict {
                        one: self.label(other),
                        other: self.label(name),
                    });
                }
                Some(other) if way(other) > way(name) => {}
                _ => best = Some(name),
            }
        }
        Ok(best)
    }

    /// An error about an option: `problem` may name others in backticks.
    pub fn wrong(&self, name: &str, problem: impl AsRef<str>) -> SettingError {
        let problem = spelled(problem.as_ref(), self.way);
        SettingError::Value {
            option: self.label(name),
            value: None,
            problem,
        }
    }

    /// An error about the key that is missing.
    pub(super) fn no_key(&self, advice: &str) -> SettingError {
        SettingError::NoKey {
            option: self.label("jwt_secret"),
            advice: spelled(advice, self.way),
        }
    }

    /// The options that were given, in the order of the table: the name of each, its value unless it is a secret, and
    /// where it was given.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, String, String)> {
        OPTIONS.iter().filter_map(|spec| {
            let given = self.given.get(spec.name)?;
            let value = match spec.kind {
                Kind::Secret => "(secret)".to_owned(),
                _ => without_query(given.value.shown()),
            };
            Some((spec.name, value, self.label(spec.name)))
        })
    }

    /// An option where it was given, or its name in the way of these settings.
    pub(super) fn label(&self, name: &str) -> String {
        match self.given.get(name) {
            Some(Given { spec, origin, .. }) => origin.label(&spec.spelled(origin.way)),
            None => option(name, self.way)
                .map_or_else(|| name.to_owned(), |spec| spec.spelled(self.way)),
        }
    }

    pub(super) fn value(&self, name: &str) -> Option<Checked> {
        if let Some(given) = self.given.get(name) {
            return Some(given.value.clone());
        }
        let spec = OPTIONS.iter().find(|option| option.name == name)?;
        let default = Value::String(spec.default?.to_owned());
        value::check(spec, &default, true).ok()
    }
}

fn unknown(origin: Origin, name: &str) -> SettingError {
    let way = origin.way;
    let spelled = |name| option(name, way).map(|option| option.spelled(way));
    SettingError::Unknown {
        option: origin.label("unknown option ") + name,
        nearest: nearest(name, names(way)).and_then(spelled),
    }
}
/// A URL without its query, in which some services expect a token.
fn without_query(shown: String) -> String {
    match shown.split_once('?') {
        Some((before, _)) if before.contains("://") => format!("{before}?(secret)"),
        _ => shown,
    }
}
