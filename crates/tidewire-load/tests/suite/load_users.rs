//! Users of a load as an application sees them: they log in once, keep their cookies, go through pages and leave.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidewire_load::options::load::LoadOptions;
use tidewire_load::report::TestResult;

use crate::http_service::{Answer, Request, Service};
use crate::loading::{self, report_of, run};

fn scenario(text: &str) -> (tempfile::TempDir, PathBuf) {
    let (folder, path) = loading::scenario(text);
    let people: String = (0..4).map(|n| format!("name{n},pass&{n}\n")).collect();
    std::fs::write(
        folder.path().join("people.csv"),
        format!("name,password\n{people}"),
    )
    .unwrap();
    std::fs::write(folder.path().join("picture.png"), "PNG\u{1}{{name}}").unwrap();
    (folder, path)
}

fn options(service: &Service, scenario: PathBuf, connections: usize) -> LoadOptions {
    LoadOptions {
        connections,
        threads: 1,
        scenario: Some(scenario),
        ..LoadOptions::new(&service.url("/"))
    }
}

fn row<'r>(result: &'r TestResult, name: &str) -> &'r tidewire_load::report::TargetFigures {
    let mut rows = result.load.targets.iter();
    rows.find(|row| row.name == name).unwrap()
}

/// An application with a form against forgery, sessions in cookies, and three pages of articles.
fn application() -> impl Fn(&Request) -> Answer + Send + Sync + 'static {
    let sessions: Mutex<BTreeMap<String, String>> = Mutex::default();
    let number = AtomicUsize::new(0);
    move |request| {
        let cookies = request.header("cookie").unwrap_or_default().to_owned();
        let cookie = |name: &str| {
            let mut pairs = cookies.split("; ").filter_map(|pair| pair.split_once('='));
            pairs
                .find(|pair| pair.0 == name)
                .map(|pair| pair.1.to_owned())
        };
        let method = request.line.split(' ').next().unwrap_or_default();
        let (path, query) = request
            .target()
            .split_once('?')
            .unwrap_or((request.target(), ""));
        let user = cookie("sid").and_then(|sid| sessions.lock().unwrap().get(&sid).cloned());
        match (method, path) {
            ("GET", "/login") => {
                let token = number.fetch_add(1, Ordering::Relaxed);
                let form = format!(
                    "<form><input type=hidden name=csrf value='t&amp;{token}'><input name=name></form>"
                );
                let set = vec![format!("Set-Cookie: csrf={token}; Path=/login")];
                ("200 OK", set, form)
            }
            ("POST", "/login") => {
                let expected = format!("csrf=t%26{}", cookie("csrf").unwrap_or_default());
                let mut fields = request.body.split('&');
                let name = fields.clone().find_map(|field| field.strip_prefix("name="));
                if !fields.any(|field| field == expected) {
                    return ("403 Forbidden", Vec::new(), "forged".into());
                }
                let sid = format!("s{}", number.fetch_add(1, Ordering::Relaxed));
                let name = name.unwrap_or_default().to_owned();
                sessions.lock().unwrap().insert(sid.clone(), name);
                let set = vec![
                    format!("Set-Cookie: sid={sid}; Path=/; HttpOnly"),
                    "Set-Cookie: csrf=; Max-Age=0; Path=/login".to_owned(),
                    "Location: /articles?page=1".to_owned(),
                ];
                ("302 Found", set, String::new())
            }
            _ if user.is_none() => ("401 Unauthorized", Vec::new(), String::new()),
            ("GET", "/articles") => {
                let page: u32 = query.trim_start_matches("page=").parse().unwrap_or(1);
                let next = match page {
                    3 => "null".to_owned(),
                    page => format!("\"/articles?page={}\"", page + 1),
                };
                (
                    "200 OK",
                    Vec::new(),
                    format!(r#"{{"next":{next},"id":"a{page}"}}"#),
                )
            }
            ("POST", "/logout") => {
                sessions.lock().unwrap().remove(&cookie("sid").unwrap());
                ("200 OK", Vec::new(), String::new())
            }
            _ => ("200 OK", Vec::new(), user.unwrap_or_default()),
        }
    }
}

const LOGIN: &str = r#"
    data = { people = { file = "people.csv", unique = true } }
    [[setup]]
    name = "form"
    path = "/login"
    capture = { csrf = "form:csrf" }
    [[setup]]
    name = "log in"
    path = "/login"
    form = { csrf = "{{csrf}}", name = "{{name}}" }
    capture = { sid = "cookie:sid" }
"#;

#[test]
fn each_user_logs_in_once_and_keeps_its_session() {
    log_in_once(false);
    log_in_once(true);
}

fn log_in_once(http2: bool) {
    let service = Service::start(application());
    let text = format!("{LOGIN}\n[[request]]\npath = \"/me\"\nexpect_body = \"name\"\n");
    let (_folder, path) = scenario(&text);
    let result = run(&LoadOptions {
        requests: Some(40),
        http2,
        ..options(&service, path, 4)
    });
    let requests = result.load.requests.unwrap();
    assert_eq!(
        (requests.succeeded, requests.failed),
        (40, 0),
        "{:?}",
        result.notes
    );
    let sent = |name: &str| row(&result, name).requests.succeeded;
    // A user may be so slow that the others send everything.
    assert!((1..=4).contains(&sent("form")), "{}", sent("form"));
    assert!((1..=sent("form")).contains(&sent("log in")));
    assert_eq!(sent("form") + sent("log in") + sent("GET /me"), 40);
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for request in service.requests() {
        if request.target() == "/me" {
            let sid = request.header("cookie").unwrap();
            // The cookie of the login form belongs to its path, and was removed.
            assert!(sid.starts_with("sid=s") && !sid.contains(';'), "{sid}");
            *names.entry(sid.to_owned()).or_default() += 1;
        }
    }
    // Each has a session of its own.
    let sessions = names.len() as u64;
    assert!((1..=sent("log in")).contains(&sessions), "{names:?}");
}

#[test]
fn without_cookies_nobody_stays_logged_in() {
    let service = Service::start(application());
    // Nothing captures a cookie that is not kept.
    let login = LOGIN.replace("capture = { sid = \"cookie:sid\" }", "");
    let text = format!("{login}\n[[request]]\npath = \"/me\"\n");
    let (_folder, path) = scenario(&text);
    let result = run(&LoadOptions {
        requests: Some(10),
        keep_cookies: false,
        ..options(&service, path, 1)
    });
    assert_eq!(row(&result, "form").requests.succeeded, 5);
    assert_eq!(row(&result, "log in").requests.failed, 5);
    assert_eq!(row(&result, "GET /me").requests.sent, 0);
}

#[test]
fn cookies_follow_redirects() {
    let service = Service::start(|request| {
        let cookie = request.header("cookie").unwrap_or("none").to_owned();
        match request.target() {
            "/start" => (
                "302 Found",
                vec!["Set-Cookie: a=1".into(), "Location: /next".into()],
                String::new(),
            ),
            "/next" => (
                "302 Found",
                vec!["Set-Cookie: b=2; Path=/end".into(), "Location: /end".into()],
                String::new(),
            ),
            _ => ("200 OK", Vec::new(), cookie),
        }
    });
    let (_folder, path) = scenario(
        "[[request]]\npath = \"/start\"\ncookies = { own = \"x\" }\nexpect_body = \"own=x; b=2; a=1\"\n",
    );
    let result = run(&LoadOptions {
        requests: Some(3),
        redirects: 5,
        ..options(&service, path, 1)
    });
    assert_eq!(
        result.load.requests.unwrap().failed,
        0,
        "{:?}",
        service.requests()
    );
}

#[test]
fn a_journey_reads_page_after_page_and_repeats() {
    let service = Service::start(application());
    let text = format!(
        r#"{LOGIN}
        [[request]]
        name = "first"
        path = "/articles?page=1"
        capture = {{ next = "json:/next" }}
        [[request]]
        name = "further"
        path = "{{{{next}}}}"
        while = "{{{{next}}}}"
        capture = {{ next = {{ from = "json:/next", default = "" }}, id = "regex:a[0-9]" }}
        [[request]]
        name = "last"
        path = "/last/{{{{id}}}}"
        when = "{{{{id}}}} == a3"
        repeat = 2
        [[request]]
        name = "never"
        path = "/never"
        when = "{{{{user}}}} > 1000"
    "#
    );
    let (_folder, path) = scenario(&text);
    // A setup of two, and three rounds of 1 + 2 + 2.
    let result = run(&LoadOptions {
        requests: Some(17),
        ..options(&service, path, 1)
    });
    assert_eq!(result.load.requests.unwrap().failed, 0);
    for (name, expected) in [("first", 3), ("further", 6), ("last", 6), ("never", 0)] {
        assert_eq!(row(&result, name).requests.succeeded, expected, "{name}");
    }
    let targets: Vec<String> = service.requests()[2..7]
        .iter()
        .map(|request| request.target().to_owned())
        .collect();
    let round = [
        "/articles?page=1",
        "/articles?page=2",
        "/articles?page=3",
        "/last/a3",
        "/last/a3",
    ];
    assert_eq!(targets, round);
}

#[test]
fn a_journey_at_given_times_ends_with_its_last_request() {
    let service = Service::start(|_| ("200 OK", Vec::new(), String::new()));
    let text = r#"
        [[setup]]
        path = "/setup"
        [[request]]
        path = "/a"
        [[request]]
        path = "/b"
        when = "{{user}} < 0"
    "#;
    let (_folder, path) = scenario(text);
    let result = run(&LoadOptions {
        rate_per_s: Some(100.0),
        duration: Some(Duration::from_secs(1)),
        ..options(&service, path, 2)
    });
    let setups = row(&result, "GET /setup").requests.succeeded;
    let rounds = row(&result, "GET /a").requests.succeeded;
    // Each due request begins a round, and each user's setup is a part of its first. A busy machine sends fewer.
    assert_eq!(row(&result, "GET /b").requests.sent, 0);
    assert!((1..=2).contains(&setups), "{setups}");
    assert!((1..=100).contains(&rounds), "{rounds}");
    assert_eq!(result.load.requests.unwrap().succeeded, setups + rounds);
}

#[test]
fn kinds_of_users_have_their_own_requests() {
    let service = Service::start(application());
    let text = format!(
        r#"{LOGIN}
        [[user]]
        name = "reader"
        weight = 3
        order = "weighted"
        [[user.request]]
        path = "/me"
        think = "3ms"
        [[user.request]]
        path = "/articles"
        weight = 0
        [[user]]
        name = "author"
        [[user.setup]]
        path = "/welcome"
        [[user.request]]
        path = "/new"
        think = "3ms"
        multipart = [{{ name = "n", value = "{{{{name}}}}" }}, {{ name = "p", file = "picture.png" }}]
        [[user.teardown]]
        path = "/bye"
        [[teardown]]
        path = "/logout"
        method = "POST"
    "#
    );
    let (_folder, path) = scenario(&text);
    let report = report_of(&LoadOptions {
        requests: Some(300),
        ..options(&service, path, 4)
    });
    let result = &report.results[0];
    assert_eq!(
        result.load.requests.unwrap().succeeded,
        300,
        "{:?}",
        result.notes
    );
    let sent = |name: &str| row(result, name).requests.succeeded;
    assert_eq!((sent("reader: form"), sent("author: form")), (3, 1));
    assert_eq!(
        (sent("author: GET /welcome"), sent("author: GET /bye")),
        (1, 1)
    );
    assert_eq!(
        (sent("reader: POST /logout"), sent("author: POST /logout")),
        (3, 1)
    );
    assert_eq!(sent("reader: GET /articles"), 0);
    let uploads = service.requests();
    let upload = uploads.iter().find(|one| one.target() == "/new").unwrap();
    let content_type = upload.header("content-type").unwrap();
    let boundary = content_type.split_once("boundary=").unwrap().1;
    let parts: Vec<&str> = upload.body.split(&format!("--{boundary}")).collect();
    assert_eq!((parts.len(), parts[3]), (4, "--\r\n"));
    assert!(parts[1].ends_with("\r\n\r\nname2\r\n"), "{parts:?}");
    assert!(
        parts[2].contains("filename=\"picture.png\"") && parts[2].ends_with("PNG\u{1}{{name}}\r\n")
    );
    // What the users knew is in no report.
    let json = report.to_json();
    for secret in ["name2", "sid", "s4"] {
        assert!(!json.contains(&format!("\"{secret}")), "{secret}");
    }
}

#[test]
fn a_load_that_grows_ends_with_the_teardown_of_those_who_came() {
    let service = Service::start(|_| ("200 OK", Vec::new(), String::new()));
    let text = "[[request]]\npath = \"/a\"\nthink = \"10ms\"\n[[teardown]]\npath = \"/bye\"\n";
    let (_folder, path) = scenario(text);
    let began = std::time::Instant::now();
    let result = run(&LoadOptions {
        ramp_per_s: Some(5.0),
        duration: Some(Duration::from_millis(900)),
        ..options(&service, path, 1_000)
    });
    let parted = row(&result, "GET /bye").requests;
    // One came every 200 ms, for as long as the machine gave the load.
    assert!((1..100).contains(&parted.succeeded), "{parted:?}");
    assert_eq!(parted.failed, 0);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "nobody else is waited for"
    );
}

#[test]
fn a_teardown_without_a_server_ends() {
    let service = Service::start(|request| match request.target() {
        "/a" => ("200 OK", vec!["Connection: close".into()], String::new()),
        _ => ("200 OK", Vec::new(), String::new()),
    });
    let text = "[[request]]\npath = \"/a\"\n[[teardown]]\npath = \"/bye\"\n";
    let (_folder, path) = scenario(text);
    let result = run(&LoadOptions {
        requests: Some(6),
        keep_alive: false,
        ..options(&service, path, 3)
    });
    assert_eq!(row(&result, "GET /bye").requests.succeeded, 3);
}

#[test]
fn a_failed_teardown_is_told() {
    let service = Service::start(|request| match request.target() {
        "/bye" => ("500 Error", Vec::new(), String::new()),
        _ => ("200 OK", Vec::new(), String::new()),
    });
    let text = "[[request]]\npath = \"/a\"\n[[teardown]]\npath = \"/bye\"\n[[teardown]]\npath = \"/more\"\n";
    let (_folder, path) = scenario(text);
    let result = run(&LoadOptions {
        requests: Some(4),
        ..options(&service, path, 2)
    });
    assert_eq!(result.load.requests.unwrap().failed, 0);
    assert_eq!(row(&result, "GET /bye").requests.failed, 2);
    assert_eq!(row(&result, "GET /more").requests.sent, 0);
    let told = "2 requests of the teardown failed";
    assert!(
        result.notes.iter().any(|note| note.contains(told)),
        "{:?}",
        result.notes
    );
}

#[test]
fn credentials_belong_to_all_requests_without_their_own() {
    let service = Service::start(|_| ("200 OK", Vec::new(), String::new()));
    let text = r#"
        data = { people = "people.csv" }
        [[request]]
        path = "/all"
        [[request]]
        path = "/own"
        basic_auth = "{{name}}:{{password}}"
    "#;
    let (_folder, path) = scenario(text);
    let json = r#"{"basic_auth":"Aladdin:open sesame","connections":1,"threads":1,"requests":2}"#;
    run(&LoadOptions {
        scenario: Some(path),
        ..LoadOptions::from_json(&service.url("/"), json).unwrap()
    });
    let requests = service.requests();
    let sent = |number: usize| requests[number].header("authorization").unwrap();
    assert_eq!(sent(0), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    // name1:pass&1
    assert_eq!(sent(1), "Basic bmFtZTE6cGFzcyYx");
}

#[test]
fn a_setup_with_a_pause_is_done_once_over_phases() {
    let service = Service::start(application());
    let text = format!(
        "{LOGIN}\nthink = \"300ms\"\n[[request]]\npath = \"/me\"\n[[teardown]]\npath = \"/bye\"\n"
    );
    let (_folder, path) = scenario(&text);
    let result = run(&LoadOptions {
        warm_up: Duration::from_millis(150),
        duration: Some(Duration::from_millis(50)),
        ..options(&service, path, 2)
    });
    let logins = service.requests();
    let logins = logins.iter();
    let logins = logins.filter(|one| one.line.starts_with("POST /login"));
    let logins = logins.count() as u64;
    // The load ends during the pause after the login, on a busy machine perhaps before it.
    assert!(logins <= 2, "{logins}");
    assert_eq!(row(&result, "GET /bye").requests.succeeded, logins);
}

#[test]
fn what_could_not_be_measured_is_refused() {
    let service = Service::start(|_| ("200 OK", Vec::new(), String::new()));
    let text = "[[request]]\npath = \"/a\"\ncapture = { c = \"cookie:c\" }\n[[teardown]]\npath = \"/bye\"\n";
    let (_folder, path) = scenario(text);
    let error = |change: &dyn Fn(&mut LoadOptions)| {
        let mut options = options(&service, path.clone(), 1);
        change(&mut options);
        options.plan().unwrap_err().to_string()
    };
    let cookies = error(&|options| options.keep_cookies = false);
    assert!(cookies.contains("--no-cookies"), "{cookies}");
    let teardown =
        error(&|options| options.expectations = vec!["GET /bye: p99<5ms".parse().unwrap()]);
    assert!(teardown.contains("a request of the teardown"), "{teardown}");
    let pipelined = error(&|options| options.in_flight = 2);
    assert!(pipelined.contains("remove --in-flight"), "{pipelined}");
}

#[test]
fn too_few_unique_rows_are_an_error() {
    let service = Service::start(|_| ("200 OK", Vec::new(), String::new()));
    let (_folder, path) = scenario(&format!("{LOGIN}\n[[request]]\npath = \"/me\"\n"));
    let error = options(&service, path, 5).plan().unwrap_err().to_string();
    assert!(
        error.contains("people.csv has 4 rows, and each of 5 connections"),
        "{error}"
    );
}
