//! The model and a real server give the same replies to the same scripts.

use crate::groups::{GroupStep, group_step, lease_key, node_id};
use crate::producers::{ProducerStep, producer_step};
use crate::server::Server;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use tidewire_redis::connection::PubSub;
use tidewire_redis::resp::{Frames, Limits, Value, command};
use tidewire_redis::script::{
    Fence, FenceCall, Hashes, LeaseCall, NodesCall, PageCall, PageRange, PresenceCall, PublishCall,
    PublishItem, RenewCall, RosterCall, SweepCall, TailsCall, sources,
};
use tidewire_redis::{Mark, NodeId, Position};
use tidewire_testkit::redis_model::{ClientId, Redis};

/// One step, with small numbers so that steps meet.
#[derive(Debug, Clone)]
enum Step {
    Fence {
        run: u8,
        durable: bool,
        known: u8,
        generation: u8,
        writer: u8,
        from: Vec<u8>,
    },
    Publish {
        writer: u8,
        generation: u8,
        batch: u8,
        after: u8,
        may_begin: bool,
        items: Vec<Item>,
    },
    Tails(Vec<u8>),
    Page {
        topic: u8,
        range: u8,
        epoch: u8,
        offset: u8,
        limit: u8,
        creates: bool,
    },
    Renew {
        topic: u8,
        only: Option<u8>,
        greater_than: u8,
    },
    Lease(u8),
    Presence {
        node: u8,
        generation: u8,
        writer: u8,
        changes: Vec<(u8, u8, u8, bool)>,
    },
    Roster(u8),
    Sweep {
        node: u8,
        ends_lease: bool,
    },
    Nodes,
    Group(GroupStep),
    Producer(ProducerStep),
}

#[derive(Debug, Clone)]
struct Item {
    topic: u8,
    id: Option<u8>,
    epoch: Option<u8>,
    most: u8,
    keep: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let item = (
        0..4_u8,
        prop::option::weighted(0.2, 0..3_u8),
        prop::option::weighted(0.8, 0..5_u8),
        0..5_u8,
        any::<bool>(),
    )
        .prop_map(|(topic, id, epoch, most, keep)| Item {
            topic,
            id,
            epoch,
            most,
            keep,
        });
    let publish = (
        0..2_u8,
        0..3_u8,
        0..9_u8,
        0..9_u8,
        any::<bool>(),
        prop::collection::vec(item, 1..5),
    );
    prop_oneof![
        1 => (0..2_u8, any::<bool>(), 0..4_u8, 0..3_u8, 0..2_u8, prop::collection::vec(0..2_u8, 0..3)).prop_map(
            |(run, durable, known, generation, writer, from)| Step::Fence { run, durable, known, generation, writer, from }
        ),
        6 => publish.prop_map(|(writer, generation, batch, after, may_begin, items)| {
            Step::Publish { writer, generation, batch, after, may_begin, items }
        }),
        1 => prop::collection::vec(0..5_u8, 1..4).prop_map(Step::Tails),
        2 => (0..5_u8, 0..5_u8, 0..5_u8, 0..9_u8, 1..40_u8, any::<bool>()).prop_map(
            |(topic, range, epoch, offset, limit, creates)| Step::Page { topic, range, epoch, offset, limit, creates }
        ),
        1 => (0..5_u8, prop::option::of(0..5_u8), 0..6_u8)
            .prop_map(|(topic, only, greater_than)| Step::Renew { topic, only, greater_than }),
        1 => (0..2_u8).prop_map(Step::Lease),
        4 => (
            0..2_u8,
            1..3_u8,
            0..2_u8,
            prop::collection::vec((0..3_u8, 0..3_u8, 0..3_u8, any::<bool>()), 1..5),
        )
            .prop_map(|(node, generation, writer, changes)| Step::Presence { node, generation, writer, changes }),
        2 => (0..3_u8).prop_map(Step::Roster),
        1 => (0..2_u8, any::<bool>()).prop_map(|(node, ends_lease)| Step::Sweep { node, ends_lease }),
        1 => Just(Step::Nodes),
        6 => group_step().prop_map(Step::Group),
        3 => producer_step().prop_map(Step::Producer),
    ]
}

/// Epochs far in the future, so that they do not depend on the clocks.
fn epoch(small: u8) -> u32 {
    4_000_000_000 + u32::from(small)
}

/// Topic 3 has a key that is no stream.
fn stream(topic: u8) -> Vec<u8> {
    format!("t:{topic}").into_bytes()
}

/// Members, users, channels.
fn prefixes() -> [Vec<u8>; 3] {
    [b"p".to_vec(), b"u".to_vec(), b"t:".to_vec()]
}

impl Step {
    fn write(&self, hashes: &Hashes, fence: &mut Fence, number: usize, out: &mut Vec<u8>) {
        match self {
            Self::Fence {
                run,
                durable,
                known,
                generation,
                writer,
                from,
            } => {
                fence.run_id = format!("run{run}");
                let from: Vec<_> = from.iter().map(|run| format!("run{run}")).collect();
                let call = FenceCall {
                    fence_key: b"f",
                    writer_key: &[b'w', *writer],
                    run_id: &fence.run_id,
                    is_durable: *durable,
                    known_epoch: epoch(*known),
                    generation: u64::from(*generation),
                    handed_over_by: &from,
                };
                call.write(hashes, out);
            }
            Self::Publish { .. } => self.write_publish(hashes, fence, number, out),
            Self::Tails(topics) => {
                let names: Vec<_> = topics.iter().map(|topic| stream(*topic)).collect();
                let streams: Vec<_> = names.iter().map(|name| (name.as_slice(), 0)).collect();
                TailsCall {
                    fence_key: b"f",
                    fence,
                    streams: &streams,
                }
                .write(hashes, out);
            }
            Self::Page { .. } => self.write_page(hashes, fence, out),
            Self::Renew {
                topic,
                only,
                greater_than,
            } => {
                let call = RenewCall {
                    fence_key: b"f",
                    stream: &stream(*topic),
                    channel: &stream(*topic),
                    fence,
                    only_epoch: only.map(epoch),
                    greater_than: epoch(*greater_than),
                };
                call.write(hashes, out);
            }
            Self::Lease(node) => {
                let call = LeaseCall {
                    lease_key: lease_key(*node),
                    fence_key: b"f",
                    inbox: b"in",
                    lease_ms: 100_000,
                    probe: number as u64,
                    nodes_key: b"nodes",
                    groups_key: b"q",
                    idle_groups_key: b"qi",
                    node: node_id(*node),
                    info: &[b'i', b'0' + node],
                };
                call.write(hashes, out);
            }
            Self::Presence { .. } => self.write_presence(hashes, out),
            Self::Group(step) => step.write(hashes, fence, out),
            Self::Producer(step) => step.write(hashes, fence, out),
            Self::Roster(_) | Self::Sweep { .. } | Self::Nodes => self.write_nodes(hashes, out),
        }
    }

    fn write_nodes(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        match self {
            Self::Roster(topic) => {
                let call = RosterCall {
                    members_key: &[b'p', b'0' + topic],
                    cursor: 0,
                    count: 100,
                };
                call.write(hashes, out);
            }
            Self::Sweep { node, ends_lease } => {
                let call = SweepCall {
                    nodes_key: b"nodes",
                    lease_key: lease_key(*node),
                    own_key: &[b'o', *node],
                    own_groups_key: &[b'g', *node],
                    groups_key: b"q",
                    idle_groups_key: b"qi",
                    node: node_id(*node),
                    count: 100,
                    prefixes: &prefixes(),
                    ends_lease: *ends_lease,
                };
                call.write(hashes, out);
            }
            Self::Nodes => {
                let call = NodesCall {
                    nodes_key: b"nodes",
                    leases: b"n",
                    count: 10,
                };
                call.write(hashes, out);
            }
            _ => {}
        }
    }

    fn write_presence(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        let Self::Presence {
            node,
            generation,
            writer,
            changes,
        } = self
        else {
            return;
        };
        let changes = changes.iter().map(|(topic, user, connections, has_data)| {
            let data = has_data.then_some(r#"{"a": 1}"#);
            (
                ["0", "1", "2"][usize::from(*topic)],
                ["ann", "b c", ""][usize::from(*user)],
                u64::from(*connections),
                data,
            )
        });
        let call = PresenceCall {
            lease_key: lease_key(*node),
            writer_key: &[b'w', *writer],
            own_key: &[b'o', *node],
            node: node_id(*node),
            generation: u64::from(*generation),
            prefixes: &prefixes(),
            changes: &changes.collect::<Vec<_>>(),
        };
        call.write(hashes, out);
    }

    fn write_publish(&self, hashes: &Hashes, fence: &Fence, number: usize, out: &mut Vec<u8>) {
        let Self::Publish {
            writer,
            generation,
            batch,
            after,
            may_begin,
            items,
        } = self
        else {
            return;
        };
        let parts = items
            .iter()
            .enumerate()
            .map(|(index, item)| item.parts(number, index));
        let parts: Vec<_> = parts.collect();
        let items = items
            .iter()
            .zip(&parts)
            .map(|(item, (stream, id, record))| PublishItem {
                stream,
                id_key: id.as_deref(),
                expected_epoch: item
                    .epoch
                    .map(|small| if small == 0 { 0 } else { epoch(small) }),
                publications_max: u64::from(item.most),
                record,
                keep_ms: item.keep.then_some(100_000),
            });
        let call = PublishCall {
            fence_key: b"f",
            writer_key: &[b'w', *writer],
            fence,
            generation: u64::from(*generation),
            batch: u64::from(*batch),
            after: u64::from(*after),
            may_begin: *may_begin,
            id_memory_ms: 100_000,
            groups_key: b"q",
            work_max: 5,
            work_bytes_max: 90,
            work_drops_newest: batch % 2 == 1,
            channels: if batch % 3 == 2 { "t" } else { "" },
            begun_ms: 100_000,
            items: &items.collect::<Vec<_>>(),
        };
        call.write(hashes, out);
    }

    fn write_page(&self, hashes: &Hashes, fence: &Fence, out: &mut Vec<u8>) {
        let Self::Page {
            topic,
            range,
            epoch: small,
            offset,
            limit,
            creates,
        } = self
        else {
            return;
        };
        let at = Position {
            epoch: epoch(*small),
            offset: u64::from(*offset),
        };
        let ranges = [
            PageRange::From(at),
            PageRange::After(at),
            PageRange::All,
            PageRange::Newest(None),
            PageRange::Newest(Some(at)),
        ];
        let call = PageCall {
            fence_key: b"f",
            fence,
            stream: &stream(*topic),
            range: ranges[usize::from(*range)],
            limit: usize::from(*limit),
            creates_ms: creates.then_some(100_000),
        };
        call.write(hashes, out);
    }

    /// Which parts of the reply are the time.
    fn times(&self) -> &'static [usize] {
        match self {
            Self::Fence { .. } => &[2, 3],
            Self::Lease(_) => &[1, 2],
            Self::Roster(_) => &[3],
            Self::Producer(ProducerStep::Open(..)) => &[2],
            _ => &[],
        }
    }
}

impl Item {
    fn parts(&self, number: usize, index: usize) -> (Vec<u8>, Option<Vec<u8>>, Vec<u8>) {
        let mark = Mark {
            node: NodeId(1),
            batch: number as u64,
            index: index as u16,
        };
        let record = [&[1][..], &mark.to_bytes(), b"rest"].concat();
        let id = self
            .id
            .map(|id| format!("i{}:{id}", self.topic).into_bytes());
        (stream(self.topic), id, record)
    }
}

fn shown(value: Value<'_>, hidden: &[usize]) -> String {
    let inner = |value: Value<'_>| {
        let all = value.items().enumerate().map(|(index, item)| {
            if hidden.contains(&index) {
                "time".to_owned()
            } else {
                shown(item, &[])
            }
        });
        all.collect::<Vec<_>>().join(" ")
    };
    match value {
        Value::Text(text) => format!("{:?}", without_versions(text)),
        Value::Array(_) => format!("[{}]", inner(value)),
        Value::Push(_) => format!("<{}>", inner(value)),
        other => format!("{other:?}"),
    }
}

/// Versions of presence are times: they are shown as V.
fn without_versions(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut shown = String::new();
    let mut digits = String::new();
    for letter in text.chars().chain(['\0']) {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        let is_version = digits.len() >= 15;
        shown.push_str(if is_version { "V" } else { &digits });
        digits.clear();
        shown.push(letter);
    }
    shown.pop();
    shown
}

/// The fields of a hash in one order.
fn sorted(value: Value<'_>) -> String {
    let Some(fields) = value.items().nth(2) else {
        return String::new();
    };
    let all: Vec<String> = fields.items().map(|item| shown(item, &[])).collect();
    let mut pairs: Vec<&[String]> = all.chunks(2).collect();
    pairs.sort();
    format!("{:?} {pairs:?}", value.items().nth(1).and_then(Value::text))
}

/// A connection whose replies are taken one by one.
struct Replies {
    frames: Frames,
    values: Vec<Vec<String>>,
}

impl Replies {
    fn new() -> Self {
        Self {
            frames: Frames::new(Limits::default()),
            values: Vec::new(),
        }
    }

    /// Each value, with the time shown and hidden in all ways that are needed.
    fn feed(&mut self, bytes: &[u8]) {
        let values = &mut self.values;
        let read = self.frames.read(bytes, |value| {
            values.push(vec![
                shown(value, &[]),
                shown(value, &[2, 3]),
                shown(value, &[1, 2]),
                sorted(value),
                shown(value, &[2]),
            ]);
            ControlFlow::Continue(())
        });
        assert_eq!(read, Ok(()));
    }
}

struct Real(UnixStream, Replies);

impl Real {
    fn connect(server: &Server) -> Self {
        let mut real = Self(
            UnixStream::connect(server.path()).expect("the server"),
            Replies::new(),
        );
        real.ask(&[b"HELLO", b"3"]);
        real
    }

    fn ask(&mut self, arguments: &[&[u8]]) -> Vec<String> {
        let mut out = Vec::new();
        command(&mut out, arguments);
        self.exchange(&out)
    }

    fn exchange(&mut self, bytes: &[u8]) -> Vec<String> {
        self.0.write_all(bytes).expect("the server reads");
        let mut buffer = [0; 65_536];
        while self.1.values.is_empty() {
            let length = self.0.read(&mut buffer).expect("the server answers");
            self.1.feed(&buffer[..length]);
        }
        self.1.values.remove(0)
    }
}

fn compare(server: &Server, steps: &[Step], form: PubSub, has_pattern: bool) {
    let mut real = Real::connect(server);
    let () = redis::cmd("FLUSHALL")
        .query(&mut server.witness())
        .expect("an empty server");
    let mut listener = Real::connect(server);
    let mut bytes = Vec::new();
    let channels: [&[u8]; 6] = [form.subscribe(), b"t:0", b"t:1", b"t:2", b"t:4", b"in"];
    command(&mut bytes, &channels);
    if has_pattern {
        command(&mut bytes, &[b"PSUBSCRIBE", b"t:*"]);
    }
    listener.exchange(&bytes);
    let mut model = Redis::new(1, 1_700_000_000_000);
    let (client, model_listener) = (model.open(), model.open());
    model.receive(model_listener, &bytes);
    // The key of topic 3 is no stream.
    for source in sources(form) {
        bytes.clear();
        command(&mut bytes, &[b"SCRIPT", b"LOAD", source.as_bytes()]);
        real.exchange(&bytes);
        model.receive(client, &bytes);
    }
    model.take_output(client);
    bytes.clear();
    command(&mut bytes, &[b"HSET", b"t:3", b"a", b"b"]);
    real.exchange(&bytes);
    model.receive(client, &bytes);
    model.take_output(client);

    let hashes = Hashes::new(form);
    let mut fence = Fence::default();
    let first = Step::Fence {
        run: 0,
        durable: true,
        known: 0,
        generation: 0,
        writer: 0,
        from: Vec::new(),
    };
    for (number, step) in std::iter::once(&first).chain(steps).enumerate() {
        let mut out = Vec::new();
        step.write(&hashes, &mut fence, number, &mut out);
        let from_real = real.exchange(&out);
        model.receive(client, &out);
        let mut replies = Replies::new();
        replies.feed(&model.take_output(client));
        let hidden = match step.times() {
            [2, 3] => 1,
            [1, 2] => 2,
            [3] => 3,
            [2] => 4,
            _ => 0,
        };
        assert_eq!(
            replies.values[0][hidden], from_real[hidden],
            "step {number}: {step:?}"
        );
        // The next steps use the fence that Redis has.
        if let Step::Fence { .. } = step {
            let least = real.ask(&[b"HGET", b"f", b"least"])[0].replace('"', "");
            fence.least_epoch = least.parse().expect("an epoch");
        }
    }
    assert_pushes(&mut listener, &mut model, model_listener);
}

/// Both have sent the same messages in the same order.
fn assert_pushes(listener: &mut Real, model: &mut Redis, client: ClientId) {
    let mut expected = Replies::new();
    expected.feed(&model.take_output(client));
    let mut found = vec![listener.ask(&[b"PING"])];
    while found.last().is_none_or(|value| value[0] != "\"PONG\"") {
        found.push(listener.exchange(b""));
    }
    // The first confirmation was taken when it was asked for.
    assert_eq!(found[..found.len() - 1], expected.values[1..]);
}

#[test]
fn the_model_and_a_real_server_agree() {
    // Redis shortens a stream by whole blocks, the model by publications.
    let server = Server::start("--stream-node-max-entries 1");
    let config = ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let form = || prop_oneof![Just(PubSub::Plain), Just(PubSub::Sharded)];
    let steps = prop::collection::vec(step(), 1..40);
    proptest!(config, |(steps in steps, form in form(), has_pattern: bool)| {
        compare(&server, &steps, form, has_pattern);
    });
}
