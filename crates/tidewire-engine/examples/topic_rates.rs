//! Prints how many topics one connection can subscribe to and leave again in a second, a thousand in each
//! message and one in each message. Run it with `--release`; an argument is the seconds that each takes.

#![allow(clippy::print_stdout, reason = "it is what the example is for")]

mod topics_client;

use std::time::{Duration, Instant};
use topics_client::{Client, is_success, start, update_frame};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args()
        .nth(1)
        .map_or(Ok(2.0), |text| text.parse())?;
    let duration = Duration::try_from_secs_f64(seconds)?;
    let server = start()?;
    for (topics_per_message, in_flight) in [(1000, 4), (1, 512)] {
        let mut client = Client::connect(server.address())?;
        let rate = measure(&mut client, topics_per_message, in_flight, duration)?;
        println!("updates_per_s_by_{topics_per_message} {rate:.0}");
    }
    server.stop();
    Ok(())
}

/// Subscriptions begun and ended in a second, with at most `in_flight` messages unanswered: few enough for the
/// buffers of the sockets, so that neither side waits for the other to read.
fn measure(
    client: &mut Client,
    topics_per_message: usize,
    in_flight: usize,
    duration: Duration,
) -> std::io::Result<f64> {
    let groups: Vec<_> = (0..TOPICS).step_by(topics_per_message).collect();
    let burst_messages = in_flight / 2;
    // All are subscribed to, in bursts, before all are left.
    let messages: Vec<Vec<u8>> = ["subscribe", "unsubscribe"]
        .into_iter()
        .flat_map(|action| groups.iter().map(move |first| (action, *first)))
        .map(|(action, first)| update_frame(action, (first..first + topics_per_message).map(topic)))
        .collect();
    let bursts: Vec<(usize, Vec<u8>)> = messages
        .chunks(burst_messages)
        .map(|burst| (burst.len(), burst.concat()))
        .collect();
    let (mut written, mut answered) = (0, 0);
    let started = Instant::now();
    for (messages, frames) in bursts.iter().cycle() {
        if started.elapsed() >= duration {
            break;
        }
        client.write(frames)?;
        written += messages;
        let wanted = written.saturating_sub(answered + burst_messages);
        answered += client.read(wanted, is_success)?;
    }
    answered += client.read(written - answered, is_success)?;
    Ok((answered * topics_per_message) as f64 / started.elapsed().as_secs_f64())
}

fn topic(number: usize) -> String {
    format!("orders.{number:07}")
}

/// The default limit of a connection.
const TOPICS: usize = 10_000;
