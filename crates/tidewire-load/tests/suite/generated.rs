//! Every fault at every time: a server keeps its own account of a load, and the account decides what the report must
//! say. Counts are equal, every request that was due is in the percentiles, and nothing that failed is valid. A generator
//! that is stopped for a while, in a process of its own, is found out wherever its figures are not those of the server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidewire_load::options::load::LoadOptions;
use tidewire_load::plan::load;
use tidewire_load::plan::observe::{Progress, RunLive};
use tidewire_load::report::{Report, TestResult, Verdict};
use tidewire_load::worker::messages::Matching;

use crate::account::{Account, AccountServer, Conduct, Fault, Protocol};

const MS: Duration = Duration::from_millis(1);
const LENGTH: Duration = Duration::from_millis(800);

#[derive(Debug, Clone, Copy)]
struct Case {
    protocol: Protocol,
    is_open: bool,
    at_fault: AtFault,
    from: Duration,
    until: Duration,
}

/// Who fails, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
enum AtFault {
    /// The server or the network.
    Service(Fault),
    /// The plan itself is interrupted.
    Plan,
    /// The process of the generator is stopped.
    Generator,
}

impl Case {
    fn fault(&self) -> Option<Fault> {
        match self.at_fault {
            AtFault::Service(fault) => Some(fault),
            AtFault::Plan | AtFault::Generator => None,
        }
    }
}

/// All combinations of protocol, loop, fault and time.
fn cases() -> Vec<Case> {
    let faults = [
        // The server.
        AtFault::Service(Fault::Hangs),
        AtFault::Service(Fault::Swallows),
        AtFault::Service(Fault::Refuses(4_503)),
        AtFault::Service(Fault::Slow(60 * MS)),
        // The network.
        AtFault::Service(Fault::Ends),
        AtFault::Service(Fault::Resets),
        // The plan.
        AtFault::Plan,
        // The generator.
        AtFault::Generator,
    ];
    // At the start, in the middle, in the last part, and from the last moment into the drain.
    let times = [
        (Duration::ZERO, 150 * MS),
        (300 * MS, 450 * MS),
        (600 * MS, Duration::MAX),
        (780 * MS, Duration::MAX),
    ];
    let mut cases = Vec::new();
    for protocol in [Protocol::Http, Protocol::WebSocket] {
        for is_open in [false, true] {
            for fault in faults {
                for (from, until) in times {
                    cases.push(Case {
                        protocol,
                        is_open,
                        at_fault: match (protocol, fault) {
                            (Protocol::Http, AtFault::Service(Fault::Refuses(_))) => {
                                AtFault::Service(Fault::Refuses(503))
                            }
                            _ => fault,
                        },
                        from,
                        until,
                    });
                }
            }
        }
    }
    cases
}

/// Ends the load after a time, as Ctrl-C does.
struct Interrupter<'a> {
    after: Duration,
    stop: &'a AtomicBool,
}

impl Progress for Interrupter<'_> {
    fn tick(&mut self, live: &RunLive) {
        if live.service.elapsed >= self.after {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

fn load_of(case: Case, server: &AccountServer) -> Report {
    let plan = options(&server.url(), case.is_open).plan().unwrap();
    let stop = AtomicBool::new(false);
    let after = match case.at_fault {
        AtFault::Plan => case.from,
        _ => Duration::MAX,
    };
    let mut progress = Interrupter { after, stop: &stop };
    load::run(&plan, &mut progress, &stop).unwrap()
}

fn options(url: &str, is_open: bool) -> LoadOptions {
    let mut options = LoadOptions {
        connections: 3,
        threads: 1,
        duration: Some(LENGTH),
        rate_per_s: is_open.then_some(200.0),
        ..LoadOptions::new(url)
    };
    options.timeouts.drain_ms = 150;
    if url.starts_with("ws") {
        options.messages.matching = Matching::Order;
    }
    options
}

/// The load in a process of its own, which is stopped and goes on.
fn stopped_load_of(case: Case, server: &AccountServer) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "generated::the_load_of_another_process",
            "--ignored",
        ])
        .env(URL, server.url())
        .env(IS_OPEN, case.is_open.to_string())
        .env(FILE, &file)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let first = server.wait_for_the_first();
    // The time of the fault, as that of a server's.
    std::thread::sleep((first + case.from).saturating_duration_since(Instant::now()));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    std::thread::sleep(STOPPED);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert!(child.wait().unwrap().success(), "{case:?}");
    Report::load(&file).unwrap()
}

#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn the_load_of_another_process() {
    let (Ok(url), Some(file)) = (std::env::var(URL), std::env::var_os(FILE)) else {
        return;
    };
    let is_open = std::env::var(IS_OPEN).is_ok_and(|text| text == "true");
    let plan = options(&url, is_open).plan().unwrap();
    let report = load::run(&plan, &mut (), &AtomicBool::new(false)).unwrap();
    std::fs::write(file, report.to_json()).unwrap();
}

fn run(case: Case) -> (Report, Account) {
    let mut conduct = Conduct::honest(case.protocol);
    conduct.answer_after = 2 * MS;
    conduct.fault = case.fault();
    (conduct.from, conduct.until) = (case.from, case.until);
    if case.fault() == Some(Fault::Hangs) {
        // Longer than the load and its drain, but not for ever: the server answers then.
        conduct.until = conduct.until.min(1_200 * MS);
    }
    let server = AccountServer::start(conduct);
    let report = match case.at_fault {
        AtFault::Generator => stopped_load_of(case, &server),
        _ => load_of(case, &server),
    };
    let account = server.account();
    (report, account)
}

/// What the account of the server demands of the report.
#[expect(clippy::too_many_lines, reason = "one list of demands")]
fn check(case: Case, report: &Report, account: &Account) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut demand = |is_right: bool, what: &str| {
        if !is_right {
            wrong.push(format!("{case:?}: {what}"));
        }
    };
    let result: &TestResult = &report.results[0];
    let requests = result.load.requests.unwrap_or_default();
    let connecting = result.load.connecting.clone().unwrap_or_default();
    let sum = requests.succeeded + requests.failed + requests.unfinished;
    demand(requests.sent == sum, "sent is the sum of the outcomes");
    // A request may be lost with its connection before the server has read it.
    demand(
        requests.sent >= account.received,
        "the server received no more than was sent",
    );
    let breaks = matches!(
        case.fault(),
        Some(Fault::Ends | Fault::Resets | Fault::Refuses(_))
    );
    if !breaks {
        demand(
            requests.sent == account.received,
            "everything that was sent arrived",
        );
    }
    demand(
        requests.succeeded <= account.answered,
        "no more successes than good answers",
    );
    // An answer after the end of the load is not seen; an answer to a client that is gone is none.
    let unseen = requests.unfinished + if breaks { account.connections } else { 0 };
    demand(
        requests.succeeded + unseen >= account.answered,
        "every good answer in time is a success",
    );
    if case.protocol == Protocol::Http && case.fault() == Some(Fault::Refuses(503)) {
        let refused = result.load.statuses.get(&503).copied().unwrap_or(0);
        demand(
            refused == account.refused,
            "each 503 is a response with 503",
        );
    }
    let count = result
        .latency_us
        .as_ref()
        .map_or(0, |latency| latency.count);
    demand(
        count == requests.due(),
        "every request that was due is in the percentiles",
    );
    if case.is_open && case.at_fault != AtFault::Plan && connecting.ended == 0 {
        demand(requests.due() == 160, "160 requests were due");
    }
    let is_good = requests.unsuccessful() == 0 && connecting.ended == 0;
    // A rate may be missed by a little, and a generator without its core sends too little by itself.
    let is_failed = requests.failed + requests.unfinished + connecting.ended > 0;
    // In its last moment a load may end by itself before it is interrupted.
    if case.at_fault == AtFault::Plan && case.from < LENGTH - 100 * MS {
        let is_told = report.partial && report.exit_code() == 130;
        demand(is_told, "an interrupted load says so");
    }
    demand(
        !is_failed || result.verdict == Verdict::Failed,
        "what failed is failed",
    );
    demand(
        is_good || result.verdict != Verdict::Failed || !result.doubts.is_empty(),
        "a failed load says why",
    );
    demand(
        !is_good || account.refused + account.unanswered == 0,
        "a good load has no failure at the server",
    );
    demand(
        is_good || case.fault().is_none() || !result.load.service.is_empty(),
        "what the service did is in the report",
    );
    // The latency of a client contains that of the server: a figure below it is wrong.
    let mut took = account.took_us.clone();
    took.sort_unstable();
    let enough = took.len() >= 100 && is_good;
    if enough {
        let latency = result.latency_us.clone().unwrap_or_default();
        for (part, seen) in [(50, latency.p50), (90, latency.p90), (99, latency.p99)] {
            let rank = (took.len() * part).div_ceil(100).max(1) - 1;
            let served = took[rank.min(took.len() - 1)] as f64;
            // The server's clock stops after its write, which the client may have read before.
            demand(
                seen >= served * 0.9 - 500.0,
                &format!("p{part} is {seen}, and the server took {served}"),
            );
        }
    }
    if case.at_fault == AtFault::Generator {
        let missing = blamed(case, result, &took);
        missing.into_iter().for_each(|what| demand(false, &what));
    }
    wrong
}

/// What the report of a stopped generator lacks. `took` is how long the server's answers took, ascending.
fn blamed(case: Case, result: &TestResult, took: &[u64]) -> Vec<String> {
    let measurement = result.load.measurement.unwrap_or_default();
    let mut missing = Vec::new();
    // A stop before the clock changes no figure, and from the last moment on most of it is in the drain.
    let longest_us = result
        .latency_us
        .as_ref()
        .map_or(0.0, |latency| latency.max);
    let is_seen = longest_us >= STOPPED.as_micros() as f64 * 0.8;
    if is_seen && case.from + STOPPED <= LENGTH && measurement == Verdict::Valid {
        missing.push(format!(
            "a stop of the generator is in the verdict: {:?}",
            result.generator
        ));
    }
    let latency = result.latency_us.clone().unwrap_or_default();
    for (part, seen) in [(50, latency.p50), (90, latency.p90), (99, latency.p99)] {
        let rank = (took.len() * part).div_ceil(100).max(1) - 1;
        let Some(served) = took.get(rank).map(|&us| us as f64) else {
            continue;
        };
        // The way to the server and back takes its time, too, on a busy machine.
        let is_off = seen > served * 1.1 + 2_000.0;
        if is_off && measurement == Verdict::Valid {
            missing.push(format!(
                "p{part} is {seen} and valid, and the server took {served}"
            ));
        }
    }
    let requests = result.load.requests.unwrap_or_default();
    if requests.failed > 0 {
        missing.push("no request failed: the server answered each".to_owned());
    }
    missing
}

/// The faults that are found in these cases, with `at_a_time` of them side by side.
fn check_all(cases: &[Case], at_a_time: usize) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (report, account) = run(*case);
                    let found = check(*case, &report, &account);
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

#[test]
fn the_account_of_the_server_decides_what_a_report_says() {
    let cases = cases();
    // A generator that is judged by its own latencies has the machine for itself.
    let (alone, others): (Vec<Case>, Vec<Case>) = cases
        .iter()
        .partition(|case| case.at_fault == AtFault::Generator);
    let mut wrong = check_all(&others, THREADS);
    wrong.extend(check_all(&alone, 1));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(cases.len(), 2 * 2 * 8 * 4);
}

/// How long a generator is stopped.
const STOPPED: Duration = Duration::from_millis(300);

const URL: &str = "TIDEWIRE_TEST_LOAD_URL";
const IS_OPEN: &str = "TIDEWIRE_TEST_LOAD_IS_OPEN";
const FILE: &str = "TIDEWIRE_TEST_LOAD_REPORT";

/// Loads at a time: they wait more than they compute.
const THREADS: usize = 8;
