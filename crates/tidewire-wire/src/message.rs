//! Message reader: parses and unmasks frames in place, joins fragments, and enforces the rules of RFC 6455.

use crate::close::CloseCode;
use crate::frame::{
    Extensions, FrameHeader, OpCode, ProtocolError, Role, parse_extended_header, parse_header,
};
use crate::mask;
use crate::utf8::Utf8Validator;

/// A message or control frame of the peer.
// A tag as wide as the fields lets an event be stored and loaded by equal, forwardable accesses.
#[derive(Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Event<'a> {
    /// A whole text message.
    Text(Text<'a>),
    /// A whole binary message.
    Binary(&'a [u8]),
    /// A whole compressed message; only with [`MessageReader::with_compression`].
    Compressed(Compressed<'a>),
    /// A ping, to be answered with a pong with the same payload.
    Ping(&'a [u8]),
    /// A pong: the answer to a ping.
    Pong(&'a [u8]),
    /// The peer starts or answers the closing handshake; nothing valid follows.
    Close(Option<CloseCode>, &'a str),
}

/// A message compressed by permessage-deflate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed<'a> {
    /// Whether it is a text, which must be UTF-8 after decompression.
    pub is_text: bool,
    /// The payload of its frames, for [`Decompressor::decompress`](crate::deflate::Decompressor::decompress).
    pub bytes: &'a [u8],
}

impl Compressed<'_> {
    /// The event of the message with its decompressed payload.
    ///
    /// # Errors
    /// [`ProtocolError::InvalidUtf8`] for a text that is not UTF-8.
    pub fn event(self, inflated: &[u8]) -> Result<Event<'_>, ProtocolError> {
        if self.is_text {
            text_event(inflated)
        } else {
            Ok(Event::Binary(inflated))
        }
    }
}

/// The bytes of a text message, which are valid UTF-8.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    /// The bytes.
    #[inline]
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The text. It needs a pass over the bytes.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        std::str::from_utf8(self.0).expect("the reader makes no other texts")
    }

    /// Bytes of the text.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether the text is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// Received bytes, and the number of those that were read.
#[derive(Debug)]
pub struct Input<'b> {
    bytes: &'b mut [u8],
    at: usize,
}

impl<'b> Input<'b> {
    /// All of `bytes`, unread. They are unmasked in place.
    pub fn new(bytes: &'b mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The number of bytes that were read.
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.at
    }
}

/// Reads the messages of one connection, however its bytes are split.
///
/// A message that is whole in the input needs no allocation and no copy. Parts of other messages are copied
/// to a buffer of this reader, which grows with the received bytes and never with the length in a header,
/// and is released when the message ends. The bytes that [`read`](Self::read) leaves unread are shorter than
/// a control frame: at most [`TAIL_BYTES_MAX`].
#[derive(Debug)]
pub struct MessageReader {
    role: Role,
    extensions: Extensions,
    message_bytes_max: usize,
    assembly: Option<Box<Assembly>>,
}

impl MessageReader {
    /// A reader on the side `role`, which rejects messages larger than `message_bytes_max` bytes.
    #[must_use]
    pub fn new(role: Role, message_bytes_max: usize) -> Self {
        Self {
            role,
            extensions: Extensions::None,
            message_bytes_max,
            assembly: None,
        }
    }

    /// Accepts messages compressed by permessage-deflate. A compressed message may be a little larger than the
    /// limit (by 1/2048 and 64 bytes); the caller limits the decompressed message.
    #[must_use]
    pub fn with_compression(mut self) -> Self {
        self.extensions = Extensions::Deflate;
        self
    }

    /// The memory that the received part of an unfinished message occupies, in bytes; 0 if there is none.
    #[inline]
    #[must_use]
    pub fn unfinished_bytes(&self) -> usize {
        let unfinished = self.assembly.as_ref();
        let unfinished = unfinished.filter(|assembly| !assembly.delivered);
        unfinished.map_or(0, |assembly| assembly.buffer.capacity())
    }

    /// Releases the memory of an unfinished message, when nothing more is to be read.
    pub fn discard(&mut self) {
        self.assembly = None;
    }

    /// The next event, or `None` when the input holds no further whole one.
    ///
    /// # Errors
    /// The rule that the peer violated. The reader cannot continue after an error.
    #[inline(always)]
    pub fn read<'s>(
        &'s mut self,
        input: &'s mut Input<'_>,
    ) -> Result<Option<Event<'s>>, ProtocolError> {
        if self.assembly.is_some() || self.extensions != Extensions::None {
            return self.read_with_care(input);
        }
        let unread = &input.bytes[input.at..];
        if self.role == Role::Server
            && let Some((start, bytes, mask)) = whole_text(unread)
            && bytes <= self.message_bytes_max
        {
            let start = input.at + start;
            input.at = start + bytes;
            let payload = &mut input.bytes[start..input.at];
            let is_ascii = mask::apply(payload, mask);
            return if is_ascii {
                Ok(Some(Event::Text(Text(payload))))
            } else {
                text_event(payload).map(Some)
            };
        }
        let Some(header) = parse_header(unread, self.role)? else {
            return Ok(None);
        };
        if !header.opcode.is_control() {
            if header.opcode == OpCode::Continuation {
                return Err(ProtocolError::UnexpectedContinuation);
            }
            if header.payload_bytes > self.message_bytes_max as u64 {
                return Err(ProtocolError::MessageTooLarge);
            }
            let missing = header.payload_bytes > (unread.len() - header.header_bytes) as u64;
            if !header.fin || missing {
                return self.start_assembly(header.opcode == OpCode::Text, false, input);
            }
        }
        take_whole(header, input)
    }

    /// Inside a message, or on a connection with extensions. Apart from [`Self::read`], which would be a third
    /// slower if it knew of both.
    #[inline(never)]
    fn read_with_care<'s>(
        &'s mut self,
        input: &'s mut Input<'_>,
    ) -> Result<Option<Event<'s>>, ProtocolError> {
        if self.assembly.is_some() {
            return self.read_assembling(input);
        }
        let unread = &input.bytes[input.at..];
        let Some(header) = parse_extended_header(unread, self.role, self.extensions)? else {
            return Ok(None);
        };
        if header.opcode.is_control() {
            return take_whole_apart(&header, input);
        }
        if header.opcode == OpCode::Continuation {
            return Err(ProtocolError::UnexpectedContinuation);
        }
        if header.payload_bytes > bytes_max(header.is_compressed, self.message_bytes_max) {
            return Err(ProtocolError::MessageTooLarge);
        }
        let missing = header.payload_bytes > (unread.len() - header.header_bytes) as u64;
        let is_text = header.opcode == OpCode::Text;
        if !header.fin || missing {
            return self.start_assembly(is_text, header.is_compressed, input);
        }
        if header.is_compressed {
            let bytes = unmask_whole(&header, input);
            return Ok(Some(Event::Compressed(Compressed { is_text, bytes })));
        }
        take_whole_apart(&header, input)
    }

    /// The first frame of a message that is fragmented or not whole in the input.
    #[cold]
    fn start_assembly<'s>(
        &'s mut self,
        is_text: bool,
        is_compressed: bool,
        input: &'s mut Input<'_>,
    ) -> Result<Option<Event<'s>>, ProtocolError> {
        self.assembly = Some(Box::new(Assembly::new(is_text, is_compressed)));
        self.read_assembling(input)
    }

    #[cold]
    fn read_assembling<'s>(
        &'s mut self,
        input: &'s mut Input<'_>,
    ) -> Result<Option<Event<'s>>, ProtocolError> {
        if self
            .assembly
            .as_ref()
            .is_some_and(|assembly| assembly.delivered)
        {
            self.assembly = None;
            return self.read(input);
        }
        let Some(assembly) = &mut self.assembly else {
            return Ok(None);
        };
        loop {
            if assembly.frame.is_none() {
                let unread = &input.bytes[input.at..];
                let header = parse_extended_header(unread, self.role, self.extensions)?;
                let Some(header) = header else {
                    return Ok(None);
                };
                if header.opcode.is_control() {
                    return take_whole_apart(&header, input);
                }
                assembly.start_frame(header, self.message_bytes_max)?;
                input.at += header.header_bytes;
            }
            if !assembly.take_payload(input)? {
                return Ok(None);
            }
            if assembly.is_last_frame {
                return assembly.finish().map(Some);
            }
        }
    }
}

/// A message under construction.
#[derive(Debug)]
struct Assembly {
    is_text: bool,
    is_compressed: bool,
    buffer: Vec<u8>,
    utf8: Utf8Validator,
    /// The frame whose payload is being received: bytes missing and the mask as it applies to them.
    frame: Option<(u64, [u8; 4])>,
    started: bool,
    is_last_frame: bool,
    /// The message was returned; its buffer is released at the next call.
    delivered: bool,
}

impl Assembly {
    fn new(is_text: bool, is_compressed: bool) -> Self {
        Self {
            is_text,
            is_compressed,
            buffer: Vec::new(),
            utf8: Utf8Validator::default(),
            frame: None,
            started: false,
            is_last_frame: false,
            delivered: false,
        }
    }

    fn start_frame(
        &mut self,
        header: FrameHeader,
        message_bytes_max: usize,
    ) -> Result<(), ProtocolError> {
        if self.started && header.opcode != OpCode::Continuation {
            return Err(ProtocolError::ExpectedContinuation);
        }
        let bytes_max = bytes_max(self.is_compressed, message_bytes_max);
        if header.payload_bytes > bytes_max - self.buffer.len() as u64 {
            return Err(ProtocolError::MessageTooLarge);
        }
        self.started = true;
        self.is_last_frame = header.fin;
        self.frame = Some((header.payload_bytes, header.mask.unwrap_or_default()));
        Ok(())
    }

    /// Moves the received part of the frame's payload to the buffer; returns whether the payload is complete.
    fn take_payload(&mut self, input: &mut Input<'_>) -> Result<bool, ProtocolError> {
        let Some((missing, mask)) = self.frame else {
            return Ok(true);
        };
        let unread = &mut input.bytes[input.at..];
        let here =
            usize::try_from(missing).map_or(unread.len(), |missing| missing.min(unread.len()));
        let part = &mut unread[..here];
        mask::apply(part, mask);
        if self.is_text && !self.is_compressed {
            self.utf8
                .handle_piece(part)
                .map_err(|_| ProtocolError::InvalidUtf8)?;
        }
        if self.buffer.capacity() - self.buffer.len() < here {
            // By doubling, but by no more than the frame announces.
            let announced = usize::try_from(missing).unwrap_or(usize::MAX);
            let more = self.buffer.len().max(here).min(announced);
            self.buffer.reserve_exact(more);
        }
        self.buffer.extend_from_slice(part);
        input.at += here;
        let missing = missing - here as u64;
        self.frame = (missing > 0).then(|| (missing, mask::rotated(mask, here)));
        Ok(missing == 0)
    }

    fn finish(&mut self) -> Result<Event<'_>, ProtocolError> {
        self.delivered = true;
        if self.is_compressed {
            return Ok(Event::Compressed(Compressed {
                is_text: self.is_text,
                bytes: &self.buffer,
            }));
        }
        if self.is_text {
            // Each piece was checked when it arrived; this checks that no byte of a character is missing at the end.
            if !self.utf8.is_complete() {
                return Err(ProtocolError::InvalidUtf8);
            }
            Ok(Event::Text(Text(&self.buffer)))
        } else {
            Ok(Event::Binary(&self.buffer))
        }
    }
}

/// The maximum size of the frames of a message. A compressed message that does not get smaller is a little larger than
/// the original: by five bytes for each stored block of at least 16 KiB, and some at the end.
#[inline]
fn bytes_max(is_compressed: bool, message_bytes_max: usize) -> u64 {
    let plain = message_bytes_max as u64;
    if is_compressed {
        plain.saturating_add(plain / 2048).saturating_add(64)
    } else {
        plain
    }
}

/// The start, length and mask of the payload, if the frame at the front is what most clients send: a masked text
/// message in one frame, shorter than 64 KiB and whole. [`parse_header`] reads all other frames, and finds the errors.
#[inline(always)]
fn whole_text(unread: &[u8]) -> Option<(usize, usize, [u8; 4])> {
    const FINAL_TEXT: u8 = 0x81;
    let (start, bytes, mask) = match *unread {
        [FINAL_TEXT, length @ 0x80..=0xFD, a, b, c, d, ..] => {
            (6, usize::from(length & 0x7F), [a, b, c, d])
        }
        [FINAL_TEXT, 0xFE, high, low, a, b, c, d, ..] => {
            let bytes = usize::from(u16::from_be_bytes([high, low]));
            if bytes < 126 {
                return None;
            }
            (8, bytes, [a, b, c, d])
        }
        _ => return None,
    };
    (bytes <= unread.len() - start).then_some((start, bytes, mask))
}

/// [`take_whole`] off the fast path, where a call costs nothing that counts.
#[inline(never)]
fn take_whole_apart<'s>(
    header: &FrameHeader,
    input: &'s mut Input<'_>,
) -> Result<Option<Event<'s>>, ProtocolError> {
    take_whole(*header, input)
}

/// Unmasks and returns the frame at the front of the input, if its payload is complete. It is inlined: a header
/// passed in memory, and an event returned in memory, would cost a third of the time of a frame.
#[inline(always)]
fn take_whole<'s>(
    header: FrameHeader,
    input: &'s mut Input<'_>,
) -> Result<Option<Event<'s>>, ProtocolError> {
    let payload_start = input.at + header.header_bytes;
    let available = (input.bytes.len() - payload_start) as u64;
    if header.payload_bytes > available {
        return Ok(None);
    }
    let payload_end = payload_start + header.payload_bytes as usize;
    input.at = payload_end;
    let payload = &mut input.bytes[payload_start..payload_end];
    let is_ascii = match header.mask {
        Some(mask) => mask::apply(payload, mask),
        None => header.opcode == OpCode::Text && payload.is_ascii(),
    };
    let event = match header.opcode {
        OpCode::Text if is_ascii => Event::Text(Text(payload)),
        OpCode::Text => text_event(payload)?,
        OpCode::Binary => Event::Binary(payload),
        OpCode::Ping => Event::Ping(payload),
        OpCode::Pong => Event::Pong(payload),
        OpCode::Close => close_event(payload)?,
        OpCode::Continuation => return Err(ProtocolError::UnexpectedContinuation),
    };
    Ok(Some(event))
}

/// Unmasks the complete payload of the frame at the front of the input.
fn unmask_whole<'s>(header: &FrameHeader, input: &'s mut Input<'_>) -> &'s [u8] {
    let payload_start = input.at + header.header_bytes;
    let payload_end = payload_start + header.payload_bytes as usize;
    input.at = payload_end;
    let payload = &mut input.bytes[payload_start..payload_end];
    if let Some(mask) = header.mask {
        mask::apply(payload, mask);
    }
    payload
}

fn text_event(payload: &[u8]) -> Result<Event<'_>, ProtocolError> {
    match simdutf8::basic::from_utf8(payload) {
        Ok(_) => Ok(Event::Text(Text(payload))),
        Err(_) => Err(ProtocolError::InvalidUtf8),
    }
}

/// RFC 6455, section 5.5.1: nothing, or a code and a reason in UTF-8.
fn close_event(payload: &[u8]) -> Result<Event<'_>, ProtocolError> {
    if payload.is_empty() {
        return Ok(Event::Close(None, ""));
    }
    let (code, reason) = payload
        .split_first_chunk::<2>()
        .ok_or(ProtocolError::ClosePayload)?;
    let code =
        CloseCode::from_wire(u16::from_be_bytes(*code)).ok_or(ProtocolError::ClosePayload)?;
    let reason = std::str::from_utf8(reason).map_err(|_| ProtocolError::InvalidUtf8)?;
    Ok(Event::Close(Some(code), reason))
}

/// The maximum number of bytes that [`MessageReader::read`] leaves unread: a control frame without its last byte.
pub const TAIL_BYTES_MAX: usize = 2 + 4 + crate::frame::CONTROL_PAYLOAD_BYTES_MAX - 1;
