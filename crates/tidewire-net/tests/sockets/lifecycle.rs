//! Beginnings, ends, timers and mail.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Mail, Running, Seen, TestHandler, check_echo, dial, pattern};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tidewire_net::{
    Closed, Connect, ConnectionId, Handler, Io, Mailbox, MailboxError, Pulse, Shard, ShardConfig,
};

fn timer(seen: Seen) -> Option<(tidewire_net::ConnectionId, u64)> {
    if let Seen::Timer(id, at_ms) = seen {
        Some((id, at_ms))
    } else {
        None
    }
}

#[test]
fn timers_fire_once_and_not_before_their_time() {
    let server = Running::plain(TestHandler::echo());
    let streams: Vec<_> = (0..5).map(|_| dial(server.address)).collect();
    let ids: Vec<_> = streams.iter().map(|_| server.accepted()).collect();
    let due = server.ask({
        let ids = ids.clone();
        move |_, io| {
            let now_ms = io.now().monotonic_ms;
            let [plain, later, earlier, cleared, again] = ids[..] else {
                panic!()
            };
            io.set_timer(plain, now_ms + 20);
            io.set_timer(later, now_ms + 5);
            io.set_timer(later, now_ms + 60);
            io.set_timer(earlier, now_ms + 3_600_000);
            io.set_timer(earlier, now_ms + 30);
            io.set_timer(cleared, now_ms + 10);
            io.clear_timer(cleared);
            io.set_timer(again, now_ms + 10);
            io.clear_timer(again);
            io.set_timer(again, now_ms + 40);
            [
                (plain, now_ms + 20),
                (later, now_ms + 60),
                (earlier, now_ms + 30),
                (again, now_ms + 40),
            ]
        }
    });
    let mut fired: Vec<_> = (0..4).map(|_| server.wait_for(timer)).collect();
    fired.sort_unstable();
    for ((id, due_ms), (fired_id, at_ms)) in due.iter().zip(&fired) {
        assert_eq!(id, fired_id);
        assert!(at_ms >= due_ms, "{at_ms} is before {due_ms}");
    }
    // A timer set after all of them is the next to come: none comes twice, the cleared one never.
    let last = ids[3];
    server.ask(move |_, io| io.set_timer(last, io.now().monotonic_ms + 20));
    assert_eq!(server.wait_for(timer).0, last);
    server.stop();
}

#[test]
fn a_timer_can_be_set_again_from_its_call() {
    let mut lab = TestHandler::echo();
    lab.on_accept = Box::new(|io, id| io.set_timer(id, 0));
    lab.on_timer = Box::new(|io, id| io.set_timer(id, io.now().monotonic_ms + 1));
    let server = Running::plain(lab);
    let _stream = dial(server.address);
    let times: Vec<_> = (0..10).map(|_| server.wait_for(timer).1).collect();
    assert!(
        times.is_sorted_by(|before, after| before < after),
        "{times:?}"
    );
    server.stop();
}

#[test]
fn a_timer_ends_a_connection_that_says_nothing() {
    let mut lab = TestHandler::echo();
    lab.on_accept = Box::new(|io, id| io.set_timer(id, io.now().monotonic_ms + 10));
    lab.on_timer = Box::new(|io, id| {
        io.send(id, b"bye");
        io.close(id);
    });
    let server = Running::plain(lab);
    let mut stream = dial(server.address);
    assert_eq!(common::read_to_end(&mut stream), b"bye");
    server.stop();
}

#[test]
fn a_closed_connection_goes_although_its_peer_stays() {
    let server = Running::plain(TestHandler::with_data(|io, id, data| {
        io.close(id);
        // A handler that renews its timer at the end of each call must not renew the linger.
        io.set_timer(id, io.now().monotonic_ms + 3_600_000);
        io.clear_timer(id);
        data.len()
    }));
    let mut stream = dial(server.address);
    stream.write_all(b"x").unwrap();
    assert!(matches!(server.closed(), Closed::ByUs));
    server.wait_until_empty();
    drop(stream);
    server.stop();
}

#[test]
fn what_was_unread_at_a_close_does_not_reset_the_peer() {
    let mut lab = TestHandler::echo();
    lab.on_accept = Box::new(|io, id| io.pause_reading(id));
    let server = Running::plain(lab);
    let mut stream = dial(server.address);
    let id = server.accepted();
    stream.write_all(&pattern(1_000)).unwrap();
    server.ask(|_, _| ());
    server.ask(move |_, io| io.close(id));
    server.wait_until_empty();
    // The shard has let go, so a reset would have come by now.
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
    server.stop();
}

#[test]
fn a_mailbox_is_bounded_and_tells_when_nobody_reads_it() {
    let config = ShardConfig {
        mailbox_capacity: 2,
        ..ShardConfig::default()
    };
    let (shard, mailbox): (_, Mailbox<Mail>) = Shard::new(&config, TestHandler::echo()).unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let mail = || -> Mail {
        let count = Arc::clone(&count);
        Box::new(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        })
    };
    assert!(mailbox.try_send(mail()).is_ok());
    assert!(mailbox.try_send(mail()).is_ok());
    let Err(MailboxError::Full(back)) = mailbox.try_send(mail()) else {
        panic!("it is full")
    };
    let loop_thread = std::thread::spawn(move || shard.run().unwrap());
    assert!(mailbox.send(back).is_ok());
    assert!(mailbox.send(Box::new(|_, io| io.stop())).is_ok());
    loop_thread.join().unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 3);
    assert!(matches!(
        mailbox.try_send(mail()),
        Err(MailboxError::Stopped(_))
    ));
    assert!(matches!(
        mailbox.send(mail()),
        Err(MailboxError::Stopped(_))
    ));
}

#[test]
fn every_mail_wakes_the_shard() {
    for mailbox_capacity in [0, 1, 64] {
        let config = ShardConfig {
            mailbox_capacity,
            ..ShardConfig::default()
        };
        let server = Running::start(TestHandler::echo(), "127.0.0.1:0", None, &config);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mailbox = server.mailbox.clone();
                scope.spawn(move || {
                    for number in 0..2_000 {
                        let (sender, answer) = std::sync::mpsc::channel();
                        let sent = mailbox.send(Box::new(move |_, _| sender.send(number).unwrap()));
                        assert!(sent.is_ok());
                        assert_eq!(answer.recv_timeout(common::DEADLINE), Ok(number));
                    }
                });
            }
        });
        server.stop();
    }
}

/// A mail that posts itself again until `enough`.
fn endless(mailbox: Mailbox<Mail>, enough: Arc<AtomicBool>) -> Mail {
    Box::new(move |_, _| {
        if !enough.load(Ordering::Relaxed) {
            let next = endless(mailbox.clone(), enough);
            let _ = mailbox.try_send(next);
        }
    })
}

#[test]
fn endless_mail_does_not_keep_the_shard_from_its_sockets() {
    let server = Running::plain(TestHandler::echo());
    let enough = Arc::new(AtomicBool::new(false));
    let mail = endless(server.mailbox.clone(), Arc::clone(&enough));
    assert!(server.mailbox.send(mail).is_ok());
    let stream = dial(server.address);
    check_echo(&stream, &pattern(1 << 20));
    enough.store(true, Ordering::Relaxed);
    server.stop();
}

#[test]
fn waves_of_connections_come_and_go() {
    let server = Running::plain(TestHandler::echo());
    for wave in 0..4 {
        let streams: Vec<_> = (0..500).map(|_| dial(server.address)).collect();
        for mut stream in &streams {
            stream.write_all(b"x").unwrap();
        }
        for mut stream in &streams {
            stream.read_exact(&mut [0]).unwrap();
        }
        assert_eq!(server.ask(|_, io| io.connections()), 500, "wave {wave}");
        drop(streams);
        server.wait_until_empty();
    }
    let lab = server.stop();
    assert_eq!((lab.accepted, lab.gone.len()), (2_000, 2_000));
    assert!(
        lab.gone.iter().all(|id| id.index() < 500),
        "places are given again"
    );
}

#[test]
fn a_place_is_not_given_again_while_its_connection_lingers() {
    let server = Running::plain(TestHandler::echo());
    let lingering: Vec<_> = (0..20).map(|_| dial(server.address)).collect();
    let ids: Vec<_> = lingering.iter().map(|_| server.accepted()).collect();
    server.ask({
        let ids = ids.clone();
        move |_, io| ids.iter().for_each(|id| io.close(*id))
    });
    let newcomers: Vec<_> = (0..20).map(|_| dial(server.address)).collect();
    for stream in &newcomers {
        check_echo(stream, b"for me alone");
    }
    for mut stream in lingering {
        assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
    }
    drop(newcomers);
    server.wait_until_empty();
    assert_eq!(server.stop().gone.len(), 40);
}

#[test]
fn newcomers_wait_in_the_backlog_until_they_may_come() {
    let mut lab = TestHandler::echo();
    let open = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&open);
    lab.may_accept = Box::new(move || gate.load(Ordering::Relaxed));
    let server = Running::plain(lab);
    let streams: Vec<_> = (0..10).map(|_| dial(server.address)).collect();
    for mut stream in &streams {
        stream.write_all(b"hello").unwrap();
    }
    for _ in 0..10 {
        assert_eq!(
            server.ask(|lab, io| (lab.accepted, io.connections())),
            (0, 0)
        );
    }
    server.ask(move |_, _| open.store(true, Ordering::Relaxed));
    for mut stream in &streams {
        let mut received = [0; 5];
        stream.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"hello");
    }
    assert_eq!(server.stop().accepted, 10);
}

#[test]
fn a_full_house_lets_one_in_for_each_that_leaves() {
    let mut lab = TestHandler::echo();
    let inside = Arc::new(AtomicUsize::new(0));
    let (door, entry, exit) = (
        Arc::clone(&inside),
        Arc::clone(&inside),
        Arc::clone(&inside),
    );
    lab.may_accept = Box::new(move || door.load(Ordering::Relaxed) < 3);
    lab.on_accept = Box::new(move |_, _| assert!(entry.fetch_add(1, Ordering::Relaxed) < 3));
    lab.on_close = Box::new(move |_, _| {
        exit.fetch_sub(1, Ordering::Relaxed);
    });
    let server = Running::plain(lab);
    let streams: Vec<_> = (0..30).map(|_| dial(server.address)).collect();
    for stream in streams {
        check_echo(&stream, b"served");
    }
    assert_eq!(server.stop().accepted, 30);
}

#[test]
fn stop_closes_everything() {
    let server = Running::plain(TestHandler::echo());
    let streams: Vec<_> = (0..20).map(|_| dial(server.address)).collect();
    for stream in &streams {
        check_echo(stream, b"x");
    }
    let address = server.address;
    server.ask(move |lab, _| {
        // Its own end must not be answered with new connections for ever.
        lab.on_close = Box::new(move |io, _| {
            let again = Connect {
                address: address.into(),
                source: None,
                tls: None,
                usage: tidewire_net::Usage::Any,
            };
            assert!(io.connect(again).is_err());
        });
    });
    assert_eq!(server.stop().gone.len(), 20);
    for mut stream in streams {
        assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
    }
}

#[test]
fn stop_ends_connections_that_are_being_made() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = Running::plain(TestHandler::echo());
    let config = tidewire_net::tls::client_config(None).unwrap();
    client.ask(move |_, io| {
        for _ in 0..10 {
            // Nobody answers the TLS hello.
            let name = tidewire_net::tls::server_name("localhost").unwrap();
            let tls = Some((Arc::clone(&config), name));
            io.connect(Connect {
                address: address.into(),
                source: None,
                tls,
                usage: tidewire_net::Usage::Any,
            })
            .unwrap();
        }
    });
    let lab = client.stop();
    assert_eq!((lab.connected, lab.gone.len()), (0, 10));
}

#[test]
fn an_end_is_told_once_whatever_the_handler_does() {
    let ways = AtomicUsize::new(0);
    let mut lab = TestHandler::with_data(move |io, id, data| {
        match ways.fetch_add(1, Ordering::Relaxed) % 6 {
            0 => io.close(id),
            1 => io.abort(id),
            2 => {
                io.close(id);
                io.close(id);
            }
            3 => {
                io.close(id);
                io.abort(id);
            }
            4 => {
                io.abort(id);
                io.close(id);
            }
            _ => {
                io.send(id, &vec![1; 600_000]);
                io.pause_reading(id);
                io.close(id);
                io.resume_reading(id);
            }
        }
        data.len()
    });
    let last = std::sync::Mutex::new(None);
    lab.on_close = Box::new(move |io, id| {
        // Closing again is nothing, whether it is this one or the one before, which may linger.
        io.abort(id);
        if let Some(before) = last.lock().unwrap().replace(id) {
            io.close(before);
            io.abort(before);
        }
    });
    let server = Running::plain(lab);
    for _ in 0..60 {
        let mut stream = dial(server.address);
        stream.write_all(b"x").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    server.wait_until_empty();
    assert_eq!(server.stop().gone.len(), 60);
}

#[test]
fn a_handler_may_end_and_begin_connections_at_any_call() {
    let echo = Running::plain(TestHandler::echo());
    let address = echo.address;
    let mut lab = TestHandler::echo();
    let mut left = 200_usize;
    let mut turn = 0;
    lab.on_connect = Box::new(move |io, id| {
        turn += 1;
        match turn % 3 {
            0 => io.abort(id),
            1 => io.close(id),
            _ => {
                io.send(id, b"x");
                io.close(id);
            }
        }
    });
    lab.on_close = Box::new(move |io, id| {
        io.abort(id);
        if left > 0 {
            left -= 1;
            io.connect(Connect {
                address: address.into(),
                source: None,
                tls: None,
                usage: tidewire_net::Usage::Any,
            })
            .unwrap();
        }
    });
    let client = Running::plain(lab);
    client.ask(move |_, io| {
        for _ in 0..10 {
            io.connect(Connect {
                address: address.into(),
                source: None,
                tls: None,
                usage: tidewire_net::Usage::Any,
            })
            .unwrap();
        }
    });
    for _ in 0..210 {
        assert!(matches!(client.closed(), Closed::ByUs));
    }
    client.wait_until_empty();
    assert_eq!(client.stop().connected, 210);
    echo.wait_until_empty();
    echo.stop();
}

#[test]
fn a_connection_ended_at_its_door_is_told_once() {
    let mut lab = TestHandler::echo();
    let mut turn = 0;
    lab.on_accept = Box::new(move |io, id| {
        turn += 1;
        if turn % 2 == 0 {
            io.send(id, b"full");
            io.close(id);
        } else {
            io.abort(id);
        }
    });
    let server = Running::plain(lab);
    let answers: Vec<_> = (0..20)
        .map(|_| common::read_to_end(&mut dial(server.address)))
        .collect();
    assert_eq!(
        answers.iter().filter(|answer| *answer == b"full").count(),
        10
    );
    server.wait_until_empty();
    assert_eq!(server.stop().gone.len(), 20);
}

#[test]
fn an_earlier_timer_does_not_make_a_closed_connection_stay() {
    let mut lab = TestHandler::with_data(|io, id, data| {
        io.close(id);
        data.len()
    });
    // Due while the connection lingers, before the linger's own end.
    lab.on_accept = Box::new(|io, id| io.set_timer(id, io.now().monotonic_ms + 300));
    let server = Running::plain(lab);
    let mut stream = dial(server.address);
    stream.write_all(b"x").unwrap();
    assert!(matches!(server.closed(), Closed::ByUs));
    server.wait_until_empty();
    drop(stream);
    server.stop();
}

#[test]
fn a_peer_that_takes_some_and_stalls_does_not_stay() {
    let server = Running::plain(TestHandler::with_data(|io, id, data| {
        io.send(id, &pattern(12 << 20));
        io.close(id);
        data.len()
    }));
    let mut stream = dial(server.address);
    stream.write_all(b"x").unwrap();
    assert!(matches!(server.closed(), Closed::ByUs));
    let mut some = vec![0; 4 << 20];
    stream.read_exact(&mut some).unwrap();
    server.wait_until_empty();
    drop(stream);
    server.stop();
}

#[test]
fn stop_lets_what_is_queued_leave() {
    let server = Running::plain(TestHandler::with_data(|io, id, data| {
        io.send(id, &pattern(12 << 20));
        data.len()
    }));
    let mut stream = dial(server.address);
    stream.write_all(b"x").unwrap();
    let mut received = vec![0];
    stream.read_exact(&mut received).unwrap();
    let reader = std::thread::spawn(move || {
        received.extend(common::read_to_end(&mut stream));
        received
    });
    server.stop();
    common::assert_same(&reader.join().unwrap(), &pattern(12 << 20));
}

struct Stops;

impl Handler for Stops {
    type Mail = ();

    fn handle_data(&mut self, _: &mut Io, _: ConnectionId, data: &mut [u8]) -> usize {
        data.len()
    }

    fn handle_close(&mut self, _: &mut Io, _: ConnectionId, _: Closed) {}

    fn handle_mail(&mut self, io: &mut Io, (): ()) {
        io.stop();
    }
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

#[test]
fn a_shard_that_does_not_wake_is_seen_and_so_is_its_return() {
    // A thread that is stopped in the kernel's wait is one that does not run.
    let (shard, mailbox) = Shard::new(&ShardConfig::default(), Stops).unwrap();
    let heartbeat = shard.heartbeat();
    assert_eq!(heartbeat.pulse(), Pulse::Waiting);
    wait_for(|| matches!(heartbeat.pulse(), Pulse::Unresponsive(long) if long.as_millis() > 5));
    let thread = std::thread::spawn(move || shard.run().map(drop));
    // It answers each look, however often somebody looks.
    for _ in 0..1_000 {
        wait_for(|| heartbeat.pulse() == Pulse::Waiting);
    }
    mailbox.send(()).unwrap();
    thread.join().unwrap().unwrap();
    assert_eq!(heartbeat.pulse(), Pulse::Ended);
}
