//! Prints how many messages of 175 bytes one core seals and opens in a second, in version 2:
//! `cargo run --release --features crypto --example seal`.

use std::io::Write as _;
use std::time::{Duration, Instant};
use tidewire_wire::secure::{ExchangeKeyPair, SessionCipher};
use tidewire_wire::session::EncryptionVersion;
use tidewire_wire::uuid::Uuid;

fn main() -> std::io::Result<()> {
    let (mut client, mut server) = pair();
    let plain = [b'x'; MESSAGE_BYTES];
    let (mut sealed, mut opened) = (Vec::new(), Vec::new());
    let (mut seal_time, mut open_time) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        sealed.clear();
        let start = Instant::now();
        for _ in 0..BATCH {
            client.seal(&plain, &mut sealed).expect("a key with room");
        }
        seal_time += start.elapsed();
        let start = Instant::now();
        for message in sealed.chunks_exact(sealed.len() / BATCH) {
            opened.clear();
            server.open(message, &mut opened).expect("the next message");
        }
        open_time += start.elapsed();
    }
    let ns = |time: Duration| time.as_secs_f64() * 1e9 / (ROUNDS * BATCH) as f64;
    let (seal_ns, open_ns) = (ns(seal_time), ns(open_time));
    let both = 1e9 / (seal_ns + open_ns);
    writeln!(
        std::io::stdout(),
        "{MESSAGE_BYTES} bytes: seal {seal_ns:.0} ns, open {open_ns:.0} ns, \
         {both:.0} seals and opens per second"
    )
}

/// Both sides of one connection.
fn pair() -> (SessionCipher, SessionCipher) {
    let key_pair = |seed| ExchangeKeyPair::from_seed(&[seed; 32]).expect("a private key");
    let (client, server) = (key_pair(1), key_pair(2));
    let connection_id = Uuid::default();
    let offer = client.offer(EncryptionVersion::Two);
    let accepted = server.accept(&offer, connection_id, None, [0; 4]);
    let (server, hello) = accepted.expect("a public key");
    let id = connection_id.to_string();
    let client = client.finish(EncryptionVersion::Two, &hello, &id, None, [0; 4]);
    (client.expect("a public key"), server)
}

const MESSAGE_BYTES: usize = 175;
const BATCH: usize = 1000;
const ROUNDS: usize = 2000;
