//! The timestamp extension of MessagePack.

use super::FormatError;
use crate::timestamp::write_rfc3339_ms;

/// Appends a timestamp extension as a string.
pub(crate) fn write_timestamp(
    kind: i8,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), FormatError> {
    let unix_ms = timestamp_ms(kind, bytes)?;
    out.push(b'"');
    write_rfc3339_ms(unix_ms, out);
    out.push(b'"');
    Ok(())
}

/// The three layouts of the timestamp extension; whole seconds before 1970 have no form of ours.
pub(super) fn timestamp_ms(kind: i8, bytes: &[u8]) -> Result<u64, FormatError> {
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |n, b| (n << 8) | u64::from(*b));
    let (seconds, nanoseconds) = match (kind, bytes.len()) {
        (-1, 4) => (number(bytes), 0),
        (-1, 8) => (number(bytes) & 0x3_ffff_ffff, number(bytes) >> 34),
        (-1, 12) => (number(&bytes[4..]), number(&bytes[..4])),
        _ => {
            return Err(FormatError::Malformed(
                "a MessagePack extension that is no timestamp",
            ));
        }
    };
    if seconds > i64::MAX as u64 || nanoseconds > 999_999_999 {
        return Err(FormatError::Malformed(
            "a MessagePack timestamp out of range",
        ));
    }
    Ok(seconds
        .saturating_mul(1000)
        .saturating_add(nanoseconds / 1_000_000))
}
