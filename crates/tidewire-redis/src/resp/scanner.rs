//! End of a value: each byte is read once, however the bytes are cut.

/// Finds the end of the next value. It keeps no bytes: the caller gives the same ones again, with more behind them.
#[derive(Debug, Clone)]
pub struct Scanner {
    limits: Limits,
    /// Bytes of the value that need not be looked at again.
    scanned: usize,
    /// Bytes behind `scanned` that hold no end of a line.
    searched: usize,
    levels: [Level; DEPTH_MAX],
    depth: usize,
}

/// A value that contains values.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    remaining: u64,
    /// Attributes precede a value and are none themselves.
    is_attribute: bool,
}

/// The limits of a value.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// A string, in bytes. Default 32 MiB.
    pub string_bytes_max: usize,
    /// A whole value, in bytes. Default 64 MiB.
    pub value_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            string_bytes_max: 32 * 1024 * 1024,
            value_bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// Why bytes are no RESP3, or too much of it. The connection cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RespError {
    /// A first byte that no type has.
    #[error("the server sent the byte {0:#04x} where a RESP3 value begins; is it Redis?")]
    Type(u8),
    /// A length or a number that is none, or a line that does not end as it must.
    #[error("the server sent a malformed RESP3 value")]
    Malformed,
    /// A string or aggregate whose length follows it. Redis does not send it.
    #[error("the server sent a streamed RESP3 value, which is not supported")]
    Streamed,
    /// Aggregates in each other.
    #[error("the server sent a value with more than {DEPTH_MAX} levels")]
    Deep,
    /// One of the [`Limits`].
    #[error("the server sent a value that is larger than its limit")]
    Large,
}

impl Scanner {
    /// A scanner at the start of a value.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            scanned: 0,
            searched: 0,
            levels: [Level::default(); DEPTH_MAX],
            depth: 0,
        }
    }

    /// How many bytes the value has that `bytes` begin with, attributes before it included; `None` if it goes on.
    /// After a length the next call is for the next value.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, RespError> {
        loop {
            let Some(is_value) = self.token(bytes)? else {
                return Ok(None);
            };
            if is_value && self.end_of_value() {
                let length = self.scanned;
                self.scanned = 0;
                return Ok(Some(length));
            }
            if self.scanned > self.limits.value_bytes_max {
                return Err(RespError::Large);
            }
        }
    }

    /// Reads one line, and the string behind it; whether a value ends here. `None` if it is not whole.
    fn token(&mut self, bytes: &[u8]) -> Result<Option<bool>, RespError> {
        let rest = &bytes[self.scanned..];
        let Some(line) = self.line(rest)? else {
            return Ok(None);
        };
        let after = line.len() + 2;
        let (kind, text) = line.split_first().ok_or(RespError::Malformed)?;
        match *kind {
            b'+' | b'-' => {}
            b':' => integer(text).map(drop)?,
            b'_' if text.is_empty() => {}
            b'#' if matches!(text, b"t" | b"f") => {}
            b',' | b'(' if !text.is_empty() => {}
            b'$' | b'=' | b'!' => return self.string(*kind, text, rest, after),
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                self.scanned += after;
                return self.aggregate(*kind, text).map(Some);
            }
            _ => return Err(RespError::Malformed),
        }
        self.scanned += after;
        Ok(Some(true))
    }

    /// The line at the front without its end; `None` if the end has not arrived.
    fn line<'a>(&mut self, rest: &'a [u8]) -> Result<Option<&'a [u8]>, RespError> {
        let found = memchr::memchr(b'\n', &rest[self.searched..]).map(|at| at + self.searched);
        let end = found.unwrap_or(rest.len());
        // Checked before the line is whole: a peer that does not send RESP3 may never send its end.
        if let Some(first) = rest.first()
            && !KINDS.contains(first)
        {
            return Err(RespError::Type(*first));
        }
        if end > LINE_BYTES_MAX {
            return Err(RespError::Large);
        }
        if found.is_none() {
            self.searched = end;
            return Ok(None);
        }
        self.searched = 0;
        let line = rest[..end]
            .strip_suffix(b"\r")
            .ok_or(RespError::Malformed)?;
        Ok(Some(line))
    }

    fn string(
        &mut self,
        kind: u8,
        text: &[u8],
        rest: &[u8],
        after: usize,
    ) -> Result<Option<bool>, RespError> {
        if text == b"?" {
            return Err(RespError::Streamed);
        }
        // The null of RESP2.
        if kind == b'$' && text == b"-1" {
            self.scanned += after;
            return Ok(Some(true));
        }
        let length = length(text)?;
        if length > self.limits.string_bytes_max as u64 {
            return Err(RespError::Large);
        }
        let end = after + length as usize;
        if self.scanned + end > self.limits.value_bytes_max {
            return Err(RespError::Large);
        }
        // `txt:` before the text.
        if kind == b'=' && length < 4 {
            return Err(RespError::Malformed);
        }
        let Some(behind) = rest.get(end..end + 2) else {
            return Ok(None);
        };
        if behind != b"\r\n" {
            return Err(RespError::Malformed);
        }
        self.scanned += end + 2;
        Ok(Some(true))
    }

    /// Begins an aggregate; whether it is empty, and a value ends here.
    fn aggregate(&mut self, kind: u8, text: &[u8]) -> Result<bool, RespError> {
        if text == b"?" {
            return Err(RespError::Streamed);
        }
        if kind == b'*' && text == b"-1" {
            return Ok(true);
        }
        let pairs = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
        let remaining = length(text)?.checked_mul(pairs).ok_or(RespError::Large)?;
        // No value is shorter than `_\r\n`.
        if remaining > (self.limits.value_bytes_max / 3) as u64 {
            return Err(RespError::Large);
        }
        let is_attribute = kind == b'|';
        if remaining == 0 {
            return Ok(!is_attribute);
        }
        let level = self.levels.get_mut(self.depth).ok_or(RespError::Deep)?;
        *level = Level {
            remaining,
            is_attribute,
        };
        self.depth += 1;
        Ok(false)
    }

    /// A value has ended; whether it was the outermost.
    fn end_of_value(&mut self) -> bool {
        while self.depth > 0 {
            let level = &mut self.levels[self.depth - 1];
            level.remaining -= 1;
            if level.remaining > 0 {
                return false;
            }
            self.depth -= 1;
            // The value that the attributes describe follows them.
            if level.is_attribute {
                return false;
            }
        }
        true
    }
}

/// The length of a string or an aggregate.
pub(super) fn length(text: &[u8]) -> Result<u64, RespError> {
    crate::layout::number(text).ok_or(RespError::Malformed)
}

/// A signed number of 64 bits.
pub(super) fn integer(text: &[u8]) -> Result<i64, RespError> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let size = i128::from(length(digits)?);
    i64::try_from(if is_negative { -size } else { size }).map_err(|_| RespError::Malformed)
}

/// How many aggregates may be in each other. The replies of the link have at most five levels.
pub const DEPTH_MAX: usize = 16;

/// The limit of a simple string, an error or the head of a value, in bytes.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

const KINDS: &[u8] = b"+-:_#,($=!*~>%|";
