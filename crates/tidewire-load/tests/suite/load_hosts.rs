//! Users that speak to several servers: they log in at one over HTTP, and talk with another over WebSocket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidewire_load::options::load::LoadOptions;
use tidewire_load::options::matching::matching;
use tidewire_load::report::{ConfirmedBy, TestResult};

use crate::common::{Conduct, Server};
use crate::http_service::{Answer, Request, Service};
use crate::loading::{run, scenario};

/// Gives each user a token and a cookie, and knows them by the cookie.
fn login() -> Service {
    let number = AtomicUsize::new(0);
    Service::start(move |request: &Request| -> Answer {
        let cookie = request.header("cookie").unwrap_or_default();
        match request.target() {
            "/session" => {
                let number = number.fetch_add(1, Ordering::Relaxed);
                let set = vec![format!("Set-Cookie: sid=s{number}; Path=/")];
                ("200 OK", set, format!(r#"{{"token":"t{number}"}}"#))
            }
            _ if cookie.starts_with("sid=s") => ("200 OK", Vec::new(), "known".into()),
            _ => ("401 Unauthorized", Vec::new(), String::new()),
        }
    })
}

fn shop() -> Service {
    Service::start(|request: &Request| -> Answer {
        let has = |name| request.header(name).is_some();
        match has("cookie") || !has("x-own") {
            true => ("400 Bad Request", Vec::new(), String::new()),
            false => ("200 OK", Vec::new(), "articles".into()),
        }
    })
}

/// Two users of a scenario in one thread, with these headers for the server of the URL.
fn options(url: &str, headers: &[(&str, &str)], scenario: PathBuf) -> LoadOptions {
    let mut options = LoadOptions {
        connections: 2,
        threads: 1,
        duration: Some(Duration::from_secs(60)),
        scenario: Some(scenario),
        ..LoadOptions::new(url)
    };
    let headers = headers.iter();
    options.request.headers = headers
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect();
    options
}

/// What only the shop gets, and needs.
const OWN: &[(&str, &str)] = &[("X-Own", "1")];

/// What a user knows after its login.
const BEARER: &[(&str, &str)] = &[("Authorization", "Bearer {{token}}")];

#[track_caller]
fn assert_all(result: &TestResult, count: u64) {
    let requests = result.load.requests.unwrap();
    let seen = (requests.succeeded, requests.failed, requests.unfinished);
    assert_eq!(seen, (count, 0, 0), "{:?}", result.load.errors);
}

fn sent(result: &TestResult, name: &str) -> u64 {
    let mut rows = result.load.targets.iter();
    let row = rows.find(|row| row.name == name);
    row.unwrap_or_else(|| panic!("{name}: {:?}", result.load.targets))
        .requests
        .succeeded
}

#[test]
fn a_journey_logs_in_shops_and_talks() {
    for http2 in [false, true] {
        travel(http2);
    }
}

fn travel(http2: bool) {
    let (login, shop) = (login(), shop());
    let chat = Server::raw(Conduct::Echo);
    let (_folder, path) = scenario(&format!(
        r#"
        [hosts]
        login = "http://{}"
        chat = {{ url = "ws://{}/socket?user={{{{user}}}}", headers = {{ Authorization = "Bearer {{{{token}}}}" }} }}

        [[setup]]
        host = "login"
        path = "/session"
        method = "POST"
        capture = {{ token = "json:/token" }}
        [[request]]
        path = "/articles"
        think = "50ms"                  # No user sends all requests before the others have begun.
        [[request]]
        name = "say"
        host = "chat"
        json = {{ say = "{{{{token}}}}", seq = "{{{{seq}}}}" }}
        [[request]]
        host = "login"
        path = "/me"
        expect_body = "known"
        [[teardown]]
        host = "login"
        path = "/logout"
        "#,
        login.address, chat.address
    ));
    // Another name for the same machine: no cookie of the others goes there.
    let url = format!("http://localhost:{}/", shop.address.port());
    let mut options = LoadOptions {
        connections: 4,
        requests: Some(64),
        http2,
        ..options(&url, OWN, path)
    };
    options.messages.matching = matching("field:seq").unwrap();
    let result = run(&options);
    assert_all(&result, 64);
    let users = sent(&result, "login: POST /session");
    assert_eq!(users, 4);
    let say = sent(&result, "say");
    let me = sent(&result, "login: GET /me");
    assert_eq!(users + sent(&result, "GET /articles") + say + me, 64);
    assert!(say >= me && me > 0);
    // Each user has one connection to each server, and keeps it.
    assert_eq!(result.load.connecting.unwrap().opened, 12);
    let heads = chat.heads.lock().unwrap().clone();
    assert_eq!(heads.len(), 4);
    let mut tokens = chat.tokens.lock().unwrap().clone();
    tokens.sort();
    assert_eq!(tokens, ["t0", "t1", "t2", "t3"]);
    for user in 0..4 {
        let line = format!("GET /socket?user={user} HTTP/1.1\r\n");
        let head = heads.iter().find(|head| head.starts_with(&line)).unwrap();
        assert!(head.contains("\r\nCookie: sid=s"), "{head}");
        assert!(!head.to_ascii_lowercase().contains("x-own"), "{head}");
    }
    let mut strangers = login.requests().into_iter();
    assert!(strangers.all(|request| request.header("x-own").is_none()));
    assert_eq!(result.confirmed_by, [ConfirmedBy::Reply]);
}

#[test]
fn a_user_of_a_websocket_server_logs_in_first() {
    let login = login();
    let chat = Server::raw(Conduct::Sink);
    let (_folder, path) = scenario(&format!(
        r#"
        hosts = {{ login = "http://{}" }}
        [[setup]]
        host = "login"
        path = "/session"
        capture = {{ token = "json:/token" }}
        [[request]]
        json = {{ token = "{{{{token}}}}" }}
        think = "10ms"
        [[teardown]]
        host = "login"
        path = "/logout"
        "#,
        login.address
    ));
    let result = run(&LoadOptions {
        connections: 3,
        requests: Some(30),
        ..options(&chat.url(), BEARER, path)
    });
    assert_all(&result, 30);
    assert_eq!(sent(&result, "login: GET /session"), 3);
    assert_eq!(sent(&result, "message"), 27);
    assert_eq!(result.confirmed_by, [ConfirmedBy::Reply, ConfirmedBy::Pong]);
    let mut tokens = chat.tokens.lock().unwrap().clone();
    tokens.sort();
    assert_eq!(tokens, ["t0", "t1", "t2"]);
    let leavers = login.requests();
    let leavers = leavers.iter().filter(|one| one.target() == "/logout");
    assert_eq!(leavers.count(), 3);
}

/// As with a central login: the shop sends a user without a session there, and the login sends it back with a ticket.
#[test]
fn redirects_lead_to_another_host_and_back() {
    for http2 in [false, true] {
        be_sent_around(http2);
    }
}

fn be_sent_around(http2: bool) {
    let moved = |to: String, set: &[&str]| -> Answer {
        let set = set.iter().map(|cookie| format!("Set-Cookie: {cookie}"));
        let headers = set.chain([format!("Location: {to}")]).collect();
        ("302 Found", headers, String::new())
    };
    let login = Service::start(move |request: &Request| {
        if request.header("x-own").is_some() {
            return ("400 Bad Request", Vec::new(), String::new());
        }
        let back = request.target().split_once("?back=").unwrap().1;
        moved(format!("{back}?ticket=7"), &["at=login; Path=/"])
    });
    let address = login.address;
    let shop = Service::start(move |request: &Request| {
        let cookie = request.header("cookie").unwrap_or_default();
        let port = request.header("host").unwrap().split_once(':').unwrap().1;
        match request.target() {
            "/in?ticket=7" => moved("/".into(), &["sid=1"]),
            _ if cookie == "sid=1" => ("200 OK", Vec::new(), "inside".into()),
            _ => {
                let back = format!("http://localhost:{port}/in");
                moved(format!("http://{address}/authorize?back={back}"), &[])
            }
        }
    });
    let (_folder, path) = scenario(&format!(
        r#"
        hosts = {{ login = "http://{address}" }}
        [[setup]]
        path = "/"
        expect_body = "inside"
        [[request]]
        path = "/page"
        expect_body = "inside"
        think = "10ms"
        [[request]]
        name = "again"
        host = "login"
        expect_body = "inside"
        path = "/authorize?back=http://localhost:{}/in"
        "#,
        shop.address.port()
    ));
    let url = format!("http://localhost:{}/", shop.address.port());
    let result = run(&LoadOptions {
        requests: Some(10),
        redirects: 5,
        http2,
        ..options(&url, OWN, path)
    });
    let requests = result.load.requests.unwrap();
    assert_eq!(requests.failed, 0, "{:?}", result.load.errors);
    // Each with its redirects.
    assert_eq!(requests.redirects, 6 + 2 * (sent(&result, "again") / 3));
    assert!(sent(&result, "GET /page") > 0);
}

#[test]
fn a_conversation_begins_with_what_the_login_gave() {
    let login = login();
    let chat = Server::raw(Conduct::Echo);
    let (folder, path) = scenario(&format!(
        r#"
        hosts = {{ login = "http://{}" }}
        [[setup]]
        host = "login"
        path = "/session"
        capture = {{ token = "json:/token" }}
        [[request]]
        json = {{ seq = "{{{{seq}}}}" }}
        think = "10ms"
        "#,
        login.address
    ));
    let profile = folder.path().join("chat.toml");
    // The server sends back what it gets.
    let text = r#"
        start = ['{"auth":"{{by}}/{{token}}"}']
        reply = "field:seq"
        values = { by = "nobody" }
        [[rule]]
        starts = '{"auth":"user t/t'
        ready = true
    "#;
    std::fs::write(&profile, text).unwrap();
    let json = serde_json::json!({
        "scenario": path,
        "profile": profile,
        "profile_values": { "by": "user {{token}}" },
        "connections": 2,
        "requests": 20,
    });
    let plan = |text: &str| {
        let json = json.to_string().replace("user {{token}}", text);
        let options = LoadOptions::from_json(&chat.url(), &json);
        options.and_then(|options| options.plan().map(|_| options))
    };
    assert_all(&run(&plan("user t").unwrap()), 20);
    // A value may have it, too.
    plan("user {{token}}").unwrap();
    let error = plan("user {{tokne}}").unwrap_err().to_string();
    assert!(error.contains("`{{tokne}}` stands for nothing"), "{error}");
    let both = format!("{text}capture = {{ token = \"json:/auth\" }}");
    std::fs::write(&profile, both).unwrap();
    let error = plan("user t").unwrap_err().to_string();
    assert!(error.contains("both capture `token`"), "{error}");
}

#[test]
fn nobody_connects_to_a_server_before_a_request_goes_there() {
    let login = login();
    let chat = Server::raw(Conduct::Sink);
    let (_folder, path) = scenario(&format!(
        r#"
        hosts = {{ login = "http://{}" }}
        [[setup]]
        host = "login"
        path = "/session"
        capture = {{ token = "json:/token" }}
        [[request]]
        body = "hi"
        "#,
        login.address
    ));
    let paces: [&dyn Fn(&mut LoadOptions); 3] = [
        &|options| options.rate_per_s = Some(50.0),
        &|options| options.each_per_s = Some(10.0),
        &|options| {
            let s = Duration::from_secs_f64;
            options.rate_per_s = Some(50.0);
            options.connection_stages = Some(vec![(s(0.3), 4.0), (s(0.3), 1.0), (s(0.4), 4.0)]);
        },
    ];
    for pace in paces {
        let mut options = LoadOptions {
            connections: 4,
            ramp_per_s: Some(20.0),
            duration: Some(Duration::from_secs(1)),
            ..self::options(&chat.url(), BEARER, path.clone())
        };
        pace(&mut options);
        if options.connection_stages.is_some() {
            options.ramp_per_s = None;
        }
        let result = run(&options);
        assert!(sent(&result, "message") > 0, "{:?}", result.notes);
        assert_eq!(result.load.errors, [].into());
        let heads = std::mem::take(&mut *chat.heads.lock().unwrap());
        let has_token = |head: &String| head.contains("Authorization: Bearer t");
        assert!(
            !heads.is_empty() && heads.iter().all(has_token),
            "{heads:?}"
        );
    }
}

#[test]
fn a_host_that_refuses_does_not_keep_users_from_the_others() {
    let shop = shop();
    let gone = Server::raw(Conduct::Refusing);
    let (_folder, path) = scenario(&format!(
        r#"
        order = "weighted"
        hosts = {{ gone = "{}" }}
        [[request]]
        path = "/"
        [[request]]
        host = "gone"
        body = "hi"
        "#,
        gone.url()
    ));
    let result = run(&LoadOptions {
        connections: 4,
        rate_per_s: Some(40.0),
        duration: Some(Duration::from_secs(1)),
        ..options(&shop.url("/"), OWN, path)
    });
    let row = |name: &str| {
        let mut rows = result.load.targets.iter();
        rows.find(|row| row.name == name).unwrap().requests
    };
    let (here, there) = (row("GET /"), row("gone: message"));
    assert!(here.succeeded > 0, "{:?}", result.notes);
    assert_eq!((here.failed, there.succeeded), (0, 0));
    let errors = &result.load.errors;
    assert_eq!(errors.get("upgrade-server-error"), Some(&there.failed));
    assert_eq!(errors.len(), 1, "{errors:?}");
}

#[test]
fn users_of_two_websocket_servers_survive_the_end_of_one_connection() {
    let (one, two) = (
        Server::raw(Conduct::Sink),
        Server::raw(Conduct::ClosingReady(1_001, 20)),
    );
    let (_folder, path) = scenario(&format!(
        r#"
        hosts = {{ two = "{}" }}
        [[request]]
        host = "two"
        body = "hi"
        [[request]]
        name = "here"
        body = "hi"
        think = "100ms"
        "#,
        two.url()
    ));
    let result = run(&LoadOptions {
        requests: Some(12),
        ..options(&one.url(), &[], path)
    });
    // None is gone, although each of them has lost a connection.
    let requests = result.load.requests.unwrap();
    assert_eq!(requests.sent, 12, "{:?}", result.notes);
    assert!(sent(&result, "here") > 0);
    assert!(result.load.connecting.unwrap().ended > 0);
}

#[test]
fn a_connection_that_ends_while_its_user_is_elsewhere_is_opened_again() {
    let shop = shop();
    // Long enough for the message before, and not for the time that the user spends elsewhere.
    let chat = Server::raw(Conduct::ClosingReady(1_001, 100));
    let (_folder, path) = scenario(&format!(
        r#"
        hosts = {{ chat = "{}" }}
        [[request]]
        name = "say"
        host = "chat"
        body = "hi"
        [[request]]
        path = "/"
        think = "500ms"
        "#,
        chat.url()
    ));
    let result = run(&LoadOptions {
        requests: Some(8),
        ..options(&shop.url("/"), OWN, path)
    });
    let requests = result.load.requests.unwrap();
    assert_eq!(requests.sent, 8);
    let connecting = result.load.connecting.as_ref().unwrap();
    assert!(connecting.ended >= 2, "{:?}", result.load.errors);
    // Each end is an error. A slow machine may lose a message with it, and the user then begins again.
    let ends = result.load.errors.get("closed-by-server").copied();
    assert_eq!(ends, Some(connecting.ended));
    assert_eq!(requests.succeeded + requests.failed, 8);
    assert!(connecting.opened >= 6, "{connecting:?}");
    assert!(connecting.reconnected >= 2, "{connecting:?}");
    let heads = chat.heads.lock().unwrap();
    assert!(heads.len() >= 4, "{heads:?}");
}
