//! Every fault at every time: a server keeps its own account of a load, and the account decides what the report must
//! say. Counts are equal, every request that was due is in the percentiles, and nothing that failed is valid. A generator
//! that is stopped for a while, in a process of its own, is found out wherever its figures are not those of the server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidewire_load::options::load::LoadOptions;
use tidewire_load::plan::load::{self, FindLimit};
use tidewire_load::plan::observe::{Progress, RunLive};
use tidewire_load::report::{AssessmentWord, Report, TestResult, Verdict};
use tidewire_load::worker::messages::Matching;
use tidewire_testkit::seeds::number_of_seeds;

use crate::account::{Account, AccountServer, Conduct, Fault, Protocol};

const MS: Duration = Duration::from_millis(1);
const LENGTH: Duration = Duration::from_millis(800);
const ALWAYS: (Duration, Duration) = (Duration::ZERO, Duration::MAX);
const DRAIN: Duration = Duration::from_millis(150);
/// Between the requests of an open loop.
const INTERVAL: Duration = Duration::from_millis(10);
/// The time that each answer takes: two of the three connections of an open loop wait for one.
const SERVICE: Duration = Duration::from_millis(20);
/// The way from the client's clock to the server's and back, beside three other loads: of half the requests, and of
/// nearly all.
const WAY_US: f64 = 1_000.0;
const LONG_WAY_US: f64 = 10_000.0;
/// The gate of each load, and the limit of the best grade.
const GATE: &str = "p90<100ms";
const GATE_US: f64 = 100_000.0;
const EXCELLENT_US: f64 = 50_000.0;

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

    /// True if the fault ends connections while requests are in flight.
    fn breaks(&self) -> bool {
        matches!(self.fault(), Some(Fault::Ends | Fault::Resets))
    }
}

/// All combinations of protocol, loop, fault and time. A commit runs half of them: every protocol with every fault at
/// every time, with one loop in turn, so that every two values meet. `make long-test` runs all.
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
    // All the time, at the start, in the middle, in the last part, and from the last moment into the drain.
    let times = [
        ALWAYS,
        (Duration::ZERO, 150 * MS),
        (300 * MS, 450 * MS),
        (600 * MS, Duration::MAX),
        (780 * MS, Duration::MAX),
    ];
    let mut cases = Vec::new();
    for protocol in [Protocol::Http, Protocol::WebSocket] {
        for is_open in [false, true] {
            for (row, fault) in faults.into_iter().enumerate() {
                for (column, (from, until)) in times.into_iter().enumerate() {
                    if (from, until) == ALWAYS && !matches!(fault, AtFault::Service(_)) {
                        continue;
                    }
                    let is_turn =
                        (row + column + usize::from(protocol == Protocol::Http)).is_multiple_of(2);
                    if !has_all_cases() && is_open != is_turn {
                        continue;
                    }
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

fn has_all_cases() -> bool {
    number_of_seeds(1) > 1
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
        rate_per_s: is_open.then(|| INTERVAL.as_secs_f64().recip()),
        ..LoadOptions::new(url)
    };
    options.expectations = vec![GATE.parse().unwrap()];
    options.timeouts.drain_ms = DRAIN.as_millis() as u64;
    if url.starts_with("ws") {
        options.messages.matching = Matching::Order;
    }
    options
}

/// The load in a process of its own, which is stopped and goes on.
fn stopped_load_of(case: Case, server: &AccountServer) -> Report {
    stopped_load(server, &[(IS_OPEN, &case.is_open.to_string())], case.from)
}

/// A load with these variables in its environment, which is stopped this long after its first request.
fn stopped_load(server: &AccountServer, variables: &[(&str, &str)], from: Duration) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "generated::the_load_of_another_process",
            "--ignored",
        ])
        .env(URL, server.url())
        .envs(variables.iter().copied())
        .env(FILE, &file)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let first = server.wait_for_the_first();
    // The time of the fault, as that of a server's.
    std::thread::sleep((first + from).saturating_duration_since(Instant::now()));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    std::thread::sleep(STOPPED);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert!(child.wait().unwrap().success(), "{variables:?}");
    Report::load(&file).unwrap()
}

#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn the_load_of_another_process() {
    let (Ok(url), Some(file)) = (std::env::var(URL), std::env::var_os(FILE)) else {
        return;
    };
    let is_open = std::env::var(IS_OPEN).is_ok_and(|text| text == "true");
    let mut options = options(&url, is_open);
    if std::env::var(IS_SEARCH).is_ok() {
        options.duration = None;
        options.rate_per_s = None;
        options.find_limit = Some(FindLimit {
            from_per_s: 50.0,
            to_per_s: 100.0,
            step: 2 * LENGTH,
            ..FindLimit::default()
        });
    }
    let plan = options.plan().unwrap();
    let report = load::run(&plan, &mut (), &AtomicBool::new(false)).unwrap();
    std::fs::write(file, report.to_json()).unwrap();
}

fn run(case: Case) -> (Report, Account) {
    let mut conduct = Conduct::honest(case.protocol);
    conduct.answer_after = SERVICE;
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
    let breaks = case.breaks() || matches!(case.fault(), Some(Fault::Refuses(_)));
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
        let planned = LENGTH.as_millis() / INTERVAL.as_millis();
        demand(
            u128::from(requests.due()) == planned,
            "every planned request was due",
        );
    }
    demand(
        result.confirmed_by.is_empty() == (requests.succeeded == 0),
        "what was confirmed is what was seen",
    );
    let unsolicited = result.load.received.map_or(0, |all| all.unsolicited);
    demand(unsolicited == 0, "every message of the server is an answer");
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
    // A connection that ends in the middle may take requests with it that the server never read.
    let are_known = requests.sent == account.received && case.at_fault != AtFault::Plan;
    if are_known {
        let expected = due_us(case, result, account);
        let mut missing = percentiles(case, result, &expected);
        missing.extend(grade_and_gate(report, account, &expected));
        missing.into_iter().for_each(|what| demand(false, &what));
    }
    if case.at_fault == AtFault::Generator {
        let missing = blamed(case, result, &account.took_us());
        missing.into_iter().for_each(|what| demand(false, &what));
    }
    wrong
}

/// The latencies that the report must have by the account of the server, in microseconds and ascending: those of
/// answered requests until their answer, those of all others until the end of the load.
fn due_us(case: Case, result: &TestResult, account: &Account) -> Vec<f64> {
    let exchanges = &account.exchanges;
    // The request that was sent least late shows when the plan began.
    let begins = exchanges.iter().zip(0_u32..);
    let begins = begins.filter_map(|(one, number)| match case.is_open {
        true => one.arrived.checked_sub(INTERVAL * number),
        false => Some(one.arrived),
    });
    let Some(begin) = begins.min() else {
        return Vec::new();
    };
    let due = result.load.requests.unwrap_or_default().due() as u32;
    let connecting = result.load.connecting.clone().unwrap_or_default();
    let is_nobody_left =
        case.protocol == Protocol::WebSocket && connecting.ended >= connecting.opened;
    let stop = begin + LENGTH;
    let ends = exchanges
        .iter()
        .map(|one| one.ended.unwrap_or(stop + DRAIN));
    let end = match is_nobody_left {
        // Then the plan ended, and nothing was due any more.
        true => begin + INTERVAL * due,
        false => ends.max().unwrap_or(stop).clamp(stop, stop + DRAIN),
    };
    let latencies = (0..due).map(|number| {
        let exchange = exchanges.get(number as usize);
        let due = match exchange {
            Some(exchange) if !case.is_open => exchange.arrived,
            _ => begin + INTERVAL * number,
        };
        let ended = exchange.and_then(|exchange| exchange.ended).unwrap_or(end);
        ended.min(end).saturating_duration_since(due).as_secs_f64() * 1e6
    });
    let mut latencies: Vec<f64> = latencies.collect();
    latencies.sort_unstable_by(f64::total_cmp);
    latencies
}

/// The value at a percentile, and those beside it: a step of the figures may be between two values.
fn around(ascending: &[f64], part: usize) -> (f64, f64) {
    let rank = (ascending.len() * part).div_ceil(100).max(1) - 1;
    let at = |rank: usize| ascending.get(rank.min(ascending.len() - 1));
    let at = |rank: usize| at(rank).copied().unwrap_or(0.0);
    (at(rank.saturating_sub(1)), at(rank + 1))
}

/// The percentiles of a valid report that are not those of the account.
fn percentiles(case: Case, result: &TestResult, expected: &[f64]) -> Vec<String> {
    if expected.is_empty() || result.load.measurement != Some(Verdict::Valid) {
        return Vec::new();
    }
    let latency = result.latency_us.clone().unwrap_or_default();
    let generator = result.generator.unwrap_or_default();
    let error = generator.error_us.unwrap_or_default();
    // A closed loop whose connections end connects as fast as it can, and no request of it or of those beside it has a core at once.
    let is_busy = !case.is_open && case.breaks();
    let way_us = if is_busy { LONG_WAY_US } else { WAY_US };
    let figures = [
        (50, latency.p50, error.p50 + way_us),
        (90, latency.p90, error.p90 + LONG_WAY_US),
        (99, latency.p99, error.p99 + LONG_WAY_US),
    ];
    let figures = figures.into_iter().filter_map(|(part, seen, slack_us)| {
        let (low, high) = around(expected, part);
        (seen < low * 0.98 - slack_us || seen > high * 1.02 + slack_us).then(|| {
            format!("p{part} is {seen} and valid; by the account of the server, {low} to {high}")
        })
    });
    figures.collect()
}

/// The grade and the gate that the account of the server contradicts.
fn grade_and_gate(report: &Report, account: &Account, expected: &[f64]) -> Vec<String> {
    let mut wrong = Vec::new();
    let result: &TestResult = &report.results[0];
    if expected.is_empty() || result.load.measurement != Some(Verdict::Valid) {
        return wrong;
    }
    let (p99_us, _) = around(expected, 99);
    let (low, high) = around(expected, 90);
    let (low_us, high_us) = (low * 0.98 - LONG_WAY_US, high * 1.02 + LONG_WAY_US);
    let good = account.exchanges.iter().filter(|one| one.is_good).count();
    let is_perfect = good == expected.len();
    let word = result.load.assessment.as_ref().map(|all| all.word);
    let is_excellent = word == Some(AssessmentWord::Excellent);
    if is_excellent && (!is_perfect || p99_us > EXCELLENT_US + LONG_WAY_US) {
        wrong.push(format!(
            "excellent: {good} good answers, and a p99 of {p99_us}"
        ));
    }
    let many_failed = good * 20 < expected.len() * 19;
    if many_failed && word != Some(AssessmentWord::Poor) {
        wrong.push(format!(
            "{word:?} with {good} good answers of {}",
            expected.len()
        ));
    }
    let gate = &result.load.expectations[0];
    if gate.kept && low_us > GATE_US || !gate.kept && high_us < GATE_US && is_perfect {
        wrong.push(format!("{gate:?} with a p90 of {low_us} to {high_us}"));
    }
    if !gate.kept && report.exit_code() == 0 {
        wrong.push("a broken gate ends with 0".to_owned());
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
        let is_off = seen > served * 1.1 + LONG_WAY_US;
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
    let loops = if has_all_cases() { 2 } else { 1 };
    assert_eq!(cases.len(), loops * 2 * (6 * 5 + 2 * 4));
}

#[test]
fn a_generator_that_is_stopped_in_a_step_of_a_search_does_not_end_the_search() {
    let mut conduct = Conduct::honest(Protocol::Http);
    conduct.answer_after = 2 * MS;
    let server = AccountServer::start(conduct);
    let report = stopped_load(&server, &[(IS_SEARCH, "true")], 500 * MS);
    let found = report.results[0].load.found_rate.clone().unwrap();
    // The service holds far more, so that only the stop could break a step.
    assert_eq!(
        (found.held_per_s, found.broke_per_s),
        (Some(100.0), None),
        "{found:?}"
    );
}

/// How long a generator is stopped.
const STOPPED: Duration = Duration::from_millis(300);

const URL: &str = "TIDEWIRE_TEST_LOAD_URL";
const IS_OPEN: &str = "TIDEWIRE_TEST_LOAD_IS_OPEN";
const IS_SEARCH: &str = "TIDEWIRE_TEST_LOAD_IS_SEARCH";
const FILE: &str = "TIDEWIRE_TEST_LOAD_REPORT";

/// Loads at a time. A closed loop takes a core, and without one its requests wait in the generator, which is no time of the
/// server.
const THREADS: usize = 2;
