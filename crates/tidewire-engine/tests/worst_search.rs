//! A search for the most expensive message of each type: what a message costs for each of its bytes, in metered work, in
//! memory, in what others have to carry for it, in lines of the log, and in questions to the broker. Every message that is
//! tried has to stay within the budgets.
//!
//! A commit runs a few steps on short messages. `make long-test` runs many on the longest; with `WRITE_WORST=1` what it
//! finds is kept in `protocol/worst.json`, which `worst_messages` plays, and in the table of `docs/message-costs.md`.

mod common;

use common::world::{World, broker_world, small_world};
use peak_alloc::PeakAlloc;
use serde_json::json;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use tidewire_engine::simulation::LateAnswers;
use tidewire_net::Handler;
use tidewire_testkit::search::{Candidate, Grammar, climb};
use tidewire_testkit::seeds::number_of_seeds;
use tidewire_wire::envelope::SystemType;
use tidewire_wire::frame::OpCode;
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Counts the bytes that are allocated.
#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// The lines that a server's log has by default.
static LOG_LINES: AtomicU64 = AtomicU64::new(0);

/// The work of one connection in a turn (docs/overload.md), and one step more. The largest step is a message of
/// [`LONG_BYTES`] of MessagePack, at 2 ns each when they are inflated and 12 ns when they are read.
const WORK_US_MAX: u64 = 2_000 + 14_700;
/// What a message may take at once: 18 MiB of subscriptions and buffers, and its own forms and answers.
const PEAK_BYTES_MAX: usize = (18 + 8) << 20;

/// The messages of a commit, and those of the long run.
const SHORT_BYTES: usize = 64 * 1024;
const LONG_BYTES: usize = 1024 * 1024 - 1_000;
const SHORT_STEPS: usize = 6;
const LONG_STEPS: usize = 100;

/// What a message costs.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    bytes: usize,
    work_us: u64,
    peak_bytes: usize,
    others_bytes: u64,
    log_lines: u64,
    /// Questions to a broker, if the server has one.
    questions: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Objective {
    Work,
    Memory,
    Others,
    Log,
    Broker,
}

impl Objective {
    const ALL: [Self; 5] = [
        Self::Work,
        Self::Memory,
        Self::Others,
        Self::Log,
        Self::Broker,
    ];

    /// The name in the table, the unit of the amplification, and the bytes of the message that it is for.
    fn words(self) -> (&'static str, &'static str, f64) {
        match self {
            Self::Work => ("work", "ns", 1.0),
            Self::Memory => ("memory", "B", 1.0),
            Self::Others => ("others", "B", 1.0),
            Self::Log => ("log", "per KiB", 1024.0),
            Self::Broker => ("Redis", "per KiB", 1024.0),
        }
    }
}

impl Cost {
    /// What each byte of the message costs more than those of the smallest of its type.
    fn amplification(&self, objective: Objective, bare: &Self) -> f64 {
        let more = match objective {
            Objective::Work => self.work_us.saturating_sub(bare.work_us) * 1_000,
            Objective::Memory => self.peak_bytes.saturating_sub(bare.peak_bytes) as u64,
            Objective::Others => self.others_bytes.saturating_sub(bare.others_bytes),
            Objective::Log => self.log_lines.saturating_sub(bare.log_lines),
            Objective::Broker => self.questions.saturating_sub(bare.questions),
        };
        more as f64 / self.bytes as f64
    }
}

/// The cost of a message for a server without a broker, and the questions to the broker of a server with one.
fn costs(candidate: &Candidate, bytes_max: usize) -> Cost {
    Cost {
        questions: cost(&mut broker_world(), candidate, bytes_max).questions,
        ..cost(&mut small_world(), candidate, bytes_max)
    }
}

/// Plays a message twice and checks that it stays within the budgets. The cost is that of the second time: what is made once
/// for all messages is not this one's.
fn cost<H: Handler>(world: &mut World<H>, candidate: &Candidate, bytes_max: usize) -> Cost {
    let (opcode, message) = candidate.encode(bytes_max);
    play(world, candidate, opcode, &message);
    play(world, candidate, opcode, &message)
}

fn play<H: Handler>(
    world: &mut World<H>,
    candidate: &Candidate,
    opcode: OpCode,
    message: &[u8],
) -> Cost {
    let bytes = message.len();
    let counters = world.handle.counters();
    let lines = LOG_LINES.load(Ordering::Relaxed);
    let others = world.others_bytes;
    let asked = questions(world);
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let client = world.play_form(candidate.is_encrypted, opcode, message);
    let peak_bytes = ALLOCATED.peak_usage().saturating_sub(before);
    drop(client);
    world.go_on(|| ());
    let after = world.handle.counters();
    let shown = || serde_json::to_string(candidate).expect("JSON");
    let work_us = after.work_peak_us;
    assert!(
        work_us <= WORK_US_MAX,
        "{work_us} us in a turn: {}",
        shown()
    );
    assert!(
        peak_bytes <= PEAK_BYTES_MAX,
        "{peak_bytes} bytes: {}",
        shown()
    );
    Cost {
        bytes,
        work_us: after.work_us - counters.work_us,
        peak_bytes,
        others_bytes: world.others_bytes - others,
        log_lines: LOG_LINES.load(Ordering::Relaxed) - lines,
        questions: questions(world) - asked,
    }
}

#[test]
fn no_message_that_is_found_costs_more_than_the_budgets() {
    tracing::subscriber::set_global_default(Lines).expect("the only one");
    let grammar = Grammar::load();
    let seeds = number_of_seeds(1);
    let is_long = seeds > 1;
    let (bytes_max, steps) = match is_long {
        true => (LONG_BYTES, LONG_STEPS),
        false => (SHORT_BYTES, SHORT_STEPS),
    };
    let mut found = Vec::new();
    let mut table = String::new();
    for system in SystemType::ALL {
        let bare = Candidate::bare(system.as_str());
        let bare = costs(&bare, bytes_max);
        for objective in Objective::ALL {
            let climbed = (0..seeds).map(|seed| {
                let climb_in = |cost_of: &mut dyn FnMut(&Candidate) -> Cost| {
                    climb(&grammar, system, seed, steps, |candidate| {
                        cost_of(candidate).amplification(objective, &bare)
                    })
                };
                // A world for each seed: what one candidate leaves behind would be the cost of the next.
                if objective == Objective::Broker {
                    let mut world = broker_world();
                    climb_in(&mut |candidate| cost(&mut world, candidate, bytes_max))
                } else {
                    let mut world = small_world();
                    climb_in(&mut |candidate| cost(&mut world, candidate, bytes_max))
                }
            });
            let best = climbed.reduce(|best, next| if next.1 > best.1 { next } else { best });
            let (candidate, _) = best.expect("a seed");
            let cost = costs(&candidate, bytes_max);
            let gain = cost.amplification(objective, &bare);
            let _ = writeln!(table, "{}", row(system, objective, &candidate, &cost, gain));
            let is_of_nobody = match objective {
                Objective::Work | Objective::Memory => false,
                Objective::Others => cost.others_bytes == 0,
                Objective::Log | Objective::Broker => gain == 0.0,
            };
            if !is_of_nobody {
                found.push(candidate);
            }
        }
    }
    println!("{HEAD}\n{table}");
    if std::env::var_os("WRITE_WORST").is_some() {
        write(&found, &table);
    }
}

/// What docs/message-costs.md says of Redis: a command for each publication and for each topic that is read, none for anything else.
#[test]
fn no_message_asks_the_broker_for_more_than_its_topics_and_publications() {
    let found: Vec<Candidate> =
        serde_json::from_str(&std::fs::read_to_string(FOUND).expect("what was found"))
            .expect("candidates");
    let bare = SystemType::ALL.map(|system| Candidate::bare(system.as_str()));
    let mut asked_in_all = 0;
    for candidate in bare.iter().chain(&found) {
        let mut world = broker_world();
        // The question at the end is about one topic, and a connection may be told of others.
        drop(world.play(&json!({"t": "ping"})));
        let before = questions(&world);
        drop(world.play_candidate(candidate, SHORT_BYTES));
        let asked = questions(&world) - before;
        let most = questions_max(candidate) + 1;
        let shown = serde_json::to_string(candidate).expect("JSON");
        assert!(asked <= most, "{asked} questions, not {most}: {shown}");
        asked_in_all += asked;
    }
    assert!(asked_in_all > 0, "nothing was counted");
}

fn questions<H: Handler>(world: &World<H>) -> u64 {
    world.broker.as_ref().map_or(0, LateAnswers::questions)
}

fn questions_max(candidate: &Candidate) -> u64 {
    let of_each = match SystemType::parse(&candidate.t) {
        Some(SystemType::PublishRequest) => 1,
        Some(SystemType::HistoryRequest) => 1,
        Some(SystemType::PresenceRequest) => 100,
        Some(SystemType::SubscriptionUpdate | SystemType::SyncRequest | SystemType::Batch) => 1_000,
        _ => 0,
    };
    of_each * candidate.batch.max(1) as u64
}

/// One line of the table.
fn row(
    system: SystemType,
    objective: Objective,
    candidate: &Candidate,
    cost: &Cost,
    gain: f64,
) -> String {
    let (what, unit, of_bytes) = objective.words();
    let gain = gain * of_bytes;
    let mut form = if candidate.is_packed {
        "MessagePack"
    } else {
        "JSON"
    }
    .to_owned();
    if candidate.is_compressed {
        form.push_str(", zlib");
    }
    if candidate.is_encrypted {
        form.push_str(", encrypted");
    }
    if candidate.batch > 0 {
        let _ = write!(form, ", {} in a batch", candidate.batch);
    }
    let (bound, payer) = bound(system);
    format!(
        "| `{}` | {what} | {} | {form} | {:.1} | {} | {gain:.1} {unit} | {} | {} | {} | {bound} | {payer} |",
        system.as_str(),
        cost.bytes,
        cost.work_us as f64 / 1_000.0,
        cost.peak_bytes / 1024,
        cost.others_bytes,
        cost.log_lines,
        cost.questions,
    )
}

/// The limit that bounds a type, and who is charged.
fn bound(system: SystemType) -> (&'static str, &'static str) {
    const TURN: &str = "2 ms of work per turn";
    match system {
        SystemType::Ping | SystemType::Pong => ("`rate_limit_capacity`", "the connection"),
        SystemType::PublishRequest => ("128 KiB per receiver and turn", "the publisher"),
        SystemType::SubscriptionUpdate => (
            "1,000 topics; `subscription_bytes_per_connection_max`",
            "the owner",
        ),
        SystemType::SyncRequest => ("1,000 topics; 2 ms per turn", "the owner"),
        SystemType::PresenceRequest => ("100 topics; 2 ms per turn", "the owner"),
        SystemType::HistoryRequest => ("1,000 publications; 2 ms per turn", "the owner"),
        SystemType::Batch => ("1,000 messages; 2 ms per turn", "the owner"),
        SystemType::PublicationAck => ("1,000 numbers", "the owner"),
        SystemType::AuthRefresh => ("8 KiB of token; 2 ms per turn", "the owner"),
        SystemType::CallRequest | SystemType::CallResponse => {
            ("`calls_per_connection_max`; 2 ms per turn", "the owner")
        }
        SystemType::ClientHello
        | SystemType::ConfigUpdate
        | SystemType::HealthCheck
        | SystemType::MetricsRequest
        | SystemType::KeyUpdate => (TURN, "the owner"),
        SystemType::ServerReady
        | SystemType::ServerHello
        | SystemType::ConfigResponse
        | SystemType::HealthCheckResponse
        | SystemType::MetricsResponse
        | SystemType::PresenceJoin
        | SystemType::PresenceLeave
        | SystemType::PresenceUpdate
        | SystemType::RateLimitWarning
        | SystemType::Error
        | SystemType::PublishResponse
        | SystemType::PublicationGap
        | SystemType::PresenceResponse
        | SystemType::HistoryResponse
        | SystemType::MessageAck
        | SystemType::AuthExpiryWarning
        | SystemType::AuthRefreshResponse
        | SystemType::Reconnect => ("2 ms of work per turn; `errors_max`", "the owner"),
    }
}

fn write(found: &[Candidate], table: &str) {
    let lines = found
        .iter()
        .map(|candidate| serde_json::to_string(candidate).expect("JSON"));
    let mut lines: Vec<String> = lines.collect();
    lines.dedup();
    let page = format!("[\n{}\n]\n", lines.join(",\n"));
    std::fs::write(FOUND, page).expect("a place to write");
    let text = std::fs::read_to_string(LIMITS).expect("docs/message-costs.md");
    let (before, _) = text.split_once(HEAD).expect("the table");
    std::fs::write(LIMITS, format!("{before}{HEAD}\n{table}")).expect("a place to write");
}

/// The page has the table of the last long run: a row for each type and each of its costs.
#[test]
fn the_page_of_limits_has_every_type() {
    let text = std::fs::read_to_string(LIMITS).expect("docs/message-costs.md");
    assert!(text.contains(HEAD), "run the search with WRITE_WORST=1");
    for system in SystemType::ALL {
        for objective in Objective::ALL {
            let (what, ..) = objective.words();
            let row = format!("| `{}` | {what} | ", system.as_str());
            assert!(
                text.contains(&row),
                "{row}: run the search with WRITE_WORST=1"
            );
        }
    }
}

/// Counts lines.
struct Lines;

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {
        LOG_LINES.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

const FOUND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../protocol/worst.json");
const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/message-costs.md");

const HEAD: &str = "\
| type | worst in | bytes | form | work, ms | peak, KiB | for each byte | bytes to others | log lines | Redis commands | limit | charged to |
|---|---|---|---|---|---|---|---|---|---|---|---|";
