//! Redirects over real sockets: which are followed, with which request, and how they are counted.

use std::collections::BTreeSet;

use crate::http_service::{Answer, Request, Service};
use crate::loading::run;
use tidewire_load::options::body::BodyOptions;
use tidewire_load::options::load::LoadOptions;
use tidewire_load::options::request::RequestOptions;

const REQUESTS: u64 = 5;

/// Leads from `/301/place` to `/place` with this status, and from `/loop` to itself.
fn lead(request: &Request) -> Answer {
    let leads = |status, location: &str| {
        let header = format!("Location: {location}");
        (status, vec![header], "gone".to_owned())
    };
    match request.target() {
        "/301/place" => leads("301 Moved Permanently", "/place"),
        "/302/place" => leads("302 Found", "../place"),
        "/303/place" => leads("303 See Other", "/place"),
        "/307/place" => leads("307 Temporary Redirect", "/place"),
        "/308/place" => leads("308 Permanent Redirect", "/place"),
        "/twice" => leads("307 Temporary Redirect", "/302/place"),
        "/away" => leads("301 Moved Permanently", "http://other.example/"),
        "/secure" => leads("301 Moved Permanently", "https://127.0.0.1/"),
        "/loop" => leads("307 Temporary Redirect", "/loop"),
        "/nowhere" => ("302 Found", Vec::new(), String::new()),
        _ => ("200 OK", Vec::new(), "ok".to_owned()),
    }
}

fn options(service: &Service, path: &str, redirects: u32) -> LoadOptions {
    LoadOptions {
        connections: 2,
        threads: 1,
        requests: Some(REQUESTS),
        redirects,
        ..LoadOptions::new(&service.url(path))
    }
}

#[test]
fn each_hop_is_a_request_of_its_own() {
    for http2 in [false, true] {
        let service = Service::start(lead);
        let result = run(&LoadOptions {
            http2,
            ..options(&service, "/twice", 3)
        });
        let requests = result.load.requests.unwrap();
        assert_eq!((requests.redirects, requests.failed), (10, 0));
        assert_eq!(requests.succeeded, 15, "{:?}", result.load.errors);
        let statuses: Vec<(u16, u64)> = result.load.statuses.into_iter().collect();
        assert_eq!(statuses, [(200, 5), (302, 5), (307, 5)]);
        assert_eq!(service.requests().len(), 15);
    }
}

#[test]
fn a_redirect_is_a_response_like_any_other_unless_it_is_to_be_followed() {
    let service = Service::start(lead);
    let result = run(&options(&service, "/302/place", 0));
    let requests = result.load.requests.unwrap();
    assert_eq!((requests.redirects, requests.succeeded), (0, REQUESTS));
    assert_eq!(result.load.statuses.get(&302), Some(&REQUESTS));
}

#[test]
fn what_cannot_be_followed_has_a_name() {
    let service = Service::start(lead);
    let errors = |path: &str| {
        let result = run(&options(&service, path, 2));
        let names = result.load.errors.into_iter();
        let names: Vec<(String, u64)> = names.collect();
        (names, result.load.requests.unwrap())
    };
    for (path, name, hops) in [
        ("/away", "redirect-to-another-server", 0),
        ("/secure", "redirect-to-another-server", 0),
        ("/nowhere", "redirect-without-location", 0),
        ("/loop", "too-many-redirects", 2 * REQUESTS),
    ] {
        let (errors, requests) = errors(path);
        assert_eq!(errors, [(name.to_owned(), REQUESTS)]);
        assert_eq!(requests.redirects, hops, "{path}");
        assert_eq!((requests.succeeded, requests.failed), (hops, REQUESTS));
    }
}

#[test]
fn a_body_is_sent_on_or_left_out_as_the_status_wants() {
    for (status, is_sent_on) in [
        (301, false),
        (302, false),
        (303, false),
        (307, true),
        (308, true),
    ] {
        let service = Service::start(lead);
        let mut options = options(&service, &format!("/{status}/place"), 1);
        options.request.body = Some(BodyOptions::Json(r#"{"a":1}"#.into()));
        options.request.headers = vec![("X-Mine".into(), "yes".into())];
        let result = run(&options);
        assert_eq!(result.load.errors.len(), 0, "{:?}", result.load.errors);
        let requests = service.requests();
        let led: Vec<&Request> = requests
            .iter()
            .filter(|request| request.target() == "/place")
            .collect();
        assert_eq!(led.len() as u64, REQUESTS);
        for request in led {
            assert_eq!(request.header("x-mine"), Some("yes"));
            let (method, body) = match is_sent_on {
                true => ("POST", r#"{"a":1}"#),
                false => ("GET", ""),
            };
            assert!(request.line.starts_with(method), "{status}: {request:?}");
            assert_eq!(request.body, body, "{status}");
            assert_eq!(request.header("content-type").is_some(), is_sent_on);
            let length = is_sent_on.then_some("7");
            assert_eq!(request.header("content-length"), length);
        }
    }
}

#[test]
fn values_stay_those_of_the_request_that_was_redirected() {
    let service = Service::start(lead);
    let mut options = options(&service, "/308/place", 1);
    options.request = RequestOptions {
        headers: vec![("X-Id".into(), "{{uuid}}".into())],
        body: Some(BodyOptions::Bytes(b"n={{seq}}".to_vec())),
        ..RequestOptions::default()
    };
    let result = run(&options);
    assert_eq!(result.load.errors.len(), 0, "{:?}", result.load.errors);
    let sent = |target: &str| -> BTreeSet<(String, String)> {
        let requests = service.requests().into_iter();
        requests
            .filter(|request| request.target() == target)
            .map(|request| {
                let id = request.header("x-id").unwrap().to_owned();
                (request.body, id)
            })
            .collect()
    };
    assert_eq!(sent("/308/place").len() as u64, REQUESTS);
    assert_eq!(sent("/308/place"), sent("/place"));
}

#[test]
fn a_journey_goes_on_behind_a_redirect() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journey.toml");
    let text = r#"
        [[request]]
        path = "/303/place"
        method = "POST"
        form = { n = "{{seq}}" }
        expect_body = "ok"
        [[request]]
        path = "/end"
    "#;
    std::fs::write(&file, text).unwrap();
    let service = Service::start(lead);
    let mut options = options(&service, "/", 1);
    options.connections = 1;
    options.requests = Some(4);
    options.scenario = Some(file);
    let result = run(&options);
    assert_eq!(result.load.errors.len(), 0, "{:?}", result.load.errors);
    let lines: Vec<String> = service.requests().into_iter().map(|one| one.line).collect();
    let round =
        ["POST /303/place", "GET /place", "GET /end"].map(|line| format!("{line} HTTP/1.1"));
    assert_eq!(lines, [round.clone(), round].concat());
}

#[test]
fn a_proxy_is_told_where_a_redirect_leads() {
    let proxy = Service::start(|request| match request.target() {
        "http://service.example:81/a/b" => ("302 Found", vec!["Location: c".into()], String::new()),
        _ => lead(request),
    });
    let result = run(&LoadOptions {
        proxy: Some(proxy.url("/")),
        redirects: 1,
        requests: Some(1),
        connections: 1,
        ..LoadOptions::new("http://service.example:81/a/b")
    });
    assert_eq!(result.load.requests.unwrap().redirects, 1);
    let second = &proxy.requests()[1];
    assert_eq!(second.line, "GET http://service.example:81/a/c HTTP/1.1");
}
