//! The dashboard over real sockets: its page, its login, and who may use the API below it.

#![allow(clippy::unwrap_used, reason = "a test may end in a panic")]

use crate::common;
mod feed;

use common::api::{config_with_api, http, server, with_key};
use common::http::Answer;
use common::{start, wait_until};
use serde_json::json;
use std::io::Write as _;
use std::net::TcpStream;
use tidewire_engine::apps::Sink;
use tidewire_engine::ops::NamedApiKey;
use tidewire_engine::{GivenSetting, Server, SettingsFunction};

const KEY: &str = r#"{"key":"0123456789abcdef"}"#;

/// A request of the dashboard's own page.
fn ask(server: &Server, method: &str, path: &str, cookie: &str, body: &str) -> Answer {
    let lines = format!("Origin: http://localhost\r\nCookie: a=b; {cookie}\r\n");
    http(server).ask(method, path, &lines, body)
}

/// The cookie that a login sets.
fn log_in(server: &Server, key: &str) -> String {
    let answer = ask(server, "POST", "/dashboard/login", "", key);
    assert_eq!(answer.status, 200, "{answer:?}");
    let (cookie, rules) = answer.headers["set-cookie"].split_once("; ").unwrap();
    assert_eq!(rules, "Path=/dashboard; HttpOnly; SameSite=Strict");
    cookie.to_owned()
}

fn refusal(answer: &Answer) -> (u16, String) {
    (answer.status, answer.code())
}

#[test]
fn the_page_needs_nothing_of_other_hosts() {
    let server = server();
    for (path, kind) in [
        ("/dashboard", "text/html; charset=utf-8"),
        ("/dashboard/", "text/html; charset=utf-8"),
        ("/dashboard/app.js", "text/javascript; charset=utf-8"),
        ("/dashboard/app.css", "text/css; charset=utf-8"),
    ] {
        let answer = http(&server).ask("GET", path, "", "");
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.headers["content-type"], kind);
        let policy = &answer.headers["content-security-policy"];
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"));
        assert!(!policy.contains("http"), "{policy}");
        assert!(!answer.body.is_empty());
    }
    let answer = http(&server).ask("POST", "/dashboard", "", "");
    assert_eq!(refusal(&answer), (405, "method_not_allowed".to_owned()));
    let answer = http(&server).ask("GET", "/dashboard/other", "", "");
    assert_eq!(refusal(&answer), (404, "not_found".to_owned()));
    assert_eq!(http(&server).ask("GET", "/dashboards", "", "").status, 404);
}

#[test]
fn a_cookie_lasts_from_login_to_logout() {
    let server = server();
    let answer = ask(
        &server,
        "POST",
        "/dashboard/login",
        "",
        r#"{"key":"0123456789abcdeF"}"#,
    );
    assert_eq!(refusal(&answer), (401, "wrong_key".to_owned()));
    assert!(!answer.headers.contains_key("set-cookie"));

    let cookie = log_in(&server, KEY);
    // The shards may not have had a turn yet.
    wait_until("a turn", || {
        let answer = ask(&server, "GET", "/dashboard/api/v1/stats", &cookie, "");
        assert_eq!(answer.status, 200);
        let timings = &answer.json()["timings"];
        let bounds = timings["bounds_s"].as_array().unwrap().len();
        let counts = timings["turn_duration"]["counts"].as_array().unwrap();
        assert_eq!(counts.len(), bounds + 1);
        counts.iter().any(|count| count.as_u64() > Some(0))
    });

    let longer = format!("{cookie}0");
    for wrong in ["", "tidewire_dashboard=", longer.as_str()] {
        let answer = ask(&server, "GET", "/dashboard/api/v1/stats", wrong, "");
        assert_eq!(refusal(&answer), (401, "not_logged_in".to_owned()));
    }
    // The cookie opens nothing but the dashboard.
    let lines = format!("Cookie: {cookie}\r\n");
    let answer = http(&server).ask("GET", "/api/v1/stats", &lines, "");
    assert_eq!(refusal(&answer), (401, "no_key".to_owned()));

    let answer = ask(&server, "POST", "/dashboard/logout", &cookie, "{}");
    assert_eq!(answer.status, 200);
    assert!(answer.headers["set-cookie"].ends_with("; Max-Age=0"));
    let answer = ask(&server, "GET", "/dashboard/api/v1/stats", &cookie, "");
    assert_eq!(answer.status, 401);
}

/// The answer to a login through a proxy that names the client, with these cookies.
fn log_in_from(server: &Server, client: &str, cookies: &str, key: &str) -> Answer {
    let lines =
        format!("Origin: http://localhost\r\nCookie: {cookies}\r\nX-Forwarded-For: {client}\r\n");
    http(server).ask("POST", "/dashboard/login", &lines, key)
}

#[test]
fn wrong_keys_are_slow_and_keep_no_operator_out() {
    const WRONG: &str = r#"{"key":"0123456789abcdeF"}"#;
    let mut config = config_with_api();
    config.proxies.networks = vec!["127.0.0.1".parse().unwrap()];
    let server = start(config, Sink);
    let known = log_in_from(&server, "192.0.2.1", "", KEY);
    let device = known.set_cookies.iter().find_map(|cookie| {
        let (device, rules) = cookie.split_once("; ")?;
        rules
            .starts_with("Path=/dashboard/login; HttpOnly; SameSite=Strict; Max-Age=")
            .then_some(device)
    });
    let device = device.expect("a token of the browser");
    let refusals: Vec<_> = (0..20)
        .map(|_| log_in_from(&server, "192.0.2.1", "", WRONG))
        .collect();
    let compared = refusals.iter().filter(|answer| answer.status == 401);
    // The bucket may refill while a busy machine sends 20 requests.
    assert!((10..20).contains(&compared.count()), "{refusals:?}");
    let last = refusals.last().unwrap();
    assert_eq!(refusal(last), (429, "too_many_tries".to_owned()));
    assert!(
        matches!(&*last.headers["retry-after"], "1" | "2"),
        "{last:?}"
    );
    // Another address, and a browser of this one that has logged in before.
    assert_eq!(log_in_from(&server, "192.0.2.2", "", KEY).status, 200);
    assert_eq!(log_in_from(&server, "192.0.2.1", device, KEY).status, 200);
    let invented = "tidewire_dashboard_device=0123";
    wait_until("an empty bucket", || {
        log_in_from(&server, "192.0.2.1", invented, WRONG).status == 429
    });
    // All addresses of an IPv6 network of 64 bits are one.
    let of_network = (1..20).map(|last| {
        let client = format!("2001:db8::{last}");
        log_in_from(&server, &client, "", WRONG).status
    });
    assert!(of_network.filter(|status| *status == 429).count() > 0);
}

#[test]
fn wrong_keys_of_the_api_are_slow_too() {
    let mut config = config_with_api();
    config.proxies.networks = vec!["127.0.0.1".parse().unwrap()];
    let server = start(config, Sink);
    let ask = |client: &str, key: &str| {
        let lines = format!("Authorization: Bearer {key}\r\nX-Forwarded-For: {client}\r\n");
        http(&server).ask("GET", "/api/v1/stats", &lines, "").status
    };
    let (right, wrong) = ("0123456789abcdef", "0123456789abcdeF");
    assert_eq!(ask("192.0.2.2", right), 200);
    for client in ["192.0.2.1", "192.0.2.2"] {
        let statuses: Vec<_> = (0..20).map(|_| ask(client, wrong)).collect();
        // Who has shown a right key is not kept out by others of the same address.
        let is_stranger = client == "192.0.2.1";
        assert_eq!(statuses.contains(&429), is_stranger, "{statuses:?}");
        let status = ask(client, right);
        assert!(status == 200 || is_stranger, "{status}");
    }
}

#[test]
fn a_page_of_another_origin_changes_nothing() {
    let server = server();
    let cookie = log_in(&server, KEY);
    let body = json!({"topic": "a", "type": "t", "payload": 1}).to_string();
    for origin in [
        "",
        "Origin: null\r\n",
        "Origin: http://evil.example\r\n",
        "Origin: http://localhost.evil.example\r\n",
        "Origin: ftp://localhost\r\n",
    ] {
        let lines = format!("Cookie: {cookie}\r\n{origin}");
        for (path, body) in [
            ("/dashboard/login", KEY),
            ("/dashboard/logout", "{}"),
            ("/dashboard/api/v1/publish", body.as_str()),
        ] {
            let answer = http(&server).ask("POST", path, &lines, body);
            assert_eq!(
                refusal(&answer),
                (403, "wrong_origin".to_owned()),
                "{origin}"
            );
        }
    }
    let answer = ask(&server, "POST", "/dashboard/api/v1/publish", &cookie, &body);
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn a_login_has_the_rights_of_its_key() {
    let mut config = config_with_api();
    config.ops_api_keys = vec![NamedApiKey::parse("viewer read 0123456789abcdef").unwrap()];
    let server = start(config, Sink);
    let cookie = log_in(&server, KEY);
    let listed = ask(&server, "GET", "/dashboard/api/v1/connections", &cookie, "");
    assert_eq!(listed.status, 200);
    let body = json!({"topic": "a", "type": "t", "payload": 1}).to_string();
    let answer = ask(&server, "POST", "/dashboard/api/v1/publish", &cookie, &body);
    assert_eq!(refusal(&answer), (403, "not_permitted".to_owned()));
}

#[test]
fn a_login_is_small_and_needs_a_key_of_the_server() {
    let server = server();
    let long = format!(r#"{{"key":"{}"}}"#, "x".repeat(5_000));
    let answer = ask(&server, "POST", "/dashboard/login", "", &long);
    assert_eq!(refusal(&answer), (413, "too_large".to_owned()));
    let answer = ask(&server, "POST", "/dashboard/login", "", "key");
    assert_eq!(refusal(&answer), (400, "invalid_json".to_owned()));

    let mut config = config_with_api();
    config.ops_api_keys.clear();
    let without = start(config, Sink);
    assert_eq!(http(&without).ask("GET", "/dashboard", "", "").status, 200);
    let answer = ask(&without, "POST", "/dashboard/login", "", KEY);
    assert_eq!(refusal(&answer), (403, "api_disabled".to_owned()));
    let answer = ask(&without, "GET", "/dashboard/api/v1/stats", "", "");
    assert_eq!(refusal(&answer), (403, "api_disabled".to_owned()));
}

#[test]
fn settings_are_those_that_the_program_reports() {
    let server = server();
    let path = "/api/v1/settings";
    let answer = with_key(&server, "GET", path, "");
    assert_eq!(refusal(&answer), (501, "not_supported".to_owned()));
    server.on_settings(SettingsFunction(Box::new(|| {
        vec![GivenSetting {
            name: "app",
            value: "sink".to_owned(),
            source: "--app".to_owned(),
        }]
    })));
    let answer = with_key(&server, "GET", path, "");
    let expected = json!({"name": "app", "value": "sink", "source": "--app", "default": "echo"});
    assert_eq!(answer.json(), json!({"settings": [expected]}));
}

#[test]
fn behind_tls_the_cookie_is_secure_and_a_new_login_ends_the_old_one() {
    let server = server();
    let lines = "Origin: https://localhost\r\n";
    let answer = http(&server).ask("POST", "/dashboard/login", lines, KEY);
    let (first, rules) = answer.headers["set-cookie"].split_once("; ").unwrap();
    assert_eq!(rules, "Path=/dashboard; HttpOnly; SameSite=Strict; Secure");
    let second = ask(&server, "POST", "/dashboard/login", first, KEY);
    assert_eq!(second.status, 200);
    let answer = ask(&server, "GET", "/dashboard/api/v1/stats", first, "");
    assert_eq!(refusal(&answer), (401, "not_logged_in".to_owned()));
}

#[test]
fn half_sent_logins_keep_no_probe_out() {
    let server = server();
    let address = server.ops_address().unwrap();
    let head = "POST /dashboard/login HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Length: 9\r\n\r\n";
    let half: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut socket = TcpStream::connect(address).unwrap();
            // One that has given way already refuses it.
            let _ = socket.write_all(head.as_bytes());
            socket
        })
        .collect();
    let answer = http(&server).ask("GET", "/health", "", "");
    assert_eq!(answer.status, 200, "{answer:?}");
    drop(half);
}
