//! The check of a worker: dialogues with it while it loads a real server. Each one starts a new process of the worker.

mod demand;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::remote::{kill, shell};
use crate::worker::contract::CONTRACT;
use crate::worker::contract::words::Word;
use demand::unmet;

#[derive(Deserialize)]
struct Dialogues {
    dialogues: Vec<Dialogue>,
}

#[derive(Deserialize)]
struct Dialogue {
    name: String,
    /// Only for workers that have service loads.
    #[serde(default)]
    loads: bool,
    steps: Vec<Map<String, Value>>,
}

/// Runs each dialogue with a worker that this shell command starts. `server` begins the URL of a server that
/// sends each message of protocol version 1 back and lets everybody publish and subscribe, such as
/// `ws://127.0.0.1:5006`. `show` receives the name of each dialogue and, if the dialogue failed, the fault.
///
/// # Panics
/// Never: the dialogues are part of this program.
pub fn check(command: &str, server: &str, mut show: impl FnMut(&str, Result<(), String>)) {
    let Dialogues { dialogues } =
        serde_json::from_str(include_str!("dialogues.json")).expect("a test has read them");
    for Dialogue { name, loads, steps } in dialogues {
        match hold(command, server, loads, &steps) {
            Ok(false) => {}
            Ok(true) => show(&name, Ok(())),
            Err(fault) => show(&name, Err(fault)),
        }
    }
}

/// Holds one dialogue; false if the worker has no service loads and the dialogue is about one.
fn hold(
    command: &str,
    server: &str,
    loads: bool,
    steps: &[Map<String, Value>],
) -> Result<bool, String> {
    let mut worker = Subject::start(command)?;
    let hello = worker.hear(&as_map(json!({"say": "hello", "contract": CONTRACT})))?;
    if loads && hello["load_threads"].as_u64().unwrap_or(0) == 0 {
        return Ok(false);
    }
    worker.write(&line(&json!({"do": "clock", "id": 0})))?;
    let clock = worker.hear(&as_map(json!({"say": "clock", "id": 0})))?;
    let zero_clock_ns = clock["clock_ns"].as_i64().unwrap_or_default();
    let mut orders = String::new();
    let mut has_failed = false;
    for step in steps {
        if let Some(text) = step.get("line").and_then(Value::as_str) {
            orders.push_str(text);
            orders.push('\n');
        } else if let Some(ms) = step.get("silent_ms").and_then(Value::as_u64) {
            worker.write(&std::mem::take(&mut orders))?;
            worker.keep_silent(Duration::from_millis(ms))?;
        } else if step.contains_key("say") {
            worker.write(&std::mem::take(&mut orders))?;
            worker.hear(step)?;
            has_failed = step["say"] == "failed";
        } else {
            orders.push_str(&line(&order(step, server, zero_clock_ns, worker.began)));
        }
    }
    if !has_failed {
        worker.write(&line(&json!({"do": "quit"})))?;
    }
    worker.wait_for_end().map(|()| true)
}

/// An order of a dialogue with the terms of this check.
fn order(step: &Map<String, Value>, server: &str, zero_clock_ns: i64, began: Instant) -> Value {
    let mut order = step.clone();
    let terms = match order["do"].as_str() {
        Some("begin") => json!({
            "profile": "v1", "layer": "plain", "seed": 1, "connect_timeout_ms": 5_000, "pong_timeout_ms": 5_000,
            "barrier_timeout_ms": 5_000, "close_timeout_ms": 2_000,
        }),
        Some("load") => json!({"first_thread": 0, "own_threads": 1, "all_threads": 1}),
        _ => Value::Null,
    };
    if let Value::Object(mut terms) = terms {
        let all =
            json!({"contract": CONTRACT, "zero_clock_ns": zero_clock_ns, "url": "$server/ws"});
        terms.extend(as_map(all));
        for (name, value) in terms {
            order.entry(name).or_insert(value);
        }
        if let Some(url) = order["url"]
            .as_str()
            .map(|url| url.replace("$server", server))
        {
            order["url"] = url.into();
        }
    }
    if order.get("begin_ns").is_some_and(|begin| begin == "$soon") {
        order["begin_ns"] = json!((began.elapsed() + SOON).as_nanos() as u64);
    }
    Value::Object(order)
}

fn line(order: &Value) -> String {
    format!("{order}\n")
}

fn as_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// A worker's process under check.
struct Subject {
    child: Child,
    lines: Receiver<String>,
    began: Instant,
}

impl Subject {
    fn start(command: &str) -> Result<Self, String> {
        let started = shell(command).spawn();
        let mut child = started.map_err(|error| format!("it cannot be started: {error}"))?;
        let output = child.stdout.take().ok_or("it has no standard output")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            lines,
            began: Instant::now(),
        })
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        let input = self
            .child
            .stdin
            .as_mut()
            .ok_or("it has no standard input")?;
        let written = input.write_all(text.as_bytes());
        written.map_err(|error| format!("it does not read: {error}"))
    }

    /// Waits for the next answer, which must have these fields.
    fn hear(&mut self, wanted: &Map<String, Value>) -> Result<Value, String> {
        let say = wanted["say"].as_str().unwrap_or_default();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let text = self.lines.recv_timeout(left);
            let text =
                text.map_err(|_| format!("no `{say}` came within {PATIENCE:?}, or it ended"))?;
            let value: Value =
                serde_json::from_str(&text).map_err(|error| format!("{text}: {error}"))?;
            Word::of(&value).map_err(|fault| format!("{text}: {fault}"))?;
            if value["say"] == say {
                return match unmet(&Value::Object(wanted.clone()), &value) {
                    None => Ok(value),
                    Some(fault) => Err(format!("{fault}\n  in {text}")),
                };
            }
            if !ANY_TIME.iter().any(|kind| value["say"] == *kind) {
                return Err(format!("`{say}` was to come, and not {text}"));
            }
        }
    }

    /// Waits for `time`; an answer in this time is an error.
    fn keep_silent(&mut self, time: Duration) -> Result<(), String> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            let Ok(text) = self.lines.recv_timeout(left) else {
                break;
            };
            let value: Value = serde_json::from_str(&text).unwrap_or_default();
            if !ANY_TIME.iter().any(|kind| value["say"] == *kind) {
                return Err(format!("nothing was to come yet, and not {text}"));
            }
        }
        Ok(())
    }

    fn wait_for_end(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("it did not end within {PATIENCE:?}"))
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

/// Words that may arrive before an answer.
const ANY_TIME: [&str; 5] = ["live", "loading", "clock", "progress", "published"];

/// The wait for each answer: a run of a dialogue lasts at most a second, and some languages start slowly.
const PATIENCE: Duration = Duration::from_secs(30);

/// From an order until it begins.
const SOON: Duration = Duration::from_millis(400);
