//! Sockets that outlive a server: a successor takes them over at SIGUSR2, and a service manager keeps them.

use crate::program::{Running, assert_refused, get, signal, tidewire};
use command_fds::{CommandFdExt as _, FdMapping};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use tidewire_testkit::websocket::Opening;

/// A server that ends, with all its successors, when the test ends.
fn serve(arguments: &[&str]) -> Running {
    let mut command = tidewire(&["serve", "--no-auth", "--protocol", "raw"]);
    command.args(["--stop-with-stdin", "--drain-timeout-ms", "2000"]);
    command.args(arguments).stdin(Stdio::piped());
    Running::start(command)
}

/// Starts a successor and waits until the old server has ended; the successor's process.
fn hand_over(server: &mut Running, process: u32) -> u32 {
    signal(process, "USR2");
    let mut successor = None;
    loop {
        let line = server.line();
        assert!(!line.is_empty(), "all servers have ended");
        if let Some((_, rest)) = line.split_once("process ")
            && let Some((number, _)) = rest.split_once(" has taken over")
        {
            successor = Some(number.parse().unwrap());
        }
        if let Some(successor) = successor
            && line.starts_with("stopped, ")
        {
            return successor;
        }
    }
}

/// Ends the last server, which is no child of this process.
fn stop(server: &mut Running, process: u32) {
    signal(process, "TERM");
    wait_for_line(server, "stopped, ");
}

fn wait_for_line(server: &mut Running, start: &str) {
    loop {
        let line = server.line();
        assert!(!line.is_empty(), "all servers have ended");
        if line.starts_with(start) {
            return;
        }
    }
}

/// Connections per second, over all threads. A slower build or machine opens fewer.
/// `TIDEWIRE_HANDOVER_PER_S=3000 cargo test -p tidewire-cli --test cli -- handover::ten --nocapture` asks for more.
fn connects_per_s() -> usize {
    let given = std::env::var("TIDEWIRE_HANDOVER_PER_S").ok();
    let given = given.map(|text| {
        text.parse()
            .expect("TIDEWIRE_HANDOVER_PER_S is a whole number")
    });
    given.unwrap_or(1_000).max(10)
}

/// Opens connections, each at its time at the rate of one of [`THREADS`], until told otherwise. One that is late is
/// opened at once. A refused or cut one is a panic.
fn connect_all_the_time<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    address: SocketAddr,
    is_over: &'scope AtomicBool,
    opened: &'scope AtomicUsize,
) -> ScopedJoinHandle<'scope, ()> {
    let pause = Duration::from_secs(1) * THREADS as u32 / connects_per_s() as u32;
    scope.spawn(move || {
        let mut due = Instant::now();
        while !is_over.load(Ordering::Acquire) {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            Opening::new(address).open();
            opened.fetch_add(1, Ordering::Relaxed);
            due += pause;
        }
    })
}

/// Threads that open connections.
const THREADS: usize = 4;

/// Ends the load even if the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
#[allow(
    clippy::print_stdout,
    reason = "the rate that was reached is a result of the test"
)]
fn ten_successors_with_other_numbers_of_shards_refuse_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidewire.toml");
    let write = |shards: usize| fs::write(&file, format!("shards = {shards}\n")).unwrap();
    write(2);
    let mut server = serve(&[
        "--listen",
        "127.0.0.1:0",
        "--ops-listen",
        "127.0.0.1:0",
        "--config",
        file.to_str().unwrap(),
    ]);
    let operations = server.line();
    let operations = operations.strip_prefix("operations on ").unwrap();
    let address = server.address().parse().unwrap();
    let (is_over, opened) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut process = server.child.id();
    // Before each restart and beside it.
    let per_round = connects_per_s() / 10;
    let started = Instant::now();
    std::thread::scope(|scope| {
        let load = [(); THREADS].map(|()| connect_all_the_time(scope, address, &is_over, &opened));
        let over = Over(&is_over);
        for round in 1..=10 {
            let before = opened.load(Ordering::Relaxed);
            while opened.load(Ordering::Relaxed) < before + per_round {
                assert!(!load.iter().any(ScopedJoinHandle::is_finished));
                std::thread::sleep(Duration::from_millis(1));
            }
            let shards = round % 3 + 1;
            write(shards);
            process = hand_over(&mut server, process);
            let (status, stats) = get(operations, "/stats");
            assert_eq!(status, 200);
            let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
            assert_eq!(stats["shards"].as_array().unwrap().len(), shards);
        }
        drop(over);
        for thread in load {
            thread.join().unwrap();
        }
    });
    let opened = opened.load(Ordering::Relaxed);
    let rate = opened as f64 / started.elapsed().as_secs_f64();
    println!("{opened} connections over ten restarts, {rate:.0}/s, none refused or reset");
    assert!(opened >= 10 * per_round);
    stop(&mut server, process);
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn sessions_are_told_to_come_back_and_find_the_successor() {
    let mut server = serve(&["--listen", "127.0.0.1:0"]);
    let process = server.child.id();
    let mut session = server.opening().open();
    let successor = hand_over(&mut server, process);
    session.assert_closed(tidewire_wire::close::CloseCode::DRAINING);
    let mut session = server.opening().open();
    session.send_text("here again");
    assert_eq!(session.next_text(), "here again");
    stop(&mut server, successor);
}

#[test]
fn a_server_goes_on_when_its_successor_cannot_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidewire.toml");
    fs::write(&file, "shards = 1\n").unwrap();
    let config = file.to_str().unwrap();
    let mut server = serve(&["--listen", "127.0.0.1:0", "--config", config]);
    fs::write(&file, "shards = \"many\"\n").unwrap();
    server.signal("USR2");
    let mut log = BufReader::new(server.child.stderr.take().unwrap());
    let mut lines = String::new();
    while !lines.contains("no server takes over, this one goes on: it ended: exit status: 2") {
        assert!(log.read_line(&mut lines).unwrap() > 0, "{lines}");
    }
    assert!(lines.contains("tidewire.toml"), "{lines}");
    server.opening().open();
    fs::write(&file, "shards = 1\n").unwrap();
    let process = server.child.id();
    let successor = hand_over(&mut server, process);
    server.opening().open();
    stop(&mut server, successor);
}

/// `tidewire serve` as a service manager starts it, with these sockets under these names.
fn activated(sockets: &[OwnedFd], names: &str) -> Command {
    let mut command = tidewire(&["serve", "--no-auth", "--protocol", "raw", "--shards", "2"]);
    let mappings = sockets.iter().zip(3..);
    let mappings = mappings.map(|(socket, child_fd)| FdMapping {
        parent_fd: socket.try_clone().unwrap(),
        child_fd,
    });
    command.fd_mappings(mappings.collect()).unwrap();
    command.env("LISTEN_FDS", sockets.len().to_string());
    command.env("LISTEN_FDNAMES", names);
    command
}

#[test]
fn newcomers_wait_in_kept_sockets_while_no_server_runs() {
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [clients, operations] = sockets
        .each_ref()
        .map(|socket| socket.local_addr().unwrap());
    let sockets = sockets.map(OwnedFd::from);
    let start = || Running::start(activated(&sockets, "clients:tidewire-operations.socket"));
    let (is_over, opened) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let load = connect_all_the_time(scope, clients, &is_over, &opened);
        let over = Over(&is_over);
        for _ in 0..3 {
            let mut server = start();
            assert_eq!(server.address(), clients.to_string());
            assert_eq!(server.line(), format!("operations on http://{operations}"));
            assert_eq!(get(&format!("http://{operations}"), "/ready").0, 200);
            let before = opened.load(Ordering::Relaxed);
            while opened.load(Ordering::Relaxed) < before + 20 {
                assert!(!load.is_finished());
                std::thread::sleep(Duration::from_millis(1));
            }
            server.signal("TERM");
            assert_eq!(server.wait(), Some(0));
        }
        drop(over);
        // The last new connection waits for a server.
        let server = start();
        load.join().unwrap();
        drop(server);
    });
}

#[test]
fn sockets_that_nobody_can_connect_to_are_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let file = tempfile::tempfile().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let cases = [
        (vec![OwnedFd::from(stream)], "clients", "does not listen"),
        (vec![OwnedFd::from(file)], "clients", "is not a socket"),
        (
            vec![OwnedFd::from(listener), OwnedFd::from(other)],
            "operations:operations",
            "there can be one socket for operations",
        ),
    ];
    for (sockets, names, words) in cases {
        let said = activated(&sockets, names).output().unwrap().into();
        assert_refused(&said, &[words]);
    }
}

#[test]
fn the_service_manager_hears_of_start_life_succession_and_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let mut command = tidewire(&["serve", "--no-auth", "--protocol", "raw"]);
    command.args(["--listen", "127.0.0.1:0", "--stop-with-stdin"]);
    command.stdin(Stdio::piped());
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "100000");
    let mut server = Running::start(command);
    let wait_for = |words: &str| {
        let mut heard = String::new();
        while !heard.contains(words) {
            let mut datagram = [0; 1024];
            let bytes = manager.recv(&mut datagram).unwrap();
            heard.push_str(std::str::from_utf8(&datagram[..bytes]).unwrap());
        }
    };
    wait_for("READY=1\nSTATUS=listening on ");
    wait_for("WATCHDOG=1");
    let process = server.child.id();
    let successor = hand_over(&mut server, process);
    wait_for(&format!("MAINPID={successor}"));
    // The signs of life of the successor, as the old server has ended.
    while manager.set_nonblocking(true).is_ok() && manager.recv(&mut [0; 1024]).is_ok() {}
    manager.set_nonblocking(false).unwrap();
    wait_for("WATCHDOG=1");
    signal(successor, "TERM");
    wait_for("STOPPING=1");
    assert_eq!(server.wait(), Some(0));
}
