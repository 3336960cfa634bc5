//! Scenario files: the requests of users, in the order of a journey or weighted, with data from files.

mod data;
mod request;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;

use super::OptionError;
use super::request::{RequestFrame, RequestOptions};
use crate::worker::kinds::{Kind, StepOrder};
use crate::worker::script::{Script, Step};
use crate::worker::template::{Feed, Names};
use data::{DataFile, has_ending};
use request::ScenarioRequest;
pub use request::think;

/// A scenario in the form of its file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Data files, by a name of the user's choice. Their columns are values of templates.
    data: BTreeMap<String, DataFile>,
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
            std::fs::read_to_string(path).map_err(|error| OptionError::unreadable(path, &error))?;
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

    /// The script that users follow.
    ///
    /// # Errors
    /// A request, a template or a data file is wrong: the message names it and the reason.
    pub fn script(&self, frame: &RequestFrame<'_>) -> Result<Script, OptionError> {
        self.script_of(
            &|options, names| options.step(frame, names),
            Names::default(),
        )
    }

    /// The same for a WebSocket load: the bodies of the requests are the messages. They may use these values, too.
    ///
    /// # Errors
    /// A message, a template or a data file is wrong: the message names it and the reason.
    pub fn message_script(&self, names: Names) -> Result<Script, OptionError> {
        let script = self.script_of(&RequestOptions::message_step, names)?;
        let has_setup = |kind: &Kind| !kind.setup.is_empty() || !kind.teardown.is_empty();
        match script.kinds.iter().any(has_setup) {
            true => Err(OptionError::new(
                "a WebSocket load has no `setup` and no `teardown`: --subscribe sends the first messages of each \
                 connection",
            )),
            false => Ok(script),
        }
    }

    fn script_of(&self, step_of: StepOf<'_>, names: Names) -> Result<Script, OptionError> {
        let feeds: Result<Vec<Feed>, OptionError> =
            self.data.values().map(DataFile::read).collect();
        let feeds = feeds?;
        let mut variables = names.captured.clone();
        for name in self.requests().flat_map(|one| one.capture.keys()) {
            if !variables.contains(name) {
                variables.push(name.clone());
            }
        }
        let names = Names {
            captured: variables.clone(),
            columns: feeds.iter().map(|feed| feed.columns.clone()).collect(),
            ..names
        };
        let mut writer = Writer {
            names,
            step_of,
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

/// Makes a step of the options of a request.
type StepOf<'a> = &'a dyn Fn(&RequestOptions, &Names) -> Result<Step, OptionError>;

/// Translates requests into steps.
struct Writer<'a> {
    names: Names,
    step_of: StepOf<'a>,
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
        let step = (self.step_of)(&options, &self.names)?;
        Ok(Step {
            when,
            repeat,
            ..step
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
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::worker::kinds::Repeat;
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
        assert_eq!(script.kinds[0].order, StepOrder::Weighted(vec![3, 4]));
    }

    /// A file, its text, and what the error must say.
    const WRONG: &[(&str, &str, &str)] = &[
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
            "header:Location, cookie:session, json:/a/b",
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
        ("a.toml", "[[setup]]", "no request"),
        (
            "a.toml",
            "[[setup]]\nweight = 1\n[[request]]",
            "setup 1 : it has no weight",
        ),
        (
            "a.toml",
            "[[user]]\nname = \"a\"",
            "the user `a` has no request",
        ),
        (
            "a.toml",
            "[[request]]\n[[user]]\nname = \"a\"\n[[user.request]]",
            "belong to a [[user]]",
        ),
        (
            "a.toml",
            "[[user]]\nname = \"a\"\nweight = 0\n[[user.request]]",
            "weight 0",
        ),
        (
            "a.toml",
            "[[user]]\nname = \"a\"\n[[user.request]]\nname = \"b\"\npath = \"c\"",
            "user `a`: request 1 b: the path `c`",
        ),
        (
            "a.toml",
            "[[request]]\nwhen = \"{{a}}\"",
            "the condition `{{a}}`: `{{a}}` stands for nothing",
        ),
        (
            "a.toml",
            "[[request]]\nwhen = \"{{seq}} < 5\"",
            "`{{seq}}` belongs to a request",
        ),
        (
            "a.toml",
            "[[request]]\nrepeat = \"5..2\"",
            "not a number of times",
        ),
        (
            "a.toml",
            "[[request]]\nrepeat = 2\nwhile = \"{{user}}\"",
            "exclude each other",
        ),
        (
            "a.toml",
            "[[request]]\nrepeat = 2\nweight = 1",
            "requests of a journey",
        ),
        (
            "a.toml",
            "[[request]]\ncapture = { a = \"regex:(\" }",
            "the capture `a`: `(` is not a regular expression",
        ),
        (
            "a.toml",
            "[[request]]\nmultipart = [{ name = \"a\" }]",
            "the part `a` needs either a value or a file",
        ),
        (
            "a.toml",
            "[[request]]\nbasic_auth = \"name\"",
            "write a name, a colon and a password",
        ),
        (
            "a.toml",
            "[[request]]\npath = \"/{{env:TIDEWIRE_NO_SUCH}}\"",
            "the environment has no variable TIDEWIRE_NO_SUCH",
        ),
    ];

    #[test]
    fn a_wrong_scenario_says_where_and_what() {
        let error = |name: &str, text: &str| {
            let (_folder, path) = file(name, text);
            let scenario = Scenario::read(&path);
            let script = scenario.and_then(|scenario| scenario.script(&frame()));
            script.unwrap_err().to_string()
        };
        for &(name, text, expected) in WRONG {
            let error = error(name, text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn users_have_a_setup_conditions_repeats_and_a_teardown() {
        let (folder, path) = file(
            "shop.toml",
            r#"
            data = { people = { file = "people.csv", unique = true } }
            [[setup]]
            path = "/login"
            form = { token = "{{token}}" }
            capture = { token = { from = "form:csrf", default = "" }, id = 'regex:id=(\d+)', sid = "cookie:sid" }
            [[user]]
            name = "reader"
            weight = 9
            order = "weighted"
            [[user.request]]
            path = "/a"
            [[user.request]]
            path = "/b"
            [[user]]
            name = "buyer"
            [[user.setup]]
            path = "/cart"
            [[user.request]]
            path = "/{{token}}?a={{name}}"
            when = "{{token}} != a<b"
            while = "{{token}}"
            [[user.request]]
            path = "/pay"
            repeat = "2..5"
            [[teardown]]
            path = "/logout"
            "#,
        );
        std::fs::write(folder.path().join("people.csv"), "name\nAda\nBob\n").unwrap();
        let script = Scenario::read(&path).unwrap().script(&frame()).unwrap();
        let names: Vec<&str> = script.steps.iter().map(|step| &*step.name).collect();
        let expected = [
            "reader: POST /login",
            "reader: GET /a",
            "reader: GET /b",
            "reader: GET /logout",
            "buyer: POST /login",
            "buyer: GET /cart",
            "buyer: GET /{{token}}?a={{name}}",
            "buyer: GET /pay",
            "buyer: GET /logout",
        ];
        assert_eq!(names, expected);
        let [reader, buyer] = &script.kinds[..] else {
            panic!("{:?}", script.kinds);
        };
        assert_eq!((reader.weight, buyer.weight), (9, 1));
        assert_eq!((&reader.setup, &reader.teardown), (&(0..1), &(3..4)));
        assert_eq!((&buyer.setup, &buyer.steps), (&(4..6), &(6..8)));
        assert!(script.feeds[0].is_unique && script.feeds[0].name.ends_with("people.csv"));
        let when = script.steps[6].when.as_ref().unwrap();
        assert_eq!(when.right.as_ref().unwrap().1.as_fixed(), Some(&b"a<b"[..]));
        assert_eq!(script.steps[7].repeat, Some(Repeat::Times(2..=5)));
        assert!((script.share_of("reader: GET /a") - 0.45).abs() < 1e-9);
    }
}
