//! Servers, runs and reports of these tests.

use crate::program::{Running, Said, children, get, signal, tidewire};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server that takes every message, and its counters.
pub(super) struct Server {
    pub(super) running: Running,
    /// Its operations listener.
    pub(super) ops: String,
}

impl Server {
    pub(super) fn start() -> Self {
        let mut running = Running::serve(&words(
            "--no-auth --app sink --topics-open --rate-limit-capacity 0 --ops-listen 127.0.0.1:0",
        ));
        let ops = running.line();
        let ops = ops.strip_prefix("operations on ").unwrap().to_owned();
        Self { running, ops }
    }

    /// Starts a run against this server, with its counters.
    pub(super) fn bench(&self, folder: &Path, plan: &[&str]) -> Child {
        let target = ["bench", &self.running.url, "--stats-url", &self.ops];
        let is_scripted = plan.iter().any(|word| word.starts_with("exec sh "));
        let profile: &[&str] = if is_scripted {
            &[]
        } else {
            &["--profile", "v1"]
        };
        let mut command = tidewire(&[&target[..], profile, plan].concat());
        command.args(["--quiet", "--out"]).arg(folder);
        command.stdout(Stdio::null()).spawn().unwrap()
    }

    /// The sum of one of its counters.
    pub(super) fn sum(&self, name: &str) -> u64 {
        let (_, stats) = get(&self.ops, "/stats");
        let stats: Value = serde_json::from_str(&stats).unwrap();
        let shards = stats["shards"].as_array().unwrap().iter();
        shards.map(|shard| shard[name].as_u64().unwrap()).sum()
    }

    pub(super) fn connections(&self) -> u64 {
        self.sum("connections_open")
    }
}

/// A run whose workers have started.
pub(super) struct Begun {
    pub(super) server: Server,
    pub(super) controller: Child,
    /// The ids of the workers' processes, in order.
    pub(super) workers: Vec<u32>,
    folder: TempDir,
}

impl Begun {
    /// Starts a server and a run with this many processes.
    pub(super) fn new(processes: usize, plan: &str) -> Self {
        let server = Server::start();
        let folder = tempfile::tempdir().unwrap();
        let count = processes.to_string();
        let plan = [&words(plan)[..], &["--processes", &count]].concat();
        let controller = server.bench(folder.path(), &plan);
        let workers = wait_for_workers(&controller, processes);
        Self {
            server,
            controller,
            workers,
            folder,
        }
    }

    /// Waits until all connections are open and the server has messages.
    pub(super) fn wait_for_messages(&self) {
        wait_for(|| self.server.sum("messages_delivered") > 0);
    }

    /// Waits for the end of the run; its exit code.
    pub(super) fn code(&mut self) -> Option<i32> {
        self.controller.wait().unwrap().code()
    }

    pub(super) fn report(&self) -> Value {
        report(self.folder.path())
    }

    pub(super) fn wait_for_end_of_workers(&self) {
        wait_for(|| self.workers.iter().all(|worker| !is_alive(*worker)));
    }
}

/// A worker whose controller is the test.
pub(super) fn start_worker() -> Child {
    let mut worker = tidewire(&["worker"]);
    let streams = worker.stdin(Stdio::piped()).stdout(Stdio::piped());
    streams.spawn().unwrap()
}

/// Stops a process for a while.
pub(super) fn stop_for(process: u32, pause: Duration) {
    signal(process, "STOP");
    std::thread::sleep(pause);
    signal(process, "CONT");
}

/// The words of a command line without quotes.
pub(super) fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// The report of a run against a server of its own, whose figures are right, however fast it was.
pub(super) fn bench(folder: &Path, plan: &[&str]) -> Value {
    let mut command = tidewire(&[&["bench"], plan].concat());
    command.args(["--quiet", "--out"]).arg(folder);
    let said = Said::from(command.output().unwrap());
    assert!(matches!(said.code, 0 | 1 | 3 | 4), "{said:?}");
    let report = report(folder);
    assert_ne!(said.code, 1, "{}", failed_of(&report));
    report
}

/// The failed results with their doubts and notes, in one line.
fn failed_of(report: &Value) -> String {
    let failed = |result: &&Value| result["verdict"] == "failed";
    let told = |result: &Value| {
        format!(
            "{}: {} {} ",
            test_of(result),
            result["doubts"],
            result["notes"]
        )
    };
    results(report).iter().filter(failed).map(told).collect()
}

pub(super) fn report(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("report.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub(super) fn results(report: &Value) -> &[Value] {
    report["results"].as_array().unwrap()
}

pub(super) fn test_of(result: &Value) -> &str {
    result["test"].as_str().unwrap()
}

pub(super) fn result_of<'a>(report: &'a Value, test: &str) -> &'a Value {
    let mut all = results(report).iter();
    let found = all.find(|result| test_of(result) == test);
    found.unwrap_or_else(|| panic!("no {test} in {report:#}"))
}

/// Nothing was lost, and the server's own counters agree.
#[track_caller]
pub(super) fn assert_accounted(result: &Value) {
    let verdict = result["verdict"].as_str().unwrap();
    assert!(
        matches!(verdict, "valid" | "noisy" | "generator_bound"),
        "{result:#}"
    );
    let Some(messages) = result.get("messages") else {
        return;
    };
    assert!(messages["offered"].as_u64().unwrap() > 0, "{result:#}");
    assert_eq!(messages["lost"], 0, "{result:#}");
    assert_eq!(messages["confirmed"], messages["offered"], "{result:#}");
    assert_eq!(messages["delivered"], messages["offered"], "{result:#}");
}

/// The workers of a run, in order, as soon as all have started.
pub(super) fn wait_for_workers(child: &Child, count: usize) -> Vec<u32> {
    let mut workers = Vec::new();
    wait_for(|| {
        workers = children(child.id());
        workers.retain(|worker| {
            let words = fs::read_to_string(format!("/proc/{worker}/cmdline")).unwrap_or_default();
            words.split('\0').nth(1) == Some("worker")
        });
        workers.len() == count
    });
    workers.sort_unstable();
    workers
}

fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Waits for a condition.
#[track_caller]
pub(super) fn wait_for(mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "it does not come true"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
