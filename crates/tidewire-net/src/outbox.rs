//! What waits for a socket to take it.

/// A queue of bytes that is written from the front.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    pub(crate) fn with_buffer(bytes: Vec<u8>) -> Self {
        Self { bytes, sent: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(crate) fn mark_sent(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    /// The buffer to append to. What has been sent leaves it when that is more than half, so that
    /// each byte is moved at most once on average and memory follows what is unsent.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.sent > 0 && self.sent * 2 >= self.bytes.len() {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        &mut self.bytes
    }

    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }
}
