//! The example backends in Node and in PHP beside a real server, with the flags that their first lines name.

use crate::program::{Running, run, tidewire};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tidewire_testkit::websocket::Client;

const SECRET: &str = "0123456789abcdef";
const NODE: &str = "backend-node/server.mjs";
const PHP: &str = "backend-php/index.php";

/// A running example; killed when dropped.
struct Backend {
    child: Child,
    output: Box<dyn BufRead>,
    url: String,
}

impl Backend {
    fn start() -> Self {
        let mut child = Command::new("node")
            .arg(example(NODE))
            .env("TIDEWIRE_BACKEND_SECRET", SECRET)
            .env("PORT", "0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("node of Debian's package nodejs");
        let mut backend = Self {
            output: Box::new(BufReader::new(child.stdout.take().unwrap())),
            child,
            url: String::new(),
        };
        let line = backend.line();
        backend.url = line
            .strip_prefix("listening on ")
            .expect("an address")
            .to_owned();
        backend
    }

    /// The example in PHP, by PHP's own server.
    fn start_php() -> Self {
        let mut child = Command::new("php")
            .args(["-S", "127.0.0.1:0"])
            .arg(example("backend-php/index.php"))
            .env("TIDEWIRE_BACKEND_SECRET", SECRET)
            .stderr(Stdio::piped())
            .spawn()
            .expect("php of Debian's package php-cli");
        let mut output = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let at = line.find("http://").expect("an address");
        let address = line[at..].split(')').next().unwrap();
        Self {
            url: format!("{address}/tidewire"),
            output: Box::new(output),
            child,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn example(path: &str) -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    examples.join(path)
}

/// The flags of `tidewire serve` in the first lines of the example, with this URL.
fn flags(path: &str, url: &str) -> Vec<String> {
    let text = std::fs::read_to_string(example(path)).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with("//"));
    let comment = lines.map_while(|line| line.strip_prefix("//"));
    let words = comment.flat_map(str::split_whitespace);
    let words = words.skip_while(|word| *word != "serve").skip(1);
    words
        .filter(|word| *word != "\\")
        .map(|word| match word.starts_with("http://") {
            true => url.to_owned(),
            false => word.to_owned(),
        })
        .collect()
}

fn serve(flags: &[String], secret: &str) -> Running {
    let mut command = tidewire(&["serve", "--listen", "127.0.0.1:0", "--app", "sink"]);
    command.args(flags).env("TIDEWIRE_BACKEND_SECRET", secret);
    Running::start(command)
}

fn ask(client: &mut Client, t: &str, payload: &Value) -> Value {
    client.send_text(&json!({"t": t, "cid": "c", "p": payload}).to_string());
    loop {
        let said: Value = serde_json::from_str(&client.next_text()).unwrap();
        if said["cid"] == "c" {
            return said["p"].clone();
        }
    }
}

#[test]
fn the_example_in_node_decides_what_it_says() {
    let mut backend = Backend::start();
    let flags = flags(NODE, &backend.url);
    let server = serve(&flags, SECRET);
    let (status, body) = server.opening().refused();
    assert_eq!(status, 403);
    assert!(body.contains("say who you are"), "{body}");
    let mut ada = server.opening().target("/ws?user=ada").open();
    assert!(ada.next_text().contains("server_ready"));
    let first = ada.next_text();
    assert!(
        first.contains(r#""success_topics":["users.ada"]"#),
        "{first}"
    );
    let wanted = json!({"action": "subscribe", "topics": ["chat", "users.eve"]});
    let told = ask(&mut ada, "subscription_update", &wanted);
    assert_eq!(told["success_topics"], json!(["chat"]), "{told}");
    assert_eq!(
        told["failures"][0]["message"],
        "this topic belongs to somebody else"
    );
    let sum = ask(
        &mut ada,
        "call_request",
        &json!({"type": "add", "payload": [1, 2, 3]}),
    );
    assert_eq!(sum, json!({"payload": 6}));
    let wrong = ask(
        &mut ada,
        "call_request",
        &json!({"type": "add", "payload": null}),
    );
    assert_eq!(wrong["error"]["code"], "INVALID", "{wrong}");
    let text = json!({"topic": "chat", "type": "text", "payload": {"text": "hello"}});
    ada.send_text(&json!({"t": "publish_request", "p": text}).to_string());
    loop {
        let said: Value = serde_json::from_str(&ada.next_text()).unwrap();
        if said["t"] == "text" {
            assert_eq!(said["p"], json!({"text": "hello", "from": "ada"}));
            break;
        }
    }
    let empty = json!({"topic": "chat", "type": "text", "payload": {}});
    let refused = ask(&mut ada, "publish_request", &empty);
    assert_eq!(refused["code"], "TOPIC_FORBIDDEN", "{refused}");
    ada.send_text(&json!({"t": "note", "p": "hello"}).to_string());
    assert!(backend.line().starts_with("ada says {"));
    drop(ada);
    assert_eq!(backend.line(), "ada has left");
}

#[test]
fn the_example_in_php_decides_what_it_says() {
    let mut backend = Backend::start_php();
    let server = serve(&flags(PHP, &backend.url), SECRET);
    let (status, body) = server.opening().refused();
    assert_eq!(status, 403);
    assert!(body.contains("say who you are"), "{body}");
    let mut ada = server.opening().target("/ws?user=ada").open();
    let ready: Value = serde_json::from_str(&ada.next_text()).unwrap();
    assert_eq!(ready["p"]["details"]["user_id"], "ada", "{ready}");
    let add = json!({"type": "add", "payload": [1, 2, 3]});
    assert_eq!(ask(&mut ada, "call_request", &add), json!({"payload": 6}));
    let unknown = json!({"type": "multiply", "payload": [1, 2]});
    let told = ask(&mut ada, "call_request", &unknown);
    assert_eq!(told["error"]["code"], "NOT_FOUND", "{told}");
    let others = json!({"action": "subscribe", "topics": ["users.bob", "chat"]});
    let answer = ask(&mut ada, "subscription_update", &others);
    assert_eq!(answer["success_topics"], json!(["chat"]), "{answer}");
    assert_eq!(answer["failed_topics"], json!(["users.bob"]), "{answer}");
    let empty = json!({"topic": "chat", "type": "text", "payload": {}});
    let refused = ask(&mut ada, "publish_request", &empty);
    assert_eq!(refused["code"], "TOPIC_FORBIDDEN", "{refused}");
    ada.send_text(&json!({"t": "note", "p": "hello"}).to_string());
    let written = std::iter::repeat_with(|| backend.line()).find(|line| line.contains("\"note\""));
    let written = written.expect("the message");
    assert!(
        written.contains("hello") && written.contains("\"ada\""),
        "{written}"
    );
}

#[test]
fn the_example_in_php_refuses_a_wrong_secret() {
    let backend = Backend::start_php();
    let server = serve(&flags(PHP, &backend.url), "another secret of 16 bytes");
    let (status, body) = server.opening().target("/ws?user=ada").refused();
    assert_eq!(status, 503, "{body}");
}

#[test]
fn a_wrong_secret_admits_nobody() {
    let backend = Backend::start();
    let server = serve(&flags(NODE, &backend.url), "another secret of 16 bytes");
    let (status, body) = server.opening().target("/ws?user=ada").refused();
    assert_eq!(status, 503, "{body}");
    assert!(!body.contains("127.0.0.1"), "{body}");
}

#[test]
fn what_a_server_with_a_backend_does_is_printed() {
    let said = run(&[
        "serve",
        "--check",
        "--backend",
        "http://127.0.0.1:8080/tidewire",
        "--backend-events",
        "connect,request",
        "--backend-away",
        "allow",
        "--listen",
        "0.0.0.0:5006",
    ]);
    assert_eq!(said.code, 0, "{said:?}");
    for words in [
        "those whom the backend accepts",
        "http://127.0.0.1:8080/tidewire gets connect, request, not signed",
        "clients are allowed",
        "--backend-away while the backend is away: everybody",
    ] {
        assert!(said.stdout.contains(words), "no {words:?} in {said:?}");
    }
}
