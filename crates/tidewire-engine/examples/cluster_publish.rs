//! Publishes from inside a server to 100 topics that it shares over Redis, for `bench/scale_out.py` and `bench/partitions.py`.
//! Arguments: the URLs of the brokers, separated by commas, the seconds, `history` for topics with a history of 100 publications,
//! the number of partitions, and a rate in publications per second; without a rate it publishes as fast as it can.
//!
//! ```sh
//! cargo run --release -p tidewire-engine --example cluster_publish -- redis://127.0.0.1:6379 3 history
//! ```
//!
//! Prints `ready` when every topic was published to, and then the acknowledged publications in a second.

#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidewire_engine::{
    AccessRules, Application, BrokerAddress, BrokerConfig, Config, Context, Handle, HistoryLimits,
    Message, NewPublication, Server, TopicRule, Topics,
};

struct Silent;

impl Application for Silent {
    fn on_message(&mut self, _context: &mut Context<'_>, _message: Message<'_>) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("the URL of a broker is missing")?;
    let seconds = arguments.next().map_or(Ok(3.0), |text| text.parse())?;
    let has_history = arguments.next().is_some_and(|word| word == "history");
    let partitions = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let rate_per_s: Option<f64> = arguments.next().map(|text| text.parse()).transpose()?;
    let addresses = BrokerAddress::parse_list(&url)?;
    let mut broker = BrokerConfig::new(addresses[0].clone());
    (broker.addresses, broker.partitions) = (addresses, partitions);
    let config = Config {
        listen: "127.0.0.1:0".parse()?,
        shards: 1,
        broker: Some(broker),
        topics: topics(has_history),
        ..Config::default()
    };
    let server = Server::start(config, |_| Silent)?;
    let mut publisher = Publisher::new(server.handle());
    publisher.publish_for(Duration::ZERO, None)?;
    println!("ready");
    let began = Instant::now();
    let published = publisher.publish_for(Duration::try_from_secs_f64(seconds)?, rate_per_s)?;
    println!("{:.0}", published as f64 / began.elapsed().as_secs_f64());
    server.stop();
    Ok(())
}

fn topics(has_history: bool) -> Topics {
    let history = has_history.then_some(HistoryLimits {
        publications_max: 100,
        bytes_max: 1 << 20,
        age_max_ms: 3_600_000,
    });
    Topics {
        access: AccessRules::open(),
        rules: vec![TopicRule {
            history,
            ..TopicRule::new(">")
        }],
        ..Topics::default()
    }
}

/// Publishes with a limited number of publications that are not acknowledged.
struct Publisher {
    handle: Handle,
    topics: Vec<String>,
    publication: NewPublication,
    answers: Arc<Answers>,
    published: u64,
}

#[derive(Default)]
struct Answers {
    received: AtomicU64,
    refusal: Mutex<Option<String>>,
    came: Condvar,
}

impl Publisher {
    fn new(handle: Handle) -> Self {
        let pad = "x".repeat(150);
        Self {
            handle,
            topics: (0..TOPICS).map(|number| format!("h.{number}")).collect(),
            publication: NewPublication::new("x", format!(r#"{{"pad":"{pad}"}}"#)),
            answers: Arc::default(),
            published: 0,
        }
    }

    /// Publishes to every topic in turn, at least once to each, until the time is over and everything was answered. Returns how many
    /// were acknowledged.
    fn publish_for(&mut self, duration: Duration, rate_per_s: Option<f64>) -> Result<u64, String> {
        let (began, before) = (Instant::now(), self.published);
        loop {
            for (number, topic) in self.topics.iter().enumerate() {
                if let Some(rate_per_s) = rate_per_s {
                    let due = (self.published - before + number as u64) as f64 / rate_per_s;
                    let due = Duration::from_secs_f64(due);
                    std::thread::sleep(due.saturating_sub(began.elapsed()));
                }
                let answers = Arc::clone(&self.answers);
                self.handle
                    .publish_with(topic, &self.publication, move |result| {
                        answers.note(result.err().map(|error| error.to_string()));
                    });
            }
            self.published += TOPICS;
            self.answers
                .wait_for(self.published.saturating_sub(IN_FLIGHT))?;
            if began.elapsed() >= duration {
                break;
            }
        }
        self.answers.wait_for(self.published)?;
        Ok(self.published - before)
    }
}

impl Answers {
    fn note(&self, refusal: Option<String>) {
        if let Some(refusal) = refusal {
            *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        }
        let received = self.received.fetch_add(1, Ordering::Release) + 1;
        if received.is_multiple_of(TOPICS) {
            self.came.notify_one();
        }
    }

    /// Waits for the number of answers that `count` says; an error if one was a refusal.
    fn wait_for(&self, count: u64) -> Result<(), String> {
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        while refusal.is_none() && self.received.load(Ordering::Acquire) < count {
            // An answer may come between the look and the wait.
            let waited = self.came.wait_timeout(refusal, Duration::from_millis(1));
            refusal = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        refusal.take().map_or(Ok(()), Err)
    }
}

const TOPICS: u64 = 100;
/// As many as 50 connections with 16 each.
const IN_FLIGHT: u64 = 800;
