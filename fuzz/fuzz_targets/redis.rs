//! RESP3, records and the link, as a server of another kind could send them: however the bytes are cut, the same values
//! and the same error are read; a record that was read, written again, reads the same; and no bytes end the link.
//!
//! Input: one byte that seeds the cuts, one byte for the connection, the bytes of the server.

#![no_main]

use std::ops::ControlFlow;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use tidewire_redis::resp::{Frames, Limits, RespError, Value};
use tidewire_redis::{Action, Link, LinkOptions, NodeId, Now, Record, Slot};

fuzz_target!(|input: &[u8]| {
    let [seed, slot, bytes @ ..] = input else {
        return;
    };
    let whole = read(&[bytes]);
    let cut = usize::from(*seed) % (bytes.len() + 1);
    assert_eq!(read(&[&bytes[..cut], &bytes[cut..]]), whole);
    if bytes.len() <= EVERY_BYTE_MAX {
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), whole);
    }
    if let Ok(record) = Record::decode(bytes) {
        let mut again = Vec::new();
        record
            .encode(&mut again)
            .expect("a record that was read can be written");
        assert_eq!(again, bytes);
    }
    feed(Slot::ALL[usize::from(*slot) % 3], bytes);
});

fn read(pieces: &[&[u8]]) -> (Vec<String>, Result<(), RespError>) {
    let limits = Limits {
        string_bytes_max: 1_000,
        value_bytes_max: 10_000,
    };
    let mut frames = Frames::new(limits);
    let mut values = Vec::new();
    for piece in pieces {
        let result = frames.read(piece, |value| {
            values.push(shown(value));
            ControlFlow::Continue(())
        });
        if result.is_err() {
            return (values, result);
        }
    }
    (values, Ok(()))
}

fn shown(value: Value<'_>) -> String {
    let inner: Vec<String> = value.items().map(shown).collect();
    match value {
        Value::Array(_) | Value::Map(_) | Value::Push(_) => format!("[{}]", inner.join(" ")),
        other => format!("{other:?}"),
    }
}

/// Gives a new connection of a link these bytes, behind an opening that is right.
fn feed(slot: Slot, bytes: &[u8]) {
    let mut link = Link::new(LinkOptions::default(), NodeId(1), 1);
    let now = Now {
        ms: 1,
        unix_ms: 1_700_000_000_000,
    };
    link.want(&Arc::from("a"), None, now);
    link.tick(now);
    while let Some(action) = link.poll_action() {
        if let Action::Open(slot) = action {
            link.connected(slot, now);
        }
    }
    link.received(slot, OPENING, now);
    if slot != Slot::Subscribe {
        link.received(slot, SCRIPTS, now);
    }
    link.tick(now);
    link.received(slot, bytes, now);
    link.tick(now);
    while link.poll_event().is_some() {}
}

const OPENING: &[u8] =
    b"%3\r\n+server\r\n+redis\r\n+version\r\n+7.0.15\r\n+mode\r\n+standalone\r\n\
    $25\r\nrun_id:abc\r\nrole:master\r\n\r\n%0\r\n";

const SCRIPTS: &[u8] = b"+a\r\n+a\r\n+a\r\n+a\r\n+a\r\n+a\r\n";

/// Inputs up to this length are also read byte by byte.
const EVERY_BYTE_MAX: usize = 512;
