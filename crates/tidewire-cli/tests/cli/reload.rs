//! `kill -HUP` and the operations API: another configuration for a running server.

use crate::program::{Running, SECRET, request, run, tidewire};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{ChildStderr, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const API_KEY: &str = "0123456789abcdef";

/// A server whose configuration is a file, and its log.
struct Served {
    server: Running,
    log: BufReader<ChildStderr>,
    operations: String,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidewire.toml");
        fs::write(&file, text).unwrap();
        let mut command = tidewire(&["serve", "--listen", "127.0.0.1:0", "--config"]);
        command.arg(&file);
        command.args(["--ops-listen", "127.0.0.1:0", "--api-key", API_KEY]);
        command.stderr(Stdio::piped());
        let mut server = Running::start(command);
        let line = server.line();
        let operations = line.strip_prefix("operations on ").expect(&line).to_owned();
        let log = BufReader::new(server.child.stderr.take().unwrap());
        Self {
            server,
            log,
            operations,
            file,
            _folder: folder,
        }
    }

    fn write(&self, text: &str) {
        fs::write(&self.file, text).unwrap();
    }

    /// Sends SIGHUP and waits for the line of the log with these words.
    fn hang_up(&mut self, words: &str) -> String {
        self.server.signal("HUP");
        self.wait_for(words)
    }

    fn wait_for(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            let bytes = self.log.read_line(&mut line).unwrap();
            assert!(bytes > 0, "the program ended without {words:?}");
            if line.contains(words) {
                return line;
            }
        }
    }

    fn counter(&self, name: &str) -> u64 {
        let (status, body) = request(&self.operations, "GET", "/stats", "", "");
        assert_eq!(status, 200, "{body}");
        let stats: serde_json::Value = serde_json::from_str(&body).unwrap();
        stats["total"][name].as_u64().unwrap()
    }
}

#[test]
fn a_thousand_sessions_under_load_survive_reloads() {
    const SESSIONS: usize = 1_000;
    let text = |page: usize| {
        format!(
            "protocol = \"raw\"\nno_auth = true\norigin = [\"https://{page}.example\"]\n\
             idle_timeout_ms = {}\n",
            600_000 + page
        )
    };
    let mut served = Served::start(&text(0));
    let mut sessions: Vec<_> = (0..SESSIONS)
        .map(|_| served.server.opening().open())
        .collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load: Vec<_> = sessions
            .chunks_mut(SESSIONS / 2)
            .map(|sessions| {
                scope.spawn(|| {
                    let mut round = 0;
                    while !is_over.load(Ordering::Acquire) || round == 0 {
                        round += 1;
                        for session in &mut *sessions {
                            session.send_text(&round.to_string());
                        }
                        for session in &mut *sessions {
                            assert_eq!(session.next_text(), round.to_string());
                        }
                    }
                })
            })
            .collect();
        for page in 1..=5 {
            served.write(&text(page));
            let line = served.hang_up("the configuration was read again");
            assert!(
                line.contains("changed=\"idle_timeout_ms, origin\""),
                "{line}"
            );
        }
        is_over.store(true, Ordering::Release);
        for thread in load {
            thread.join().unwrap();
        }
    });
    assert_eq!(served.counter("connections_open"), SESSIONS as u64);
    for ended in [
        "sessions_lost",
        "sessions_closed_by_server",
        "sessions_closed_by_peer",
    ] {
        assert_eq!(served.counter(ended), 0, "{ended}");
    }
    let page = |name: &str| served.server.opening().header("Origin", name);
    page("https://5.example").open();
    assert_eq!(page("https://4.example").refused().0, 403);
}

#[test]
fn a_broken_file_leaves_everything_as_it_was() {
    let good = "jwt_secret_file = \"SECRET\"\norigin = [\"https://a.example\"]\n";
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret.txt");
    fs::write(&secret, SECRET).unwrap();
    let good = good.replace("SECRET", secret.to_str().unwrap());
    let mut served = Served::start(&good);
    let token = run(&["token", "--jwt-secret", SECRET, "--subject", "ada"]);
    let bearer = format!("Bearer {}", token.stdout.trim());
    let page = |served: &Served| {
        let opening = served.server.opening();
        let opening = opening.header("Authorization", bearer.clone());
        opening.header("Origin", "https://a.example")
    };
    page(&served).open();
    for (broken, words) in [
        ("origin = [\n", "tidewire.toml:1: "),
        ("shards = 0\n", "tidewire.toml:1: shards: "),
        ("\nno_such = 1\n", "tidewire.toml:2: unknown option no_such"),
        ("", "jwt-secret"),
        ("jwt_secret = \"short\"\n", "at least 32 bytes"),
        (
            "no_auth = true\nlog_level = \"a=b=c\"\n",
            "tidewire.toml:2: log_level: ",
        ),
    ] {
        served.write(broken);
        let line = served.hang_up("the configuration is as it was before");
        assert!(line.contains(" ERROR ") && line.contains(words), "{line}");
        let (status, body) = request(&served.operations, "POST", "/api/v1/reload", API_KEY, "");
        assert_eq!(status, 409, "{body}");
        assert!(body.contains("nothing has changed"), "{body}");
        served.wait_for("the configuration is as it was before");
        page(&served).open();
    }

    // The same file with another secret in it.
    served.write(&good);
    fs::write(&secret, "another secret of sufficient size").unwrap();
    let (status, body) = request(&served.operations, "POST", "/api/v1/reload", API_KEY, "");
    let changed = "{\"changed\":[\"jwt_secret_file\"],\"needs_restart\":[]}\n";
    assert_eq!((status, body.as_str()), (200, changed));
    assert_eq!(page(&served).refused().0, 401);
}

#[test]
fn what_needs_a_restart_and_the_log_level() {
    let text = "no_auth = true\nshards = 1\nlog_level = \"info\"\n";
    let mut served = Served::start(text);
    served.write("no_auth = true\nshards = 2\nlog_level = \"debug\"\napp = \"sink\"\n");
    let line = served.hang_up("the configuration was read again");
    assert!(line.contains("changed=\"log_level\""), "{line}");
    served.wait_for("changes that hold only after a restart: app, shards");
    // What is listed is in force, and the next reload names again what is not.
    let settings = settings_of(&served);
    assert_eq!(
        (setting(&settings, "shards"), setting(&settings, "app")),
        (Some("1"), None)
    );
    assert_eq!(setting(&settings, "log_level"), Some("debug"));
    let (status, body) = request(&served.operations, "POST", "/api/v1/reload", API_KEY, "");
    let waiting = "{\"changed\":[],\"needs_restart\":[\"app\",\"shards\"]}\n";
    assert_eq!((status, body.as_str()), (200, waiting));
    // A line of this level is logged now.
    served.server.opening().open();
    let line = served.wait_for("a session starts");
    assert!(
        line.contains("DEBUG") && line.contains("address=127.0.0.1:"),
        "{line}"
    );
}

#[test]
fn a_report_names_options() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let key = |name: &str| fs::write(&keys, format!("{name} read 0123456789abcdef0\n")).unwrap();
    key("one");
    let common = format!("no_auth = true\napi_keys_file = {keys:?}\n");
    let open = format!("{common}topics_open = true\npresence = [\"a\"]\n");
    let served = Served::start(&open);
    key("two");
    let rule = "[[topics.rule]]\npattern = \"b\"\npresence = true\n";
    served.write(&format!("{common}client_subscribe_allow = [\"a\"]\n{rule}"));
    for _ in 0..2 {
        let (status, body) = request(&served.operations, "POST", "/api/v1/reload", API_KEY, "");
        assert_eq!(status, 200, "{body}");
        let report: serde_json::Value = serde_json::from_str(&body).unwrap();
        // Presence is that of the start, and is named again by the second reload.
        assert_eq!(
            report["needs_restart"],
            serde_json::json!(["presence"]),
            "{body}"
        );
        if report["changed"] != serde_json::json!([]) {
            let expected = [
                "api_keys_file",
                "client_subscribe_allow",
                "topic_rules",
                "topics_open",
            ];
            assert_eq!(report["changed"], serde_json::json!(expected), "{body}");
        }
    }
    let settings = settings_of(&served);
    assert_eq!(setting(&settings, "presence"), Some("a"));
    assert_eq!(setting(&settings, "topics_open"), None);
    served.server.signal("TERM");
}

/// The settings that the server lists, by their names.
fn settings_of(served: &Served) -> Vec<(String, String)> {
    let (status, body) = request(&served.operations, "GET", "/api/v1/settings", API_KEY, "");
    assert_eq!(status, 200, "{body}");
    let listed: serde_json::Value = serde_json::from_str(&body).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let listed = listed["settings"].as_array().unwrap().iter();
    listed
        .map(|one| (text(&one["name"]), text(&one["value"])))
        .collect()
}

fn setting<'a>(settings: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = settings.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

#[test]
fn log_lines_can_be_json() {
    let mut served =
        Served::start("no_auth = true\nlog_format = \"json\"\nlog_level = \"debug\"\n");
    served.server.opening().open();
    let line = served.wait_for("a session starts");
    let fields: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&fields["level"], &fields["message"]),
        (&"DEBUG".into(), &"a session starts".into())
    );
    assert_eq!(fields["target"], "tidewire_engine::session::inbound");
    assert!(
        fields["address"]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.1:"),
        "{line}"
    );
    let time = fields["time"].as_str().unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
}
