//! RFC 6455 frames: reading and writing of headers and whole frames.

use crate::close::{CloseCode, REASON_BYTES_MAX};
use crate::mask;

/// The opcode of a frame (RFC 6455, section 5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OpCode {
    /// A continuation of a fragmented message.
    Continuation,
    /// UTF-8 text.
    Text,
    /// Bytes.
    Binary,
    /// The start of the closing handshake, or the answer to it.
    Close,
    /// A ping, to be answered with a pong with the same payload.
    Ping,
    /// A pong: the answer to a ping.
    Pong,
}

impl OpCode {
    /// The opcode of the low four bits of a frame's first byte; `None` for a reserved one.
    #[inline]
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xA => Self::Pong,
            _ => return None,
        })
    }

    /// The four bits in the frame.
    #[inline]
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xA,
        }
    }

    /// Close, ping and pong: at most 125 bytes, never fragmented.
    #[inline]
    #[must_use]
    pub fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The side of a connection. A client masks its frames, a server does not (RFC 6455, section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// The side that sent the upgrade request.
    Client,
    /// The side that accepted it.
    Server,
}

/// A parsed frame header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// Whether this is the last frame of its message.
    pub fin: bool,
    /// The content of the frame.
    pub opcode: OpCode,
    /// The masking key, if the payload is masked.
    pub mask: Option<[u8; 4]>,
    /// Bytes of the header itself: 2 to 14.
    pub header_bytes: usize,
    /// Bytes of the payload behind it.
    pub payload_bytes: u64,
    /// RSV1: the message that starts here is compressed (RFC 7692, section 6).
    pub is_compressed: bool,
}

/// A violation of RFC 6455 by the peer. The connection cannot continue; [`ProtocolError::close_code`] has the
/// close code. It is the peer's fault, and the same bytes fail again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProtocolError {
    /// A reserved bit is set though no extension was negotiated.
    #[error("a reserved bit is set but no extension was negotiated")]
    ReservedBits,
    /// An opcode that RFC 6455 reserves.
    #[error("the opcode is reserved")]
    ReservedOpCode,
    /// A client's frame without a mask.
    #[error("a frame from a client is not masked")]
    NotMasked,
    /// A server's frame with a mask.
    #[error("a frame from a server is masked")]
    Masked,
    /// A ping, pong or close that is fragmented.
    #[error("a control frame is fragmented")]
    ControlFragmented,
    /// A ping, pong or close past 125 bytes.
    #[error("a control frame is longer than 125 bytes")]
    ControlTooLong,
    /// A length in more bytes than it needs, or with its highest bit set.
    #[error("the payload length is not in its shortest form")]
    LengthEncoding,
    /// A continuation frame without a message to continue.
    #[error("a continuation frame has no message to continue")]
    UnexpectedContinuation,
    /// A new message before the fragmented one ended.
    #[error("a new message starts inside a fragmented one")]
    ExpectedContinuation,
    /// A close frame with a one-byte payload or a code that may not be sent.
    #[error("the close frame's payload or code is not valid")]
    ClosePayload,
    /// A text or a close reason that is not UTF-8.
    #[error("text is not valid UTF-8")]
    InvalidUtf8,
    /// A message larger than this side accepts, inflated or not.
    #[error("the message is larger than the limit")]
    MessageTooLarge,
    /// A compressed message that does not inflate.
    #[error("the compressed message is not valid")]
    InvalidDeflate,
}

impl ProtocolError {
    /// The close code to send: 1002, 1007 or 1009.
    #[must_use]
    pub fn close_code(self) -> CloseCode {
        match self {
            Self::InvalidUtf8 | Self::InvalidDeflate => CloseCode::INVALID_PAYLOAD,
            Self::MessageTooLarge => CloseCode::MESSAGE_TOO_LARGE,
            _ => CloseCode::PROTOCOL_ERROR,
        }
    }
}

/// The allowed reserved bits of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Extensions {
    /// All zero: no extension was negotiated.
    #[default]
    None,
    /// RSV1 marks the first frame of a compressed message (RFC 7692).
    Deflate,
}

/// Parses the header at the front of `bytes`, which the peer of `role` sent, on a connection without extensions.
///
/// `None` when more bytes are needed.
///
/// # Errors
/// A [`ProtocolError`] as soon as the present bytes violate a rule.
#[inline]
pub fn parse_header(bytes: &[u8], role: Role) -> Result<Option<FrameHeader>, ProtocolError> {
    parse_extended_header(bytes, role, Extensions::None)
}

/// [`parse_header`] on a connection with these extensions.
///
/// # Errors
/// As [`parse_header`].
#[inline]
pub fn parse_extended_header(
    bytes: &[u8],
    role: Role,
    extensions: Extensions,
) -> Result<Option<FrameHeader>, ProtocolError> {
    let [first, second, rest @ ..] = bytes else {
        return Ok(None);
    };
    let opcode_bits = first & 0x0F;
    let is_compressed = first & RSV1 != 0;
    if first & 0x70 != 0 && !(extensions == Extensions::Deflate && may_be_compressed(*first)) {
        return Err(ProtocolError::ReservedBits);
    }
    let opcode = OpCode::from_bits(opcode_bits).ok_or(ProtocolError::ReservedOpCode)?;
    let fin = first & 0x80 != 0;
    let masked = second & 0x80 != 0;
    match (role, masked) {
        (Role::Server, false) => return Err(ProtocolError::NotMasked),
        (Role::Client, true) => return Err(ProtocolError::Masked),
        _ => {}
    }
    let short = second & 0x7F;
    if opcode.is_control() {
        if !fin {
            return Err(ProtocolError::ControlFragmented);
        }
        if short > 125 {
            return Err(ProtocolError::ControlTooLong);
        }
    }
    let (payload_bytes, length_bytes, rest) = match short {
        126 => {
            let Some((length, rest)) = rest.split_first_chunk::<2>() else {
                return Ok(None);
            };
            let length = u16::from_be_bytes(*length);
            if length < 126 {
                return Err(ProtocolError::LengthEncoding);
            }
            (u64::from(length), 2, rest)
        }
        127 => {
            let Some((length, rest)) = rest.split_first_chunk::<8>() else {
                return Ok(None);
            };
            let length = u64::from_be_bytes(*length);
            if length <= 0xFFFF || length >> 63 != 0 {
                return Err(ProtocolError::LengthEncoding);
            }
            (length, 8, rest)
        }
        length => (u64::from(length), 0, rest),
    };
    let (mask, mask_bytes) = if masked {
        let Some(mask) = rest.first_chunk::<4>() else {
            return Ok(None);
        };
        (Some(*mask), 4)
    } else {
        (None, 0)
    };
    Ok(Some(FrameHeader {
        fin,
        opcode,
        mask,
        header_bytes: 2 + length_bytes + mask_bytes,
        payload_bytes,
        is_compressed,
    }))
}

/// RSV1 alone, on the first frame of a text or binary message.
fn may_be_compressed(first: u8) -> bool {
    first & 0x70 == RSV1 && matches!(first & 0x0F, 0x1 | 0x2)
}

/// Appends a frame header. With a mask, the payload that follows has to be masked by the caller.
#[inline]
pub fn write_header(
    out: &mut Vec<u8>,
    fin: bool,
    opcode: OpCode,
    payload_bytes: usize,
    mask: Option<[u8; 4]>,
) {
    let (header, used) = encode_header(fin, opcode, payload_bytes, mask);
    out.extend_from_slice(&header[..used]);
}

/// The header, and the number of its used bytes.
#[inline]
fn encode_header(
    fin: bool,
    opcode: OpCode,
    payload_bytes: usize,
    mask: Option<[u8; 4]>,
) -> ([u8; HEADER_BYTES_MAX], usize) {
    let mut header = [0u8; HEADER_BYTES_MAX];
    header[0] = u8::from(fin) << 7 | opcode.bits();
    let mask_bit = u8::from(mask.is_some()) << 7;
    let mut used = 2;
    if payload_bytes < 126 {
        header[1] = mask_bit | payload_bytes as u8;
    } else if payload_bytes <= 0xFFFF {
        header[1] = mask_bit | 126;
        header[2..4].copy_from_slice(&(payload_bytes as u16).to_be_bytes());
        used = 4;
    } else {
        header[1] = mask_bit | 127;
        header[2..10].copy_from_slice(&(payload_bytes as u64).to_be_bytes());
        used = 10;
    }
    if let Some(mask) = mask {
        header[used..used + 4].copy_from_slice(&mask);
        used += 4;
    }
    (header, used)
}

/// Appends a whole, unfragmented frame; masks the payload if `mask` is given.
#[inline]
pub fn write_frame(out: &mut Vec<u8>, opcode: OpCode, payload: &[u8], mask: Option<[u8; 4]>) {
    write_header(out, true, opcode, payload.len(), mask);
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(mask) = mask {
        mask::apply(&mut out[start..], mask);
    }
}

/// Appends the whole frame of a compressed message: `deflated` is its payload after
/// [`Compressor::compress`](crate::deflate::Compressor::compress).
pub fn write_compressed_frame(
    out: &mut Vec<u8>,
    opcode: OpCode,
    deflated: &[u8],
    mask: Option<[u8; 4]>,
) {
    let start = out.len();
    write_frame(out, opcode, deflated, mask);
    out[start] |= RSV1;
}

/// Appends a whole frame whose payload `write` appends, so that a message is encoded directly into the output.
/// `write` returns the opcode of its payload.
pub fn write_frame_with(
    out: &mut Vec<u8>,
    mask: Option<[u8; 4]>,
    write: impl FnOnce(&mut Vec<u8>) -> OpCode,
) {
    let start = out.len();
    let expected_header_bytes = 4 + mask.map_or(0, |_| 4);
    out.resize(start + expected_header_bytes, 0);
    let opcode = write(out);
    let payload_start = start + expected_header_bytes;
    let payload_bytes = out.len() - payload_start;
    if let Some(mask) = mask {
        mask::apply(&mut out[payload_start..], mask);
    }
    let (header, used) = encode_header(true, opcode, payload_bytes, mask);
    if used == expected_header_bytes {
        out[start..payload_start].copy_from_slice(&header[..used]);
    } else {
        out.splice(start..payload_start, header[..used].iter().copied());
    }
}

/// Appends a close frame. A reason past 123 bytes is cut at a character boundary.
pub fn write_close(
    out: &mut Vec<u8>,
    code: Option<CloseCode>,
    reason: &str,
    mask: Option<[u8; 4]>,
) {
    let mut payload = Vec::with_capacity(CONTROL_PAYLOAD_BYTES_MAX);
    if let Some(code) = code {
        payload.extend_from_slice(&code.value().to_be_bytes());
        let mut end = reason.len().min(REASON_BYTES_MAX);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        payload.extend_from_slice(&reason.as_bytes()[..end]);
    }
    write_frame(out, OpCode::Close, &payload, mask);
}

/// The bit of a frame's first byte that marks a compressed message (RFC 7692, section 6).
const RSV1: u8 = 0x40;

/// The longest header: two bytes, an eight-byte length and a mask.
pub const HEADER_BYTES_MAX: usize = 14;

/// The longest payload of a ping, pong or close.
pub const CONTROL_PAYLOAD_BYTES_MAX: usize = 2 + REASON_BYTES_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6455, section 5.7.
    #[test]
    fn examples_of_the_specification() {
        let mut out = Vec::new();
        write_frame(&mut out, OpCode::Text, b"Hello", None);
        assert_eq!(out, [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
        out.clear();
        write_frame(
            &mut out,
            OpCode::Text,
            b"Hello",
            Some([0x37, 0xfa, 0x21, 0x3d]),
        );
        assert_eq!(
            out,
            [
                0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58
            ]
        );
        let header = parse_header(&[0x82, 0x7E, 0x01, 0x00], Role::Client)
            .unwrap()
            .unwrap();
        assert_eq!((header.payload_bytes, header.header_bytes), (256, 4));
        let header = parse_header(&[0x82, 0x7F, 0, 0, 0, 0, 0, 1, 0, 0], Role::Client)
            .unwrap()
            .unwrap();
        assert_eq!((header.payload_bytes, header.header_bytes), (65536, 10));
    }

    #[test]
    fn each_broken_rule_has_its_error() {
        let mask = [0u8; 4];
        let cases: [(&[u8], Role, ProtocolError); 9] = [
            (&[0xC1, 0x80], Role::Server, ProtocolError::ReservedBits),
            (&[0x83, 0x80], Role::Server, ProtocolError::ReservedOpCode),
            (&[0x8B, 0x80], Role::Server, ProtocolError::ReservedOpCode),
            (&[0x81, 0x00], Role::Server, ProtocolError::NotMasked),
            (&[0x81, 0x80], Role::Client, ProtocolError::Masked),
            (
                &[0x09, 0x80],
                Role::Server,
                ProtocolError::ControlFragmented,
            ),
            (&[0x89, 0xFE], Role::Server, ProtocolError::ControlTooLong),
            (
                &[0x81, 0x7E, 0, 125],
                Role::Client,
                ProtocolError::LengthEncoding,
            ),
            (
                &[0x81, 0x7F, 0x80, 0, 0, 0, 0, 1, 0, 0],
                Role::Client,
                ProtocolError::LengthEncoding,
            ),
        ];
        for (bytes, role, error) in cases {
            let mut bytes = bytes.to_vec();
            bytes.extend_from_slice(&mask);
            assert_eq!(parse_header(&bytes, role), Err(error), "{bytes:02x?}");
        }
    }

    #[test]
    fn headers_read_back_at_every_length_boundary() {
        for payload_bytes in [0, 1, 125, 126, 127, 0xFFFF, 0x1_0000, 1 << 30] {
            for (mask, role) in [(None, Role::Client), (Some([1, 2, 3, 4]), Role::Server)] {
                let mut out = Vec::new();
                write_header(&mut out, true, OpCode::Binary, payload_bytes, mask);
                let header = parse_header(&out, role).unwrap().unwrap();
                assert_eq!(header.payload_bytes, payload_bytes as u64);
                assert_eq!((header.header_bytes, header.mask), (out.len(), mask));
                for cut in 0..out.len() {
                    assert_eq!(parse_header(&out[..cut], role), Ok(None));
                }
            }
        }
    }

    #[test]
    fn a_payload_written_in_place_is_the_same_frame() {
        for size in [0, 5, 125, 126, 300, 70_000] {
            for mask in [None, Some([9, 8, 7, 6])] {
                let payload = vec![b'x'; size];
                let (mut direct, mut in_place) = (vec![1, 2], vec![1, 2]);
                write_frame(&mut direct, OpCode::Text, &payload, mask);
                write_frame_with(&mut in_place, mask, |out| {
                    out.extend_from_slice(&payload);
                    OpCode::Text
                });
                assert!(direct == in_place, "{size}");
            }
        }
    }

    #[test]
    fn a_long_close_reason_is_cut_at_a_character() {
        let mut out = Vec::new();
        write_close(&mut out, Some(CloseCode::NORMAL), &"é".repeat(100), None);
        assert_eq!(out[1], 2 + 122);
        std::str::from_utf8(&out[4..]).expect("cut between characters");
    }
}
