//! Masking of client-to-server payloads (RFC 6455, section 5.3).

/// Exclusive-ors `bytes` in place with `mask`, repeated. Applying it twice restores the bytes.
///
/// The first byte meets `mask[0]`; for the later part of a payload rotate the mask first with
/// [`rotated`]. Works eight bytes at a time, which compilers widen to vector registers.
#[inline]
pub fn apply(bytes: &mut [u8], mask: [u8; 4]) {
    let word = u64::from_ne_bytes([
        mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3],
    ]);
    let (words, tail) = bytes.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = (u64::from_ne_bytes(*chunk) ^ word).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(mask.into_iter().cycle()) {
        *byte ^= key;
    }
}

/// The mask as it applies after `offset` bytes of the payload.
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
            apply(&mut masked[..split], mask);
            apply(&mut masked[split..], rotated(mask, split));
            prop_assert_eq!(masked, expected);
        }
    }
}
