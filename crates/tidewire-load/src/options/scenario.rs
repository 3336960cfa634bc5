//! Scenario files: several requests, weighted or in the order of a journey, with data from files.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::request::{BodyOptions, RequestFrame, RequestOptions, statuses};
use super::{OptionError, quantity};
use crate::worker::script::{Capture, CaptureFrom, Script, Step, StepOrder};
use crate::worker::template::{Feed, Names};

/// A scenario in the form of its file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// `weighted` or `journey`; weighted if any request has a weight, otherwise a journey.
    #[serde(default)]
    pub order: Option<ScenarioOrder>,
    /// Data files, by a name of the user's choice. Their columns are values of templates.
    #[serde(default)]
    pub data: BTreeMap<String, PathBuf>,
    /// The requests.
    #[serde(default, rename = "request")]
    pub requests: Vec<ScenarioRequest>,
}

/// The choice of the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScenarioOrder {
    /// At random, each by its weight.
    Weighted,
    /// One after the other, by the same user.
    Journey,
}

/// One request of a scenario.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScenarioRequest {
    name: Option<String>,
    method: Option<String>,
    path: Option<String>,
    headers: BTreeMap<String, String>,
    cookies: BTreeMap<String, String>,
    body: Option<String>,
    body_file: Option<PathBuf>,
    json: Option<serde_json::Value>,
    form: Option<BTreeMap<String, String>>,
    weight: Option<u64>,
    expect_status: Option<StatusText>,
    expect_body: Option<String>,
    expect_bytes: Option<u64>,
    capture: BTreeMap<String, String>,
    think: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum StatusText {
    Number(u16),
    Text(String),
}

impl Scenario {
    /// Reads a file: TOML, or JSON Lines with one request per line if its name ends in `.jsonl` or
    /// `.ndjson`.
    ///
    /// # Errors
    /// The file cannot be read, or is not a scenario: the message names the place and the reason.
    pub fn read(path: &Path) -> Result<Self, OptionError> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| OptionError::new(format_args!("cannot read {shown}: {error}")))?;
        let scenario = if has_ending(path, &["jsonl", "ndjson"]) {
            Self::of_lines(&text)
        } else {
            toml::from_str(&text).map_err(OptionError::new)
        };
        let scenario =
            scenario.map_err(|error| OptionError::new(format_args!("{shown}: {error}")))?;
        if scenario.requests.is_empty() {
            return Err(OptionError::new(format_args!(
                "{shown} has no request: write at least one [[request]]"
            )));
        }
        Ok(scenario.relative_to(path.parent().unwrap_or(Path::new("."))))
    }

    fn of_lines(text: &str) -> Result<Self, OptionError> {
        let lines = (1..)
            .zip(text.lines())
            .filter(|(_, line)| !line.trim().is_empty());
        let requests: Result<Vec<ScenarioRequest>, OptionError> = lines
            .map(|(number, line)| {
                serde_json::from_str(line)
                    .map_err(|error| OptionError::new(format_args!("line {number}: {error}")))
            })
            .collect();
        Ok(Self {
            requests: requests?,
            ..Self::default()
        })
    }

    /// Paths of files are relative to the folder of the scenario.
    fn relative_to(mut self, folder: &Path) -> Self {
        for path in self.data.values_mut() {
            *path = folder.join(&*path);
        }
        for request in &mut self.requests {
            if let Some(path) = &mut request.body_file {
                *path = folder.join(&*path);
            }
        }
        self
    }

    /// The script that users follow.
    ///
    /// # Errors
    /// A request, a template or a data file is wrong: the message names it and the reason.
    pub fn script(&self, frame: &RequestFrame<'_>) -> Result<Script, OptionError> {
        self.script_of(|options, names| options.step(frame, names))
    }

    /// The same for a WebSocket load: the bodies of the requests are the messages.
    ///
    /// # Errors
    /// A message, a template or a data file is wrong: the message names it and the reason.
    pub fn message_script(&self) -> Result<Script, OptionError> {
        self.script_of(RequestOptions::message_step)
    }

    fn script_of(
        &self,
        step_of: impl Fn(&RequestOptions, &Names) -> Result<Step, OptionError>,
    ) -> Result<Script, OptionError> {
        let feeds: Result<Vec<Feed>, OptionError> =
            self.data.values().map(|path| read_feed(path)).collect();
        let feeds = feeds?;
        let mut variables: Vec<String> = Vec::new();
        for name in self.requests.iter().flat_map(|one| one.capture.keys()) {
            if !variables.contains(name) {
                variables.push(name.clone());
            }
        }
        let names = Names {
            captured: variables.clone(),
            columns: feeds.iter().map(|feed| feed.columns.clone()).collect(),
            ..Names::default()
        };
        let mut steps = Vec::new();
        for (number, request) in (1..).zip(&self.requests) {
            let step = request
                .options(&variables)
                .and_then(|options| step_of(&options, &names));
            steps.push(step.map_err(|error| {
                let name = request.name.as_deref().unwrap_or_default();
                OptionError::new(format_args!("request {number} {name}: {error}"))
            })?);
        }
        Ok(Script {
            steps,
            order: self.step_order()?,
            feeds,
            variables,
        })
    }

    fn step_order(&self) -> Result<StepOrder, OptionError> {
        let has_weights = self.requests.iter().any(|one| one.weight.is_some());
        let order = self.order.unwrap_or(match has_weights {
            true => ScenarioOrder::Weighted,
            false => ScenarioOrder::Journey,
        });
        match order {
            ScenarioOrder::Journey if has_weights => Err(OptionError::new(
                "a journey has no weights: remove them, or write order = \"weighted\"",
            )),
            ScenarioOrder::Journey => Ok(StepOrder::InOrder),
            ScenarioOrder::Weighted => {
                let mut sum = 0u64;
                let sums: Vec<u64> = self
                    .requests
                    .iter()
                    .map(|one| {
                        sum = sum.saturating_add(one.weight.unwrap_or(1));
                        sum
                    })
                    .collect();
                match sum {
                    0 => Err(OptionError::new("all weights are 0")),
                    _ => Ok(StepOrder::Weighted(sums)),
                }
            }
        }
    }
}

impl ScenarioRequest {
    fn options(&self, variables: &[String]) -> Result<RequestOptions, OptionError> {
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
        let bodies = [
            self.body
                .clone()
                .map(|text| BodyOptions::Bytes(text.into_bytes())),
            self.body_file.clone().map(BodyOptions::File),
            self.json
                .as_ref()
                .map(|json| BodyOptions::Json(json.to_string())),
            form,
        ];
        let mut given = bodies.into_iter().flatten();
        let body = given.next();
        match given.next() {
            Some(_) => Err(OptionError::new(
                "the request has several bodies: give one of body, body_file, json and form",
            )),
            None => Ok(body),
        }
    }

    fn captures(&self, variables: &[String]) -> Result<Vec<Capture>, OptionError> {
        let captures = self.capture.iter().map(|(name, from)| {
            let from = match from.split_once(':') {
                Some(("header", header)) => CaptureFrom::Header(header.trim().to_owned()),
                Some(("json", pointer)) if pointer.is_empty() || pointer.starts_with('/') => {
                    CaptureFrom::Json(pointer.to_owned())
                }
                _ => {
                    return Err(OptionError::new(format_args!(
                        "the capture `{name}` comes from `{from}`: write header:Location or json:/a/b"
                    )));
                }
            };
            let variable = variables.iter().position(|other| other == name);
            Ok(Capture {
                variable: variable.unwrap_or(0),
                from,
            })
        });
        captures.collect()
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

/// Reads a data file: CSV with the columns' names in its first line, or JSON Lines with one object
/// per line.
fn read_feed(path: &Path) -> Result<Feed, OptionError> {
    let wrong = |error: &dyn std::fmt::Display| {
        OptionError::new(format_args!("{}: {error}", path.display()))
    };
    let feed = if has_ending(path, &["jsonl", "ndjson"]) {
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
        feed_of_lines(&text).map_err(|error| wrong(&error))?
    } else {
        feed_of_csv(path).map_err(|error| wrong(&error))?
    };
    match feed.rows.is_empty() {
        true => Err(wrong(&"it has no row")),
        false => Ok(feed),
    }
}

fn feed_of_csv(path: &Path) -> Result<Feed, csv::Error> {
    let mut reader = csv::Reader::from_path(path)?;
    let columns = reader.headers()?.iter().map(|name| name.trim().to_owned());
    let columns = columns.collect();
    let rows = reader.byte_records().map(|record| {
        let values: Vec<Vec<u8>> = record?.iter().map(<[u8]>::to_vec).collect();
        Ok::<_, csv::Error>(values)
    });
    Ok(Feed {
        columns,
        rows: rows.collect::<Result<_, _>>()?,
    })
}

fn feed_of_lines(text: &str) -> Result<Feed, String> {
    let mut feed = Feed::default();
    let lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty());
    for (number, line) in lines {
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
        if feed.columns.is_empty() {
            feed.columns = object.keys().cloned().collect();
        }
        let value = |column: &String| match object.get(column) {
            None | Some(serde_json::Value::Null) => Err(format!("line {number}: no `{column}`")),
            Some(serde_json::Value::String(text)) => Ok(text.clone().into_bytes()),
            Some(other) => Ok(other.to_string().into_bytes()),
        };
        let row: Result<Vec<Vec<u8>>, String> = feed.columns.iter().map(value).collect();
        feed.rows.push(row?);
    }
    Ok(feed)
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| endings.contains(&ending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::script::Encoded;

    fn frame() -> RequestFrame<'static> {
        RequestFrame {
            host: "h",
            path: "/",
            prefix: "",
            keeps_alive: true,
            headers: &[],
            accepts_encoded: false,
        }
    }

    fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn a_journey_in_toml_captures_and_uses_values() {
        let (folder, path) = file(
            "shop.toml",
            r#"
            data = { people = "people.csv" }
            [[request]]
            name = "log in"
            path = "/login"
            json = { user = "{{name}}" }
            capture = { token = "json:/token" }
            think = "10ms..20ms"
            [[request]]
            path = "/me"
            headers = { Authorization = "Bearer {{token}}" }
            expect_status = 200
            "#,
        );
        std::fs::write(
            folder.path().join("people.csv"),
            "name,age\nAda,36\n\"B, b\",1\n",
        )
        .unwrap();
        let script = Scenario::read(&path).unwrap().script(&frame()).unwrap();
        assert!(script.is_journey());
        assert_eq!(script.variables, ["token"]);
        assert_eq!(script.feeds[0].rows[1][0], b"B, b");
        assert_eq!(script.steps[0].name, "log in");
        assert!(matches!(script.steps[1].request, Encoded::Patched { .. }));
        assert_eq!(script.steps[1].checks.statuses, [200..=200]);
    }

    #[test]
    fn json_lines_have_a_request_each() {
        let (_folder, path) = file(
            "mix.jsonl",
            "{\"path\":\"/a\",\"weight\":3}\n\n{\"path\":\"/b\",\"weight\":1}\n",
        );
        let script = Scenario::read(&path).unwrap().script(&frame()).unwrap();
        assert_eq!(script.order, StepOrder::Weighted(vec![3, 4]));
    }

    #[test]
    fn a_wrong_scenario_says_where_and_what() {
        let error = |name: &str, text: &str| {
            let (_folder, path) = file(name, text);
            let scenario = Scenario::read(&path);
            let script = scenario.and_then(|scenario| scenario.script(&frame()));
            script.unwrap_err().to_string()
        };
        let cases = [
            ("a.toml", "", "no request"),
            ("a.toml", "[[request]]\npth = \"/\"", "unknown field `pth`"),
            (
                "a.toml",
                "[[request]]\npath = \"/{{x}}\"",
                "request 1 : `{{x}}` stands for nothing",
            ),
            (
                "a.toml",
                "[[request]]\nbody = \"a\"\njson = 1",
                "several bodies",
            ),
            (
                "a.toml",
                "order = \"journey\"\n[[request]]\nweight = 1",
                "no weights",
            ),
            (
                "a.toml",
                "[[request]]\ncapture = { a = \"x\" }",
                "header:Location or json:/a/b",
            ),
            (
                "a.toml",
                "[[request]]\nthink = \"3s..1s\"",
                "less than the first",
            ),
            (
                "a.toml",
                "data = { d = \"none.csv\" }\n[[request]]",
                "none.csv",
            ),
            ("a.jsonl", "{\"path\":\"/\"}\nnope", "line 2"),
        ];
        for (name, text, expected) in cases {
            let error = error(name, text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn data_may_be_json_lines() {
        let feed = feed_of_lines("{\"id\":1,\"n\":\"x\"}\n{\"n\":\"y\",\"id\":2}\n").unwrap();
        let id = feed.columns.iter().position(|c| c == "id").unwrap();
        assert_eq!(feed.rows[1][id], b"2");
        let error = feed_of_lines("{\"id\":1}\n{\"n\":2}").unwrap_err();
        assert!(error.contains("line 2: no `id`"), "{error}");
    }
}
