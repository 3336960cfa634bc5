//! The messages that are sent: trading messages as JSON, and the same as MessagePack and zlib.
//!
//! A single trade is filled up with random letters, which costs nothing to make and hides nothing from a
//! parser, but does not compress. Where compression is measured, [`Content::Trades`] is what real messages
//! look like.

use std::ops::RangeInclusive;

use rand::Rng;
use rand::rngs::SmallRng;
use tidewire_wire::format::{Deflater, json_to_msgpack};
use tidewire_wire::frame::OpCode;

/// The kind of the messages of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// Bytes of the JSON form, exactly; at least [`PAYLOAD_BYTES_MIN`].
    pub json_bytes: usize,
    /// The form on the wire.
    pub encoding: Encoding,
    /// The content.
    pub content: Content,
}

/// The content of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Content {
    /// One trade; what it leaves of the size is filled with random letters.
    #[default]
    Trade,
    /// As many trades as the size has room for, and a note in words over the rest. It compresses as real
    /// messages do, to some two fifths from 1 KB on. Below [`TRADES_BYTES_MIN`] it is one trade.
    Trades,
}

impl Content {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::Trade, Self::Trades];

    /// The name on a command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trade => "trade",
            Self::Trades => "trades",
        }
    }

    /// One message of this kind, as JSON of exactly `bytes` bytes.
    ///
    /// # Panics
    /// If `bytes` is below [`PAYLOAD_BYTES_MIN`].
    #[must_use]
    pub fn json(self, bytes: usize, random: &mut SmallRng) -> String {
        match self {
            Self::Trades if bytes >= TRADES_BYTES_MIN => trades_json(bytes, random),
            Self::Trade | Self::Trades => trade_json(bytes, random),
        }
    }
}

/// The form of a message on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// Text.
    #[default]
    Json,
    /// Binary: `M:` and MessagePack.
    MessagePack,
    /// Binary: `C:` and zlib of the JSON, at the fastest level.
    Zlib,
}

impl Encoding {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Json, Self::MessagePack, Self::Zlib];

    /// The name in a report.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::MessagePack => "msgpack",
            Self::Zlib => "zlib",
        }
    }

    /// The opcode of its frames.
    #[must_use]
    pub fn opcode(self) -> OpCode {
        match self {
            Self::Json => OpCode::Text,
            Self::MessagePack | Self::Zlib => OpCode::Binary,
        }
    }

    /// Appends the message with this JSON text in this form.
    pub fn encode(self, json: &str, out: &mut Vec<u8>) {
        match self {
            Self::Json => out.extend_from_slice(json.as_bytes()),
            Self::MessagePack => {
                out.extend_from_slice(b"M:");
                json_to_msgpack(json.as_bytes(), out).expect("a trading message is flat JSON");
            }
            Self::Zlib => {
                out.extend_from_slice(b"C:");
                Deflater::new(ZLIB_LEVEL).deflate(json.as_bytes(), out);
            }
        }
    }
}

impl Payload {
    /// The trading message of 175 bytes.
    pub const TRADE: Self = Self {
        json_bytes: 175,
        encoding: Encoding::Json,
        content: Content::Trade,
    };

    /// A JSON message of N bytes, but at least [`PAYLOAD_BYTES_MIN`].
    #[must_use]
    pub fn json(bytes: usize) -> Self {
        Self {
            json_bytes: bytes.max(PAYLOAD_BYTES_MIN),
            encoding: Encoding::Json,
            content: Content::Trade,
        }
    }

    /// The same with another content.
    #[must_use]
    pub fn telling(self, content: Content) -> Self {
        Self { content, ..self }
    }
}

/// One trading message in a version 1 envelope, as JSON of exactly `bytes` bytes.
///
/// The symbol, side, price and quantity vary, so that no two are alike and compression has to work.
/// A reference of random letters and digits fills the part of `bytes` that the fields leave.
///
/// # Panics
/// If `bytes` is below [`PAYLOAD_BYTES_MIN`].
#[must_use]
pub fn trade_json(bytes: usize, random: &mut SmallRng) -> String {
    assert!(
        bytes >= PAYLOAD_BYTES_MIN,
        "a trading message takes {PAYLOAD_BYTES_MIN} bytes"
    );
    let symbol = SYMBOLS[random.random_range(0..SYMBOLS.len())];
    let cents: u32 = random.random_range(100..10_000_000);
    let price = format!("{}.{:02}", cents / 100, cents % 100);
    let mut text = if bytes < FULL_BYTES_MIN {
        format!(r#"{{"t":"trade","p":{{"s":"{symbol}","x":{price},"r":""#)
    } else {
        let side = if random.random() { "buy" } else { "sell" };
        let quantity: u32 = random.random_range(1..1_000_000);
        let ts = 1_700_000_000_000 + random.random_range(0..100_000_000_000_u64);
        format!(
            r#"{{"t":"trade","p":{{"symbol":"{symbol}","price":{price},"quantity":0.{quantity:06},"side":"{side}","venue":"XNAS","ts":{ts},"ref":""#
        )
    };
    let filler = bytes.saturating_sub(text.len() + CLOSING.len());
    text.extend((0..filler).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])));
    text.push_str(CLOSING);
    text
}

/// Several trades in one version 1 envelope, as JSON of exactly `bytes` bytes, which are at least
/// [`TRADES_BYTES_MIN`]: one after the other in time, each with fields that vary as they do in a market.
fn trades_json(bytes: usize, random: &mut SmallRng) -> String {
    let mut text = String::with_capacity(bytes);
    text.push_str(r#"{"t":"trades","p":{"venue":"XNAS","trades":["#);
    let mut ts = 1_700_000_000_000 + random.random_range(0..100_000_000_000_u64);
    let mut id: u64 = random.random_range(100_000_000..900_000_000);
    loop {
        let symbol = SYMBOLS[random.random_range(0..SYMBOLS.len())];
        let cents: u32 = random.random_range(100..10_000_000);
        let (quantity, side): (u32, bool) = (random.random_range(1..1_000_000), random.random());
        let side = if side { "buy" } else { "sell" };
        let trade = format!(
            r#"{{"id":{id},"symbol":"{symbol}","price":{}.{:02},"quantity":0.{quantity:06},"side":"{side}","ts":{ts}}}"#,
            cents / 100,
            cents % 100
        );
        if text.len() + trade.len() + ",".len() + NOTE.len() + CLOSING.len() > bytes {
            break;
        }
        if !text.ends_with('[') {
            text.push(',');
        }
        text.push_str(&trade);
        ts += random.random_range(0..250);
        id += random.random_range(1..20);
    }
    text.push_str(NOTE);
    while text.len() + CLOSING.len() < bytes {
        text.push_str(WORDS[random.random_range(0..WORDS.len())]);
    }
    text.truncate(bytes - CLOSING.len());
    text.push_str(CLOSING);
    text
}

/// The shortest message: its fields with their longest values.
pub const PAYLOAD_BYTES_MIN: usize = 64;

/// Sizes of a message, in bytes of its JSON form: from one trade with its fields to what a connection reads.
pub const PAYLOAD_BYTES: RangeInclusive<usize> = PAYLOAD_BYTES_MIN..=15 * 1024 * 1024;

/// From here on a message has all its fields.
const FULL_BYTES_MIN: usize = 170;

/// From here on a message has room for more than one trade.
pub const TRADES_BYTES_MIN: usize = 512;

const NOTE: &str = r#"],"note":""#;

/// The note ends in the middle of one, where the size is reached.
const WORDS: [&str; 8] = [
    "opening auction ",
    "partial fill ",
    "odd lot ",
    "reported late ",
    "cross ",
    "average price ",
    "settles next day ",
    "corrected ",
];

const CLOSING: &str = r#""}}"#;
const ZLIB_LEVEL: u32 = 1;
const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const SYMBOLS: [&str; 16] = [
    "BTC-USD", "ETH-USD", "SOL-USD", "XRP-EUR", "ADA-USD", "DOT-EUR", "LTC-USD", "AAPL", "MSFT",
    "AMZN", "NVDA", "GOOG", "META", "TSLA", "EUR-USD", "GBP-JPY",
];

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use serde_json::Value;
    use std::collections::HashSet;
    use tidewire_wire::envelope::{Kind, classify_json};
    use tidewire_wire::format::{inflate, msgpack_to_json};

    #[test]
    fn messages_are_valid_varied_and_of_the_exact_size() {
        let mut random = SmallRng::seed_from_u64(1);
        for bytes in [64, 65, 169, 170, 175, 256, 1024, 65_536] {
            let messages: HashSet<String> =
                (0..200).map(|_| trade_json(bytes, &mut random)).collect();
            assert!(messages.len() > 190, "{bytes}: {}", messages.len());
            for message in &messages {
                assert_eq!(message.len(), bytes, "{message}");
                let value: Value = serde_json::from_str(message).unwrap();
                assert_eq!(value["t"], "trade");
                assert!(value["p"]["r"].is_string() || value["p"]["ref"].is_string());
                assert!(matches!(
                    classify_json(message.as_bytes()),
                    Ok(Kind::Application)
                ));
            }
        }
    }

    #[test]
    fn many_trades_fill_a_message_and_compress_as_real_ones_do() {
        let mut random = SmallRng::seed_from_u64(1);
        for bytes in [512, 513, 1024, 16_384] {
            let messages: HashSet<String> = (0..200)
                .map(|_| Content::Trades.json(bytes, &mut random))
                .collect();
            assert_eq!(messages.len(), 200);
            for message in &messages {
                assert_eq!(message.len(), bytes, "{message}");
                let value: Value = serde_json::from_str(message).unwrap();
                let trades = value["p"]["trades"].as_array().unwrap();
                assert!(trades.len() >= bytes / 150, "{message}");
                let mut zipped = Vec::new();
                Encoding::Zlib.encode(message, &mut zipped);
                assert!(zipped.len() * 3 < bytes * 2, "{bytes}: {}", zipped.len());
                assert!(zipped.len() * 5 > bytes, "{bytes}: {}", zipped.len());
            }
        }
        // Where there is no room for several, it is one.
        let short: Value = serde_json::from_str(&Content::Trades.json(175, &mut random)).unwrap();
        assert_eq!(short["t"], "trade");
    }

    #[test]
    fn the_forms_hold_the_same_message() {
        let json = trade_json(175, &mut SmallRng::seed_from_u64(2));
        let expected: Value = serde_json::from_str(&json).unwrap();

        let mut packed = Vec::new();
        Encoding::MessagePack.encode(&json, &mut packed);
        let mut text = Vec::new();
        msgpack_to_json(packed.strip_prefix(b"M:").unwrap(), &mut text).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), expected);
        assert!(packed.len() < json.len());

        let mut zipped = Vec::new();
        Encoding::Zlib.encode(&json, &mut zipped);
        let mut text = Vec::new();
        inflate(zipped.strip_prefix(b"C:").unwrap(), &mut text, 1000).unwrap();
        assert_eq!(text, json.as_bytes());
    }
}
