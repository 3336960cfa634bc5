//! zlib, and MessagePack from and to JSON.

use crate::failure::Failure;
use std::cell::RefCell;
use tidewire_wire::format::{
    Deflater, Inflater, MESSAGEPACK_PREFIX, ZLIB_PREFIX, json_to_msgpack, msgpack_to_json,
};

/// The state of the compression and the last output, which a thread keeps between calls: its creation costs
/// more time than the compression of most messages. Some 420 KiB, and an output of at most 256 KiB.
#[derive(Default)]
pub struct Scratch {
    deflater: Option<(u32, Deflater)>,
    inflater: Inflater,
    out: Vec<u8>,
}

thread_local! {
    static KEPT: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}

/// Calls `work` with the state of this thread.
pub fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    // Removed and put back, so that `work` may call this function, too.
    let mut scratch = KEPT.take().unwrap_or_default();
    scratch.out.clear();
    let result = work(&mut scratch);
    scratch.out.truncate(KEPT_BYTES_MAX);
    scratch.out.shrink_to(KEPT_BYTES_MAX);
    KEPT.replace(Some(scratch));
    result
}

impl Scratch {
    /// The output of the last call.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.out
    }

    /// Compresses `data` to a zlib stream. `level` is 0 (stored) to 9 (smallest). With a prefix it begins with `C:`.
    ///
    /// # Errors
    /// There is no such level.
    pub fn compress(&mut self, data: &[u8], level: u64, has_prefix: bool) -> Result<(), Failure> {
        let level = match level {
            level @ 0..=9 => level as u32,
            other => {
                let message = format!("level has to be 0 to 9, not {other}");
                return Err(Failure::argument(message));
            }
        };
        let Self { deflater, out, .. } = self;
        if has_prefix {
            out.extend_from_slice(ZLIB_PREFIX);
        }
        let kept = deflater.take().filter(|(of, _)| *of == level);
        let kept = kept.unwrap_or_else(|| (level, Deflater::new(level)));
        deflater.insert(kept).1.deflate(data, out);
        Ok(())
    }

    /// Decompresses a zlib stream, with or without `C:` before it.
    ///
    /// # Errors
    /// The stream holds more than `bytes_max` bytes, ends too early, or is not zlib.
    pub fn decompress(&mut self, data: &[u8], bytes_max: usize) -> Result<(), Failure> {
        // No zlib stream begins with these two bytes: they would name a method that there is not.
        let stream = data.strip_prefix(ZLIB_PREFIX).unwrap_or(data);
        let Self { inflater, out, .. } = self;
        Ok(inflater.inflate(stream, out, bytes_max)?)
    }

    /// Converts JSON text to MessagePack. With a prefix it begins with `M:`.
    ///
    /// # Errors
    /// The text is not valid JSON.
    pub fn json_to_msgpack(&mut self, json: &[u8], has_prefix: bool) -> Result<(), Failure> {
        let out = &mut self.out;
        if has_prefix {
            out.extend_from_slice(MESSAGEPACK_PREFIX);
        }
        Ok(json_to_msgpack(json, out)?)
    }

    /// Converts MessagePack to JSON text, with or without `M:` before it.
    ///
    /// # Errors
    /// The bytes are not valid MessagePack.
    pub fn msgpack_to_json(&mut self, data: &[u8]) -> Result<(), Failure> {
        // Nothing without the prefix begins so: it would be a number with something after it.
        let data = data.strip_prefix(MESSAGEPACK_PREFIX).unwrap_or(data);
        Ok(msgpack_to_json(data, &mut self.out)?)
    }
}

/// The bytes that a stream may hold by default: 16 MiB.
pub const INFLATED_BYTES_DEFAULT_MAX: u64 = 16 * 1024 * 1024;

/// An output that grew larger is not kept.
const KEPT_BYTES_MAX: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn compressed(data: &[u8], has_prefix: bool) -> Vec<u8> {
        with_scratch(|scratch| {
            let made = scratch.compress(data, 6, has_prefix);
            made.expect("the level is one");
            scratch.output().to_vec()
        })
    }

    #[test]
    fn a_stream_comes_back_with_and_without_its_prefix() {
        for has_prefix in [false, true] {
            let stream = compressed(b"hello hello", has_prefix);
            assert_eq!(stream.starts_with(b"C:"), has_prefix);
            with_scratch(|scratch| {
                scratch.decompress(&stream, 11).expect("it is a stream");
                assert_eq!(scratch.output(), b"hello hello");
            });
        }
    }

    #[test]
    fn a_stream_past_its_limit_is_too_large() {
        let stream = compressed(&[0; 5000], false);
        let refused = with_scratch(|scratch| scratch.decompress(&stream, 4999));
        assert_eq!(refused.expect_err("too large").code, "TOO_LARGE");
    }
}
