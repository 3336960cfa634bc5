//! The simulated network under a handler that keeps a trace.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use tidewire_net::simulation::{ClientEnd, Driver, Ended, Faults, UNIX_MS_AT_START};
use tidewire_net::{
    Closed, Connect, ConnectionId, Handler, Io, LINGER_MS, ListenerId, Mailbox, Shard, ShardConfig,
    When,
};
use tidewire_wire::envelope::Priority;

/// Echoes, and notes each call and its time.
#[derive(Default)]
struct TracingHandler {
    trace: Vec<(u64, String)>,
    deadline_ms: Option<u64>,
    deadline: Option<std::time::Instant>,
    is_full: bool,
    takes_nothing: bool,
}

impl TracingHandler {
    fn note(&mut self, io: &Io, what: String) {
        self.trace.push((io.now().monotonic_ms, what));
    }

    fn when(&self, what: &str) -> Vec<u64> {
        let seen = self.trace.iter().filter(|(_, seen)| seen == what);
        seen.map(|(time_ms, _)| *time_ms).collect()
    }
}

impl Handler for TracingHandler {
    type Mail = u64;

    fn handle_accept(&mut self, io: &mut Io, id: ConnectionId, _: ListenerId) {
        let address = io.peer_address(id).unwrap();
        self.note(io, format!("accept {address}"));
        if self.takes_nothing {
            io.pause_reading(id);
        }
    }

    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        let sum: u64 = data.iter().map(|byte| u64::from(*byte)).sum();
        self.note(io, format!("data {} {} {sum}", id.to_u64(), data.len()));
        io.send(id, data);
        data.len()
    }

    fn handle_close(&mut self, io: &mut Io, _: ConnectionId, closed: Closed) {
        self.note(io, format!("close {closed:?}"));
    }

    fn handle_timer(&mut self, io: &mut Io, _: ConnectionId) {
        self.note(io, "timer".to_owned());
    }

    fn handle_drained(&mut self, io: &mut Io, _: ConnectionId) {
        self.note(io, "drained".to_owned());
    }

    fn handle_mail(&mut self, io: &mut Io, mail: u64) {
        self.note(io, format!("mail {mail}"));
        self.deadline_ms = Some(mail);
        self.deadline = Some(io.instant_at(mail));
    }

    fn handle_turn(&mut self, io: &mut Io) {
        let now = io.now();
        assert_eq!(now.unix_ms, UNIX_MS_AT_START + now.monotonic_ms);
        if self
            .deadline_ms
            .is_some_and(|due_ms| due_ms <= now.monotonic_ms)
        {
            self.note(io, "deadline".to_owned());
            self.deadline_ms = None;
            self.deadline = None;
        }
    }

    fn poll_deadline(&self) -> Option<std::time::Instant> {
        self.deadline
    }

    fn may_accept(&self) -> bool {
        !self.is_full
    }
}

struct World {
    driver: Driver<TracingHandler>,
    mailboxes: Vec<Mailbox<u64>>,
}

fn world(faults: Faults, shards: usize) -> World {
    let mut driver = Driver::new(faults);
    let mut mailboxes = Vec::new();
    for number in 0..shards {
        let (shard, mailbox) =
            Shard::new(&ShardConfig::default(), TracingHandler::default()).unwrap();
        assert_eq!(driver.add(shard), number);
        mailboxes.push(mailbox);
    }
    World { driver, mailboxes }
}

fn rough(seed: u64) -> Faults {
    Faults {
        seed,
        delay_ms: 0..=40,
        piece_bytes: 1..=900,
        partial_write_chance: 0.3,
        reset_chance: 0.0,
        pipe_bytes: 3_000,
    }
}

/// Bytes of which no part is like another.
fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

fn accept(driver: &mut Driver<TracingHandler>, shard: usize) -> (ClientEnd, ConnectionId) {
    let client = driver.network().connect(shard);
    while client.connection().is_none() {
        assert!(driver.step());
    }
    let id = client.connection().unwrap();
    (client, id)
}

type Trace = Vec<(u64, String)>;

/// When, at which client and what.
type Arrived = (u64, usize, Vec<u8>);

/// Clients that echo, stall and go away; everything that happened.
fn busy_run(faults: Faults) -> (Vec<Trace>, Vec<Arrived>) {
    let World { mut driver, .. } = world(faults, 3);
    let mut clients = Vec::new();
    let mut arrived = Vec::new();
    for round in 0..40u64 {
        let client = driver.network().connect(round as usize % 3);
        client.send(&pattern(5_000, round));
        clients.push(client);
        match round % 5 {
            0 => clients[round as usize / 2].close(),
            1 => clients[round as usize / 3].reset(),
            2 => clients[round as usize / 2].stall(true),
            3 => clients[(round - 1) as usize / 2].stall(false),
            _ => {}
        }
        let until_ms = round * 7;
        while driver
            .next_due_ms()
            .is_some_and(|due_ms| due_ms <= until_ms)
        {
            driver.step();
            for number in driver.network().take_news() {
                arrived.push((driver.now_ms(), number, clients[number].receive()));
            }
        }
    }
    driver.run_until(20_000);
    let handlers = driver.into_handlers();
    (handlers.into_iter().map(|lab| lab.trace).collect(), arrived)
}

#[test]
fn a_seed_replays_exactly_and_another_does_not() {
    let faults = |seed| Faults {
        reset_chance: 0.002,
        ..rough(seed)
    };
    let first = busy_run(faults(1));
    assert!(first.0.iter().all(|trace| trace.len() > 20));
    assert!(first.1.len() > 50);
    assert!(busy_run(faults(1)) == first);
    assert!(busy_run(faults(2)) != first);
}

#[test]
fn nothing_is_lost_by_delays_and_partial_writes() {
    for seed in 0..50 {
        let World { mut driver, .. } = world(rough(seed), 2);
        let sent: Vec<_> = (0..6)
            .map(|number| pattern(20_000, seed * 9 + number))
            .collect();
        let clients: Vec<_> = (0..6)
            .map(|number| driver.network().connect(number % 2))
            .collect();
        for (client, sent) in clients.iter().zip(&sent) {
            assert!(client.send(&sent[..7]));
            assert!(client.send(&sent[7..]));
            client.close();
            assert!(!client.send(b"late"));
        }
        while driver.step() {}
        for (client, sent) in clients.iter().zip(&sent) {
            assert_eq!(client.ended(), Some(Ended::Closed), "seed {seed}");
            assert!(client.receive() == *sent, "seed {seed}");
            assert_eq!(client.unread_bytes(), 0);
        }
        let partial = driver
            .into_handlers()
            .iter()
            .any(|lab| !lab.when("drained").is_empty());
        assert!(partial, "seed {seed} has tried nothing");
    }
}

#[test]
fn virtual_time_passes_only_in_the_simulation() {
    let faults = Faults {
        delay_ms: 100..=100,
        piece_bytes: 10..=10,
        ..Faults::default()
    };
    let World { mut driver, .. } = world(faults, 1);
    let address = "192.0.2.7:1234".parse().unwrap();
    let client = driver.network().connect_from(0, address);
    assert_eq!(client.address(), address);
    client.send(&[1; 10]);
    assert_eq!(driver.next_due_ms(), Some(100));
    driver.run_until(250);
    assert_eq!(client.receive(), [1; 10]);
    assert_eq!(driver.now_ms(), 250);
    client.send(&[2; 20]);
    driver.run_until(449);
    assert!(client.receive().is_empty());
    driver.run_until(450);
    assert_eq!(client.receive(), [2; 20]);
    assert_eq!(driver.next_due_ms(), None);
    assert!(!driver.step());
    let trace = &driver.into_handlers()[0].trace;
    let times: Vec<_> = trace
        .iter()
        .map(|(time_ms, what)| (*time_ms, &what[..4]))
        .collect();
    assert_eq!(times, [(100, "acce"), (100, "data"), (350, "data")]);
    assert_eq!(trace[0].1, "accept 192.0.2.7:1234");
}

#[test]
fn timers_deadlines_and_mail_come_at_their_virtual_time() {
    let World {
        mut driver,
        mailboxes,
    } = world(Faults::default(), 2);
    let (_client, id) = accept(&mut driver, 0);
    driver.call(0, |_, io| io.set_timer(id, 5_000));
    mailboxes[1].try_send(7_777).unwrap();
    driver.run_until(60_000);
    mailboxes[0].wake();
    assert_eq!(driver.next_due_ms(), Some(60_000));
    while driver.step() {}
    let labs = driver.into_handlers();
    let timer_ms = labs[0].when("timer");
    assert!(matches!(timer_ms[..], [5_000..=5_008]), "{timer_ms:?}");
    assert_eq!(labs[1].when("deadline"), [7_777]);
    assert!(labs[1].when("mail 7777")[0] < 10);
}

#[test]
fn a_stalled_client_blocks_the_writer_until_it_reads() {
    let faults = Faults {
        pipe_bytes: 10_000,
        ..Faults::default()
    };
    let World { mut driver, .. } = world(faults, 1);
    let (client, id) = accept(&mut driver, 0);
    client.stall(true);
    let chunk = Arc::new(pattern(100_000, 3));
    driver.call(0, |_, io| {
        io.send_shared(id, &chunk, Priority::Normal, When::Now);
        assert_eq!((io.is_blocked(id), io.queued_bytes(id)), (true, 90_000));
    });
    driver.run_until(5_000);
    assert!(client.receive().is_empty());
    assert!(driver.call(0, |lab, io| io.is_blocked(id)
        && lab.when("drained").is_empty()));
    client.stall(false);
    driver.run_until(10_000);
    assert!(client.receive() == *chunk);
    let drained_ms = driver.call(0, |lab, io| {
        assert!(!io.is_blocked(id));
        lab.when("drained")
    });
    assert!(matches!(drained_ms[..], [5_000..10_000]), "{drained_ms:?}");
}

#[test]
fn clients_that_read_again_at_once_are_written_to_in_several_turns() {
    const MIB: usize = 1024 * 1024;
    let faults = Faults {
        pipe_bytes: 4 * MIB,
        ..Faults::default()
    };
    let World { mut driver, .. } = world(faults, 1);
    let sessions: Vec<_> = (0..8).map(|_| accept(&mut driver, 0)).collect();
    let chunk = Arc::new(pattern(7 * MIB, 3));
    for (client, id) in &sessions {
        client.stall(true);
        driver.call(0, |_, io| {
            io.send_shared(*id, &chunk, Priority::Normal, When::Now);
        });
    }
    driver.run_until(1_000);
    let queued = |driver: &mut Driver<TracingHandler>| {
        let bytes = |io: &Io| sessions.iter().map(|(_, id)| io.queued_bytes(*id)).sum();
        driver.call(0, |_, io| -> usize { bytes(io) })
    };
    let mut left = queued(&mut driver);
    assert_eq!(left, 8 * 3 * MIB);
    for (client, _) in &sessions {
        client.stall(false);
    }
    let mut most = 0;
    while left > 0 {
        assert!(driver.step());
        let before = std::mem::replace(&mut left, queued(&mut driver));
        most = most.max(before - left);
    }
    // A turn has room for 8 MiB, and the last socket of a turn takes what it can.
    assert!(most <= (8 + 3) * MIB, "{most} bytes in one turn");
    driver.run_until(2_000);
    for (client, _) in &sessions {
        assert!(client.receive() == *chunk);
    }
}

#[test]
fn a_handler_that_reads_nothing_holds_its_client_back() {
    let World { mut driver, .. } = world(rough(4), 1);
    driver.call(0, |lab, _| lab.takes_nothing = true);
    let (client, id) = accept(&mut driver, 0);
    let sent = pattern(50_000, 1);
    client.send(&sent);
    driver.run_until(5_000);
    assert_eq!(client.unread_bytes(), sent.len());
    driver.call(0, |_, io| io.resume_reading(id));
    driver.run_until(50_000);
    assert!(client.receive() == sent);
}

#[test]
fn a_full_handler_accepts_later() {
    let World { mut driver, .. } = world(Faults::default(), 1);
    driver.call(0, |lab, _| lab.is_full = true);
    let client = driver.network().connect(0);
    client.send(b"patient");
    driver.run_until(1_000);
    assert_eq!(client.connection(), None);
    driver.call(0, |lab, _| lab.is_full = false);
    driver.run_until(2_000);
    assert!(client.connection().is_some());
    assert_eq!(client.receive(), b"patient");
}

#[test]
fn resets_are_reported_to_both_ends() {
    let World { mut driver, .. } = world(Faults::default(), 1);
    let (client, _) = accept(&mut driver, 0);
    client.reset();
    assert_eq!(client.ended(), Some(Ended::Reset));
    driver.run_until(100);
    let (other, _) = accept(&mut driver, 0);
    driver.network().set_faults(Faults {
        reset_chance: 1.0,
        ..Faults::default()
    });
    other.send(b"x");
    driver.run_until(200);
    assert_eq!(other.ended(), Some(Ended::Reset));
    assert!(driver.network().take_news().contains(&other.number()));
    assert!(!other.send(b"more"));
    let lab = driver.into_handlers().remove(0);
    let failures = lab
        .trace
        .iter()
        .filter(|(_, what)| what.contains("close Failed"));
    assert_eq!(failures.count(), 2, "{:?}", lab.trace);
}

#[test]
fn a_close_by_the_shard_delivers_what_was_queued() {
    let World { mut driver, .. } = world(rough(5), 1);
    let (client, id) = accept(&mut driver, 0);
    let last = pattern(30_000, 2);
    driver.call(0, |_, io| {
        io.send(id, &last);
        io.close(id);
    });
    driver.run_until(1_000 + LINGER_MS * 4);
    assert_eq!(client.ended(), Some(Ended::Closed));
    assert!(client.receive() == last);
    assert_eq!(
        driver.call(0, |_, io| io.connections()),
        0,
        "lingering has ended"
    );
    client.send(b"to nobody");
    driver.run_until(20_000);
    assert_eq!(client.ended(), Some(Ended::Reset));
}

#[test]
fn a_dropped_client_ends_its_connection_and_takes_nothing() {
    let World { mut driver, .. } = world(Faults::default(), 1);
    let (client, _) = accept(&mut driver, 0);
    drop(client);
    driver.run_until(500);
    let closed = |driver: &mut Driver<TracingHandler>, how: &str| {
        driver.call(0, |lab, _| {
            let closes = lab.trace.iter().filter(|(_, what)| what.contains(how));
            closes.count()
        })
    };
    assert_eq!(closed(&mut driver, "close ByPeer"), 1);
    let (deaf, id) = accept(&mut driver, 0);
    driver.call(0, |_, io| io.pause_reading(id));
    drop(deaf);
    driver.run_until(1_000);
    assert_eq!(closed(&mut driver, "close"), 1, "its end has not been read");
    driver.call(0, |_, io| io.send(id, b"anybody?"));
    driver.run_until(1_500);
    driver.call(0, |_, io| io.send(id, b"anybody?"));
    driver.run_until(2_000);
    assert_eq!(closed(&mut driver, "close Failed"), 1);
}

#[test]
fn a_shard_that_stops_lets_its_connections_go() {
    let World {
        mut driver,
        mailboxes,
    } = world(rough(6), 2);
    let (client, id) = accept(&mut driver, 0);
    let last = pattern(10_000, 8);
    driver.call(0, |_, io| {
        io.send(id, &last);
        io.stop();
    });
    let late = driver.network().connect(0);
    driver.run_until(20_000);
    assert!(driver.has_ended(0) && !driver.has_ended(1));
    assert!(client.receive() == last);
    assert_eq!(client.ended(), Some(Ended::Closed));
    assert_eq!(late.connection(), None);
    let _ = mailboxes[0].try_send(1);
    assert!(!driver.step(), "a shard that has ended takes no mail");
}

#[test]
fn nothing_real_is_connected_to() {
    let World { mut driver, .. } = world(Faults::default(), 1);
    let refused = driver.call(0, |_, io| {
        io.connect(Connect {
            address: "127.0.0.1:9"
                .parse::<std::net::SocketAddr>()
                .unwrap()
                .into(),
            source: None,
            tls: None,
            usage: tidewire_net::Usage::Any,
        })
    });
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::Unsupported);
}
