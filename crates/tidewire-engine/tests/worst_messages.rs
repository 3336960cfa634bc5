//! The worst legal instance of every message type, in virtual time: each uses at most the budget of a turn, in
//! metered work, and the server keeps at most the documented memory for it. The types are the protocol's: a new one
//! without a case here does not compile.

mod common;

use common::hostile::{FULL, SMALL, update, worst, worst_filter};
use common::simulated::{SimulatedClient, serve};
use common::topics::open_topics;
use common::{SECRET, Said, token};
use memchr::memmem;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use tidewire_engine::apps::Sink;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{Config, Handle, HistoryLimits, NewPublication, TopicRule};
use tidewire_net::Handler;
use tidewire_testkit::simulation::Driver;
use tidewire_wire::envelope::SystemType;

/// Counts the bytes that are allocated.
#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// The tests of this file share what is counted.
static ALONE: Mutex<()> = Mutex::new(());

/// The work of one connection in a turn (docs/engine.md), and one step more: a filter is compiled in one.
const WORK_US_MAX: u64 = 4_000 + 6_000;
/// The work of all connections of a user in a turn, and of all of a shard, each with one step more.
const USER_WORK_US_MAX: u64 = 8_000 + 6_000;
const SHARD_WORK_US_MAX: u64 = 12_000 + 6_000;
/// The deliveries of a shard in a turn, and one publication more to one group of subscribers with a filter.
const DELIVERY_US_MAX: u64 = 10_000 + 3_000;

/// The memory of a connection at the server: its subscriptions (docs/engine.md), and its buffers.
const KEPT_BYTES_MAX: usize = (16 + 2) << 20;
/// Besides, while it is worked on: the message in its several forms, and the answers that wait to be written.
const PEAK_BYTES_MAX: usize = KEPT_BYTES_MAX + (8 << 20);

/// What a user may have the server keep, and all of them, in the test of many connections; and the buffers of each
/// connection.
const USER_BYTES_MAX: usize = 4 << 20;
const SERVER_BYTES_MAX: usize = 8 << 20;
const BUFFER_BYTES_MAX: usize = 2 << 20;
/// Of all histories in that test.
const HISTORY_BYTES_MAX: usize = 4 << 20;

const TOPICS_MAX: usize = 1_000;
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

fn config() -> Config {
    let mut config = Config {
        shards: 1,
        auth: Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()))),
        ..open_topics()
    };
    config.topics.access_claim = Some("access".to_owned());
    let history = HistoryLimits {
        publications_max: 1_000,
        bytes_max: 16 << 20,
        age_max_ms: 0,
    };
    config.topics.rules = vec![
        TopicRule {
            history: Some(history),
            last_value: true,
            presence: true,
            ..TopicRule::new("kept.>")
        },
        TopicRule {
            presence: true,
            ..TopicRule::new("present.>")
        },
    ];
    config
}

/// A server with a long history, many present users, and subscribers with costly filters, and the network around it.
struct World<H: Handler> {
    driver: Driver<H>,
    handle: Handle,
    others: Vec<SimulatedClient>,
    now_ms: u64,
}

fn empty_world(config: Config) -> World<impl Handler> {
    let (driver, handle) = serve(config, |_| Sink);
    World {
        driver,
        handle,
        others: Vec::new(),
        now_ms: 0,
    }
}

fn world() -> World<impl Handler> {
    let mut world = empty_world(config());
    let text = "a".repeat(4_000);
    for number in 0..1_000 {
        world.keep("kept.long", &json!({"text": text, "n": number}));
    }
    for topic in 0..TOPICS_MAX {
        world.keep(&format!("kept.{topic}"), &json!({"n": 0}));
    }
    for number in 0..20 {
        let client = world.open();
        let topics: Vec<String> = (0..10).map(|topic| format!("present.{topic}")).collect();
        let data = json!({"says": "x".repeat(4_000)});
        client.send(&update(json!({"topics": topics, "presence": data})));
        let mut filter = worst_filter();
        filter["n"] = json!({"$ne": number});
        client.send(&update(json!({"topics": ["public"], "filter": filter})));
        world.others.push(client);
    }
    while world.handle.counters().subscriptions < 20 * 11 {
        world.go_on(|| ());
    }
    world.go_on(|| ());
    world
}

impl<H: Handler> World<H> {
    fn keep(&self, topic: &str, payload: &Value) {
        let publication = NewPublication::new("entry", payload.to_string());
        self.handle.publish(topic, &publication).expect("room");
    }

    /// A connection of the one user.
    fn open(&mut self) -> SimulatedClient {
        self.open_as("user-1")
    }

    fn open_as(&mut self, user: &str) -> SimulatedClient {
        let number = self.others.len() as u8 + 1;
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)), 40_000);
        let bearer = format!("Bearer {}", token(json!({"sub": user})));
        let end = self.driver.network().connect_from(0, address);
        SimulatedClient::open(end, &[("Authorization", &bearer)])
    }

    /// A millisecond goes by, in which everyone reads what has come, turn by turn.
    fn go_on(&mut self, mut read: impl FnMut()) {
        self.now_ms += 1;
        assert!(self.now_ms < 600_000, "in vain");
        let now_ms = self.now_ms;
        while self
            .driver
            .next_due_ms()
            .is_some_and(|due_ms| due_ms <= now_ms)
        {
            self.driver.step();
            for other in &self.others {
                drop(other.end.receive());
            }
            read();
        }
        self.driver.run_until(self.now_ms);
    }

    /// Sends a message on a connection of its own and reads what comes, until the server has done all of it: it answers
    /// the question behind it.
    fn play(&mut self, message: &Value) -> SimulatedClient {
        let mut client = self.open();
        self.go_on(|| ());
        drop(client.receive());
        client.send(message);
        client.send(&json!({"t": "presence_request", "cid": "end", "p": {"topics": ["x"]}}));
        let (mut is_done, mut received) = (false, Vec::new());
        while !is_done {
            self.go_on(|| {
                received.extend(client.end.receive());
                is_done |= memmem::find(&received, END).is_some();
                received.drain(..received.len().saturating_sub(END.len()));
            });
        }
        client
    }
}

impl<H: Handler> World<H> {
    /// Some users send the same message at the same time, each on a connection of its own; the connections, when all
    /// of them have been answered.
    fn play_together(&mut self, users: &[String], message: &Value) -> Vec<SimulatedClient> {
        let clients: Vec<_> = users.iter().map(|user| self.open_as(user)).collect();
        self.go_on(|| ());
        for client in &clients {
            drop(client.end.receive());
            client.send(message);
            client.send(&json!({"t": "presence_request", "cid": "end", "p": {"topics": ["x"]}}));
        }
        let mut heard = vec![Vec::new(); clients.len()];
        let mut is_done = vec![false; clients.len()];
        while !is_done.iter().all(|is_done| *is_done) {
            self.go_on(|| {
                let each = clients.iter().zip(&mut heard).zip(&mut is_done);
                for ((client, heard), is_done) in each {
                    heard.extend(client.end.receive());
                    // Whoever has had too much refused is disconnected.
                    let is_in = |words: &[u8]| memmem::find(heard, words).is_some();
                    *is_done |= is_in(END) || is_in(DISCONNECTED);
                    heard.drain(..heard.len().saturating_sub(DISCONNECTED.len()));
                }
            });
        }
        clients
    }
}

/// In the error before the close of a connection with too many errors.
const DISCONNECTED: &[u8] = b"CIRCUIT_BREAKER_OPEN";

/// In the answer to the question at the end.
const END: &[u8] = br#""cid":"end""#;

#[test]
fn the_worst_of_every_type_stays_within_the_budget_of_a_turn() {
    let _alone = ALONE.lock();
    for system in SystemType::ALL {
        for message in worst(system, FULL) {
            let text = message.to_string();
            assert!(text.len() <= MESSAGE_BYTES_MAX, "not a legal message");
            let shown: String = text.chars().take(120).collect();
            drop(text);
            let mut world = world();
            let before = ALLOCATED.current_usage();
            ALLOCATED.reset_peak_usage();
            let client = world.play(&message);
            let peak = ALLOCATED.peak_usage().saturating_sub(before);
            world.go_on(|| ());
            let kept = ALLOCATED.current_usage().saturating_sub(before);
            let counters = world.handle.counters();
            assert!(
                counters.work_peak_us <= WORK_US_MAX,
                "{} us for {shown}",
                counters.work_peak_us
            );
            assert!(
                counters.delivery_peak_us <= DELIVERY_US_MAX,
                "{} us delivered for {shown}",
                counters.delivery_peak_us
            );
            assert!(kept <= KEPT_BYTES_MAX, "{kept} bytes kept for {shown}");
            assert!(peak <= PEAK_BYTES_MAX, "{peak} bytes at once for {shown}");
            drop(client);
        }
    }
}

/// The budgets of a user and of a shard hold for many connections at once, in work and in memory.
#[test]
fn the_worst_of_every_type_from_many_connections_stays_within_the_budgets() {
    let _alone = ALONE.lock();
    let one_user = vec!["user-1".to_owned(); CROWD];
    let many_users: Vec<_> = (1..=CROWD).map(|number| format!("user-{number}")).collect();
    for (users, bytes_max) in [(one_user, USER_BYTES_MAX), (many_users, SERVER_BYTES_MAX)] {
        let mut config = config();
        config.topics.limits.subscription_bytes_per_owner_max = USER_BYTES_MAX;
        config.topics.limits.subscription_bytes_max = SERVER_BYTES_MAX;
        config.topics.limits.history_bytes_max = HISTORY_BYTES_MAX;
        let mut world = empty_world(config);
        for number in 0..200 {
            let text = "a".repeat(4_000);
            world.keep("kept.long", &json!({"text": text, "n": number}));
        }
        for system in SystemType::ALL {
            for message in worst(system, FULL) {
                let before = ALLOCATED.current_usage();
                let clients = world.play_together(&users, &message);
                let kept = ALLOCATED.current_usage().saturating_sub(before);
                drop(message);
                let counters = world.handle.counters();
                let (owner, shard) = (counters.owner_work_peak_us, counters.shard_work_peak_us);
                let name = system.as_str();
                assert!(owner <= USER_WORK_US_MAX, "{owner} us of a user for {name}");
                assert!(
                    shard <= SHARD_WORK_US_MAX,
                    "{shard} us of a shard for {name}"
                );
                let bytes_max = bytes_max + HISTORY_BYTES_MAX + CROWD * BUFFER_BYTES_MAX;
                assert!(kept <= bytes_max, "{kept} bytes kept for {name}");
                drop(clients);
                world.go_on(|| ());
            }
        }
        let counters = world.handle.counters();
        assert!(counters.jobs_deferred > 0 && counters.shard_work_peak_us > 4_000);
    }
}

/// Connections that send at the same time.
const CROWD: usize = 4;

/// A filter that costs a hundred microseconds for each publication delays the user whose it is, and nobody else.
#[test]
fn costly_filters_of_one_user_are_skipped_when_the_shard_falls_behind() {
    const PUBLICATIONS: usize = 3_000;
    let _alone = ALONE.lock();
    let mut config = config();
    config.topics.limits.backlog_bytes_max = 64 << 20;
    config.topics.rules.push(TopicRule {
        presence: true,
        ..TopicRule::new("public")
    });
    let mut world = empty_world(config);
    let subscribe = |world: &mut World<_>, user, filter: Value| {
        let mut client = world.open_as(user);
        client.send(&update(
            json!({"topics": ["public"], "filter": filter, "presence": {}}),
        ));
        world.go_on(|| ());
        drop(client.receive());
        client
    };
    // Takes everything, but looks for long.
    let all = |number: usize| json!({"$or": [worst_filter(), {"n": {"$gte": 0}}, {"x": number}]});
    let mut costly: Vec<_> = (0..4)
        .map(|number| subscribe(&mut world, "user-1", all(number)))
        .collect();
    let mut cheap = subscribe(&mut world, "user-2", json!({"n": {"$gte": 0}}));
    let text = "a".repeat(4_000);
    for number in 0..PUBLICATIONS {
        world.keep("public", &json!({"text": text, "n": number}));
    }
    // Somebody comes while publications are skipped.
    let newcomer = world.open_as("user-3");
    newcomer.send(&update(json!({"topics": ["public"], "presence": {}})));
    world.go_on(|| ());
    let mut joins = 0;
    let mut numbers = |client: &mut SimulatedClient| -> Vec<u64> {
        let messages = client.receive_json();
        let joins_of_newcomer = messages.iter().filter(|message| {
            message["t"] == "presence_join" && message["p"]["user_id"] == "user-3"
        });
        joins += joins_of_newcomer.count();
        let entries = messages.iter().filter(|message| message["t"] == "entry");
        entries
            .map(|entry| entry["p"]["n"].as_u64().expect("a number"))
            .collect()
    };
    // Before the second has passed the other user has everything.
    assert!(numbers(&mut cheap).into_iter().eq(0..PUBLICATIONS as u64));
    let counters = world.handle.counters();
    assert!(counters.publications_unfiltered > 0, "nothing is skipped");
    assert!(
        counters.delivery_peak_us <= DELIVERY_US_MAX,
        "{} us delivered",
        counters.delivery_peak_us
    );
    let received: Vec<usize> = costly
        .iter_mut()
        .map(|client| numbers(client).len())
        .collect();
    let missed: usize = received.iter().map(|count| PUBLICATIONS - count).sum();
    assert_eq!(
        missed as u64, counters.publications_unfiltered,
        "{received:?}"
    );
    assert_eq!(joins, 5, "no filter looks at who comes");

    // Each of the first user's subscriptions is told what it has missed, before what follows.
    for _ in 0..1_100 {
        world.go_on(|| ());
    }
    world.keep("public", &json!({"n": PUBLICATIONS}));
    world.go_on(|| ());
    for (client, received) in costly.iter_mut().zip(received) {
        assert_told(&client.receive_json(), PUBLICATIONS - received);
    }
}

/// The publications that were missed, if any, are told as a gap before the next one.
fn assert_told(messages: &[Value], missed: usize) {
    let of = |t: &str| messages.iter().position(|message| message["t"] == t);
    let entry = of("entry").expect("the next publication");
    if missed == 0 {
        assert_eq!(of("publication_gap"), None);
        return;
    }
    let gap = of("publication_gap").expect("a gap");
    let expected = json!({"topic": "public", "reason": "dropped", "count": missed});
    assert_eq!(messages[gap]["p"], expected);
    assert!(gap < entry);
}

/// The 5-second stall of old: a small request for a long history through a costly filter is answered in slices, and
/// somebody else is served between them.
#[test]
fn a_filtered_recovery_is_sliced_and_complete() {
    let _alone = ALONE.lock();
    let mut world = world();
    let stand = |said: &Said| match said {
        Said::Text(text) => {
            let message: Value = serde_json::from_str(text).expect("JSON");
            let stand = &message["p"]["recovery"]["kept.long"];
            stand.is_object().then(|| stand.clone())
        }
        _ => None,
    };
    let mut client = world.open();
    world.go_on(|| ());
    drop(client.receive());
    client.send(&update(json!({"topics": ["kept.long"]})));
    world.go_on(|| ());
    let stands = client.receive();
    let epoch = stands.iter().find_map(stand).expect("an answer")["epoch"].clone();
    drop(client);
    // Holds for every other entry.
    let filter = json!({"$or": [worst_filter(), {"n": {"$gte": 500}}]});
    let since = json!({"kept.long": {"epoch": epoch, "offset": 0}});
    let request = update(json!({
        "topics": ["kept.long"], "recover": true, "recovery": since, "filter": filter,
    }));
    let mut client = world.open();
    client.send(&request);
    let mut said = Vec::new();
    while world.handle.counters().recoveries_complete < 2 && said.len() < 502 {
        world.go_on(|| ());
        said.extend(client.receive());
    }
    assert_eq!(
        said.iter().find_map(stand).expect("an answer")["count"],
        1_000
    );
    let entries = said.iter().filter_map(|said| match said {
        Said::Text(text) => {
            let message: Value = serde_json::from_str(text).expect("JSON");
            (message["t"] == "entry").then(|| message["p"]["n"].as_u64().expect("a number"))
        }
        _ => None,
    });
    assert!(entries.eq(500..1_000));
    assert!(world.handle.counters().jobs_deferred > 0);
}

/// `fuzz/seed` gives the fuzzers the same instances, smaller.
#[test]
fn the_fuzzers_start_from_the_same_messages() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../protocol/hostile.json");
    let instances = SystemType::ALL
        .iter()
        .flat_map(|system| worst(*system, SMALL));
    let instances: Vec<String> = instances.map(|message| message.to_string()).collect();
    let page = format!("[\n{}\n]\n", instances.join(",\n"));
    if std::env::var_os("WRITE_HOSTILE").is_some() {
        std::fs::write(path, &page).expect("a place to write");
    }
    let known = std::fs::read_to_string(path).expect("protocol/hostile.json");
    assert!(known == page, "run it once with WRITE_HOSTILE=1");
}
