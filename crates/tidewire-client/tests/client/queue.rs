//! Messages that count once they are acknowledged: across lost connections, servers and processes.

use crate::common::{Recorder, config, connect_with, find, server_config, start, url, wait_until};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tidewire_client::config::{Config, Queue};
use tidewire_client::{Client, CloseCode, Error, Event, Priority, QueueOptions};
use tidewire_engine::{Config as ServerConfig, Server};

fn with_queue(server: &Server) -> Config {
    Config {
        queue: Some(Queue::default()),
        ..config(url(server))
    }
}

fn urgent() -> QueueOptions {
    QueueOptions {
        priority: Priority::Critical,
        ..QueueOptions::default()
    }
}

#[tokio::test]
async fn acknowledged_messages_have_arrived() {
    let (server, recorder) = start(server_config());
    let (client, _events) = connect_with(with_queue(&server)).await;
    let mut receipts = Vec::new();
    for number in 0..3_000 {
        let payload = number.to_string();
        receipts.push(
            client
                .send_acknowledged("count", &payload, Default::default())
                .await
                .unwrap(),
        );
    }
    for receipt in receipts {
        receipt.wait().await.unwrap();
    }
    assert_eq!(recorder.numbers(), (0..3_000).collect::<Vec<_>>());
    wait_until("an empty queue", || client.queue_depth().messages == 0).await;
}

#[tokio::test]
async fn what_waits_goes_by_priority() {
    let (server, _) = start(server_config());
    let address = server.address();
    let config = with_queue(&server);
    server.stop().await;
    let client = Client::start(config).unwrap();
    let mut last = None;
    for number in 0..10 {
        let options = if number >= 5 {
            urgent()
        } else {
            QueueOptions::default()
        };
        let payload = number.to_string();
        let receipt = client
            .send_acknowledged("count", &payload, options)
            .await
            .unwrap();
        if number == 4 {
            last = Some(receipt);
        }
    }
    assert_eq!(client.queue_depth().messages, 10);
    let (_server, recorder) = start(ServerConfig {
        listen: address,
        ..server_config()
    });
    last.unwrap().wait().await.unwrap();
    assert_eq!(recorder.numbers(), [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn publications_and_refusals() {
    let (server, _) = start(server_config());
    let (client, _events) = connect_with(with_queue(&server)).await;
    let good = client
        .publish_acknowledged("kept.a", "count", "1", urgent())
        .await
        .unwrap();
    good.wait().await.unwrap();
    let bad = client
        .publish_acknowledged("kept.*", "count", "1", urgent())
        .await
        .unwrap();
    let refused = bad.wait().await.unwrap_err();
    assert_eq!(refused.code(), "INVALID_MESSAGE");
    let next = client
        .send_acknowledged("count", "2", Default::default())
        .await
        .unwrap();
    next.wait().await.unwrap();
}

#[tokio::test]
async fn connections_that_are_cut_lose_and_double_nothing() {
    let (server, recorder) = start(server_config());
    let (client, _events) = connect_with(with_queue(&server)).await;
    let sender = tokio::spawn({
        let client = client.clone();
        async move {
            for number in 0..5_000u64 {
                let payload = number.to_string();
                let receipt = client
                    .send_acknowledged("count", &payload, Default::default())
                    .await;
                if number == 4_999 {
                    return receipt.unwrap().wait().await;
                }
            }
            Ok(())
        }
    });
    let mut cuts = 0;
    while !sender.is_finished() {
        let peers = recorder.peers.lock().unwrap().clone();
        if let Some(peer) = peers.last().filter(|_| recorder.texts().len() > cuts * 400) {
            let _ = server.handle().close(*peer, CloseCode::SERVICE_RESTART, "");
            cuts += 1;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    sender.await.unwrap().unwrap();
    assert!(cuts > 3, "{cuts}");
    assert_eq!(recorder.numbers(), (0..5_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_server_that_forgot_makes_what_was_sent_uncertain() {
    let (server, _) = start(server_config());
    let address = server.address();
    // Nothing is acknowledged: the server is stopped before it reads.
    let (client, mut events) = connect_with(with_queue(&server)).await;
    let first = client
        .send_acknowledged("count", "1", Default::default())
        .await
        .unwrap();
    first.wait().await.unwrap();
    server.stop().await;
    let second = client
        .send_acknowledged("count", "2", Default::default())
        .await
        .unwrap();
    let (_server, recorder) = start(ServerConfig {
        listen: address,
        ..server_config()
    });
    match second.wait().await {
        // It was on its way when the server was stopped.
        Err(Error::ConnectionLost) => {
            find(&mut events, |event| {
                matches!(event, Event::Uncertain(told) if told.messages.len() == 1).then_some(())
            })
            .await;
            assert!(recorder.numbers().is_empty());
        }
        result => {
            result.unwrap();
            assert_eq!(recorder.numbers(), [2]);
        }
    }
}

#[tokio::test]
async fn too_old_is_told() {
    let mut config = config("ws://127.0.0.1:9/ws".to_owned());
    config.queue = Some(Queue::default());
    let client = Client::start(config).unwrap();
    let options = QueueOptions {
        ttl: Some(Duration::from_millis(1)),
        ..QueueOptions::default()
    };
    let receipt = client
        .send_acknowledged("count", "1", options)
        .await
        .unwrap();
    drop(receipt);
    assert_eq!(client.queue_depth().messages, 1);
}

#[tokio::test]
async fn the_rate_limit_slows_and_loses_nothing() {
    let mut server = server_config();
    server.limits.rate_limit_capacity = 200;
    server.limits.rate_limit_refill_per_s = 1_000;
    let (server, recorder) = start(server);
    // Without its own limit the client runs into the server's.
    let config = Config {
        rate_limit: false,
        ..with_queue(&server)
    };
    let (client, _events) = connect_with(config).await;
    let mut last = None;
    for number in 0..500u64 {
        let payload = number.to_string();
        last = client
            .send_acknowledged("count", &payload, Default::default())
            .await
            .ok();
    }
    last.unwrap().wait().await.unwrap();
    assert_eq!(recorder.numbers(), (0..500).collect::<Vec<_>>());
}

#[cfg(feature = "offline-queue")]
#[tokio::test]
async fn a_closed_client_lets_go_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue.db");
    let open = || Client::start(config("ws://127.0.0.1:9/ws".to_owned()).with_queue(&path));
    let first = open().unwrap();
    first
        .send_acknowledged("count", "1", Default::default())
        .await
        .unwrap();
    assert_eq!(first.queue_depth().messages, 1);
    assert_eq!(open().unwrap_err().code(), "QUEUE");
    first.close().await;
    let late = first
        .send_acknowledged("count", "2", Default::default())
        .await;
    assert_eq!(late.unwrap_err().code(), "CLOSED");
    assert_eq!(open().unwrap().queue_depth().messages, 1);
}

/// Fills a queue as fast as it can and prints its progress, in a process that this test kills.
#[cfg(feature = "offline-queue")]
#[test]
fn killed_in_the_middle() {
    let Ok(path) = std::env::var("TIDEWIRE_TEST_QUEUE") else {
        return parent();
    };
    let url = std::env::var("TIDEWIRE_TEST_URL").unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::start(config(url).with_queue(path)).unwrap();
        for number in 0u64.. {
            let payload = number.to_string();
            client
                .send_acknowledged("count", &payload, Default::default())
                .await
                .unwrap();
            println!("stored {number}");
        }
    });
}

#[cfg(feature = "offline-queue")]
fn parent() {
    let (server, recorder) = start(server_config());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("queue.db");
    let mut stored = Vec::new();
    for round in 0..4 {
        // Now with a server and now without, and killed at another point each time.
        let url = if round % 2 == 0 {
            url(&server)
        } else {
            "ws://127.0.0.1:9/ws".to_owned()
        };
        stored.push(fill_and_kill(&path, &url, 50 + 37 * round));
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = Client::connect(config(url(&server)).with_queue(&path))
            .await
            .expect("the server is there");
        wait_until("an empty queue", || client.queue_depth().messages == 0).await;
    });
    check(&recorder, &stored);
}

/// How many messages the process said that it had stored.
#[cfg(feature = "offline-queue")]
fn fill_and_kill(path: &Path, url: &str, count: usize) -> u64 {
    let mut child = Command::new(std::env::current_exe().expect("this test has a file"))
        .args(["--exact", "queue::killed_in_the_middle", "--nocapture"])
        .env("TIDEWIRE_TEST_QUEUE", path)
        .env("TIDEWIRE_TEST_URL", url)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it can be run again");
    let mut lines = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
    let mut stored = 0;
    while stored < count as u64 {
        let line = lines
            .next()
            .expect("the process lives")
            .expect("its output is text");
        if let Some(at) = line.find("stored ") {
            stored = line[at + 7..].parse::<u64>().expect("a number") + 1;
        }
    }
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    for line in lines.map_while(Result::ok) {
        if let Some(number) = line
            .strip_prefix("stored ")
            .and_then(|rest| rest.parse::<u64>().ok())
        {
            stored = number + 1;
        }
    }
    stored
}

/// Every process counted from 0: of each all that it stored has come once, in order, and at most one more, which was
/// stored when it was killed.
#[cfg(feature = "offline-queue")]
fn check(recorder: &Recorder, stored: &[u64]) {
    let numbers = recorder.numbers();
    let mut runs: Vec<Vec<u64>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if number == run.len() as u64 => run.push(number),
            _ => {
                assert_eq!(number, 0, "lost or out of order after {:?}", runs.last());
                runs.push(vec![0]);
            }
        }
    }
    assert_eq!(runs.len(), stored.len());
    for (run, stored) in runs.iter().zip(stored) {
        let extra = run.len() as u64 - stored;
        assert!(extra <= 1, "{} for {stored}", run.len());
    }
}
