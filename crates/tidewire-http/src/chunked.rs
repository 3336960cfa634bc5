//! The chunked transfer coding, decoded (RFC 9112, section 7.1).

use crate::fields::is_token_byte;

/// The position in a chunked body. Every byte is consumed at once; only counts are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunks {
    place: Place,
    /// Of a size, its value so far; of data, the bytes that are left.
    number: u64,
    /// Bytes of the size line, or of all trailers.
    line_bytes: usize,
    rules: Rules,
}

/// Whether what other programs could read differently is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// As clients read: white space after a size and folded trailer lines pass, and a bare LF ends a trailer line.
    Lenient,
    /// As servers read.
    Strict,
}

/// The content at the front of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// All data was consumed and the body goes on.
    More,
    Data(&'a [u8]),
    /// The zero chunk and the trailers are behind.
    End,
}

/// A rule that a chunked body breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkError {
    /// A chunk does not begin with a size in hexadecimal digits, or does not end where its size requires.
    Malformed,
    SizeOverflow,
    /// The line of a size, with its extensions, is too long.
    LineTooLong,
    Trailer,
    TrailersTooLong,
}

/// In the order in which they occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    SizeStart,
    Size,
    SpaceAfterSize,
    Extension,
    SizeLineFeed,
    Data,
    DataEnd,
    DataLineFeed,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    LastLineFeed,
}

impl Chunks {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            place: Place::SizeStart,
            number: 0,
            line_bytes: 0,
            rules,
        }
    }

    /// Reads from the front of `data`: how many bytes were consumed, and what they were.
    pub(crate) fn read<'a>(
        &mut self,
        data: &'a [u8],
        trailer_bytes_max: usize,
    ) -> Result<(usize, Piece<'a>), ChunkError> {
        let mut at = 0;
        while let Some(&byte) = data.get(at) {
            if self.place == Place::Data {
                let here = &data[at..];
                let length = usize::try_from(self.number).map_or(here.len(), |n| n.min(here.len()));
                self.number -= length as u64;
                if self.number == 0 {
                    self.place = Place::DataEnd;
                }
                return Ok((at + length, Piece::Data(&here[..length])));
            }
            at += 1;
            if self.place == Place::LastLineFeed && byte == b'\n'
                || self.place == Place::TrailerStart && byte == b'\n' && self.is_lenient()
            {
                return Ok((at, Piece::End));
            }
            self.place = if self.place < Place::TrailerStart {
                self.after_size_byte(byte)?
            } else {
                self.after_trailer_byte(byte, trailer_bytes_max)?
            };
        }
        Ok((at, Piece::More))
    }

    fn is_lenient(&self) -> bool {
        self.rules == Rules::Lenient
    }

    fn after_size_byte(&mut self, byte: u8) -> Result<Place, ChunkError> {
        let place = match (self.place, byte) {
            (Place::SizeStart | Place::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if self.number >> 60 != 0 {
                    return Err(ChunkError::SizeOverflow);
                }
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                self.number = self.number << 4 | u64::from(digit);
                Place::Size
            }
            (Place::Size | Place::SpaceAfterSize, b';') => Place::Extension,
            (Place::Size | Place::SpaceAfterSize, b' ' | b'\t') if self.is_lenient() => {
                Place::SpaceAfterSize
            }
            (Place::Size | Place::SpaceAfterSize | Place::Extension, b'\r') => Place::SizeLineFeed,
            (Place::Extension, b'\t' | b' '..=b'~' | 0x80..) => Place::Extension,
            (Place::SizeLineFeed, b'\n') => {
                self.line_bytes = 0;
                return Ok(if self.number == 0 {
                    Place::TrailerStart
                } else {
                    Place::Data
                });
            }
            (Place::DataEnd, b'\r') => return Ok(Place::DataLineFeed),
            (Place::DataLineFeed, b'\n') => return Ok(Place::SizeStart),
            _ => return Err(ChunkError::Malformed),
        };
        self.line_bytes += 1;
        if self.line_bytes > SIZE_LINE_BYTES_MAX {
            return Err(ChunkError::LineTooLong);
        }
        Ok(place)
    }

    fn after_trailer_byte(&mut self, byte: u8, bytes_max: usize) -> Result<Place, ChunkError> {
        let is_first_line = self.line_bytes == 0;
        self.line_bytes += 1;
        let place = match (self.place, byte) {
            (Place::TrailerStart, b'\r') => return Ok(Place::LastLineFeed),
            (Place::TrailerStart, b' ' | b'\t') if self.is_lenient() && !is_first_line => {
                Place::TrailerValue
            }
            (Place::TrailerStart | Place::TrailerName, _) if is_token_byte(byte) => {
                Place::TrailerName
            }
            (Place::TrailerName, b':') => Place::TrailerValue,
            (Place::TrailerValue, b'\r') => Place::TrailerLineFeed,
            (Place::TrailerValue, b'\n') if self.is_lenient() => Place::TrailerStart,
            (Place::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => Place::TrailerValue,
            (Place::TrailerLineFeed, b'\n') => Place::TrailerStart,
            _ => return Err(ChunkError::Trailer),
        };
        if self.line_bytes > bytes_max {
            return Err(ChunkError::TrailersTooLong);
        }
        Ok(place)
    }
}

/// Bytes of a chunk's size and extensions.
const SIZE_LINE_BYTES_MAX: usize = 4096;
