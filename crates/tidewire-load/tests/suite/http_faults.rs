//! A load of HTTP servers that behave badly: every fault has its name, is counted once, and is never a success.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::http_conduct;
use crate::loading::run;
use crate::secure;

use http_conduct::{Conduct, HostileServer, unused_address};
use secure::secure_server;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidewire_load::options::body::BodyOptions;
use tidewire_load::options::load::{LoadOptions, Retry};
use tidewire_load::report::TestResult;

const REQUESTS: u64 = 6;

fn options(url: &str) -> LoadOptions {
    LoadOptions {
        connections: 2,
        threads: 1,
        requests: Some(REQUESTS),
        // It is far more than a test takes; a load that does not end by itself shows in the counts.
        duration: Some(Duration::from_secs(120)),
        ..LoadOptions::new(url)
    }
}

/// Every request has failed with this error and nothing else has happened.
#[track_caller]
fn assert_all_failed(result: &TestResult, name: &str) {
    let requests = result.load.requests.unwrap();
    let errors = &result.load.errors;
    assert_eq!(requests.succeeded, 0, "{name}: {errors:?}");
    assert_eq!(requests.sent, REQUESTS, "{name}: {errors:?}");
    assert_eq!(requests.failed, REQUESTS, "{name}: {errors:?}");
    assert_eq!(requests.unfinished, 0, "{name}: {errors:?}");
    let errors: Vec<_> = errors
        .iter()
        .map(|(name, count)| (name.as_str(), *count))
        .collect();
    assert_eq!(errors, [(name, REQUESTS)]);
}

/// Every request has succeeded and nothing else has happened.
#[track_caller]
fn assert_all_succeeded(result: &TestResult) {
    let requests = result.load.requests.unwrap();
    let errors = &result.load.errors;
    assert_eq!(requests.succeeded, REQUESTS, "{errors:?}");
    assert_eq!(requests.failed, 0, "{errors:?}");
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn heads_that_break_a_rule() {
    assert_each_fails(&[
        (Conduct::SendsAndCloses("HTTP/1.1 2"), "truncated-head"),
        (
            Conduct::SendsAndCloses("HTTP/1.1 200 OK\r\nContent-Le"),
            "truncated-head",
        ),
        (
            Conduct::SendsAndCloses("HTTP/1.1 103 Early Hints\r\n\r\n"),
            "truncated-head",
        ),
        (
            Conduct::SendsAndCloses("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"),
            "truncated-body",
        ),
        (
            Conduct::SendsAndCloses(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
            ),
            "truncated-chunks",
        ),
        (Conduct::Sends("SSH-2.0-garbage\r\n"), "bad-status-line"),
        (Conduct::Sends("HTTP/2 200\r\n\r\n"), "unsupported-version"),
        (
            Conduct::Sends("HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n"),
            "bad-header",
        ),
        (
            Conduct::SendsWithoutEnd("HTTP/1.1 200 OK\r\n", "A: b\r\n"),
            "head-too-long",
        ),
        (
            Conduct::SendsWithoutEnd("HTTP/1.1 200 OK\r\nA: ", "b"),
            "head-too-long",
        ),
        (
            Conduct::SendsWithoutEnd("", "HTTP/1.1 102 Processing\r\n\r\n"),
            "too-many-interims",
        ),
        (
            Conduct::Sends("HTTP/1.1 101 Switching Protocols\r\n\r\n"),
            "unasked-upgrade",
        ),
    ]);
}

#[test]
fn bodies_that_break_a_rule() {
    assert_each_fails(&[
        (
            Conduct::Sends("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"),
            "bad-content-length",
        ),
        (
            Conduct::Sends("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
            "conflicting-lengths",
        ),
        (
            Conduct::Sends(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
            ),
            "chunk-size-overflow",
        ),
        (
            Conduct::Sends("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n"),
            "bad-chunk",
        ),
        (
            Conduct::SendsWithoutEnd(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
                "A: b\r\n",
            ),
            "trailers-too-long",
        ),
    ]);
}

/// Every request to a server of this conduct fails with this error, and is sent once.
#[track_caller]
fn assert_each_fails(conducts: &[(Conduct, &str)]) {
    for (conduct, name) in conducts {
        let server = HostileServer::start(*conduct);
        let result = run(&options(&server.url()));
        assert_all_failed(&result, name);
        assert_eq!(server.requests.load(Ordering::Relaxed), REQUESTS, "{name}");
    }
}

#[test]
fn a_server_that_closes_without_a_response() {
    let server = HostileServer::start(Conduct::SendsAndCloses(""));
    assert_all_failed(&run(&options(&server.url())), "closed-before-response");
}

#[test]
fn a_server_that_resets() {
    let server = HostileServer::start(Conduct::SendsAndResets(""));
    assert_all_failed(&run(&options(&server.url())), "reset");
}

#[test]
fn a_server_that_resets_in_the_middle() {
    let server = HostileServer::start(Conduct::SendsAndResets(
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
    ));
    let result = run(&options(&server.url()));
    let requests = result.load.requests.unwrap();
    assert_eq!((requests.succeeded, requests.failed), (0, REQUESTS));
    // A reset may wipe out what was sent before it (RFC 9112, section 9.6).
    let errors = &result.load.errors;
    let is_known = |name: &String| ["truncated-body", "reset"].contains(&name.as_str());
    assert!(errors.keys().all(is_known), "{errors:?}");
    assert_eq!(errors.values().sum::<u64>(), REQUESTS);
}

#[test]
fn a_server_that_never_answers() {
    let server = HostileServer::start(Conduct::Sends(""));
    let mut options = options(&server.url());
    options.timeouts.request_ms = 100;
    let result = run(&options);
    assert_all_failed(&result, "timeout");
    assert_eq!(result.load.requests.unwrap().timeouts, REQUESTS);
}

#[test]
fn a_service_that_stands_still_is_noticed_although_nothing_arrives() {
    let server = HostileServer::start(Conduct::Sends(""));
    let mut options = LoadOptions {
        requests: None,
        expectations: vec!["rate>10".parse().unwrap()],
        abort_after: Some(Duration::from_secs(1)),
        ..options(&server.url())
    };
    options.timeouts.request_ms = 120_000;
    options.timeouts.drain_ms = 50;
    let result = run(&options);
    let notes = &result.notes;
    assert!(
        notes.iter().any(|note| note.contains("Ended early")),
        "{notes:?}"
    );
    assert_eq!(result.load.requests.unwrap().unfinished, 2);
}

#[test]
fn a_server_that_sends_a_byte_now_and_then_does_not_hold_a_request() {
    let server = HostileServer::start(Conduct::Sends(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhal",
    ));
    let mut options = options(&server.url());
    options.timeouts.request_ms = 100;
    assert_all_failed(&run(&options), "timeout");
}

#[test]
fn nobody_listens() {
    let mut options = options(&format!("http://{}/", unused_address()));
    options.duration = Some(Duration::from_millis(500));
    let result = run(&options);
    let errors = &result.load.errors;
    assert_eq!(
        result
            .load
            .requests
            .map_or(0, |requests| requests.succeeded),
        0
    );
    assert!(errors.keys().all(|name| name == "refused"), "{errors:?}");
    assert!(errors.contains_key("refused"), "{errors:?}");
}

#[test]
fn more_than_was_asked_for() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK and more",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOKHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK",
    ] {
        let server = HostileServer::start(Conduct::Sends(text));
        let result = run(&options(&server.url()));
        let errors = &result.load.errors;
        let surplus = errors.get("surplus-data").copied().unwrap_or_default();
        assert_eq!(surplus, REQUESTS, "{errors:?}");
        assert_eq!(errors.len(), 1, "{errors:?}");
        // Each request has its whole response; bytes after it are never one.
        assert_eq!(result.load.requests.unwrap().succeeded, REQUESTS);
    }
}

#[test]
fn an_answer_before_the_body_is_sent() {
    let refusal =
        "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let server = HostileServer::start(Conduct::AnswersEarly(refusal));
    let mut options = options(&server.url());
    options.request.body = Some(BodyOptions::Bytes(vec![b'x'; 4 << 20]));
    let result = run(&options);
    assert_all_failed(&result, "unexpected-status");
    assert_eq!(result.load.statuses.get(&413), Some(&REQUESTS));
}

#[test]
fn unusual_responses_that_are_right() {
    for conduct in [
        Conduct::SendsAndCloses("HTTP/1.1 200 OK\r\n\r\nuntil the end"),
        Conduct::SendsAndCloses("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"),
        Conduct::SendsAndCloses("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nOK"),
        Conduct::Sends("HTTP/1.1 204 No Content\r\n\r\n"),
        Conduct::Sends("HTTP/1.1 200\nContent-Length: 2\n\nOK"),
        Conduct::Sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK\r\n"),
        Conduct::Sends(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n\
             HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x\r\nx\r\n0\r\nA: b\r\n\r\n",
        ),
    ] {
        let server = HostileServer::start(conduct);
        // A request may be on its way when the server closes behind its response.
        let options = LoadOptions {
            retry: Retry::IdleClose,
            ..options(&server.url())
        };
        assert_all_succeeded(&run(&options));
    }
}

#[test]
fn a_response_to_head_has_no_body() {
    let server = HostileServer::start(Conduct::Sends(
        "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n",
    ));
    let mut options = options(&server.url());
    options.request.method = Some("HEAD".to_owned());
    assert_all_succeeded(&run(&options));
}

#[test]
fn a_connection_that_is_closed_while_it_is_idle_costs_no_request() {
    let server = HostileServer::start(Conduct::ServesOnce(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK",
    ));
    let options = LoadOptions {
        retry: Retry::IdleClose,
        ..options(&server.url())
    };
    let result = run(&options);
    assert_all_succeeded(&result);
    let retried = result.load.requests.unwrap().retried;
    assert!(retried > 0);
    // The grade knows it.
    let thresholds = result.load.assessment.unwrap().thresholds;
    let again = thresholds
        .iter()
        .find(|one| one.figure == "requests sent again");
    assert!(again.unwrap().seen > 0.0);
    // Without being asked to, nothing is sent again: each is an error.
    let options = LoadOptions {
        retry: Retry::Never,
        ..options
    };
    let requests = run(&options).load.requests.unwrap();
    assert!(requests.failed > 0 && requests.retried == 0, "{requests:?}");
    assert_eq!(requests.succeeded + requests.failed, REQUESTS);
}

/// HAProxy ends an idle connection with a 408 that answers no request (RFC 9110, section 15.5.9). Other bytes that nobody
/// has asked for are an error.
#[test]
fn a_server_may_say_why_it_ends_an_idle_connection() {
    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";
    const TIMEOUT: &str = "HTTP/1.1 408 Request Time-out\r\nConnection: close\r\n\r\n";
    let load_of = |why| {
        let server = HostileServer::start(Conduct::SendsAndSaysWhy(OK, why));
        run(&LoadOptions {
            connections: 1,
            requests: Some(5),
            rate_per_s: Some(10.0),
            ..options(&server.url())
        })
    };
    let result = load_of(TIMEOUT);
    let requests = result.load.requests.unwrap();
    assert_eq!((requests.succeeded, requests.failed), (5, 0));
    assert!(result.load.errors.is_empty(), "{:?}", result.load.errors);
    assert!(!result.load.statuses.contains_key(&408));
    let result = load_of(OK);
    let requests = result.load.requests.unwrap();
    assert_eq!((requests.succeeded, requests.failed), (5, 0));
    assert!(!result.load.errors.is_empty(), "nobody has asked for it");
}

#[test]
fn certificates_that_are_not_good_enough() {
    for (names, year_of_end, error) in [
        (&["127.0.0.1"][..], 4000, None),
        (&["127.0.0.1"], 2002, Some("tls-certificate-expired")),
        (&["other.example"], 4000, Some("tls-wrong-name")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (server, chain) = secure_server(folder.path(), names, year_of_end);
        let mut options = options(&server.url());
        options.tls.ca = Some(chain);
        let Some(error) = error else {
            assert_all_succeeded(&run(&options));
            let counts = server.stop();
            assert_eq!(counts.requests.answered, REQUESTS);
            continue;
        };
        options.duration = Some(Duration::from_millis(500));
        let result = run(&options);
        let errors = &result.load.errors;
        assert!(errors.contains_key(error), "{errors:?}");
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(
            result
                .load
                .requests
                .map_or(0, |requests| requests.succeeded),
            0
        );
        assert_eq!(server.stop().requests.received, 0);
        // Whoever accepts any certificate is served.
        let (server, _) = secure_server(folder.path(), names, year_of_end);
        let mut options = self::options(&server.url());
        options.tls.insecure = true;
        assert_all_succeeded(&run(&options));
    }
}

#[test]
fn a_server_without_tls() {
    let server = HostileServer::start(Conduct::ClosesAtOnce);
    let mut options = options(&server.url().replace("http:", "https:"));
    options.duration = Some(Duration::from_millis(500));
    let result = run(&options);
    let errors = &result.load.errors;
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(
        result
            .load
            .requests
            .map_or(0, |requests| requests.succeeded),
        0
    );
}

#[test]
fn a_name_that_does_not_resolve_is_told_before_the_start() {
    let error = options("http://no-such-host.invalid/").plan().unwrap_err();
    assert!(
        error.to_string().contains("no-such-host.invalid"),
        "{error}"
    );
}
