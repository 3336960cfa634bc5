//! Network namespaces as hosts: each has its own addresses, ports and name, and one cable to this machine. Nothing leaves it.

use super::load::{count, load, start};
use super::support::{
    assert_accounted, bench, report, result_of, results, wait_for_workers, words,
};
use crate::program::{Running, tidewire};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// All in one test, because the tests of a process would share the addresses of its hosts.
#[test]
fn workers_have_hosts_of_their_own() {
    clear();
    let hosts = match Host::new(1).and_then(|one| Ok([one, Host::new(2)?])) {
        Ok(hosts) => hosts,
        Err(reason) => return println!("skipped: no network namespaces here: {reason}"),
    };
    let program = env!("CARGO_BIN_EXE_tidewire");
    let workers = hosts
        .each_ref()
        .map(|host| format!("{} {program} worker --threads 1", host.command));
    let workers: Vec<&str> = workers
        .iter()
        .flat_map(|worker| ["--worker", worker])
        .collect();
    counts_are_exact(&workers);
    a_host_that_is_cut_off_is_a_failure_of_its_requests(&workers, &hosts[1]);
}

/// The workers count together as threads do.
fn counts_are_exact(workers: &[&str]) {
    let mut server = serve("--no-auth --app sink --rate-limit-capacity 0 --ops-listen 127.0.0.1:0");
    let ops = server.0.line();
    let counters = ops.strip_prefix("operations on ").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let target = [&server.1, "--stats-url", counters, "--profile", "v1"];
    let plan = words("--test throughput,ping-latency --connections 6 --duration-s 1");
    let report = bench(folder.path(), &[&target[..], &plan, workers].concat());
    for result in results(&report) {
        assert_accounted(result);
    }
    assert_eq!(result_of(&report, "throughput")["processes"]["count"], 2);
    let url = server
        .1
        .replacen("ws", "http", 1)
        .replace("/ws", "/nothing");
    let plan = ["-c", "8", "-n", "400", "--expect-status", "any"];
    let result = load(&url, &[&plan[..], workers].concat());
    assert_eq!(count(&result, "succeeded"), 400);
}

/// Nobody tells the server or the worker. The requests of that host stay unanswered, and count as failures.
fn a_host_that_is_cut_off_is_a_failure_of_its_requests(workers: &[&str], cut_off: &Host) {
    let server = serve("--no-auth --app sink");
    let url = server
        .1
        .replacen("ws", "http", 1)
        .replace("/ws", "/nothing");
    let folder = tempfile::tempdir().unwrap();
    let plan = "-c 4 -d 3 -r 400 --expect-status any --timeout-ms 500 --connect-timeout-ms 500 --drain-ms 500";
    let mut child = start(&url, folder.path(), &[&words(plan)[..], workers].concat());
    wait_for_workers(&child, 2);
    std::thread::sleep(Duration::from_millis(1_500));
    cut_off.unplug();
    assert!(child.wait().unwrap().code().is_some());
    let result = &report(folder.path())["results"][0];
    let of = |outcome| count(result, outcome);
    assert!(of("succeeded") >= 400, "{result:#}");
    assert!(of("failed") + of("unsent") >= 100, "{result:#}");
    assert!(
        result["errors"].to_string().contains("timeout"),
        "{result:#}"
    );
    let all = of("succeeded") + of("failed") + of("unfinished");
    assert_eq!(all, of("sent"), "{result:#}");
}

/// A server that every host reaches, and its URL there.
fn serve(options: &str) -> (Running, String) {
    let listen = format!("{}:0", address(1, 1));
    let serve = ["serve", "--shards", "1", "--log-level", "error"];
    let options = [&serve[..], &words(options), &["--listen", &listen]].concat();
    let running = Running::start(tidewire(&options));
    let url = running.url.clone();
    (running, url)
}

/// A host that ends with this value.
struct Host {
    namespace: String,
    cable: String,
    /// The command that runs a program there, in front of that program.
    command: String,
}

impl Host {
    /// A host `load-N` with a cable to this machine, or why this machine allows none.
    fn new(number: u32) -> Result<Self, String> {
        let process = std::process::id();
        let namespace = format!("{PREFIX}{process}-{number}");
        ip(&["netns", "add", &namespace])?;
        let host = Self {
            command: format!(
                "exec ip netns exec {namespace} unshare --uts sh -c 'hostname load-{number} && exec \"$@\"' sh"
            ),
            cable: format!("tw{process}n{number}"),
            namespace,
        };
        let (here, there) = (address(number, 1), address(number, 2));
        let outside = |line: &str| ip(&words(line)).unwrap();
        let inside =
            |line: &str| ip(&[&["-n", &host.namespace], &words(line)[..]].concat()).unwrap();
        let (cable, namespace) = (&host.cable, &host.namespace);
        outside(&format!(
            "link add {cable} type veth peer name eth0 netns {namespace}"
        ));
        outside(&format!("address add {here}/30 dev {cable}"));
        outside(&format!("link set {cable} up"));
        inside(&format!("address add {there}/30 dev eth0"));
        inside("link set eth0 up");
        inside(&format!("route add default via {here}"));
        Ok(host)
    }

    /// Nothing gets to it or from it any more.
    fn unplug(&self) {
        ip(&["link", "set", &self.cable, "down"]).unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The cable ends with the namespace.
        let _ = ip(&["netns", "delete", &self.namespace]);
    }
}

/// The address of one end of a host's cable. It is one for tests of networks (RFC 2544); each process has its own block of them.
fn address(host: u32, end: u32) -> String {
    let network = u32::from(Ipv4Addr::new(198, 18, 0, 0));
    let block = std::process::id() % (1 << 13) * 16;
    Ipv4Addr::from(network + block + 4 * host + end).to_string()
}

/// Deletes the namespaces of tests that were killed.
fn clear() {
    let listed = Command::new("ip").args(["netns", "list"]).output();
    let listed = listed.map_or_else(|_| Vec::new(), |done| done.stdout);
    for line in String::from_utf8_lossy(&listed).lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let process = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(words).output();
    let done = done.map_err(|error| format!("ip: {error}"))?;
    let fault = String::from_utf8_lossy(&done.stderr);
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("ip {}: {}", words.join(" "), fault.trim())),
    }
}

/// The first part of the name of a namespace.
const PREFIX: &str = "tidewire-";
