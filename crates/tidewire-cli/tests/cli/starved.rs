//! Generators that do not get the processor, and servers whose processes are not where one would look.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::program::{Running, Said, assert_refused, signal, tidewire};

/// A server of messages that are sent back, in both profiles: its flags, and those of the bench.
const PROFILES: [(&[&str], &[&str]); 2] = [
    (
        &[
            "--protocol",
            "raw",
            "--app",
            "echo",
            "--rate-limit-capacity",
            "0",
        ],
        &["--profile", "raw"],
    ),
    (
        &["--no-auth", "--app", "echo", "--rate-limit-capacity", "0"],
        &["--profile", "v1"],
    ),
];

/// Stopped for 100 ms of every 300, as by a debugger, a suspended container or a laptop's lid.
#[test]
fn a_generator_that_is_stopped_again_and_again_is_found_out() {
    for (serve, bench) in PROFILES {
        let server = Running::serve(serve);
        for plan in [&["--in-flight", "8"][..], &["--rate-per-s", "500"]] {
            let folder = tempfile::tempdir().unwrap();
            let echo = ["bench", &server.url, "--test", "echo", "--connections", "4"];
            let mut command = tidewire(&[&echo[..], bench, plan].concat());
            command
                .args(["--duration-s", "3", "--out"])
                .arg(folder.path());
            let mut child = quiet(command);
            while child.try_wait().unwrap().is_none() {
                signal(child.id(), "STOP");
                std::thread::sleep(Duration::from_millis(100));
                signal(child.id(), "CONT");
                std::thread::sleep(Duration::from_millis(200));
            }
            let result = only_result(folder.path());
            assert_doubted(&result, "generator_stopped");
            assert!(
                result["generator"]["stopped_s"].as_f64().unwrap() > 0.1,
                "{result:#}"
            );
        }
    }
}

#[test]
fn a_generator_that_shares_its_core_with_busy_programs_is_found_out() {
    let Some([ours, theirs]) = two_cores() else {
        return skipped("it needs two cores and taskset");
    };
    for (serve, bench) in PROFILES {
        let server = Running::start(on_core(&theirs, &[&SERVE[..], serve].concat()));
        let neighbours: Vec<Busy> = (0..3).map(|_| Busy::on(&ours)).collect();
        let folder = tempfile::tempdir().unwrap();
        let echo = [
            "bench",
            &server.url,
            "--test",
            "echo",
            "--connections",
            "20",
        ];
        let mut command = on_core(&ours, &[&echo[..], bench].concat());
        command
            .args(["--duration-s", "2", "--out"])
            .arg(folder.path());
        let said: Said = command.output().unwrap().into();
        drop(neighbours);
        let result = only_result(folder.path());
        assert_doubted(&result, "generator_starved");
        assert!(matches!(said.code, 1 | 3 | 4), "{said:?}");
        let notes = result["notes"].to_string();
        assert!(notes.contains("other programs used its cores"), "{notes}");
    }
}

#[test]
fn a_generator_with_a_quota_is_found_out() {
    let Some(group) = Group::with_quota() else {
        return skipped("control groups cannot be made here");
    };
    for (serve, bench) in PROFILES {
        let server = Running::serve(serve);
        let folder = tempfile::tempdir().unwrap();
        let words = ["bench", &server.url, "--test", "echo", "--duration-s", "2"];
        let words = [&words[..], &["--connections", "10"], bench, &["--out"]].concat();
        let mut command = group.enter(&words);
        command.arg(folder.path());
        let said: Said = command.output().unwrap().into();
        let result = only_result(folder.path());
        // Where other programs use the cores, that comes before the quota.
        let doubts = result["doubts"].to_string();
        let is_starved = doubts.contains("generator_starved");
        let doubt = ["generator_throttled", "generator_starved"][usize::from(is_starved)];
        assert_doubted(&result, doubt);
        assert!(
            result["cpu"]["client_cores"].as_f64().unwrap() < 0.5,
            "{result:#} {said:?}"
        );
    }
}

/// Two thousand messages a second are some per cent of a core's work, and no more of it is used.
#[test]
fn waiting_for_the_next_message_is_no_work() {
    for (serve, bench) in PROFILES {
        let server = Running::serve(serve);
        let folder = tempfile::tempdir().unwrap();
        let echo = [
            "bench",
            &server.url,
            "--test",
            "echo",
            "--connections",
            "10",
            "--rate-per-s",
            "2000",
        ];
        let mut command = tidewire(&[&echo[..], bench].concat());
        command
            .args(["--duration-s", "2", "--out"])
            .arg(folder.path());
        let said: Said = command.output().unwrap().into();
        let result = only_result(folder.path());
        let cpu = &result["cpu"];
        assert!(cpu["client_s"].as_f64().unwrap() < 1.4, "{cpu} {said:?}");
        assert!(cpu["client_share"].as_f64().unwrap() < 0.5, "{cpu}");
        assert_ne!(result["bottleneck"], "client", "{result:#}");
    }
}

#[test]
fn sides_that_share_a_core_are_told() {
    let Some([ours, _]) = two_cores() else {
        return skipped("it needs two cores and taskset");
    };
    let (serve, bench) = PROFILES[0];
    let server = Running::start(on_core(&ours, &[&SERVE[..], serve].concat()));
    let folder = tempfile::tempdir().unwrap();
    let echo = [
        "bench",
        &server.url,
        "--test",
        "echo",
        "--connections",
        "20",
    ];
    let mut command = on_core(&ours, &[&echo[..], bench].concat());
    command
        .args(["--duration-s", "2", "--out"])
        .arg(folder.path());
    let said: Said = command.output().unwrap().into();
    let result = only_result(folder.path());
    let cpu = &result["cpu"];
    for name in ["client_cores", "server_cores", "shared_cores"] {
        assert_eq!(cpu[name], 1.0, "{cpu} {said:?}");
    }
    let (client, server) = (&cpu["client_share"], &cpu["server_share"]);
    assert!(
        client.as_f64().unwrap() + server.as_f64().unwrap() < 1.1,
        "{cpu}"
    );
    // Other work may have taken the rest of the core.
    if result["bottleneck"] == "both" {
        let notes = result["notes"].to_string();
        assert!(notes.contains("share 1 of their cores"), "{notes}");
    }
}

#[test]
fn a_process_that_is_not_the_server_is_refused() {
    let server = Running::serve(PROFILES[0].0);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let bench = |pid: u32| {
        let pid = pid.to_string();
        let words = [
            "bench",
            &server.url,
            "--quick",
            "--server-pid",
            &pid,
            "--out",
            out,
        ];
        crate::program::run(&words)
    };
    assert_refused(&bench(4_000_000), &["no process 4000000"]);
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    let said = bench(other.id());
    other.kill().unwrap();
    other.wait().unwrap();
    let listener = server.child.id().to_string();
    assert_refused(&said, &["sleep", "does not serve", &listener]);
}

/// A program that starts the server, as a shell, `npm` or a supervisor does.
#[test]
fn the_server_may_be_a_child_of_the_process_that_is_named() {
    let (serve, bench) = PROFILES[0];
    let program = env!("CARGO_BIN_EXE_tidewire");
    let words = [&[program][..], &SERVE, serve].concat().join(" ");
    // With something to do after the server, so that the shell does not become it.
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{words}; true")]);
    let server = Running::start(shell);
    let shell_pid = server.child.id();
    let folder = tempfile::tempdir().unwrap();
    let pid = shell_pid.to_string();
    let echo = [
        "bench",
        &server.url,
        "--test",
        "echo",
        "--connections",
        "10",
        "--server-pid",
        &pid,
    ];
    let mut command = tidewire(&[&echo[..], bench].concat());
    command
        .args(["--duration-s", "1", "--out"])
        .arg(folder.path());
    let said: Said = command.output().unwrap().into();
    for child in crate::program::children(shell_pid) {
        signal(child, "TERM");
    }
    let result = only_result(folder.path());
    let used = result["cpu"]["server_s"].as_f64().unwrap();
    assert!(
        used > 0.05,
        "the shell alone uses nothing: {result:#} {said:?}"
    );
}

/// Both halves of a proxy count, and the report says so.
#[test]
fn a_proxy_is_seen_through() {
    let (serve, bench) = PROFILES[0];
    let server = Running::serve(serve);
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    for forks in ["", "fork"] {
        let mut command = Command::new("python3");
        command.args(["-c", PROXY, &port, forks]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let Ok(mut proxy) = command.spawn() else {
            return skipped("there is no python3");
        };
        let listening = read_line(&mut proxy);
        let url = format!("ws://127.0.0.1:{listening}/ws");
        let folder = tempfile::tempdir().unwrap();
        let echo = [
            "bench",
            &url,
            "--test",
            "echo",
            "--connections",
            "6",
            "--in-flight",
            "2",
        ];
        let mut command = tidewire(&[&echo[..], bench].concat());
        command
            .args(["--duration-s", "1", "--out"])
            .arg(folder.path());
        let said: Said = command.output().unwrap().into();
        let children = crate::program::children(proxy.id());
        for pid in children.into_iter().chain([proxy.id()]) {
            signal(pid, "KILL");
        }
        proxy.wait().unwrap();
        let result = only_result(folder.path());
        let notes = result["notes"].to_string();
        let forwarded = format!("at 127.0.0.1:{port}");
        assert!(
            notes.contains("forwards the connections") && notes.contains(&forwarded),
            "{forks}: {notes} {said:?}"
        );
    }
}

/// A TCP proxy to the port that it is given, with its own port on standard output.
const PROXY: &str = r#"
import os, socket, sys, threading
def pump(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass
    other.close()
listener = socket.create_server(("127.0.0.1", 0), backlog=64)
print(listener.getsockname()[1], flush=True)
if len(sys.argv) > 2 and sys.argv[2] == "fork" and os.fork():
    os.wait()
while True:
    client, _ = listener.accept()
    server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(target=pump, args=(client, server), daemon=True).start()
    threading.Thread(target=pump, args=(server, client), daemon=True).start()
"#;

const SERVE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--shards", "1"];

/// Asserts that the figures are not taken for the server's, and why.
#[track_caller]
fn assert_doubted(result: &Value, doubt: &str) {
    assert_ne!(result["verdict"], "valid", "{result:#}");
    let doubts = result["doubts"].as_array().cloned().unwrap_or_default();
    assert!(
        doubts.contains(&doubt.into()),
        "{doubt} is not in {doubts:?}: {result:#}"
    );
}

fn only_result(folder: &Path) -> Value {
    let text = std::fs::read(folder.join("report.json")).unwrap();
    let report: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(report["results"].as_array().unwrap().len(), 1);
    report["results"][0].clone()
}

fn quiet(mut command: Command) -> Child {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn read_line(child: &mut Child) -> String {
    use std::io::{BufRead, BufReader};
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Says that this machine cannot run a test. `scripts/test` counts the line.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED a test with a starved generator: {why}"
    );
}

/// Two cores that this process may use.
fn two_cores() -> Option<[String; 2]> {
    let has_taskset = Command::new("taskset").arg("-V").output().is_ok();
    let cores = tidewire_load::accounting::resources::allowed_cores(std::process::id());
    let mut cores = cores.into_iter().map(|core| core.to_string());
    has_taskset.then(|| Some([cores.next()?, cores.next()?]))?
}

/// The program with these words on one core.
fn on_core(core: &str, words: &[&str]) -> Command {
    let program = tidewire(words);
    let mut command = Command::new("taskset");
    command
        .args(["-c", core])
        .arg(program.get_program())
        .args(words);
    for (name, value) in program.get_envs() {
        if value.is_none() {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// A program that works without a pause; ends when dropped.
struct Busy(Child);

impl Busy {
    fn on(core: &str) -> Self {
        let mut command = Command::new("taskset");
        command.args(["-c", core, "sh", "-c", "while :; do :; done"]);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A control group that may use a twentieth of a core, which a load needs beside anything else that
/// the machine does; removed when dropped.
struct Group(std::path::PathBuf);

impl Group {
    fn with_quota() -> Option<Self> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        assert!(
            !TAKEN.swap(true, Ordering::Relaxed),
            "one group has the name"
        );
        let name = format!("tidewire-test-{}", std::process::id());
        for (root, file, quota) in [
            ("/sys/fs/cgroup", "cpu.max", "5000 100000"),
            ("/sys/fs/cgroup/unified", "cpu.max", "5000 100000"),
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "5000"),
            ("/sys/fs/cgroup/cpu,cpuacct", "cpu.cfs_quota_us", "5000"),
        ] {
            let folder = Path::new(root).join(&name);
            if std::fs::create_dir(&folder).is_err() {
                continue;
            }
            let group = Self(folder);
            // Where groups are not mounted, the folder is an empty one of an ordinary file system.
            let limit = std::fs::OpenOptions::new()
                .write(true)
                .open(group.0.join(file));
            if limit.is_ok_and(|mut limit| limit.write_all(quota.as_bytes()).is_ok()) {
                return Some(group);
            }
        }
        None
    }

    /// The program with these words in the group.
    fn enter(&self, words: &[&str]) -> Command {
        let program = env!("CARGO_BIN_EXE_tidewire");
        let join = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        let mut command = Command::new("sh");
        command.args(["-c", &join, "sh", program]).args(words);
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
