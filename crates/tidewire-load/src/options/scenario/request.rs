//! A request in a scenario, in the form of its file.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::options::body::{BodyOptions, PartContent, PartOptions};
use crate::options::matching::regex;
use crate::options::request::{RequestOptions, statuses};
use crate::options::{OptionError, quantity};
use crate::worker::kinds::{Comparison, Condition, Repeat};
use crate::worker::pointer::is_pointer;
use crate::worker::script::{Capture, CaptureFrom};
use crate::worker::template::{Escape, Names, Template};

/// One request of a scenario.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ScenarioRequest {
    pub(super) name: Option<String>,
    /// The name of another server than that of the URL.
    pub(super) host: Option<String>,
    method: Option<String>,
    path: Option<String>,
    headers: BTreeMap<String, String>,
    cookies: BTreeMap<String, String>,
    body: Option<String>,
    body_file: Option<PathBuf>,
    json: Option<serde_json::Value>,
    form: Option<BTreeMap<String, String>>,
    multipart: Option<Vec<ScenarioPart>>,
    basic_auth: Option<String>,
    pub(super) weight: Option<u64>,
    expect_status: Option<StatusText>,
    expect_body: Option<String>,
    expect_bytes: Option<u64>,
    pub(super) capture: BTreeMap<String, CaptureText>,
    think: Option<String>,
    when: Option<String>,
    repeat: Option<RepeatText>,
    r#while: Option<String>,
}

/// A part of a body of several parts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioPart {
    name: String,
    value: Option<String>,
    file: Option<PathBuf>,
    filename: Option<String>,
    r#type: Option<String>,
}

/// A value to capture: its place, or also what it is if nothing is there.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum CaptureText {
    From(String),
    Table(CaptureTable),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaptureTable {
    from: String,
    default: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum RepeatText {
    Number(u32),
    Text(String),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum StatusText {
    Number(u16),
    Text(String),
}

impl ScenarioRequest {
    pub(super) fn options(&self, variables: &[String]) -> Result<RequestOptions, OptionError> {
        let owned = |map: &BTreeMap<String, String>| -> Vec<(String, String)> {
            map.iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect()
        };
        Ok(RequestOptions {
            name: self.name.clone(),
            method: self.method.clone(),
            path: self.path.clone(),
            headers: owned(&self.headers),
            cookies: owned(&self.cookies),
            body: self.body_options()?,
            credentials: self.basic_auth.clone(),
            statuses: match &self.expect_status {
                None => None,
                Some(StatusText::Number(number)) => Some(statuses(&number.to_string())?),
                Some(StatusText::Text(text)) => Some(statuses(text)?),
            },
            body_contains: self.expect_body.clone(),
            body_bytes: self.expect_bytes,
            captures: self.captures(variables)?,
            think: self.think.as_deref().map(think).transpose()?,
        })
    }

    fn body_options(&self) -> Result<Option<BodyOptions>, OptionError> {
        let form = self.form.as_ref().map(|fields| {
            let fields = fields.iter();
            BodyOptions::Form(fields.map(|(n, v)| (n.clone(), v.clone())).collect())
        });
        let parts = self.multipart.as_deref().map(parts).transpose()?;
        let parts = parts.map(BodyOptions::Multipart);
        let bodies = [
            self.body
                .clone()
                .map(|text| BodyOptions::Bytes(text.into_bytes())),
            self.body_file.clone().map(BodyOptions::File),
            self.json
                .as_ref()
                .map(|json| BodyOptions::Json(json.to_string())),
            form,
            parts,
        ];
        let mut given = bodies.into_iter().flatten();
        let body = given.next();
        match given.next() {
            Some(_) => Err(OptionError::new(
                "the request has several bodies: give one of body, body_file, json, form and multipart",
            )),
            None => Ok(body),
        }
    }

    fn captures(&self, variables: &[String]) -> Result<Vec<Capture>, OptionError> {
        let captures = self.capture.iter().map(|(name, text)| {
            let (from, default) = match text {
                CaptureText::From(from) => (from, None),
                CaptureText::Table(table) => (&table.from, table.default.clone()),
            };
            let variable = variables.iter().position(|other| other == name);
            Ok(Capture {
                variable: variable.unwrap_or(0),
                from: capture_from(from).map_err(|error| {
                    OptionError::new(format_args!("the capture `{name}`: {error}"))
                })?,
                default: default.map(String::into_bytes),
            })
        });
        captures.collect()
    }

    /// The condition on which it is sent, and how often in a row.
    pub(super) fn conditions(&self, names: &Names) -> Result<Conditions, OptionError> {
        let when = self.when.as_deref().map(|text| condition(text, names));
        let repeat = match (&self.repeat, &self.r#while) {
            (Some(_), Some(_)) => {
                return Err(OptionError::new(
                    "`repeat` and `while` exclude each other: give one of them",
                ));
            }
            (None, None) => None,
            (None, Some(text)) => Some(Repeat::While(condition(text, names)?)),
            (Some(RepeatText::Number(times)), None) => Some(Repeat::Times(*times..=*times)),
            (Some(RepeatText::Text(text)), None) => Some(Repeat::Times(times(text)?)),
        };
        Ok((when.transpose()?, repeat))
    }

    /// Whether it is sent on a condition, or several times in a row.
    pub(super) fn has_conditions(&self) -> bool {
        self.when.is_some() || self.repeat.is_some() || self.r#while.is_some()
    }

    /// Its files.
    pub(super) fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let parts = self.multipart.iter_mut().flatten();
        let files = parts.filter_map(|part| part.file.as_mut());
        self.body_file.iter_mut().chain(files)
    }
}

/// The condition on which a step is sent, and how often in a row.
pub(super) type Conditions = (Option<Condition>, Option<Repeat>);

fn parts(parts: &[ScenarioPart]) -> Result<Vec<PartOptions>, OptionError> {
    let parts = parts.iter().map(|part| {
        let content = match (&part.value, &part.file) {
            (Some(value), None) => PartContent::Text(value.clone()),
            (None, Some(path)) => PartContent::File(path.clone()),
            _ => {
                return Err(OptionError::new(format_args!(
                    "the part `{}` needs either a value or a file",
                    part.name
                )));
            }
        };
        Ok(PartOptions {
            name: part.name.clone(),
            content,
            filename: part.filename.clone(),
            content_type: part.r#type.clone(),
        })
    });
    parts.collect()
}

/// The place of a captured value.
fn capture_from(text: &str) -> Result<CaptureFrom, OptionError> {
    let place = text.split_once(':').map(|(kind, place)| match kind {
        "regex" | "json" => (kind, place),
        _ => (kind, place.trim()),
    });
    match place {
        Some(("header", name)) if !name.is_empty() => Ok(CaptureFrom::Header(name.to_owned())),
        Some(("cookie", name)) if !name.is_empty() => Ok(CaptureFrom::Cookie(name.to_owned())),
        Some(("form", name)) if !name.is_empty() => Ok(CaptureFrom::Form(name.to_owned())),
        Some(("json", pointer)) if is_pointer(pointer) => Ok(CaptureFrom::Json(pointer.to_owned())),
        Some(("regex", pattern)) if !pattern.is_empty() => Ok(CaptureFrom::Regex(regex(pattern)?)),
        _ => Err(OptionError::new(format_args!(
            "it comes from `{text}`: write header:Location, cookie:session, json:/a/b, form:csrf_token or \
             regex:id=(\\d+)"
        ))),
    }
}

/// A condition: `{{a}}` if it must not be empty, or a comparison such as `{{a}} == b` and `{{a}} < 5`.
///
/// # Errors
/// A side is a wrong template, or names a value that belongs to a request.
fn condition(text: &str, names: &Names) -> Result<Condition, OptionError> {
    let wrong = |error: &dyn std::fmt::Display| {
        OptionError::new(format_args!("the condition `{text}`: {error}"))
    };
    let side = |text: &str| {
        let side = Template::of(text.trim().as_bytes(), names, Escape::None);
        side.map_err(|error| wrong(&error))
    };
    let condition = match comparison(text) {
        None => Condition {
            left: side(text)?,
            right: None,
        },
        Some((left, comparison, right)) => Condition {
            left: side(left)?,
            right: Some((comparison, side(right)?)),
        },
    };
    match condition.value_of_a_request() {
        Some(name) => Err(wrong(&format_args!(
            "`{{{{{name}}}}}` belongs to a request: compare variables, columns, user or rand"
        ))),
        None => Ok(condition),
    }
}

/// The first comparison outside of values, with both sides.
fn comparison(text: &str) -> Option<(&str, Comparison, &str)> {
    let mut inside = false;
    for (at, _) in text.char_indices() {
        let rest = &text[at..];
        inside = (inside || rest.starts_with("{{")) && !rest.starts_with("}}");
        let mut all = Comparison::ALL.iter();
        let found = all.find(|(sign, _)| !inside && rest.starts_with(sign));
        if let Some((sign, comparison)) = found {
            return Some((&text[..at], *comparison, &rest[sign.len()..]));
        }
    }
    None
}

/// A number of times: `3`, or `2..5` for one drawn between the two.
fn times(text: &str) -> Result<RangeInclusive<u32>, OptionError> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u32>().ok();
    match (number(from), number(to)) {
        (Some(from), Some(to)) if from <= to => Ok(from..=to),
        _ => Err(OptionError::new(format_args!(
            "`{text}` is not a number of times: write 3, or 2..5 for a number drawn between the two"
        ))),
    }
}

/// A time to think: `1s`, or `1s..3s` for one drawn between the two.
///
/// # Errors
/// The text is not a time, or the second time is less than the first.
pub fn think(text: &str) -> Result<RangeInclusive<Duration>, OptionError> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let (from, to) = (quantity::duration(from)?, quantity::duration(to)?);
    if from > to {
        return Err(OptionError::new(format_args!(
            "`{text}`: the second time is less than the first: exchange them"
        )));
    }
    Ok(from..=to)
}
