//! The end of a head among the bytes received so far, and a memory of the last head that was parsed.

use memchr::{memchr, memchr_iter};

/// A search for the empty line that ends a head. It goes on where it stopped when more bytes arrive, so that
/// a head that arrives byte by byte is not searched from its start each time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndSearch {
    searched: usize,
}

impl EndSearch {
    /// Whether a byte of the head has been seen.
    pub(crate) fn has_begun(&self) -> bool {
        self.searched > 0
    }

    /// The length of the head that `data` begins with, with its empty line; `None` if its end is not there.
    /// A line ends with LF or CR LF (RFC 9112, section 2.2).
    pub(crate) fn find(&mut self, data: &[u8]) -> Option<usize> {
        // The bytes that may be the beginning of the end are searched again.
        let mut start = self.searched.saturating_sub(END_BYTES_MAX);
        while let Some(found) = memchr(b'\n', data.get(start..)?) {
            let line_end = start + found;
            match data.get(line_end + 1..) {
                Some([b'\n', ..]) => return Some(line_end + 2),
                Some([b'\r', b'\n', ..]) => return Some(line_end + 3),
                _ => start = line_end + 1,
            }
        }
        self.searched = data.len();
        None
    }
}

/// The last head and its parsed facts. A server's heads often differ from each other in nothing but the
/// second of their date: an equal one is not parsed again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory<T> {
    bytes: Vec<u8>,
    facts: T,
}

impl<T: Copy> Memory<T> {
    /// The remembered result and its length, if `data` begins with the remembered head. It ends with an empty line, so
    /// the same bytes are the same head.
    #[inline]
    pub(crate) fn recall(&self, data: &[u8]) -> Option<(usize, T)> {
        let length = self.bytes.len();
        (length != 0 && data.len() >= length && data[..length] == self.bytes[..])
            .then_some((length, self.facts))
    }

    pub(crate) fn remember(&mut self, head: &[u8], facts: T) {
        if head.len() <= REMEMBERED_BYTES_MAX {
            self.bytes.clear();
            self.bytes.extend_from_slice(head);
            self.facts = facts;
        }
    }
}

/// RFC 9112, section 2.2, lets a receiver accept a bare LF as a line end; an attacker can use the difference
/// between two programs in a row of which only one does.
pub(crate) fn has_bare_line_feed(head: &[u8]) -> bool {
    memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r')
}

/// The longest piece of an end, `\n\r\n`, that may be there without its last byte.
const END_BYTES_MAX: usize = 2;

/// Longer heads are parsed each time.
const REMEMBERED_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_wherever_the_head_is_cut() {
        for head in [
            &b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\n\n",
            b"HTTP/1.1 200\r\n\n",
            b"X\n\r\n",
            b"X\r\n\r\r\n\r\n",
        ] {
            let mut data = head.to_vec();
            data.extend_from_slice(b"\n\nbody");
            assert_eq!(EndSearch::default().find(&data), Some(head.len()));
            for first in 0..head.len() {
                for second in first..head.len() {
                    let mut search = EndSearch::default();
                    assert_eq!(search.find(&data[..first]), None);
                    assert_eq!(search.find(&data[..second]), None);
                    assert_eq!(search.find(&data), Some(head.len()), "{first} {second}");
                }
            }
        }
    }

    #[test]
    fn only_the_whole_head_is_recalled() {
        let mut memory = Memory::default();
        assert_eq!(memory.recall(b""), None);
        memory.remember(b"a\n\n", 1);
        assert_eq!(memory.recall(b"a\n\nrest"), Some((3, 1)));
        assert_eq!(memory.recall(b"a\n"), None);
        assert_eq!(memory.recall(b"b\n\n"), None);
        memory.remember(&[b'a'; REMEMBERED_BYTES_MAX + 1], 2);
        assert_eq!(memory.recall(b"a\n\n"), Some((3, 1)));
    }
}
