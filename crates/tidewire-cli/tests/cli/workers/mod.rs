//! `tidewire bench` with workers that are processes: on this machine, over SSH, and such as speak the contract badly.

mod hosts;
mod load;
mod ssh;
mod support;

use crate::program::{Running, assert_refused, run, signal, tidewire};
use serde_json::{Value, json};
use ssh::Ssh;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{
    Begun, Server, assert_accounted, bench, report, result_of, results, start_worker, stop_for,
    test_of, wait_for, wait_for_workers, words,
};

/// Each test of the bench with two workers: the same accounts as with threads.
#[test]
fn every_test_runs_with_processes_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let tests = "connection-storm,ping-latency,throughput,size-matrix,format-comparison,sustained-hold,\
                 connection-limit,connect-latency,rapid-reconnect,sustained-throughput,fan-out";
    let report = bench(
        folder.path(),
        &["--quick", "--processes", "2", "--test", tests],
    );
    let mut ran: Vec<&str> = results(&report).iter().map(test_of).collect();
    ran.dedup();
    assert_eq!(ran, tests.split(',').collect::<Vec<_>>());
    for result in results(&report) {
        assert_accounted(result);
    }
    let rounds = result_of(&report, "connect-latency");
    assert_eq!(rounds["latency_us"]["count"], 20);
    let shares = &result_of(&report, "throughput")["processes"];
    assert_eq!(shares["count"], 2);
    assert_eq!(shares["rates_per_s"].as_array().unwrap().len(), 2);
}

#[test]
fn several_numbers_of_processes_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let plan = "bench --quick --quiet --test throughput --connections 20 --processes 1,2 --out";
    let said = run(&[&words(plan)[..], &[out]].concat());
    assert!([0, 3, 4].contains(&said.code), "{said:?}");
    assert!(said.stdout.contains("Scaling"), "{said:?}");
    for (name, count, is_known) in [("1-process", 1, false), ("2-processes", 2, true)] {
        let text = fs::read_to_string(folder.path().join(name).join("report.json")).unwrap();
        let report: Value = serde_json::from_str(&text).unwrap();
        let result = result_of(&report, "throughput");
        assert_accounted(result);
        assert_eq!(result["processes"]["count"], count);
        assert_eq!(
            result["processes"].get("scaling_percent").is_some(),
            is_known,
            "{result:#}"
        );
    }
    let page = fs::read_to_string(folder.path().join("comparison.md")).unwrap();
    assert!(
        page.contains("| throughput, 20 connections, json, 175 B | 2 | 2 |"),
        "{page}"
    );
    for wrong in [
        "--processes 1,2 --json",
        "--processes 1,2 --client all",
        "--processes 1,0",
        "--processes 2,2",
    ] {
        let refused = run(&[&words(plan)[..7], &words(wrong)[..], &["--out", out]].concat());
        assert_refused(&refused, &["--processes"]);
    }
}

#[test]
fn a_worker_is_checked_by_dialogues() {
    let own = format!("{} worker", env!("CARGO_BIN_EXE_tidewire"));
    let said = run(&["worker", "--check", &own]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.ends_with(" dialogues kept, 0 broken\n"));
    // It knows the first line and nothing else.
    let hello = r#"{"say":"hello","contract":1,"language":"sh","version":"1","pid":1,"connections_max":9,"profiles":[],"encodings":[],"layers":[]}"#;
    let said = run(&["worker", "--check", &format!("echo '{hello}'")]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stdout
            .contains("BROKEN  an order that the contract does not know\n  ")
    );
    assert!(said.stdout.contains("\n0 dialogues kept, "));
}

#[test]
fn the_processes_of_a_server_are_added_up_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let plan = "--quick --server-processes 3 --processes 2 --test connection-storm,throughput --connections 60";
    let report = bench(folder.path(), &words(plan));
    for result in results(&report) {
        assert_accounted(result);
    }
    let storm = result_of(&report, "connection-storm");
    assert_eq!(storm["connected"], 60);
    let notes = storm["notes"].to_string();
    let words = notes.split("Of the server ").nth(1).unwrap();
    let counts: Vec<u64> = words
        .split(" had ")
        .skip(1)
        .map(|rest| rest.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(
        (counts.len(), counts.iter().sum::<u64>()),
        (3, 60),
        "{notes}"
    );
    let out = folder.path().join("refused");
    let plan = ["--server-processes", "2", "--test", "fan-out"];
    let quick = ["bench", "--quick", "--out", out.to_str().unwrap()];
    let refused = run(&[&quick[..], &plan].concat());
    assert_refused(&refused, &["fan-out", "broker"]);
}

#[test]
fn a_rate_is_divided_among_the_workers() {
    let folder = tempfile::tempdir().unwrap();
    for pace in [
        &["--rate-per-s", "500"][..],
        &["--rate-per-s", "500", "--poisson"],
    ] {
        let plan = "--test echo --connections 7 --duration-s 2 --processes 3";
        let report = bench(folder.path(), &[&words(plan)[..], pace].concat());
        let [result] = results(&report) else {
            panic!("{report:#}");
        };
        assert_accounted(result);
        let offered = result["messages"]["offered"].as_u64().unwrap();
        // At random times the number is exact in the long run; and a worker without a core at the very end leaves out
        // what it cannot send in time.
        let bounds = if pace.len() > 2 {
            850..=1_150
        } else {
            980..=1_000
        };
        assert!(bounds.contains(&offered), "{result:#}");
        assert_eq!(result["latency_us"]["count"], offered);
    }
}

/// Four workers, two of which are killed while they send: what the others have sent is exact, and the two
/// are named.
#[test]
fn a_worker_that_is_killed_is_named_and_the_others_go_on() {
    let mut run = Begun::new(
        4,
        "--test throughput,ping-latency --connections 8 --duration-s 3",
    );
    run.wait_for_messages();
    assert_eq!(run.server.connections(), 8);
    for (worker, pause_ms) in [(run.workers[1], 137), (run.workers[2], 411)] {
        std::thread::sleep(Duration::from_millis(pause_ms));
        signal(worker, "KILL");
    }
    assert_eq!(run.code(), Some(1));
    let report = run.report();
    let result = result_of(&report, "throughput");
    assert_eq!(result["verdict"], "failed");
    assert_eq!(result["failed"], 4);
    let notes = result["notes"].to_string();
    assert!(
        notes.contains("Worker 2 (rust") && notes.contains("Worker 3 (rust"),
        "{notes}"
    );
    assert!(notes.contains("signal: 9"), "{notes}");
    let messages = &result["messages"];
    // The two that live lose nothing. The server has taken more from the two that ended than they could report.
    assert_eq!(messages["offered"], messages["confirmed"]);
    assert!(
        messages["delivered"].as_u64() >= messages["confirmed"].as_u64(),
        "{result:#}"
    );
    // The next test has four workers again.
    let pings = result_of(&report, "ping-latency");
    assert_eq!(
        (&pings["connected"], &pings["failed"]),
        (&json!(8), &json!(0)),
        "{pings:#}"
    );
    assert_eq!(pings["latency_us"]["count"], 8 * 50);
}

#[test]
fn the_end_of_a_worker_can_end_the_run() {
    let mut run = Begun::new(
        2,
        "--test throughput,ping-latency --connections 4 --duration-s 2 --stop-with-worker",
    );
    run.wait_for_messages();
    signal(run.workers[0], "KILL");
    assert_eq!(run.code(), Some(1));
    let report = run.report();
    assert_eq!(
        (&report["partial"], &report["partial_reason"]),
        (&json!(true), &json!("a worker has ended"))
    );
    assert_eq!(results(&report).len(), 1);
}

#[test]
fn a_worker_that_is_stopped_is_found_out() {
    let mut run = Begun::new(2, "--test throughput --connections 4 --duration-s 2");
    run.wait_for_messages();
    stop_for(run.workers[1], Duration::from_millis(500));
    run.code();
    let report = run.report();
    let result = result_of(&report, "throughput");
    assert_ne!(result["verdict"], "valid", "{result:#}");
    assert!(
        result["doubts"].to_string().contains("generator_stopped"),
        "{result:#}"
    );
    let stopped_s = result["generator"]["stopped_s"].as_f64().unwrap();
    assert!((0.3..1.0).contains(&stopped_s), "{stopped_s}");
}

/// Stopped before the end of its time, so that its share leaves too late.
#[test]
fn a_worker_that_falls_behind_is_named() {
    let mut run = Begun::new(
        2,
        "--test throughput --connections 4 --duration-s 6 --rate-per-s 1000",
    );
    run.wait_for_messages();
    stop_for(run.workers[1], Duration::from_secs(7));
    run.code();
    let report = run.report();
    let result = result_of(&report, "throughput");
    assert_eq!(result["verdict"], "generator_bound", "{result:#}");
    let notes = result["notes"].to_string();
    assert!(
        notes.contains("Worker 2 (rust") && notes.contains("fell behind"),
        "{notes}"
    );
    // Its messages are late, but none is lost.
    assert_eq!(result["messages"]["lost"], 0);
}

#[test]
fn a_worker_that_says_nothing_is_given_up() {
    let mut run = Begun::new(2, "--test throughput --connections 4 --duration-s 1");
    run.wait_for_messages();
    signal(run.workers[0], "STOP");
    assert_eq!(run.code(), Some(1));
    let report = run.report();
    let notes = result_of(&report, "throughput")["notes"].to_string();
    assert!(
        notes.contains("Worker 1 (rust") && notes.contains("said nothing for 10 s"),
        "{notes}"
    );
    run.wait_for_end_of_workers();
}

#[test]
fn an_interruption_reaches_all_workers() {
    for name in ["INT", "TERM"] {
        let mut run = Begun::new(
            2,
            "--test ping-latency,sustained-hold --hold-s 600 --connections 4",
        );
        // The pings are over when the connections of the hold are open.
        wait_for(|| run.server.sum("connections_accepted") >= 8 && run.server.connections() == 4);
        signal(run.controller.id(), name);
        assert_eq!(run.code(), Some(130));
        assert_eq!(run.report()["partial"], true);
        run.wait_for_end_of_workers();
    }
}

#[test]
fn nobody_is_left_behind_when_the_controller_is_killed() {
    let mut run = Begun::new(2, "--test sustained-hold --hold-s 600 --connections 4");
    wait_for(|| run.server.connections() == 4);
    signal(run.controller.id(), "KILL");
    run.code();
    run.wait_for_end_of_workers();
    wait_for(|| run.server.connections() == 0);
}

/// A controller that holds the streams open and says nothing.
#[test]
fn a_worker_that_hears_nothing_ends() {
    let mut worker = start_worker();
    let began = Instant::now();
    let mut hello = String::new();
    let mut said = BufReader::new(worker.stdout.take().unwrap());
    said.read_line(&mut hello).unwrap();
    let hello: Value = serde_json::from_str(&hello).unwrap();
    assert_eq!(
        (&hello["say"], &hello["language"], &hello["contract"]),
        (&json!("hello"), &json!("rust"), &json!(1))
    );
    // Taken out, because waiting for a process closes its standard input.
    let silent = worker.stdin.take();
    assert_eq!(worker.wait().unwrap().code(), Some(1));
    drop((silent, said));
    assert!(
        began.elapsed() >= Duration::from_secs(9),
        "{:?}",
        began.elapsed()
    );
}

/// A controller and a server in a few lines: the first connection has a token and the second has none.
#[test]
fn a_connection_without_a_token_sends_no_header_for_one() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", server.local_addr().unwrap());
    let mut worker = start_worker();
    let begin = json!({"do": "begin", "contract": 1, "zero_clock_ns": 0, "url": url, "profile": "raw",
        "layer": "plain", "seed": 1, "connect_timeout_ms": 9_000, "pong_timeout_ms": 9_000,
        "barrier_timeout_ms": 9_000, "close_timeout_ms": 9_000});
    let with = json!({"do": "open", "first": 0, "end": 1, "step": 1, "in_flight": 1, "encoding": "json",
        "tokens": ["first"]});
    let without =
        json!({"do": "open", "first": 1, "end": 2, "step": 1, "in_flight": 1, "encoding": "json"});
    let mut orders = worker.stdin.take().unwrap();
    orders
        .write_all(format!("{begin}\n{with}\n{without}\n").as_bytes())
        .unwrap();
    let authorizations: Vec<Option<String>> = (0..2)
        .map(|_| {
            let mut head = BufReader::new(server.accept().unwrap().0).lines();
            head.by_ref()
                .map(Result::unwrap)
                .take_while(|line| !line.is_empty())
                .find(|line| line.to_ascii_lowercase().starts_with("authorization:"))
        })
        .collect();
    let first = Some("Authorization: Bearer first".to_owned());
    assert_eq!(authorizations, [first, None]);
    drop(orders);
    assert_eq!(worker.wait().unwrap().code(), Some(0));
}

#[test]
fn workers_that_are_none_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let quick = ["bench", "--quick", "--out", out.to_str().unwrap()];
    let hello = r#"{"say":"hello","contract":7,"language":"cobol","version":"1","pid":1,"connections_max":9,"profiles":[],"encodings":[],"layers":[]}"#;
    let raw = hello.replace(r#""contract":7"#, r#""contract":1"#);
    let cases = [
        (
            "exec no-such-program-anywhere".to_owned(),
            &["worker 1", "not found"][..],
        ),
        (
            "echo good morning; exec sleep 5".to_owned(),
            &["worker 1", "no word of the contract", "good morning"],
        ),
        (
            format!("echo '{hello}'; exec sleep 5"),
            &["worker 1", "version 7", "version 1"],
        ),
        (
            format!("echo '{raw}'; exec sleep 5"),
            &["worker 1", "cobol", "profile `v1`"],
        ),
        (
            "echo out of paper >&2; exit 3".to_owned(),
            &["worker 1", "exit status: 3", "out of paper"],
        ),
    ];
    for (command, parts) in cases {
        let said = run(&[
            &quick[..],
            &["--test", "ping-latency", "--worker", &command],
        ]
        .concat());
        assert_refused(&said, parts);
    }
    let list = folder.path().join("hosts.txt");
    fs::write(&list, "# none yet\n\n").unwrap();
    let said = run(&[&quick[..], &["--workers", list.to_str().unwrap()]].concat());
    assert_refused(&said, &["hosts.txt", "names no worker"]);
    let said = run(&["bench", "--quick", "--worker", "x", "--processes", "2"]);
    assert_refused(&said, &["--processes"]);
}

/// Debian's SSH server on a port of the loopback interface, with a key of this test.
#[test]
fn a_worker_on_another_machine_is_reached_by_ssh() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let ssh = Ssh::start(folder.path());
    let list = folder.path().join("hosts.txt");
    let program = env!("CARGO_BIN_EXE_tidewire");
    let worker = format!("{} {program} worker --threads 1", ssh.command);
    fs::write(&list, format!("# two on one machine\n{worker}\n{worker}\n")).unwrap();
    let out = tempfile::tempdir().unwrap();
    let plan = "--test throughput,fan-out --connections 6 --duration-s 1";
    let list = ["--workers", list.to_str().unwrap()];
    let mut child = server.bench(out.path(), &[&words(plan)[..], &list].concat());
    let code = child.wait().unwrap().code();
    assert!(matches!(code, Some(0 | 3 | 4)), "{code:?}");
    let report = report(out.path());
    for result in results(&report) {
        assert_accounted(result);
    }
    assert_eq!(result_of(&report, "throughput")["processes"]["count"], 2);
    wait_for(|| server.connections() == 0);
}

/// A worker in a few lines of shell, with figures of its own: percentiles of merged runs are those of all values.
#[test]
fn latencies_of_all_workers_are_merged_as_one_histogram() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let mut workers = Vec::new();
    // 1 to 1,000 microseconds in the first and 1,001 to 2,000 in the second.
    for (index, first) in [1_u64, 1_001].into_iter().enumerate() {
        let buckets: Vec<(u64, u64)> = (first..first + 1_000).map(|us| (us * 1_000, 1)).collect();
        let script = folder.path().join(format!("worker-{index}.sh"));
        fs::write(&script, scripted(&json!(buckets))).unwrap();
        workers.push(format!("exec sh {}", script.display()));
    }
    let plan = ["--test", "ping-latency", "--connections", "2"];
    let workers: Vec<&str> = workers
        .iter()
        .flat_map(|worker| ["--worker", worker.as_str()])
        .collect();
    let mut child = server.bench(out.path(), &[&plan[..], &workers].concat());
    child.wait().unwrap();
    let report = report(out.path());
    let latency = &result_of(&report, "ping-latency")["latency_us"];
    assert_eq!(latency["count"], 2_000, "{report:#}");
    for (name, expected) in [
        ("p50", 1_000.0),
        ("p90", 1_800.0),
        ("p99", 1_980.0),
        ("max", 2_000.0),
    ] {
        let found = latency[name].as_f64().unwrap();
        assert!((found / expected - 1.0).abs() < 0.002, "{name}: {found}");
    }
}

/// A script that answers each order with figures that nobody measured.
fn scripted(latency: &Value) -> String {
    let live = json!({"connected": 1});
    let hello = json!({"say": "hello", "contract": 1, "language": "sh", "version": "1", "pid": 1, "connections_max": 9,
        "profiles": ["raw"], "encodings": ["json"], "layers": ["plain"]});
    let opened = json!({"say": "opened", "attempted": 1, "connected": 1, "live": live});
    let ran = json!({"say": "ran", "members": 1, "pings_sent": 1_000, "pongs": 1_000, "latency": latency, "live": live});
    format!(
        "echo '{hello}'\nwhile read -r line; do\n  case $line in\n    *'\"do\":\"clock\"'*)\n      id=${{line##*\\\"id\\\":}}\n      \
         echo \"{{\\\"say\\\":\\\"clock\\\",\\\"id\\\":${{id%%\\}}*}},\\\"clock_ns\\\":0}}\" ;;\n    *'\"do\":\"open\"'*) echo '{opened}' ;;\n    \
         *'\"do\":\"run\"'*) echo '{ran}' ;;\n    *'\"do\":\"close\"'*) echo '{{\"say\":\"closed\"}}' ;;\n    \
         *'\"do\":\"quit\"'*) exit 0 ;;\n  esac\ndone\n"
    )
}

/// Tokens and secrets are in no command line and in no report.
#[test]
fn a_worker_gets_tokens_on_its_standard_input() {
    let secret = "a secret of 32 bytes or more for this test";
    let server = Running::serve(&["--jwt-secret", secret, "--app", "sink"]);
    let folder = tempfile::tempdir().unwrap();
    let mut command = tidewire(&[
        "bench",
        &server.url,
        "--test",
        "sustained-hold",
        "--hold-s",
        "2",
        "--connections",
        "3",
    ]);
    command
        .env("TIDEWIRE_JWT_SECRET", secret)
        .args(["--processes", "1", "--quiet", "--out"])
        .arg(folder.path());
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let [worker] = wait_for_workers(&child, 1)[..] else {
        panic!("one worker");
    };
    let told = fs::read_to_string(format!("/proc/{worker}/cmdline")).unwrap();
    assert!(!told.contains(secret) && !told.contains("eyJ"), "{told}");
    // Other work on the machine may make so short a hold noisy, which is 4.
    assert!(matches!(child.wait().unwrap().code(), Some(0 | 4)));
    let text = fs::read_to_string(folder.path().join("report.json")).unwrap();
    assert!(!text.contains(secret) && !text.contains("eyJ"));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["results"][0]["connected"], 3);
}
