//! Frames: those that are sent, made once before the clock starts, and those that are received.

/// Masked text frames of one length, one after another: what all connections send from, over and over.
pub struct Ring {
    pub bytes: Vec<u8>,
    /// Length of each frame with its header.
    pub frame_bytes: usize,
}

impl Ring {
    /// Frames whose payloads are trading messages of `payload_bytes` (at least 64), each masked by a key of its own.
    pub fn new(payload_bytes: usize) -> Self {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut bytes = Vec::new();
        let mut frame_bytes = 0;
        while bytes.len() < RING_BYTES_MIN {
            let payload = trade(payload_bytes, &mut random);
            let start = bytes.len();
            append_frame(&mut bytes, TEXT, payload.as_bytes(), random.key());
            frame_bytes = bytes.len() - start;
        }
        Self { bytes, frame_bytes }
    }
}

/// The ping after the last message of a connection.
pub fn ping() -> Vec<u8> {
    let mut frame = Vec::new();
    append_frame(&mut frame, PING, b"last", [1, 2, 3, 4]);
    frame
}

/// Appends a final frame with this opcode (RFC 6455 5.2), masked as a client has to.
fn append_frame(to: &mut Vec<u8>, opcode: u8, payload: &[u8], key: [u8; 4]) {
    to.push(0x80 | opcode);
    match payload.len() {
        length @ 0..126 => to.push(0x80 | length as u8),
        length @ 126..65_536 => {
            to.push(0x80 | 126);
            to.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            to.push(0x80 | 127);
            to.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    to.extend_from_slice(&key);
    to.extend(payload.iter().zip(key.iter().cycle()).map(|(a, b)| a ^ b));
}

/// A trading message as JSON of exactly `bytes` bytes; random letters fill what the fields leave.
fn trade(bytes: usize, random: &mut Random) -> String {
    let (cents, quantity) = (100 + random.below(9_999_900), random.below(1_000_000));
    let mut text = format!(
        r#"{{"t":"trade","p":{{"s":"AAPL","x":{}.{:02}{FILLER_FIELD}"#,
        cents / 100,
        cents % 100
    );
    if bytes >= 160 {
        text.insert_str(
            text.len() - FILLER_FIELD.len(),
            &format!(r#","quantity":0.{quantity:06},"side":"buy""#),
        );
    }
    while text.len() + CLOSING.len() < bytes {
        text.push(char::from(b'a' + random.below(26) as u8));
    }
    text.push_str(CLOSING);
    text
}

/// Counts the frames of a server in what arrives, whatever pieces it arrives in.
#[derive(Default)]
pub struct FrameReader {
    /// Header bytes of a frame that has not arrived whole.
    header: Vec<u8>,
    /// Payload bytes of the current frame that have not arrived.
    payload_left: u64,
}

/// The content of one piece of input.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Received {
    /// Text or binary messages of the length that counts.
    pub messages: usize,
    pub pongs: usize,
    /// The server has sent a close frame.
    pub is_closed: bool,
}

impl FrameReader {
    /// Reads `input`; text and binary frames with `payload_bytes` of payload are counted.
    pub fn read(&mut self, mut input: &[u8], payload_bytes: u64) -> Received {
        let mut received = Received::default();
        while !input.is_empty() {
            if self.payload_left > 0 {
                let taken = self.payload_left.min(input.len() as u64);
                self.payload_left -= taken;
                input = &input[taken as usize..];
                continue;
            }
            let Some((opcode, length, header_bytes)) = self.read_header(input) else {
                self.header.extend_from_slice(input);
                break;
            };
            input = &input[header_bytes - self.header.len()..];
            self.header.clear();
            self.payload_left = length;
            match opcode {
                TEXT | BINARY => received.messages += usize::from(length == payload_bytes),
                PONG => received.pongs += 1,
                CLOSE => received.is_closed = true,
                _ => {}
            }
        }
        received
    }

    /// Opcode, payload length and header length of the frame that begins in `header` and goes on in `input`, if
    /// its header is whole.
    fn read_header(&self, input: &[u8]) -> Option<(u8, u64, usize)> {
        let byte = |index: usize| match index.checked_sub(self.header.len()) {
            None => self.header.get(index).copied(),
            Some(index) => input.get(index).copied(),
        };
        let opcode = byte(0)? & 0x0f;
        let length_bytes = match byte(1)? & 0x7f {
            126 => 2,
            127 => 8,
            short => return Some((opcode, u64::from(short), 2)),
        };
        let mut length = 0;
        for index in 2..2 + length_bytes {
            length = length << 8 | u64::from(byte(index)?);
        }
        Some((opcode, length, 2 + length_bytes))
    }
}

/// A generator of xorshift64: the payloads are to differ, no more.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn key(&mut self) -> [u8; 4] {
        ((self.next() >> 16) as u32).to_be_bytes()
    }
}

/// Enough that frames differ, and so few that they stay in the sender's nearest caches.
const RING_BYTES_MIN: usize = 256 * 1024;

/// Begins the field whose value fills a payload.
const FILLER_FIELD: &str = r#","r":""#;

const CLOSING: &str = r#""}}"#;

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_fill_the_ring_and_have_one_length() {
        for (payload_bytes, header_bytes) in [(64, 6), (175, 8), (1024, 8), (70_000, 14)] {
            let ring = Ring::new(payload_bytes);
            assert_eq!(ring.frame_bytes, payload_bytes + header_bytes);
            assert_eq!(ring.bytes.len() % ring.frame_bytes, 0);
        }
    }

    #[test]
    fn a_masked_payload_is_json_of_the_length_asked_for() {
        for bytes in [64, 175] {
            let frame = &Ring::new(bytes).bytes;
            let key_at = if bytes < 126 { 2 } else { 4 };
            let key = &frame[key_at..key_at + 4];
            let masked = &frame[key_at + 4..key_at + 4 + bytes];
            let text: String = masked
                .iter()
                .zip(key.iter().cycle())
                .map(|(a, b)| char::from(a ^ b))
                .collect();
            assert!(text.starts_with(r#"{"t":"trade","p":{"s":"#), "{text}");
            assert!(text.ends_with(CLOSING), "{text}");
            assert_eq!(text.matches('"').count() % 2, 0, "{text}");
        }
    }

    #[test]
    fn frames_are_counted_in_whatever_pieces_they_arrive() {
        let mut bytes = vec![
            0x81, 3, b'a', b'b', b'c', 0x8a, 4, 1, 2, 3, 4, 0x82, 126, 1, 0,
        ];
        bytes.extend([7; 256]);
        bytes.extend([0x88, 0]);
        for piece in 1..bytes.len() {
            let mut reader = FrameReader::default();
            let mut total = Received::default();
            for part in bytes.chunks(piece) {
                let received = reader.read(part, 256);
                total.messages += received.messages;
                total.pongs += received.pongs;
                total.is_closed |= received.is_closed;
            }
            let expected = Received {
                messages: 1,
                pongs: 1,
                is_closed: true,
            };
            assert_eq!(total, expected, "in pieces of {piece}");
        }
    }
}
