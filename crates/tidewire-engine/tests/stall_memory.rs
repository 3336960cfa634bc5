//! The memory of a server whose application stalls. In a test program of its own, because what is
//! measured is the process's.
#![cfg(target_os = "linux")]

mod common;

use common::{assert_settled, connect, frame, raw_config, wait_until};
use std::time::Duration;
use tidewire_engine::queue::{Event, Receiver, queue};
use tidewire_engine::{Config, Server};
use tidewire_net::ShardConfig;
use tidewire_wire::frame::OpCode;

const SHARDS: usize = 2;
const SENDERS: usize = 4;
const QUEUE_BYTES_MAX: usize = 1024 * 1024;
const PAYLOAD_BYTES: usize = 1000;
const MESSAGES_PER_WRITE: usize = 50;
const WRITES: usize = 1000;
const MESSAGES: u64 = (SENDERS * WRITES * MESSAGES_PER_WRITE) as u64;

/// The limit of waiting bytes, and room for the allocator and the threads.
const fn growth_bytes_max(read_buffer_bytes: usize) -> usize {
    QUEUE_BYTES_MAX + SHARDS * read_buffer_bytes + 8 * 1024 * 1024
}

#[test]
fn a_stall_before_200_mb_takes_the_memory_of_the_queue() {
    let (sender, receiver) = queue(QUEUE_BYTES_MAX);
    let config = Config {
        shards: SHARDS,
        ..raw_config()
    };
    let server = Server::start(config, move |_| sender.application()).expect("a free port");
    let handle = server.handle();
    let read_buffer_bytes = ShardConfig::default().read_buffer_bytes;
    let growth_bytes_max = growth_bytes_max(read_buffer_bytes);
    let clients: Vec<_> = (0..SENDERS).map(|_| connect(&server)).collect();
    let before_bytes = resident_bytes();
    let senders: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || {
                let bytes =
                    frame(OpCode::Binary, &[0x55; PAYLOAD_BYTES]).repeat(MESSAGES_PER_WRITE);
                for _ in 0..WRITES {
                    client.send_bytes(&bytes);
                }
                client
            })
        })
        .collect();

    // Nobody receives, so that all come to a halt.
    let mut received = u64::MAX;
    wait_until("the halt", || {
        std::thread::sleep(Duration::from_millis(200));
        let now = handle.counters();
        let halted =
            now.messages_received == std::mem::replace(&mut received, now.messages_received);
        halted && now.queue_full_pauses > 0
    });
    let stalled_bytes = handle.counters().bytes_received as usize;
    assert!(stalled_bytes <= QUEUE_BYTES_MAX + SHARDS * read_buffer_bytes);
    assert!(senders.iter().all(|sender| !sender.is_finished()));
    assert_growth(before_bytes, growth_bytes_max);

    let mut messages = 0;
    wait_until("all arrived", || {
        messages += take(&receiver);
        assert_growth(before_bytes, growth_bytes_max);
        messages == MESSAGES
    });
    for sender in senders {
        drop(sender.join().expect("a sender that sent all"));
    }
    assert_eq!(assert_settled(&handle).messages_delivered, MESSAGES);
}

/// The messages of the next batch.
fn take(receiver: &Receiver) -> u64 {
    let batch = receiver
        .receive(Duration::from_millis(10))
        .expect("a server that runs");
    let Some(batch) = batch else { return 0 };
    let messages = batch
        .events()
        .filter(|event| matches!(event, Event::Message(..)));
    messages.count() as u64
}

#[track_caller]
fn assert_growth(before_bytes: usize, growth_bytes_max: usize) {
    let growth_bytes = resident_bytes().saturating_sub(before_bytes);
    assert!(
        growth_bytes < growth_bytes_max,
        "{growth_bytes} >= {growth_bytes_max}"
    );
}

/// The physical memory of this process (proc(5), `VmRSS`).
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .expect("a line in kB");
    kib.parse::<usize>().expect("a number") * 1024
}
