//! Scenario files: the requests of users, in the order of a journey or weighted, with data from files.

mod data;
mod hosts;
mod request;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;

use super::conversation::Envelope;
use super::request::RequestFrame;
use super::{OptionError, distinct};
use crate::worker::inputs;
use crate::worker::kinds::{Kind, StepOrder};
use crate::worker::script::{Script, Step};
use crate::worker::template::{Feed, Names};
use data::{DataFile, has_ending};
pub(super) use hosts::Host;
use hosts::HostText;
use request::ScenarioRequest;
pub use request::think;

/// A scenario in the form of its file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Data files, by a name of the user's choice. Their columns are values of templates.
    data: BTreeMap<String, DataFile>,
    /// Other servers than that of the URL, by the names that requests use.
    hosts: BTreeMap<String, HostText>,
    order: Option<ScenarioOrder>,
    /// The requests that each user sends once, before all others.
    setup: Vec<ScenarioRequest>,
    #[serde(rename = "request")]
    requests: Vec<ScenarioRequest>,
    /// The requests that each user sends once, when the load is over.
    teardown: Vec<ScenarioRequest>,
    /// Kinds of users, instead of `request`. After reading there is at least one.
    #[serde(rename = "user")]
    kinds: Vec<UserKind>,
}

/// A kind of user.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct UserKind {
    /// Empty if all users are of one kind.
    name: String,
    weight: Option<u64>,
    order: Option<ScenarioOrder>,
    #[serde(default)]
    setup: Vec<ScenarioRequest>,
    #[serde(default, rename = "request")]
    requests: Vec<ScenarioRequest>,
    #[serde(default)]
    teardown: Vec<ScenarioRequest>,
}

/// The choice of the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScenarioOrder {
    /// At random, each by its weight.
    Weighted,
    /// One after the other, by the same user.
    Journey,
}

impl Scenario {
    /// Reads a file: TOML, or JSON Lines with one request per line if its name ends in `.jsonl` or
    /// `.ndjson`.
    ///
    /// # Errors
    /// The file cannot be read, or is not a scenario: the message names the place and the reason.
    pub fn read(path: &Path) -> Result<Self, OptionError> {
        let shown = path.display();
        let text =
            inputs::read_to_string(path).map_err(|error| OptionError::unreadable(path, &error))?;
        let scenario = if has_ending(path, &["jsonl", "ndjson"]) {
            Self::of_lines(&text)
        } else {
            toml::from_str(&text).map_err(OptionError::new)
        };
        let checked = scenario.and_then(|scenario| scenario.check().map(|()| scenario));
        let mut scenario =
            checked.map_err(|error| OptionError::new(format_args!("{shown}: {error}")))?;
        if scenario.kinds.is_empty() {
            scenario.kinds.push(UserKind {
                order: scenario.order.take(),
                requests: std::mem::take(&mut scenario.requests),
                ..UserKind::default()
            });
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

    fn check(&self) -> Result<(), OptionError> {
        if !self.kinds.is_empty() && (!self.requests.is_empty() || self.order.is_some()) {
            return Err(OptionError::new(
                "`request` and `order` belong to a [[user]] if there are kinds of users: move them",
            ));
        }
        if self.kinds.is_empty() && self.requests.is_empty() {
            return Err(OptionError::new(
                "there is no request: write at least one [[request]]",
            ));
        }
        if !self.kinds.is_empty() && self.kinds.iter().all(|kind| kind.weight == Some(0)) {
            return Err(OptionError::new("all kinds of users have the weight 0"));
        }
        match self.kinds.iter().find(|kind| kind.requests.is_empty()) {
            Some(kind) => Err(OptionError::new(format_args!(
                "the user `{}` has no request: write at least one [[user.request]]",
                kind.name
            ))),
            None => Ok(()),
        }
    }

    /// Paths of files are relative to the folder of the scenario.
    fn relative_to(mut self, folder: &Path) -> Self {
        let lists = [&mut self.setup, &mut self.teardown];
        let of_kinds = self
            .kinds
            .iter_mut()
            .flat_map(|kind| [&mut kind.setup, &mut kind.requests, &mut kind.teardown]);
        let requests = lists.into_iter().chain(of_kinds).flatten();
        let files = requests.flat_map(ScenarioRequest::paths_mut);
        for path in self.data.values_mut().map(DataFile::path_mut).chain(files) {
            *path = folder.join(&*path);
        }
        self
    }

    /// The script that users follow, with the frames of the server of the URL and of [`Scenario::hosts`]. Its texts may
    /// use these values, too.
    ///
    /// # Errors
    /// A request, a message, a template or a data file is wrong: the message names it and the reason.
    pub fn script(&self, frames: &[StepFrame<'_>], names: Names) -> Result<Script, OptionError> {
        let feeds: Result<Vec<Feed>, OptionError> =
            self.data.values().map(DataFile::read).collect();
        let feeds = feeds?;
        let variables = distinct(names.captured.iter().chain(&self.captured()));
        let names = Names {
            captured: variables.clone(),
            columns: feeds.iter().map(|feed| feed.columns.clone()).collect(),
            ..names
        };
        let mut writer = Writer {
            names,
            hosts: self.hosts.keys().map(String::as_str).collect(),
            frames,
            steps: Vec::new(),
        };
        let mut kinds = Vec::new();
        for kind in &self.kinds {
            let of_all = writer.add("setup", &kind.name, &self.setup)?;
            let own = writer.add("setup", &kind.name, &kind.setup)?;
            let steps = writer.add("request", &kind.name, &kind.requests)?;
            let teardown = writer.add("teardown", &kind.name, &kind.teardown)?;
            let last = writer.add("teardown", &kind.name, &self.teardown)?;
            kinds.push(Kind {
                weight: kind.weight.unwrap_or(1),
                setup: of_all.start..own.end,
                steps,
                order: order_of(kind.order, &kind.requests)
                    .map_err(|error| of_user(&kind.name, &error))?,
                teardown: teardown.start..last.end,
            });
        }
        Ok(Script {
            steps: writer.steps,
            kinds,
            feeds,
            variables,
        })
    }

    /// The other servers, in the order of their names.
    ///
    /// # Errors
    /// A URL is wrong, or no request goes there.
    pub(super) fn hosts(&self) -> Result<Vec<Host<'_>>, OptionError> {
        let is_named = |name: &str| self.requests().any(|one| one.host.as_deref() == Some(name));
        hosts::hosts(&self.hosts, is_named)
    }

    /// The names of the variables that its requests capture.
    pub(super) fn captured(&self) -> Vec<String> {
        distinct(self.requests().flat_map(|one| one.capture.keys()))
    }

    /// All requests.
    fn requests(&self) -> impl Iterator<Item = &ScenarioRequest> {
        let lists = [&self.setup, &self.teardown];
        let of_kinds = self
            .kinds
            .iter()
            .flat_map(|kind| [&kind.setup, &kind.requests, &kind.teardown]);
        lists.into_iter().chain(of_kinds).flatten()
    }
}

/// The parts that all steps of a server share.
#[derive(Debug)]
pub enum StepFrame<'a> {
    /// Requests.
    Http(RequestFrame<'a>),
    /// Messages, and what surrounds each of them.
    Messages(Envelope),
}

/// Translates requests into steps.
struct Writer<'a> {
    names: Names,
    /// The names of the servers of all frames but the first.
    hosts: Vec<&'a str>,
    frames: &'a [StepFrame<'a>],
    steps: Vec<Step>,
}

impl Writer<'_> {
    /// Adds the steps of a list of requests. A report names those of a kind of user with its name before theirs.
    fn add(
        &mut self,
        list: &str,
        kind: &str,
        requests: &[ScenarioRequest],
    ) -> Result<Range<usize>, OptionError> {
        let start = self.steps.len();
        for (number, request) in (1..).zip(requests) {
            let mut step = self.step(request, list).map_err(|error| {
                let name = request.name.as_deref().unwrap_or_default();
                of_user(kind, &format_args!("{list} {number} {name}: {error}"))
            })?;
            if !kind.is_empty() {
                step.name = format!("{kind}: {}", step.name);
            }
            self.steps.push(step);
        }
        Ok(start..self.steps.len())
    }

    fn step(&self, request: &ScenarioRequest, list: &str) -> Result<Step, OptionError> {
        if list != "request" && request.weight.is_some() {
            return Err(OptionError::new(
                "it has no weight: each user sends it once",
            ));
        }
        let options = request.options(&self.names.captured)?;
        let (when, repeat) = request.conditions(&self.names)?;
        let target = self.target(request)?;
        let mut step = match &self.frames[target] {
            StepFrame::Http(frame) => options.step(frame, &self.names)?,
            StepFrame::Messages(_) if list != "request" => {
                return Err(OptionError::new(
                    "a setup and a teardown have no messages: --subscribe sends the first messages of each connection; \
                     for a request over HTTP write its `host`",
                ));
            }
            StepFrame::Messages(envelope) => options.message_step(envelope, &self.names)?,
        };
        if options.name.is_none() && options.path.is_none() {
            // The query of the URL may contain a secret.
            let length = step.name.find('?').unwrap_or(step.name.len());
            step.name.truncate(length);
        }
        if let (Some(host), None) = (&request.host, &request.name) {
            step.name = format!("{host}: {}", step.name);
        }
        Ok(Step {
            target: target as u16,
            when,
            repeat,
            ..step
        })
    }

    /// The number of a request's server.
    fn target(&self, request: &ScenarioRequest) -> Result<usize, OptionError> {
        let Some(host) = &request.host else {
            return Ok(0);
        };
        let known = self.hosts.iter().position(|name| name == host);
        known.map(|place| place + 1).ok_or_else(|| {
            OptionError::new(match &self.hosts[..] {
                [] => format!(
                    "the scenario has no host `{host}`: write [hosts] with {host} = \"https://…\""
                ),
                hosts => format!(
                    "the scenario has no host `{host}`, only {}",
                    hosts.join(", ")
                ),
            })
        })
    }
}

fn of_user(kind: &str, error: &dyn std::fmt::Display) -> OptionError {
    match kind {
        "" => OptionError::new(error),
        kind => OptionError::new(format_args!("user `{kind}`: {error}")),
    }
}

fn order_of(
    order: Option<ScenarioOrder>,
    requests: &[ScenarioRequest],
) -> Result<StepOrder, OptionError> {
    let has_weights = requests.iter().any(|one| one.weight.is_some());
    let order = order.unwrap_or(match has_weights {
        true => ScenarioOrder::Weighted,
        false => ScenarioOrder::Journey,
    });
    match order {
        ScenarioOrder::Journey if has_weights => Err(OptionError::new(
            "a journey has no weights: remove them, or write order = \"weighted\"",
        )),
        ScenarioOrder::Journey => Ok(StepOrder::InOrder),
        ScenarioOrder::Weighted if requests.iter().any(ScenarioRequest::has_conditions) => {
            Err(OptionError::new(
                "`when`, `repeat` and `while` are for the requests of a journey: these are drawn by their weights",
            ))
        }
        ScenarioOrder::Weighted => {
            let mut sum = 0u64;
            let sums = requests.iter().map(|one| {
                sum = sum.saturating_add(one.weight.unwrap_or(1));
                sum
            });
            let sums: Vec<u64> = sums.collect();
            match sum {
                0 => Err(OptionError::new("all weights are 0")),
                _ => Ok(StepOrder::Weighted(sums)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
