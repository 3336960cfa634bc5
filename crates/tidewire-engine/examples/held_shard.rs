//! A server of two shards whose application can hold one of them, for `bench/hostility.py`: a message of the type `where`
//! is answered with the number of the shard, and one of the type `hold` keeps the shard busy for three seconds.
//!
//! ```sh
//! cargo run --release -p tidewire-engine --example held_shard -- 127.0.0.1:5006
//! ```

#![allow(clippy::print_stdout, reason = "it is how the address is told")]

use std::thread;
use std::time::Duration;
use tidewire_engine::{AccessRules, Application, Config, Context, Message, Server, Topics};

struct Held {
    shard: usize,
}

impl Application for Held {
    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        let has = |word: &[u8]| message.bytes.windows(word.len()).any(|part| part == word);
        if has(br#""where""#) {
            let answer = format!(r#"{{"t":"here","p":{}}}"#, self.shard);
            context.send_text(&answer);
        } else if has(br#""hold""#) {
            thread::sleep(HOLD);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listen = std::env::args().nth(1);
    let config = Config {
        listen: listen.as_deref().unwrap_or("127.0.0.1:0").parse()?,
        shards: 2,
        topics: Topics {
            access: AccessRules::open(),
            ..Topics::default()
        },
        ..Config::default()
    };
    let server = Server::start(config, |shard| Held { shard })?;
    println!("listening on {}", server.address());
    loop {
        thread::park();
    }
}

const HOLD: Duration = Duration::from_secs(3);
