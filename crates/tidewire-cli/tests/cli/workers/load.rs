//! `tidewire load` with workers that are processes.

use super::ssh::Ssh;
use super::support::{report, stop_for, wait_for, wait_for_workers, words};
use crate::certificates::make_certificate;
use crate::program::{Running, Said, assert_refused, run, signal, tidewire};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The test server of this program.
fn server() -> Running {
    let mut server = Running::start(tidewire(&["test-server", "--port", "0"]));
    server.line();
    server
}

/// The requests that it has served.
fn served(mut server: Running) -> u64 {
    server.signal("TERM");
    let line = server.line();
    let count = line
        .strip_prefix("served ")
        .and_then(|rest| rest.split(' ').next());
    count.unwrap_or_else(|| panic!("{line}")).parse().unwrap()
}

/// Starts a load; its report is in the folder when it ends.
pub(super) fn start(url: &str, folder: &Path, plan: &[&str]) -> Child {
    let mut command = tidewire(&[&["load", url], plan].concat());
    command.args(["--quiet", "--out"]).arg(folder);
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// The result of a load, whose figures are right, however fast it was.
#[track_caller]
pub(super) fn load(url: &str, plan: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let mut command = tidewire(&[&["load", url], plan].concat());
    command.args(["--quiet", "--out"]).arg(folder.path());
    let said = Said::from(command.output().unwrap());
    assert!(matches!(said.code, 0 | 3 | 4), "{said:?}");
    report(folder.path())["results"][0].take()
}

/// Requests of a result with this outcome.
pub(super) fn count(result: &Value, outcome: &str) -> u64 {
    result["requests"][outcome].as_u64().unwrap()
}

/// A worker of this program, started where no file of the controller is found and with none of its variables.
fn bare() -> String {
    format!(
        "cd / && exec env -i {} worker --threads 1",
        env!("CARGO_BIN_EXE_tidewire")
    )
}

#[test]
fn requests_and_a_rate_are_divided_exactly() {
    for plan in [
        "-n 1001 -c 7 --processes 3",
        "-n 1001 -c 7 --processes 3 --rate-per-s 2000",
        "-n 5 -c 2 --processes 3",
    ] {
        let server = server();
        let result = load(&server.url, &words(plan));
        let asked: u64 = plan.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(count(&result, "succeeded"), asked, "{plan}: {result:#}");
        assert_eq!(result["latency_us"]["count"], asked);
        assert_eq!(served(server), asked, "{plan}");
        assert!(
            result["notes"].to_string().contains("worker 3 (rust"),
            "{result:#}"
        );
    }
    let server = server();
    let plan = "-c 7 -d 2 --rate-per-s 500 --processes 3";
    let result = load(&server.url, &words(plan));
    let due = count(&result, "sent") + result["requests"]["unsent"].as_u64().unwrap_or(0);
    assert_eq!(due, 1_000, "{result:#}");
    assert_eq!(served(server), count(&result, "sent"));
}

/// A service that notes the head and the body of each request, and sets a cookie.
struct Noting {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Noting {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || serve(&stream, &noted));
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(stream: &TcpStream, noted: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let begin = head.len();
            if !matches!(lines.read_line(&mut head), Ok(1..)) {
                return;
            }
            let line = head[begin..].to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        lines.read_exact(&mut body).unwrap();
        head.push_str(&String::from_utf8(body).unwrap());
        noted.lock().unwrap().push(head);
        let mut stream = stream;
        if stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .is_err()
        {
            return;
        }
    }
}

/// The workers have neither the files nor the variables of the controller, and no two users the same row.
#[test]
fn files_and_variables_go_to_the_workers() {
    let service = Noting::start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let rows: String = (0..9).map(|number| format!("user-{number}\n")).collect();
    file("users.csv", &format!("name\n{rows}"));
    file("body.txt", "the body of a file");
    file(
        "journey.toml",
        "data.user = { file = \"users.csv\", unique = true }\norder = \"journey\"\n\
         [[setup]]\npath = \"/login/{{name}}\"\nheaders = { Token = \"{{env:TOKEN_OF_TEST}}\" }\n\
         [[request]]\nmethod = \"POST\"\npath = \"/{{name}}\"\nbody_file = \"body.txt\"\n\
         [[teardown]]\npath = \"/logout/{{name}}\"\n",
    );
    let scenario = folder.path().join("journey.toml");
    let out = folder.path().join("out");
    let worker = bare();
    let mut command = tidewire(&["load", &service.url, "-c", "9", "-n", "200", "--quiet"]);
    command.args(["--worker", &worker, "--worker", &worker, "--scenario"]);
    command
        .arg(&scenario)
        .arg("--out")
        .arg(&out)
        .env("TOKEN_OF_TEST", "a secret");
    let said = Said::from(command.output().unwrap());
    assert!(matches!(said.code, 0 | 3 | 4), "{said:?}");
    let requests = service.requests();
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for request in &requests {
        let path = request.split(' ').nth(1).unwrap();
        let kind = path.rsplit_once('/').unwrap().0;
        *seen
            .entry(if kind.is_empty() { "post" } else { path })
            .or_default() += 1;
        match kind {
            "/login" => assert!(request.contains("\r\nToken: a secret\r\n"), "{request}"),
            "" => assert!(request.ends_with("\r\n\r\nthe body of a file"), "{request}"),
            _ => {}
        }
    }
    for number in 0..9 {
        for once in ["login", "logout"] {
            let path = format!("/{once}/user-{number}");
            assert_eq!(seen.remove(&*path), Some(1), "{path}: {seen:?}");
        }
    }
    assert_eq!(seen, BTreeMap::from([("post", 191)]));
    let text = fs::read_to_string(out.join("report.json")).unwrap();
    assert!(!text.contains("a secret"));
}

#[test]
fn every_kind_of_service_is_loaded_by_workers() {
    let server = server();
    let ws = server.url.replace("http://", "ws://") + "ws";
    let result = load(&ws, &words("-c 6 -n 300 --reply order --processes 2"));
    assert_eq!(
        (count(&result, "succeeded"), &result["test"]),
        (300, &json!("websocket"))
    );

    let folder = tempfile::tempdir().unwrap();
    make_certificate(folder.path(), "ours");
    let paths = ["ours.pem", "ours.key"].map(|name| folder.path().join(name).display().to_string());
    let [cert, key] = &paths;
    let plan = [
        "test-server",
        "--port",
        "0",
        "--tls-cert",
        cert,
        "--tls-key",
        key,
    ];
    let secure = Running::start(tidewire(&plan));
    let url = format!(
        "https://localhost:{}/",
        secure.address().rsplit_once(':').unwrap().1
    );
    let (ca, worker) = (["--ca", cert], bare());
    let workers = ["--worker", &worker, "--worker", &worker];
    for (http2, test) in [(&[][..], "http"), (&["--http2"], "http2")] {
        let plan = [&words("-c 4 -n 100"), http2, &ca, &workers].concat();
        let result = load(&url, &plan);
        assert_eq!(
            (count(&result, "succeeded"), &result["test"]),
            (100, &json!(test))
        );
    }
}

/// The steps of a search are phases of their own, each at another rate.
#[test]
fn workers_search_for_a_limit() {
    let server = server();
    let plan = "-c 8 --find-limit --from-per-s 500 --to-per-s 2k --step-s 1 --expect errors<90% --processes 2";
    let result = load(&server.url, &words(plan));
    let steps = result["latency_by_rate"].as_array().unwrap();
    assert_eq!(steps[0]["offered_per_s"], 500.0, "{result:#}");
    assert!(
        steps.len() > 1 && result["found_rate"].is_object(),
        "{result:#}"
    );
}

/// Two of four workers are killed: the counts of the others are exact, and the two are named.
#[test]
fn a_killed_worker_is_named_and_its_share_was_not_sent() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let plan = "-c 8 -d 3 --rate-per-s 400 --processes 4";
    let mut controller = start(&server.url, folder.path(), &words(plan));
    let workers = wait_for_workers(&controller, 4);
    std::thread::sleep(Duration::from_millis(1_300));
    signal(workers[1], "KILL");
    signal(workers[3], "KILL");
    assert_eq!(controller.wait().unwrap().code(), Some(1));
    let report = report(folder.path());
    let result = &report["results"][0];
    assert_eq!(report["partial"], false);
    let (sent, unsent) = (count(result, "sent"), count(result, "unsent"));
    assert_eq!(sent + unsent, 1_200, "{result:#}");
    assert!(
        unsent >= 600 && count(result, "succeeded") == sent,
        "{result:#}"
    );
    let notes = result["notes"].to_string();
    assert!(
        notes.contains("Worker 2 (rust") && notes.contains("Worker 4 (rust"),
        "{notes}"
    );
    assert!(served(server) >= sent);

    let server = self::server();
    let folder = tempfile::tempdir().unwrap();
    let plan = "-c 8 -d 60 --processes 2 --stop-with-worker";
    let mut controller = start(&server.url, folder.path(), &words(plan));
    signal(wait_for_workers(&controller, 2)[0], "KILL");
    let ended = controller.wait().unwrap();
    let text = fs::read_to_string(folder.path().join("report.json"));
    // It may have been killed before it had introduced itself, which ends the load without a report.
    if let Ok(text) = text {
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["partial_reason"], "a worker has ended");
        assert_eq!(ended.code(), Some(1));
    }
}

#[test]
fn a_stopped_worker_is_found_out_and_an_interruption_reaches_all() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let mut controller = start(
        &server.url,
        folder.path(),
        &words("-c 4 -d 3 --processes 2"),
    );
    let workers = wait_for_workers(&controller, 2);
    std::thread::sleep(Duration::from_millis(1_300));
    stop_for(workers[1], Duration::from_millis(500));
    let _ = controller.wait();
    let result = report(folder.path())["results"][0].take();
    let doubts = result["doubts"].to_string();
    assert!(doubts.contains("generator_stopped"), "{result:#}");

    let mut controller = start(
        &server.url,
        folder.path(),
        &words("-c 4 -d 600 --processes 2"),
    );
    let workers = wait_for_workers(&controller, 2);
    std::thread::sleep(Duration::from_millis(1_300));
    signal(controller.id(), "INT");
    assert_eq!(controller.wait().unwrap().code(), Some(130));
    assert_eq!(report(folder.path())["partial"], true);
    let is_over = |worker: &u32| !Path::new(&format!("/proc/{worker}/exe")).exists();
    wait_for(|| workers.iter().all(is_over));
}

#[test]
fn workers_that_cannot_load_are_refused_by_name() {
    let hello = r#"{"say":"hello","contract":1,"language":"python","version":"1","pid":1,"connections_max":9,"profiles":[],"encodings":[],"layers":[]}"#;
    let python = format!("echo '{hello}'; cat >&2");
    let other = format!(
        "echo '{}'; cat >&2",
        hello.replace(r#""pid""#, r#""load_threads":1,"pid""#)
    );
    let few = format!("ulimit -n 200; {}", bare());
    const URL: &str = "http://127.0.0.1:9/";
    for (plan, told) in [
        (
            &["--worker", &*python][..],
            &["a python worker", "`tidewire worker`"][..],
        ),
        (&["--worker", &other], &["it is Tidewire 1", "same version"]),
        (
            &["--worker", &few, "-c", "900"],
            &["900 connections", "ulimit -n"],
        ),
        (&["--worker", "exit 3"], &["worker 1", "exit status: 3"]),
        (&["--workers", "/nonexistent"], &["--workers /nonexistent"]),
        (&["--stop-with-worker"], &["stop_with_worker needs workers"]),
        (&["--processes", "0"], &["--processes"]),
    ] {
        let said = run(&[&["load", URL, "-q"], plan].concat());
        assert!(said.code == 2 || said.code == 1, "{said:?}");
        for word in told {
            assert!(said.stderr.contains(word), "{word}: {said:?}");
        }
    }
    let said = run(&["load", "--as", "ab", "-n", "1", "--processes", "2", URL]);
    assert_refused(&said, &["--processes"]);
}

#[test]
fn workers_on_other_machines_are_reached_by_ssh() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = Ssh::start(folder.path());
    let server = server();
    let list = folder.path().join("workers.txt");
    let worker = format!("{} {} worker", ssh.command, env!("CARGO_BIN_EXE_tidewire"));
    fs::write(&list, format!("# two\n{worker}\n\n{worker}\n")).unwrap();
    let plan = ["-c", "8", "-n", "400", "--workers", list.to_str().unwrap()];
    let result = load(&server.url, &plan);
    assert_eq!(count(&result, "succeeded"), 400);
    assert_eq!(served(server), 400);
}

/// A search goes on with the others, and does not blame the service.
#[test]
fn a_search_that_loses_a_worker_goes_on() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let plan = "-c 8 --find-limit --from-per-s 500 --to-per-s 1k --step-s 1 --expect errors<1% --processes 2";
    let mut controller = start(&server.url, folder.path(), &words(plan));
    let workers = wait_for_workers(&controller, 2);
    std::thread::sleep(Duration::from_millis(1_300));
    signal(workers[1], "KILL");
    assert_eq!(controller.wait().unwrap().code(), Some(1));
    let result = report(folder.path())["results"][0].take();
    let steps = result["latency_by_rate"].as_array().unwrap();
    let why = |step: &Value| step["reason"].as_str().unwrap_or_default().to_owned();
    let lost: Vec<&Value> = steps
        .iter()
        .filter(|step| why(step).contains("a worker has ended"))
        .collect();
    assert_eq!(lost.len(), 1, "{result:#}");
    assert_eq!(lost[0]["offered_per_s"], 500.0, "{result:#}");
    assert!(
        steps.len() > 1 && result["doubts"].to_string().contains("worker_ended"),
        "{result:#}"
    );
}

#[test]
fn a_share_that_nobody_sends_is_counted_in_every_kind_of_load() {
    for (plan, due) in [
        ("-c 4 -n 40000000 --processes 2", 20_000_000),
        ("-c 4 -n 4000 -r 500 --processes 2", 2_000),
    ] {
        let server = server();
        let folder = tempfile::tempdir().unwrap();
        let mut controller = start(&server.url, folder.path(), &words(plan));
        let workers = wait_for_workers(&controller, 2);
        std::thread::sleep(Duration::from_millis(1_300));
        signal(workers[0], "KILL");
        std::thread::sleep(Duration::from_millis(300));
        signal(controller.id(), "INT");
        assert_eq!(controller.wait().unwrap().code(), Some(130), "{plan}");
        let result = report(folder.path())["results"][0].take();
        assert!(count(&result, "unsent") >= due, "{plan}: {result:#}");
    }
}

/// A worker that ends while the users log out leaves the load incomplete.
#[test]
fn a_worker_that_ends_in_the_teardown_fails_the_load() {
    let mut command = tidewire(&["test-server", "--port", "0", "--delay-ms", "700"]);
    command.stdin(Stdio::null());
    let server = Running::start(command);
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("leave.toml");
    fs::write(
        &scenario,
        "[[request]]\npath = \"/\"\n[[teardown]]\npath = \"/bye\"\n",
    )
    .unwrap();
    let out = folder.path().join("out");
    let plan = [
        "-c",
        "2",
        "-n",
        "2",
        "--processes",
        "2",
        "--scenario",
        scenario.to_str().unwrap(),
    ];
    let mut controller = start(&server.url, &out, &plan);
    let workers = wait_for_workers(&controller, 2);
    std::thread::sleep(Duration::from_millis(1_400));
    signal(workers[1], "KILL");
    assert_eq!(controller.wait().unwrap().code(), Some(1));
    let result = report(&out)["results"][0].take();
    assert_eq!(result["verdict"], "failed", "{result:#}");
}

#[test]
fn nobody_waits_for_a_worker_after_an_interruption() {
    let folder = tempfile::tempdir().unwrap();
    let began = std::time::Instant::now();
    let plan = ["--worker", "exec sleep 100"];
    let mut controller = start("http://127.0.0.1:9/", folder.path(), &plan);
    std::thread::sleep(Duration::from_millis(1_000));
    signal(controller.id(), "INT");
    assert_eq!(controller.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(20));
}
