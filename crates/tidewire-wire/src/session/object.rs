//! Writing a JSON object field by field.

use crate::json::text::write_string;

/// An object under construction in a buffer. Names are the protocol's and need no escaping.
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> Object<'a> {
    pub(super) fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    pub(super) fn close(self) {
        self.out.push(b'}');
    }

    pub(super) fn text(&mut self, name: &str, text: &str) {
        write_string(text, self.name(name));
    }

    pub(super) fn number(&mut self, name: &str, number: u64) {
        let mut buffer = itoa::Buffer::new();
        self.name(name)
            .extend_from_slice(buffer.format(number).as_bytes());
    }

    pub(super) fn optional_number(&mut self, name: &str, number: Option<u64>) {
        match number {
            Some(number) => self.number(name, number),
            None => self.name(name).extend_from_slice(b"null"),
        }
    }

    pub(super) fn boolean(&mut self, name: &str, flag: bool) {
        let word: &[u8] = if flag { b"true" } else { b"false" };
        self.name(name).extend_from_slice(word);
    }

    pub(super) fn texts(&mut self, name: &str, texts: &[impl AsRef<str>]) {
        let out = self.name(name);
        out.push(b'[');
        for (index, text) in texts.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write_string(text.as_ref(), out);
        }
        out.push(b']');
    }

    pub(super) fn numbers(&mut self, name: &str, numbers: &[u64]) {
        let mut buffer = itoa::Buffer::new();
        let out = self.name(name);
        out.push(b'[');
        for (index, number) in numbers.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(buffer.format(*number).as_bytes());
        }
        out.push(b']');
    }

    /// A field whose value `write` appends.
    pub(super) fn with(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        write(self.name(name));
    }

    /// A field whose name is not the protocol's.
    pub(super) fn with_any_name(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.separate();
        write_string(name, self.out);
        self.out.push(b':');
        write(self.out);
    }

    fn name(&mut self, name: &str) -> &mut Vec<u8> {
        self.separate();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    fn separate(&mut self) {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
    }
}
