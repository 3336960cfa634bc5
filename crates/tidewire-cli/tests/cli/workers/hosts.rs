//! Network namespaces as hosts: each has its own addresses, ports and name, and one cable to this machine. Nothing leaves it.

use super::load::{count, load, start};
use super::support::{
    assert_accounted, bench, report, result_of, results, wait_for_workers, words,
};
use crate::program::{Running, tidewire};
use std::process::Command;
use std::time::Duration;

/// In one test, because there are few such addresses.
#[test]
fn workers_have_hosts_of_their_own() {
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
    let mut server =
        serve("0.0.0.0:0 --no-auth --app sink --rate-limit-capacity 0 --ops-listen 127.0.0.1:0");
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

/// The server does not hear of it, and neither does the worker, but the requests of that host stay unanswered.
fn a_host_that_is_cut_off_is_a_failure_of_its_requests(workers: &[&str], cut_off: &Host) {
    let server = serve("0.0.0.0:0 --no-auth --app sink");
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
fn serve(listen: &str) -> (Running, String) {
    let serve = ["serve", "--shards", "1", "--log-level", "error", "--listen"];
    let running = Running::start(tidewire(&[&serve[..], &words(listen)].concat()));
    let url = running.url.replace("0.0.0.0", Host::of_this_machine());
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
    /// A host `load-N` whose cable has the addresses of documentation (RFC 5737), or the reason why there is none.
    fn new(number: u8) -> Result<Self, String> {
        let namespace = format!("tidewire-{}-{number}", std::process::id());
        let cable = format!("tw{}n{number}", std::process::id());
        ip(&["netns", "add", &namespace])?;
        let host = Self {
            command: format!(
                "exec ip netns exec {namespace} unshare --uts sh -c 'hostname load-{number} && exec \"$@\"' sh"
            ),
            namespace,
            cable,
        };
        let (here, there) = (host.address(number, 1), host.address(number, 2));
        let inside = |words: &[&str]| ip(&[&["-n", &host.namespace], words].concat());
        ip(&[
            "link",
            "add",
            &host.cable,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            &host.namespace,
        ])?;
        ip(&["address", "add", &format!("{here}/30"), "dev", &host.cable])?;
        ip(&["link", "set", &host.cable, "up"])?;
        inside(&["address", "add", &format!("{there}/30"), "dev", "eth0"])?;
        inside(&["link", "set", "eth0", "up"])?;
        inside(&["route", "add", "default", "via", &here])?;
        Ok(host)
    }

    /// The address by which every host reaches this machine.
    fn of_this_machine() -> &'static str {
        "192.0.2.5"
    }

    fn address(&self, number: u8, end: u8) -> String {
        format!("192.0.2.{}", 4 * number + end)
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

fn ip(words: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(words).output();
    let done = done.map_err(|error| format!("ip: {error}"))?;
    let fault = String::from_utf8_lossy(&done.stderr);
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("ip {}: {}", words.join(" "), fault.trim())),
    }
}
