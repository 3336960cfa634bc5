//! A small market on topics: prices of which new subscribers receive the last, orders that can be recovered and have to be
//! confirmed, a room whose members know of each other, and a clock that can be asked. Arguments: where to listen and
//! for how many seconds.
//!
//! ```sh
//! cargo run -p tidewire-engine --example topics -- 127.0.0.1:5006 3600
//! ```

#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use std::thread;
use std::time::{Duration, Instant};
use tidewire_engine::{
    AccessRules, Application, Call, CallError, Config, ConnectionQuery, Context, Handle,
    HistoryLimits, HistoryQuery, Message, NewCall, NewPublication, Overload, Peer, Priority,
    PublishError, Responder, Rules, Server, TopicQuery, TopicRule, Topics,
};

struct Market;

impl Application for Market {
    /// Whoever comes gets the price, without asking for it.
    fn on_connect(&mut self, context: &mut Context<'_>, _peer: &Peer) {
        if let Err(error) = context.subscribe("prices.tide") {
            println!("not subscribed: {error}");
        }
    }

    /// Any message is an order, here; who sent it gets no copy, but is asked to confirm it.
    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        let payload = format!(r#"{{"bytes":{}}}"#, message.bytes.len());
        let confirm =
            NewCall::new("confirm", payload.clone()).with_timeout(Duration::from_secs(30));
        context.call(confirm, |answer| match answer {
            Ok(answer) => println!("the client says {}", answer.as_json()),
            Err(failure) => println!("not confirmed: {failure}"),
        });
        let order = NewPublication::new("order_created", payload).without(context.connection());
        match context.publish("orders.eu", &order) {
            Ok(published) => println!("order at {:?}", published.position),
            Err(error) => println!("no order: {error}"),
        }
    }

    /// The clock's answer takes a while, which the shard must not.
    fn on_call(&mut self, context: &mut Context<'_>, call: Call<'_>, responder: Responder) {
        match call.t {
            "zone" => {
                context.respond(&responder, Ok(r#""UTC""#.to_owned()));
            }
            "clock" => {
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(20));
                    responder.respond(Ok(r#"{"hour":12}"#.to_owned()))
                });
            }
            other => {
                let error = CallError {
                    code: "NO_CLUE".to_owned(),
                    message: format!("what is {other}?"),
                };
                context.respond(&responder, Err(error));
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let seconds = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let config = Config {
        listen: listen.parse()?,
        topics: market_topics(),
        ..Config::default()
    };
    let server = Server::start(config, |_shard| Market)?;
    println!("listening on {}", server.address());
    let handle = server.handle();
    let end = Instant::now() + Duration::from_secs(seconds);
    for price in 1_u64.. {
        if Instant::now() >= end {
            break;
        }
        tell_price(&handle, price)?;
        thread::sleep(Duration::from_millis(500));
    }
    say_goodbye(&handle)?;
    let left = server.drain(Duration::from_secs(10));
    println!("{left} sessions were left");
    Ok(())
}

/// The kept publications of each topic, and the rights of clients.
fn market_topics() -> Topics {
    let kept = |publications_max| {
        Some(HistoryLimits {
            publications_max,
            bytes_max: 4 << 20,
            age_max_ms: 3_600_000,
        })
    };
    Topics {
        access: AccessRules {
            subscribe: Rules {
                allow: vec![">".to_owned()],
                deny: vec!["orders.internal.>".to_owned()],
            },
            publish: Rules {
                allow: vec!["rooms.*".to_owned()],
                deny: Vec::new(),
            },
            presence: None,
            queue_group: Rules {
                allow: vec!["orders.>".to_owned()],
                deny: Vec::new(),
            },
        },
        rules: vec![
            TopicRule {
                history: kept(1),
                last_value: true,
                overload: Overload::Conflate,
                ..TopicRule::new("prices.*")
            },
            TopicRule {
                history: kept(10_000),
                priority: Priority::High,
                ..TopicRule::new("orders.>")
            },
            TopicRule {
                presence: true,
                ..TopicRule::new("rooms.*")
            },
        ],
        ..Topics::default()
    }
}

/// A price is of no use after ten seconds, and of a symbol only the newest counts.
fn tell_price(handle: &Handle, price: u64) -> Result<(), PublishError> {
    let price = NewPublication::new("price", format!(r#"{{"symbol":"TIDE","price":{price}}}"#))
        .with_key("TIDE")
        .with_ttl_ms(10_000);
    match handle.publish("prices.tide", &price) {
        // The next price comes soon.
        Ok(_) | Err(PublishError::Busy) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Shows the users and the kept publications, and sends a message to some and to all of them.
fn say_goodbye(handle: &Handle) -> Result<(), Box<dyn std::error::Error>> {
    let newest = HistoryQuery {
        since: None,
        limit: 3,
        newest_first: true,
    };
    if let Ok(Some(page)) = handle.history("orders.eu", newest) {
        for kept in page.publications {
            println!("kept: {}", kept.json);
        }
    }
    let lobby = handle.presence("rooms.lobby", 10)?;
    println!("{} users in the lobby: {:?}", lobby.users, lobby.members);
    let first_topics = TopicQuery {
        limit: 10,
        ..TopicQuery::default()
    };
    for topic in handle.list_topics(&first_topics)?.items {
        println!("{}: {} subscribers", topic.topic, topic.subscribers);
    }

    let bye = NewPublication::new("goodbye", r#"{"until":"tomorrow"}"#);
    let of_ada = ConnectionQuery {
        user: Some("ada".to_owned()),
        limit: 1,
        ..ConnectionQuery::default()
    };
    for session in handle.list_connections(&of_ada)?.items {
        handle.publish_to_connection(session.connection, &bye)?;
    }
    handle.publish_to_user("bob", &bye)?;
    handle.publish_to_everyone(&bye)?;
    Ok(())
}
