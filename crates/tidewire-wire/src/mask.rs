//! Masking of client-to-server payloads (RFC 6455, section 5.3).

/// Exclusive-ors `bytes` in place with `mask`, repeated. Applying it twice restores the bytes.
///
/// The first byte is combined with `mask[0]`; for a later part of a payload rotate the mask first with
/// [`rotated`]. Returns whether all resulting bytes are ASCII. This costs almost nothing here, and most
/// texts need no second pass for UTF-8.
#[inline]
pub fn apply(bytes: &mut [u8], mask: [u8; 4]) -> bool {
    let half = u32::from_ne_bytes(mask);
    let word = u64::from(half) << 32 | u64::from(half);
    let mut seen = 0u64;
    let (words, tail) = bytes.as_chunks_mut::<8>();
    for chunk in words {
        let plain = u64::from_ne_bytes(*chunk) ^ word;
        seen |= plain;
        *chunk = plain.to_ne_bytes();
    }
    let (halves, tail) = tail.as_chunks_mut::<4>();
    for chunk in halves {
        let plain = u32::from_ne_bytes(*chunk) ^ half;
        seen |= u64::from(plain);
        *chunk = plain.to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(mask) {
        *byte ^= key;
        seen |= u64::from(*byte);
    }
    seen & 0x8080_8080_8080_8080 == 0
}

/// The mask for the part of the payload after `offset` bytes.
#[must_use]
pub fn rotated(mask: [u8; 4], offset: usize) -> [u8; 4] {
    let mut turned = mask;
    turned.rotate_left(offset % 4);
    turned
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_the_definition_at_any_split(
            payload in proptest::collection::vec(any::<u8>(), 0..300),
            mask in any::<[u8; 4]>(),
            split in 0usize..300,
        ) {
            let expected: Vec<u8> =
                payload.iter().enumerate().map(|(i, byte)| byte ^ mask[i % 4]).collect();
            let mut masked = payload.clone();
            let split = split.min(masked.len());
            let first_is_ascii = apply(&mut masked[..split], mask);
            let second_is_ascii = apply(&mut masked[split..], rotated(mask, split));
            prop_assert_eq!(first_is_ascii && second_is_ascii, expected.is_ascii());
            prop_assert_eq!(masked, expected);
        }
    }
}
