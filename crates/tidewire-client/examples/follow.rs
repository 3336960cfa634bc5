//! Prints what a client receives of topics, one JSON object for each event, until it is stopped:
//! `cargo run --example follow -p tidewire-client -- ws://127.0.0.1:5006/ws prices.tide prices.wind`

#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use std::io::{self, Write};
use tidewire_client::{Client, Config, Event, Message};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("usage: follow URL TOPIC...")?;
    let client = Client::connect(Config::new(url)).await?;
    client.subscribe(arguments).await?;
    println!(r#"{{"kind":"ready"}}"#);
    while let Some(batch) = client.next_batch().await {
        for event in batch {
            match event {
                Event::Message(message) => show(&message)?,
                other => println!(r#"{{"kind":"{}"}}"#, other.kind()),
            }
        }
        io::stdout().flush()?;
    }
    Ok(())
}

fn show(message: &Message) -> Result<(), Box<dyn std::error::Error>> {
    let outline = message.outline()?;
    if let (Some(topic), Some((epoch, offset))) = (outline.topic, outline.position) {
        let payload = String::from_utf8_lossy(outline.payload);
        println!(
            r#"{{"kind":"publication","topic":"{topic}","epoch":"{epoch:08x}","offset":{offset},"payload":{payload}}}"#
        );
    }
    Ok(())
}
