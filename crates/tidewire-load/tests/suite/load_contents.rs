//! The contents of a load: values of scenarios, cookies of an upgrade, and compressed responses that are checked.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::channel;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use tidewire_load::options::body::BodyOptions;
use tidewire_load::options::load::LoadOptions;
use tidewire_load::options::request::RequestOptions;
use tidewire_load::worker::template::Syntax;

use crate::http_service::Service;
use crate::loading::run;

fn options(url: &str, requests: u64) -> LoadOptions {
    LoadOptions {
        connections: 1,
        threads: 1,
        requests: Some(requests),
        ..LoadOptions::new(url)
    }
}

/// A scenario, and `people.csv` beside it.
fn scenario(text: &str, people: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.path().join("people.csv"), people).unwrap();
    (folder, path)
}

#[test]
fn values_of_a_scenario_arrive_as_they_are_in_the_data() {
    let service = Service::start(|_| ("200 OK", Vec::new(), String::new()));
    let text = r#"
        data = { people = "people.csv" }
        [[request]]
        path = "/json"
        json = { name = "{{name}}" }
        [[request]]
        path = "/form"
        form = { name = "<{{name}}>" }
        headers = { Host = "{{shard}}.example" }
    "#;
    let name = "Ada \"the first\" & C\\o=1";
    let csv = "name,shard\n\"Ada \"\"the first\"\" & C\\o=1\",s7\n";
    let (_folder, path) = scenario(text, csv);
    let result = run(&LoadOptions {
        scenario: Some(path),
        request: RequestOptions {
            headers: vec![("X-All".into(), "yes".into())],
            ..RequestOptions::default()
        },
        ..options(&service.url("/"), 2)
    });
    assert_eq!(result.load.requests.unwrap().succeeded, 2);
    let requests = service.requests();
    let json: serde_json::Value = serde_json::from_str(&requests[0].body).unwrap();
    assert_eq!(json["name"], name);
    let form = "name=%3CAda+%22the+first%22+%26+C%5Co%3D1%3E";
    assert_eq!(requests[1].body, form);
    assert_eq!(requests[1].header("host"), Some("s7.example"));
    for request in &requests {
        assert_eq!(request.header("x-all"), Some("yes"), "{request:?}");
    }
}

#[test]
fn a_scenario_that_would_hide_something_is_refused() {
    let error = |url: &str, text: &str, people: &str| {
        let (_folder, path) = scenario(text, people);
        let options = LoadOptions {
            scenario: Some(path),
            ..options(url, 1)
        };
        options.plan().unwrap_err().to_string()
    };
    let columns = "data = { p = \"people.csv\" }\n[[request]]\nbody = \"{{user}}\"";
    let shadowed = error("http://127.0.0.1:9/", columns, "user\nAda\n");
    assert!(shadowed.contains("seq, user, uuid, now_ms"), "{shadowed}");
    for (part, name) in [
        ("expect_status = 200", "expect_status"),
        ("expect_body = \"a\"", "expect_body"),
        ("expect_bytes = 1", "expect_bytes"),
        ("capture = { a = \"json:/a\" }", "capture"),
        ("headers = { a = \"b\" }", "headers"),
        ("cookies = { a = \"b\" }", "cookies"),
        ("path = \"/a\"", "path"),
        ("method = \"PUT\"", "method"),
    ] {
        let text = format!("[[request]]\nbody = \"m\"\n{part}\n");
        let error = error("ws://127.0.0.1:9/", &text, "a\nb\n");
        let expected = format!("a WebSocket message has no `{name}`");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn an_upgrade_has_the_headers_and_cookies() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let (sender, heads) = channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        sender.send(head_of(&mut stream).unwrap()).unwrap();
    });
    run(&LoadOptions {
        request: RequestOptions {
            headers: vec![("X-Mine".into(), "yes".into())],
            cookies: vec![("a".into(), "b".into()), ("c".into(), "d".into())],
            ..RequestOptions::default()
        },
        ..options(&url, 1)
    });
    let head = heads.recv().unwrap();
    assert!(head.contains("\r\nCookie: a=b; c=d\r\n"), "{head}");
    assert!(head.contains("\r\nX-Mine: yes\r\n"), "{head}");
}

/// The head of a request; `None` if the connection ends before.
fn head_of(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(head).unwrap())
}

/// Answers each request with this coding and body, until the test ends; its URL.
fn encoded_service(coding: &'static str, body: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while let Some(head) = head_of(&mut stream) {
                assert!(
                    head.contains("Accept-Encoding: gzip, deflate\r\n"),
                    "{head}"
                );
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {length}\r\n\r\n"
                );
                let whole = [answer.as_bytes(), &body].concat();
                if stream.write_all(&whole).is_err() {
                    break;
                }
            }
        }
    });
    url
}

fn gzipped(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn deflated(content: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// The errors of a load whose bodies must contain `here`.
fn errors(coding: &'static str, body: Vec<u8>) -> Vec<String> {
    let result = run(&LoadOptions {
        compressed: true,
        request: RequestOptions {
            body_contains: Some("here".into()),
            ..RequestOptions::default()
        },
        ..options(&encoded_service(coding, body), 2)
    });
    let requests = result.load.requests.unwrap();
    assert_eq!(requests.succeeded + requests.failed, 2);
    assert!(requests.succeeded == 0 || requests.failed == 0);
    result.load.errors.into_keys().collect()
}

#[test]
fn a_compressed_body_is_checked_by_its_content() {
    let (right, wrong) = (b"it is here".repeat(100), b"nothing".to_vec());
    for (coding, encode) in [
        ("gzip", gzipped as fn(&[u8]) -> Vec<u8>),
        ("X-Gzip", gzipped),
        ("deflate", deflated),
        ("identity", <[u8]>::to_vec),
    ] {
        assert_eq!(errors(coding, encode(&right)), [""; 0], "{coding}");
        assert_eq!(
            errors(coding, encode(&wrong)),
            ["unexpected-body"],
            "{coding}"
        );
    }
    let mut cut = gzipped(&right);
    cut.truncate(cut.len() / 2);
    for (coding, body) in [
        ("gzip", right.clone()),
        ("gzip", cut),
        ("deflate", gzipped(&right)),
        ("br", right),
    ] {
        assert_eq!(errors(coding, body), ["bad-content-encoding"], "{coding}");
    }
}

#[test]
fn a_body_that_is_too_long_to_check_is_an_error_of_its_own() {
    // 16 MiB are kept, before and after decompression.
    let most = 16 << 20;
    let long = vec![b'x'; most + 1];
    let compressed = gzipped(&long);
    assert!(compressed.len() < most);
    for (coding, body) in [("gzip", compressed), ("identity", long)] {
        assert_eq!(errors(coding, body), ["body-too-long-to-check"], "{coding}");
    }
}

#[test]
fn texts_of_other_tools_arrive_as_they_are_and_an_index_counts() {
    let service = Service::start(|_| ("200 OK", Vec::new(), String::new()));
    let load = |syntax: Syntax| {
        let mut options = LoadOptions {
            connections: 1,
            threads: 1,
            requests: Some(3),
            syntax,
            ..LoadOptions::new(&service.url("/ID?id=ID&q={{user}}"))
        };
        options.request.body = Some(BodyOptions::Bytes(b"Dear {{user}} {{ ID".to_vec()));
        options.request.headers = vec![("X-Name".to_owned(), "{{user}} ID".to_owned())];
        run(&options);
    };
    load(Syntax::Literal);
    load(Syntax::Index("ID".to_owned()));
    let requests = service.requests();
    assert_eq!(requests.len(), 6);
    for request in &requests {
        assert_eq!(request.header("x-name"), Some("{{user}} ID"));
    }
    for request in &requests[..3] {
        assert_eq!(request.target(), "/ID?id=ID&q={{user}}");
        assert_eq!(request.body, "Dear {{user}} {{ ID");
    }
    for (number, request) in (1..).zip(&requests[3..]) {
        assert_eq!(
            request.target(),
            format!("/{number}?id={number}&q={{{{user}}}}")
        );
        assert_eq!(request.body, format!("Dear {{{{user}}}} {{{{ {number}"));
    }
}

#[test]
fn a_value_of_a_query_stays_one_parameter() {
    let service = Service::start(|_| ("200 OK", Vec::new(), String::new()));
    let text = "data = { people = \"people.csv\" }\n[[request]]\npath = \"/s/{{name}}?q={{name}}&end=1\"\n";
    let (_folder, path) = scenario(text, "name\n\"a&b=c +/?\"\n");
    run(&LoadOptions {
        connections: 1,
        threads: 1,
        requests: Some(1),
        scenario: Some(path),
        ..LoadOptions::new(&service.url("/"))
    });
    let target = service.requests()[0].target().to_owned();
    assert_eq!(target, "/s/a&b=c%20+/%3F?q=a%26b%3Dc%20%2B%2F%3F&end=1");
}
