//! Runs the scenarios of `protocol/scenarios`, which every client runs.

mod application;
mod server;

use application::Application;
use serde_json::{Value, json};
pub(crate) use server::{Seen, start as start_server};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tidewire_client::options;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_life_of_a_client() {
    run_file("life.json").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_told_that_something_is_done() {
    run_file("told.json").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_speak_wrongly() {
    run_file("wrong-servers.json").await;
}

#[test]
fn names_are_unique() {
    let mut known = BTreeSet::new();
    for name in FILES.into_iter().flat_map(names) {
        assert!(known.insert(name.clone()), "{name} is there twice");
    }
}

/// Runs the scenarios of a file, some at a time; those that `TIDEWIRE_SCENARIO` names if it is set.
async fn run_file(file: &str) {
    let wanted = std::env::var("TIDEWIRE_SCENARIO").unwrap_or_default();
    let mut running = JoinSet::new();
    let mut failures = Vec::new();
    for scenario in scenarios(file) {
        let name = scenario["name"].as_str().expect("a name").to_owned();
        if !name.contains(&wanted) {
            continue;
        }
        running.spawn(async move {
            let ran = tokio::spawn(run(scenario)).await;
            ran.err().map(|error| format!("{name}: {error}"))
        });
        if running.len() >= AT_ONCE {
            failures.extend(next(&mut running).await);
        }
    }
    while !running.is_empty() {
        failures.extend(next(&mut running).await);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Waits for the end of a scenario; the failure, if it is one.
async fn next(running: &mut JoinSet<Option<String>>) -> Option<String> {
    let ran = running.join_next().await?;
    ran.expect("failures are caught")
}

async fn run(scenario: Value) {
    let seen = Seen::default();
    let mut tasks = JoinSet::new();
    let mut urls = Vec::new();
    for connections in scenario["servers"].as_array().expect("servers") {
        let connections = connections.as_array().expect("connections").clone();
        let address = start_server(connections, seen.clone(), &mut tasks).await;
        urls.push(format!("ws://{address}/ws"));
    }
    if urls.is_empty() {
        urls.push("ws://127.0.0.1:9/ws".to_owned());
    }
    let mut given = scenario["options"].clone();
    if given.is_null() {
        given = json!({});
    }
    given["urls"] = json!(urls);
    let config = options::read(&given.to_string(), options::Secrets::default());
    let config = config.expect("the options of a scenario can be used");
    let mut application = Application::new(config, seen);
    for step in scenario["client"].as_array().expect("steps") {
        application.step(step).await;
    }
    application.end().await;
}

/// The names of the scenarios or proxies in a file.
pub(crate) fn names(file: &str) -> Vec<String> {
    let list = scenarios(file).into_iter();
    list.map(|one| one["name"].as_str().expect("a name").to_owned())
        .collect()
}

fn scenarios(file: &str) -> Vec<Value> {
    let path = folder().join(file);
    let text = std::fs::read_to_string(&path).expect("the scenarios are in the repository");
    let file: Value = serde_json::from_str(&text).expect("scenarios are JSON");
    let list = file.get("scenarios").or(file.get("proxies"));
    list.and_then(Value::as_array).expect("a list").clone()
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protocol/scenarios")
}

/// Every file of scenarios.
pub(crate) const FILES: [&str; 4] = [
    "life.json",
    "told.json",
    "wrong-servers.json",
    "proxies.json",
];

/// Scenarios that run side by side; most of their time they wait.
const AT_ONCE: usize = 8;
