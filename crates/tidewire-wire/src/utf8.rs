//! UTF-8 validation across fragments: a text message may be cut inside a character (RFC 6455, 5.6).

/// Validates a text that arrives in pieces, and fails at the first invalid byte.
#[derive(Debug, Default, Clone)]
pub struct Utf8Validator {
    /// The start of a character whose rest has not arrived.
    pending: [u8; 4],
    pending_bytes: u8,
}

/// The text is not valid UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("text is not valid UTF-8")]
pub struct InvalidUtf8;

impl Utf8Validator {
    /// Validates the next piece.
    ///
    /// # Errors
    /// [`InvalidUtf8`] as soon as no continuation can make the text valid.
    pub fn handle_piece(&mut self, mut piece: &[u8]) -> Result<(), InvalidUtf8> {
        while self.pending_bytes > 0 {
            let Some((&byte, rest)) = piece.split_first() else {
                return Ok(());
            };
            piece = rest;
            self.pending[usize::from(self.pending_bytes)] = byte;
            self.pending_bytes += 1;
            match std::str::from_utf8(&self.pending[..usize::from(self.pending_bytes)]) {
                Ok(_) => self.pending_bytes = 0,
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return Err(InvalidUtf8),
            }
        }
        match simdutf8::compat::from_utf8(piece) {
            Ok(_) => Ok(()),
            Err(error) if error.error_len().is_none() => {
                let tail = &piece[error.valid_up_to()..];
                self.pending[..tail.len()].copy_from_slice(tail);
                self.pending_bytes = u8::try_from(tail.len()).map_err(|_| InvalidUtf8)?;
                Ok(())
            }
            Err(_) => Err(InvalidUtf8),
        }
    }

    /// Whether the text may end here, outside a character.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.pending_bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_agree_with_the_whole(
            bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0xE2), Just(0x82), Just(0xAC), Just(0xF0), Just(0x9F)], 0..24),
            cuts in proptest::collection::vec(0usize..24, 0..5),
        ) {
            let mut validator = Utf8Validator::default();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let mut from = 0;
            let mut result = Ok(());
            for cut in cuts {
                result = result.and_then(|()| validator.handle_piece(&bytes[from..cut]));
                from = cut;
            }
            let valid = result.is_ok() && validator.is_complete();
            prop_assert_eq!(valid, std::str::from_utf8(&bytes).is_ok());
        }
    }

    #[test]
    fn fails_at_the_first_impossible_byte() {
        let mut validator = Utf8Validator::default();
        validator.handle_piece(&[0xF4]).expect("a possible start");
        assert_eq!(validator.handle_piece(&[0x90]), Err(InvalidUtf8));
    }
}
