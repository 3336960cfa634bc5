//! The worst legal instance of every message type, in virtual time: each uses at most the budget of a turn, in
//! metered work, and the server keeps at most the documented memory for it. The types are the protocol's: a new one
//! without a case here does not compile.

mod common;

use common::Said;
use common::hostile::{FULL, SMALL, update, worst, worst_filter};
use common::simulated::SimulatedClient;
use common::world::{DISCONNECTED, END, World, config, empty_world, small_world, world, world_of};
use memchr::memmem;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use std::sync::Mutex;
use tidewire_engine::{Application, Context, Message, TopicRule};
use tidewire_net::Handler;
use tidewire_testkit::search::{Candidate, Filling, Shape};
use tidewire_wire::envelope::SystemType;
use tidewire_wire::frame::OpCode;

/// Counts the bytes that are allocated.
#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// The tests of this file share what is counted.
static ALONE: Mutex<()> = Mutex::new(());

/// The work of one connection in a turn (docs/overload.md), and one step more: a filter is compiled in one, and a message of
/// 1 MiB is read in one, at 2 ns for a byte that is inflated and 12 ns for one of MessagePack.
const WORK_US_MAX: u64 = 2_000 + 14_700;
/// The work of all connections of a user in a turn, and of all of a shard, each with one step more.
const USER_WORK_US_MAX: u64 = 3_000 + 6_000;
const SHARD_WORK_US_MAX: u64 = 4_000 + 6_000;
/// The deliveries of a shard in a turn, and one publication more to one group of subscribers with a filter.
const DELIVERY_US_MAX: u64 = 4_000 + 3_000;

/// The memory of a connection at the server: its subscriptions (docs/overload.md), and its buffers.
const KEPT_BYTES_MAX: usize = (16 + 2) << 20;
/// Besides, while it is worked on: the message in its several forms, and the answers that wait to be written.
const PEAK_BYTES_MAX: usize = KEPT_BYTES_MAX + (8 << 20);

/// Of a message of 1 MiB that is passed over: itself at the client, in the network and at the server, inflated, and the
/// connection.
const PASSED_BYTES_MAX: usize = 6 << 20;

/// What a user may have the server keep, and all of them, in the test of many connections; and the buffers of each
/// connection.
const USER_BYTES_MAX: usize = 4 << 20;
const SERVER_BYTES_MAX: usize = 8 << 20;
const BUFFER_BYTES_MAX: usize = 2 << 20;
/// Of all histories in that test.
const HISTORY_BYTES_MAX: usize = 4 << 20;

const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// What the tests of many connections do with a world.
trait Crowded {
    fn play_together(&mut self, users: &[String], message: &Value) -> Vec<SimulatedClient>;
}

impl<H: Handler> Crowded for World<H> {
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

#[test]
fn the_worst_of_every_type_stays_within_the_budget_of_a_turn() {
    let _alone = ALONE.lock();
    for system in SystemType::ALL {
        for message in worst(system, FULL) {
            let text = message.to_string();
            assert!(text.len() <= MESSAGE_BYTES_MAX, "not a legal message");
            let shown: String = text.chars().take(120).collect();
            assert_stays_within_budgets(world(), &shown, |world| world.play(&message));
        }
    }
}

/// What the search has found (`worst_search`), as large as the protocol allows.
#[test]
fn the_messages_that_were_found_stay_within_the_budget_of_a_turn() {
    let _alone = ALONE.lock();
    let found: Vec<Candidate> = serde_json::from_str(FOUND).expect("candidates");
    for candidate in found {
        let shown = serde_json::to_string(&candidate).expect("JSON");
        assert_stays_within_budgets(small_world(), &shown, |world| {
            world.play_candidate(&candidate, FULL.bytes)
        });
    }
}

/// Half a million objects in 3.6 KB are passed over in place: they need no more memory than their bytes.
#[test]
fn a_request_never_becomes_a_tree() {
    let _alone = ALONE.lock();
    let forms = [(true, true), (true, false), (false, true), (false, false)];
    for system in SystemType::ALL {
        let is_example = system == SystemType::ConfigUpdate;
        for (is_packed, is_compressed) in forms.into_iter().take(if is_example { 4 } else { 1 }) {
            let objects = Filling {
                shape: Shape::Objects,
                depth: 56,
                width: 1,
                count: 1_000_000,
            };
            let candidate = Candidate {
                fillings: vec![("a".to_owned(), objects)],
                is_packed,
                is_compressed,
                ..Candidate::bare(system.as_str())
            };
            let (opcode, bytes) = candidate.encode(FULL.bytes);
            let mut world = empty_world(config());
            let before = ALLOCATED.current_usage();
            ALLOCATED.reset_peak_usage();
            drop(world.play_frame(opcode, &bytes));
            let peak = ALLOCATED.peak_usage().saturating_sub(before);
            let bytes_max = match system {
                // Their payload becomes JSON text, in a buffer that doubles.
                SystemType::PublishRequest | SystemType::CallRequest | SystemType::CallResponse => {
                    3 * PASSED_BYTES_MAX
                }
                _ => PASSED_BYTES_MAX,
            };
            assert!(peak <= bytes_max, "{peak} bytes for {candidate:?}");
        }
    }
}

fn assert_stays_within_budgets<H: Handler>(
    mut world: World<H>,
    shown: &str,
    play: impl FnOnce(&mut World<H>) -> SimulatedClient,
) {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let client = play(&mut world);
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

/// An application that reads what it receives: the default.
#[derive(Clone)]
struct Reader;

impl Application for Reader {
    fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {}
}

/// A long message of the application is charged for its check, where it is checked.
#[test]
fn the_check_of_a_long_message_is_charged_to_its_sender() {
    let _alone = ALONE.lock();
    // Its type comes first, so that the search for that costs nothing.
    let message = format!(r#"{{"t":"note","p":"{}"}}"#, "a".repeat(1_000_000));
    let mut world = world_of(config(), Reader);
    drop(world.play_form(false, OpCode::Text, message.as_bytes()));
    let checked_us = world.handle.counters().work_peak_us;
    assert!(
        (2_000..=WORK_US_MAX).contains(&checked_us),
        "{checked_us} us"
    );
    let mut world = empty_world(config());
    drop(world.play_form(false, OpCode::Text, message.as_bytes()));
    let unread_us = world.handle.counters().work_peak_us;
    assert!(unread_us < 1_000, "{unread_us} us where nobody reads it");
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
    // Takes everything, but looks for long.
    let all = |number: usize| json!({"$or": [worst_filter(), {"n": {"$gte": 0}}, {"x": number}]});
    let mut costly: Vec<_> = (0..4)
        .map(|number| subscribe_to_public(&mut world, "user-1", &all(number)))
        .collect();
    let mut cheap = subscribe_to_public(&mut world, "user-2", &json!({"n": {"$gte": 0}}));
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
    let mut seen = Vec::new();
    for _ in 0..500 {
        seen.extend(numbers(&mut cheap));
        world.go_on(|| ());
    }
    assert!(seen.into_iter().eq(0..PUBLICATIONS as u64));
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

/// A client that has joined the topic with a filter, and is present there.
fn subscribe_to_public<H: Handler>(
    world: &mut World<H>,
    user: &str,
    filter: &Value,
) -> SimulatedClient {
    let mut client = world.open_as(user);
    client.send(&update(
        json!({"topics": ["public"], "filter": filter, "presence": {}}),
    ));
    // The filter is compiled, which takes several turns.
    for _ in 0..20 {
        world.go_on(|| ());
    }
    assert!(!client.receive().is_empty(), "it has joined");
    client
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

/// Written by `worst_search`.
const FOUND: &str = include_str!("../../../protocol/worst.json");
