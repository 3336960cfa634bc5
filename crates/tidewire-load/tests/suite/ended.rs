//! Connections that end before the load ends them: each is a failure with its code and reason, and none is an endless
//! load.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use tidewire_load::options::load::LoadOptions;
use tidewire_load::options::matching::matching;
use tidewire_load::report::{AssessmentWord, Report, TestResult, Verdict, terminal};

use crate::account::{Account, AccountServer, Conduct, Fault, Protocol};
use crate::loading::{report_of, run};

const CLOSED: &str = "closed by the server with code 4000 (\"told to\")";

fn listening(server: &AccountServer) -> LoadOptions {
    LoadOptions {
        connections: 10,
        threads: 2,
        each_per_s: Some(0.0),
        duration: Some(Duration::from_secs(30)),
        expectations: ["connected>=100%", "errors<0.1%", "failed==0"]
            .map(|text| text.parse().unwrap())
            .to_vec(),
        ..LoadOptions::new(&server.url())
    }
}

fn closing(code: u16, after: Duration) -> AccountServer {
    AccountServer::start(Conduct::between(
        Protocol::WebSocket,
        Fault::Refuses(code),
        after,
        Duration::MAX,
    ))
}

fn only(report: &Report) -> &TestResult {
    assert_eq!(report.results.len(), 1);
    &report.results[0]
}

fn outcome(options: &LoadOptions, server: &AccountServer) -> (Report, Account) {
    let report = report_of(options);
    (report, server.account())
}

#[test]
fn connections_that_are_closed_are_failures_with_their_code() {
    let server = closing(4000, Duration::from_millis(300));
    let (report, account) = outcome(&listening(&server), &server);
    let result = only(&report);
    assert_eq!(account.connections, 10, "none was opened again");
    let connecting = result.load.connecting.as_ref().unwrap();
    assert_eq!((connecting.opened, connecting.ended), (10, 10));
    let ended = &connecting.ended_by[0];
    assert_eq!((ended.code, ended.count), (Some(4000), 10));
    assert_eq!(ended.reason.as_deref(), Some("told to"));
    assert_eq!((result.verdict, result.failed), (Verdict::Failed, Some(10)));
    assert!(result.doubts.contains(&"connections_ended".to_owned()));
    let kept: Vec<bool> = result
        .load
        .expectations
        .iter()
        .map(|one| one.kept)
        .collect();
    assert_eq!(kept, [false, false, false]);
    let grade = result.load.assessment.as_ref().map(|one| one.word);
    assert_eq!(grade, Some(AssessmentWord::Poor));
    assert_eq!(report.exit_code(), 1);
    // The headline itself says why.
    let text = terminal::render(&report);
    let verdict = text
        .lines()
        .find(|line| line.starts_with("Verdict"))
        .unwrap();
    assert!(verdict.contains(CLOSED), "{verdict}");
    // It ended long before the 30 s, and says so.
    assert!(result.duration_s.unwrap() < 20.0);
    assert!(
        result
            .notes
            .iter()
            .any(|note| note.contains("no connection was left"))
    );
}

#[test]
fn a_server_that_accepts_and_closes_at_once_ends_the_load() {
    for reconnect in [false, true] {
        let server = closing(1008, Duration::ZERO);
        let options = LoadOptions {
            reconnect,
            duration: Some(Duration::from_secs(1)),
            ..listening(&server)
        };
        let (report, account) = outcome(&options, &server);
        let result = only(&report);
        let connecting = result.load.connecting.as_ref().unwrap();
        assert_eq!(connecting.ended, account.connections);
        assert_eq!(connecting.opened, account.connections);
        assert_eq!(connecting.ended_by[0].code, Some(1008));
        assert_eq!(result.verdict, Verdict::Failed);
        match reconnect {
            false => assert_eq!(account.connections, 10),
            // The wait doubles from a millisecond to a second: at most a dozen attempts of each in this time.
            true => assert!((11..=150).contains(&account.connections), "{account:?}"),
        }
        let replaced = account.connections - 10;
        assert_eq!(connecting.reconnected, replaced);
    }
}

#[test]
fn with_reconnect_every_end_counts_and_the_load_goes_on() {
    let server = AccountServer::start(Conduct::between(
        Protocol::WebSocket,
        Fault::Refuses(1012),
        Duration::from_millis(200),
        Duration::from_millis(400),
    ));
    let options = LoadOptions {
        reconnect: true,
        duration: Some(Duration::from_secs(2)),
        ..listening(&server)
    };
    let (report, account) = outcome(&options, &server);
    let result = only(&report);
    let connecting = result.load.connecting.as_ref().unwrap();
    assert_eq!(connecting.opened, account.connections);
    assert!(connecting.ended >= 10);
    assert_eq!(connecting.reconnected, connecting.ended);
    assert_eq!(result.verdict, Verdict::Failed);
    // Those that were there at the end were closed as they should be.
    assert_eq!(account.closes, [Some(1000); 10]);
}

#[test]
fn an_http_server_that_accepts_and_closes_at_once_ends_the_load() {
    let server =
        crate::http_conduct::HostileServer::start(crate::http_conduct::Conduct::ClosesAtOnce);
    let options = LoadOptions {
        connections: 4,
        each_per_s: Some(0.0),
        duration: Some(Duration::from_millis(500)),
        ..LoadOptions::new(&format!("http://{}/", server.address))
    };
    let result = run(&options);
    let opened = result.load.connecting.unwrap().opened;
    assert!(opened < 100, "{opened} connections in half a second");
}

#[test]
fn a_load_ends_its_connections_with_a_close_frame() {
    let server = AccountServer::start(Conduct::honest(Protocol::WebSocket));
    let mut options = LoadOptions {
        requests: Some(100),
        duration: None,
        each_per_s: None,
        ..listening(&server)
    };
    options.messages.matching = matching("order").unwrap();
    let (report, account) = outcome(&options, &server);
    // How busy this machine is does not matter here.
    assert_ne!(
        only(&report).verdict,
        Verdict::Failed,
        "{:?}",
        only(&report).notes
    );
    assert_eq!((account.closes, account.cut), (vec![Some(1000); 10], 0));
}
