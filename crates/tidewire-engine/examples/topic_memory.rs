//! Prints what a million topics cost, each with one subscriber: memory of each, and the time of a publication
//! on a server that has few and on one that has many. Run it with `--release`, on Linux; an argument is another
//! number of topics.

#![allow(clippy::print_stdout, reason = "it is what the example is for")]

mod topics_client;

use std::time::Instant;
use tidewire_engine::{NewPublication, PublishError, Server};
use topics_client::{Client, is_success, start, update_frame};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let topics: usize = std::env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |text| text.parse())?;
    let each = topics.div_ceil(CONNECTIONS * TOPICS_PER_MESSAGE) * TOPICS_PER_MESSAGE;
    let (mut few, mut many) = (Site::new()?, Site::new()?);
    let empty_bytes = resident_bytes()?;
    let started = Instant::now();
    for (number, client) in many.clients.iter_mut().enumerate() {
        subscribe(client, number * each..(number + 1) * each)?;
    }
    let (topics, taken) = (CONNECTIONS * each, started.elapsed());
    let bytes = resident_bytes()?.saturating_sub(empty_bytes);
    println!("topics {topics}");
    println!("bytes_per_topic {:.1}", bytes as f64 / topics as f64);
    println!(
        "subscriptions_per_s {:.0}",
        topics as f64 / taken.as_secs_f64()
    );
    let mut taken: [Vec<Times>; 3] = Default::default();
    for batch in 0..BATCHES {
        // By turns, so that other work of the machine meets all.
        taken[0].push(few.publish(|_, client| early_topic(client))?);
        taken[1].push(many.publish(|_, client| early_topic(client))?);
        taken[2].push(many.publish(|round, client| {
            // Another topic in every round, far from the one before.
            let round = batch * ROUNDS_PER_BATCH + round;
            topic(client * each + (round * STRIDE) % each)
        })?);
    }
    print("publish", &taken, |times| times.publish_ns);
    print("deliver", &taken, |times| times.deliver_ns);
    for site in [few, many] {
        site.server.stop();
    }
    Ok(())
}

/// Medians in nanoseconds, and how much longer the same topics take among many.
fn print(name: &str, [few, many, any]: &[Vec<Times>; 3], figure: fn(&Times) -> f64) {
    let ns = |times: &[Times]| median(times.iter().map(figure).collect());
    println!("{name}_ns_few_topics {:.0}", ns(few));
    println!("{name}_ns_many_topics {:.0}", ns(many));
    println!("{name}_ns_any_of_many {:.0}", ns(any));
    let pairs = few.iter().zip(many);
    let growth = median(
        pairs
            .map(|(few, many)| figure(many) / figure(few))
            .collect(),
    );
    println!("{name}_growth {growth:.3}");
}

/// A server and its subscribers.
struct Site {
    server: Server,
    clients: Vec<Client>,
}

/// The time of one publication, in nanoseconds.
struct Times {
    /// On the thread that publishes.
    publish_ns: f64,
    /// Until its subscriber has it, at full speed.
    deliver_ns: f64,
}

impl Site {
    /// Each subscriber has one topic.
    fn new() -> Outcome<Self> {
        let server = start()?;
        let mut clients = Vec::new();
        for number in 0..CONNECTIONS {
            let mut client = Client::connect(server.address())?;
            let early = std::iter::once(early_topic(number));
            client.write(&update_frame("subscribe", early))?;
            client.read(1, is_success)?;
            clients.push(client);
        }
        Ok(Self { server, clients })
    }

    /// Publishes by turns to the topic that each client has in a round, and has each read what it got.
    fn publish(&mut self, topic: impl Fn(usize, usize) -> String) -> Outcome<Times> {
        let publication = NewPublication::new("trade", r#"{"symbol":"BTC-USD","price":61244.5}"#);
        let handle = self.server.handle();
        let names: Vec<String> = (0..ROUNDS_PER_BATCH * CONNECTIONS)
            .map(|number| topic(number / CONNECTIONS, number % CONNECTIONS))
            .collect();
        let started = Instant::now();
        for name in &names {
            while let Err(error) = handle.publish(name, &publication) {
                if error != PublishError::Busy {
                    return Err(error.into());
                }
                std::thread::yield_now();
            }
        }
        let published = started.elapsed();
        for client in &mut self.clients {
            client.read(ROUNDS_PER_BATCH, |message| message.contains("BTC-USD"))?;
        }
        let delivered = started.elapsed();
        Ok(Times {
            publish_ns: published.as_nanos() as f64 / names.len() as f64,
            deliver_ns: delivered.as_nanos() as f64 / names.len() as f64,
        })
    }
}

fn subscribe(client: &mut Client, topics: std::ops::Range<usize>) -> Outcome<()> {
    for first in topics.step_by(TOPICS_PER_MESSAGE) {
        let names = (first..first + TOPICS_PER_MESSAGE).map(topic);
        client.write(&update_frame("subscribe", names))?;
        client.read(1, is_success)?;
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn resident_bytes() -> Outcome<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next());
    let kilobytes: usize = kilobytes.ok_or("no VmRSS in /proc/self/status")?.parse()?;
    Ok(kilobytes * 1024)
}

fn early_topic(connection: usize) -> String {
    format!("early.{connection:07}")
}

fn topic(number: usize) -> String {
    format!("orders.{number:07}")
}

/// Makes eight thousand topics of a million on each, within what a connection may have by default.
const CONNECTIONS: usize = 125;
const TOPICS_PER_MESSAGE: usize = 1000;
const BATCHES: usize = 51;
const ROUNDS_PER_BATCH: usize = 20;

/// Has no factor in common with the topics of a connection.
const STRIDE: usize = 7_919;
