//! The values of one connection, whole, as their bytes arrive.

use crate::resp::scanner::{Limits, RespError, Scanner};
use crate::resp::value::Value;
use std::ops::ControlFlow;

/// Keeps the bytes of a value that is not whole; whole values are read where they lie.
#[derive(Debug)]
pub struct Frames {
    scanner: Scanner,
    kept: Vec<u8>,
}

impl Frames {
    /// A connection at its beginning.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            scanner: Scanner::new(limits),
            kept: Vec::new(),
        }
    }

    /// Calls `on` for each value that is now whole, until it breaks; what then remains is dropped.
    pub fn read(
        &mut self,
        bytes: &[u8],
        mut on: impl FnMut(Value<'_>) -> ControlFlow<()>,
    ) -> Result<(), RespError> {
        if self.kept.is_empty() {
            let used = self.scan(bytes, &mut on)?;
            self.kept.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.extend_from_slice(bytes);
        let used = self.scan(&kept, &mut on)?;
        kept.drain(..used);
        // A buffer that was large for one reply is not kept for the next.
        if kept.is_empty() && kept.capacity() > KEPT_BYTES {
            kept = Vec::new();
        }
        self.kept = kept;
        Ok(())
    }

    fn scan(
        &mut self,
        bytes: &[u8],
        on: &mut impl FnMut(Value<'_>) -> ControlFlow<()>,
    ) -> Result<usize, RespError> {
        let mut at = 0;
        while at < bytes.len()
            && let Some(length) = self.scanner.scan(&bytes[at..])?
        {
            let value = Value::of(&bytes[at..at + length]);
            at += length;
            if on(value).is_break() {
                return Ok(bytes.len());
            }
        }
        Ok(at)
    }
}

const KEPT_BYTES: usize = 64 * 1024;
