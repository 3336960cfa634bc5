//! A real server behind proxies of `protocol/scenarios/proxies.json`: what was promised holds, whatever they do.

mod proxy;
mod work;

use crate::common::{TestServer, config, server_config};
use crate::scenarios::folder;
use proxy::{Plan, Proxy};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tidewire_client::config::{Config, Queue, Tls};
use tidewire_engine::{Config as ServerConfig, TlsFiles};
use tokio::task::JoinSet;
use work::{Ledger, work};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_promised_holds_whatever_a_proxy_does() {
    let file = file();
    let mut running = JoinSet::new();
    for spec in file["proxies"].as_array().expect("proxies") {
        for seed in spec["seeds"].as_array().expect("seeds") {
            let seed = seed.as_u64().expect("a seed is a number");
            running.spawn(run(spec.clone(), seed));
            if running.len() >= AT_ONCE {
                running.join_next().await.unwrap().unwrap();
            }
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

#[test]
fn plans_are_the_same_for_every_implementation() {
    for vector in file()["plans"].as_array().expect("plans") {
        let number = |name: &str| vector[name].as_u64().expect("a number");
        let plan = Plan::new(number("seed"), number("connection"), &vector["kinds"]);
        assert_eq!(plan.to_json(), vector["plan"], "{vector}");
    }
}

async fn run(spec: Value, seed: u64) {
    let name = spec["name"].as_str().expect("a name");
    let is_secure = spec["transport"] == "wss";
    let files = Files::new();
    let ledger = Ledger::default();
    let application = ledger.clone();
    let config = ServerConfig {
        tls: is_secure.then(|| files.tls()),
        ..server_config()
    };
    let server = TestServer::start(config, || application.clone());
    let plans = (0..spec["connections"].as_u64().expect("a number"))
        .map(|connection| Plan::new(seed, connection, &spec["kinds"]));
    let proxy = Proxy::start(server.address(), plans.collect()).await;
    let mut config = client_config(&proxy, is_secure.then(|| files.certificate()));
    let keeps_promises = spec["holds"] == "promises";
    if !keeps_promises {
        // Who asks in corrupted words gets no answer.
        config.request_timeout = Duration::from_secs(2);
    }
    let working = async {
        while !proxy.is_calm() {
            work(config.clone(), &server, &ledger, &proxy, keeps_promises).await;
        }
    };
    let done = tokio::time::timeout(DEADLINE, working).await;
    done.unwrap_or_else(|_| panic!("{name}, seed {seed}: it never ends"));
}

/// Notices silence soon, and comes back fast.
fn client_config(proxy: &Proxy, certificate: Option<PathBuf>) -> Config {
    let port = proxy.address.port();
    let mut config = match certificate {
        None => config(format!("ws://127.0.0.1:{port}/ws")),
        Some(path) => Config {
            tls: Tls::CaFile(path),
            ..config(format!("wss://localhost:{port}/ws"))
        },
    };
    config.queue = Some(Queue::default());
    config.connect_timeout = Duration::from_secs(2);
    config.idle_timeout = Duration::from_secs(2);
    config.ping_interval = Some(Duration::from_millis(250));
    config
}

/// A certificate for `localhost`, which is thrown away with this.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])
            .expect("a certificate for a name");
        let write = |name, text| std::fs::write(folder.path().join(name), text);
        write("cert.pem", pair.cert.pem()).expect("a file");
        write("key.pem", pair.signing_key.serialize_pem()).expect("a file");
        Self(folder)
    }

    fn certificate(&self) -> PathBuf {
        self.0.path().join("cert.pem")
    }

    fn tls(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.certificate(),
            key: self.0.path().join("key.pem"),
        }
    }
}

fn file() -> Value {
    let text = std::fs::read_to_string(folder().join("proxies.json"));
    let text = text.expect("the proxies are in the repository");
    serde_json::from_str(&text).unwrap_or_else(|error| json!(error.to_string()))
}

/// Past it a run has failed; most of its time it waits for what has stalled.
const DEADLINE: Duration = Duration::from_secs(240);

/// Proxies that run side by side.
const AT_ONCE: usize = 12;
