//! Header compression (RFC 7541): blocks in, fields out; fields in, blocks out.
//!
//! The encoder keeps no table, so that a block is the same on every connection and at every time: it can be made once
//! and sent often. Only a request that is repeated uses the table of the peer, in a way that is known beforehand.

use super::error::Fault;
use super::huffman;
use std::collections::VecDeque;

/// The dynamic table of what a peer sends, and its limits.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The newest first.
    entries: VecDeque<Entry>,
    /// Their size as RFC 7541, section 4.1, counts it.
    bytes: usize,
    /// The largest size that the peer has chosen, at most [`TABLE_BYTES_MAX`].
    bytes_max: usize,
    /// How often the table has changed: a block means the same as long as it does not.
    changes: u64,
}

/// A name and a value in one text.
#[derive(Debug)]
struct Entry {
    text: Box<[u8]>,
    name_bytes: usize,
}

impl Entry {
    fn of(name: &[u8], value: &[u8]) -> Self {
        Self {
            text: [name, value].concat().into(),
            name_bytes: name.len(),
        }
    }

    fn field(&self) -> (&[u8], &[u8]) {
        self.text.split_at(self.name_bytes)
    }

    fn bytes(&self) -> usize {
        self.text.len() + ENTRY_BYTES
    }
}

/// Room for decoded strings, for all connections of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            bytes_max: TABLE_BYTES_MAX,
            changes: 0,
        }
    }
}

impl Decoder {
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Reads a whole block, and passes on each field in its order. A block expands to at most `expanded_max`
    /// bytes. Each field counts with its size in a table: one byte of a block may stand for a long field.
    ///
    /// # Errors
    /// The block is damaged, or expands too far. The connection cannot go on: both sides' tables differ.
    pub(super) fn decode(
        &mut self,
        block: &[u8],
        expanded_max: usize,
        scratch: &mut Scratch,
        mut take: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Fault> {
        let mut rest = block;
        let mut expanded = 0;
        let mut may_resize = true;
        while let Some(&first) = rest.first() {
            if first & 0xe0 == RESIZE {
                if !may_resize {
                    return Err(Fault::BadHeaderBlock);
                }
                self.resize(integer(&mut rest, 5)?)?;
                continue;
            }
            may_resize = false;
            let (prefix, is_kept) = match first {
                0x80.. => (7, false),
                0x40.. => (6, true),
                _ => (4, false),
            };
            let index = integer(&mut rest, prefix)?;
            let (name, value) = match (prefix, index) {
                (7, index) => self.field(index)?,
                (_, 0) => {
                    let name = string(&mut rest, &mut scratch.name)?;
                    (name, string(&mut rest, &mut scratch.value)?)
                }
                (_, index) => {
                    let name = self.field(index)?.0;
                    (name, string(&mut rest, &mut scratch.value)?)
                }
            };
            expanded += name.len() + value.len() + ENTRY_BYTES;
            if expanded > expanded_max {
                return Err(Fault::HeadersTooLong);
            }
            take(name, value);
            if is_kept {
                let entry = Entry::of(name, value);
                self.keep(entry);
            }
        }
        Ok(())
    }

    /// The field of an index (RFC 7541, section 2.3.3).
    fn field(&self, index: usize) -> Result<(&[u8], &[u8]), Fault> {
        match index.checked_sub(STATIC.len() + 1) {
            Some(index) => self.entries.get(index).map(Entry::field),
            None => {
                let field = STATIC.get(index.wrapping_sub(1));
                field.map(|(name, value)| (name.as_bytes(), value.as_bytes()))
            }
        }
        .ok_or(Fault::BadHeaderBlock)
    }

    fn resize(&mut self, bytes_max: usize) -> Result<(), Fault> {
        if bytes_max > TABLE_BYTES_MAX {
            return Err(Fault::BadHeaderBlock);
        }
        self.bytes_max = bytes_max;
        self.changes += 1;
        self.evict(0);
        Ok(())
    }

    fn keep(&mut self, entry: Entry) {
        self.changes += 1;
        self.evict(entry.bytes());
        // One that is larger than the table only empties it.
        if entry.bytes() <= self.bytes_max {
            self.bytes += entry.bytes();
            self.entries.push_front(entry);
        }
    }

    /// Removes the oldest entries until there is room for this many bytes.
    fn evict(&mut self, room: usize) {
        while self.bytes + room > self.bytes_max
            && let Some(oldest) = self.entries.pop_back()
        {
            self.bytes -= oldest.bytes();
        }
    }
}

/// Reads an integer (RFC 7541, section 5.1) whose first byte has `prefix` bits of it.
fn integer(rest: &mut &[u8], prefix: u32) -> Result<usize, Fault> {
    let (&first, mut after) = rest.split_first().ok_or(Fault::BadHeaderBlock)?;
    let mask = (1_u32 << prefix) - 1;
    let mut value = u32::from(first) & mask;
    if value == mask {
        // Five bytes hold more than any length or index here; longer ones are an attack or an error.
        for shift in (0..=21).step_by(7) {
            let (&byte, behind) = after.split_first().ok_or(Fault::BadHeaderBlock)?;
            after = behind;
            value += u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                *rest = after;
                return Ok(value as usize);
            }
        }
        return Err(Fault::BadHeaderBlock);
    }
    *rest = after;
    Ok(value as usize)
}

/// Reads a string (RFC 7541, section 5.2): where it lies, or decoded into `decoded`.
fn string<'t, 'b: 't>(rest: &mut &'b [u8], decoded: &'t mut Vec<u8>) -> Result<&'t [u8], Fault> {
    let is_coded = rest.first().is_some_and(|first| first & CODED != 0);
    let length = integer(rest, 7)?;
    let (text, after) = rest.split_at_checked(length).ok_or(Fault::BadHeaderBlock)?;
    *rest = after;
    if !is_coded {
        return Ok(text);
    }
    decoded.clear();
    match huffman::decode(text, decoded) {
        true => Ok(decoded),
        false => Err(Fault::BadHeaderBlock),
    }
}

/// Appends a field to a block, by its index if the static table has it. `name` is in lower case.
pub(super) fn write_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    match static_index(name, value) {
        Some(index) => write_integer(INDEXED, 7, index, out),
        None => write_literal(0, 4, name, value, out),
    }
}

/// The index of a whole field in the static table.
fn static_index(name: &[u8], value: &[u8]) -> Option<usize> {
    let is_it = |field: &(&str, &str)| field.0.as_bytes() == name && field.1.as_bytes() == value;
    STATIC.iter().position(is_it).map(|at| at + 1)
}

/// The block that lets the peer keep all fields that its static table has not, and the block that names them when they are
/// the only ones in its table; `None` if they do not fit there.
pub(super) fn write_repeated(fields: &[(Vec<u8>, Vec<u8>)]) -> Option<(Vec<u8>, Vec<u8>)> {
    let kept: Vec<_> = fields
        .iter()
        .filter(|(name, value)| static_index(name, value).is_none())
        .collect();
    let sizes = kept
        .iter()
        .map(|(name, value)| name.len() + value.len() + ENTRY_BYTES);
    if sizes.sum::<usize>() > TABLE_BYTES_MAX {
        return None;
    }
    let (mut first, mut later) = (Vec::new(), Vec::new());
    // The newest entry has the lowest index.
    let mut index = STATIC.len() + kept.len();
    for (name, value) in fields {
        if let Some(known) = static_index(name, value) {
            write_integer(INDEXED, 7, known, &mut first);
            write_integer(INDEXED, 7, known, &mut later);
        } else {
            write_literal(KEPT, 6, name, value, &mut first);
            write_integer(INDEXED, 7, index, &mut later);
            index -= 1;
        }
    }
    Some((first, later))
}

/// Appends a field that is not indexed: the pattern of its first byte, and how many bits of that the index of the name has.
fn write_literal(pattern: u8, prefix: u32, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let named = |(other, _): &(&str, &str)| other.as_bytes() == name;
    match STATIC.iter().position(named) {
        Some(at) => write_integer(pattern, prefix, at + 1, out),
        None => {
            out.push(pattern);
            write_string(name, out);
        }
    }
    write_string(value, out);
}

/// Appends a string, in the code if that is shorter.
fn write_string(text: &[u8], out: &mut Vec<u8>) {
    let coded = huffman::encoded_length(text);
    if coded < text.len() {
        write_integer(CODED, 7, coded, out);
        huffman::encode(text, out);
    } else {
        write_integer(0, 7, text.len(), out);
        out.extend_from_slice(text);
    }
}

fn write_integer(pattern: u8, prefix: u32, value: usize, out: &mut Vec<u8>) {
    let mask = (1 << prefix) - 1;
    if value < mask {
        return out.push(pattern | value as u8);
    }
    out.push(pattern | mask as u8);
    let mut left = value - mask;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// The size of a table: the default of both sides (RFC 9113, section 6.5.2).
pub(super) const TABLE_BYTES_MAX: usize = 4096;
/// The size of a field is that of its text and this many bytes (RFC 7541, section 4.1).
const ENTRY_BYTES: usize = 32;
/// The pattern of a field that has an index, and of one that the peer keeps.
const INDEXED: u8 = 0x80;
const KEPT: u8 = 0x40;
/// The pattern of a change of the table's size.
const RESIZE: u8 = 0x20;
/// The bit of a string in the Huffman code.
const CODED: u8 = 0x80;

/// RFC 7541, appendix A.
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Owned = Vec<(String, String)>;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Owned, Fault> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        decoder.decode(block, 1 << 16, &mut Scratch::default(), |name, value| {
            fields.push((text(name), text(value)));
        })?;
        Ok(fields)
    }

    fn lines(fields: &Owned) -> String {
        let lines: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        lines.join("\n")
    }

    /// RFC 7541, appendix C.3 and C.4: three requests, with and without the Huffman code.
    #[test]
    fn the_requests_of_the_standard() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let coded = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        for blocks in [plain, coded] {
            let mut decoder = Decoder::default();
            let start = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com";
            let first = decoded(&mut decoder, &hex(blocks[0])).unwrap();
            assert_eq!(lines(&first), start);
            assert_eq!(decoder.bytes, 57);
            let second = decoded(&mut decoder, &hex(blocks[1])).unwrap();
            assert_eq!(lines(&second), format!("{start}\ncache-control: no-cache"));
            assert_eq!(decoder.bytes, 110);
            let third = decoded(&mut decoder, &hex(blocks[2])).unwrap();
            let expected = ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n\
                            custom-key: custom-value";
            assert_eq!(lines(&third), expected);
            assert_eq!((decoder.bytes, decoder.entries.len()), (164, 3));
        }
    }

    /// RFC 7541, appendix C.6: responses, with a table of 256 bytes from which entries are evicted.
    #[test]
    fn the_responses_of_the_standard() {
        let mut decoder = Decoder {
            bytes_max: 256,
            ..Decoder::default()
        };
        let blocks = [
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 \
             8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 \
             dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ];
        let texts = [
            ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com",
            ":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com",
            ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\nlocation: https://www.example.com\n\
             content-encoding: gzip\nset-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        ];
        for ((block, text), bytes) in blocks.iter().zip(texts).zip([222, 222, 215]) {
            assert_eq!(lines(&decoded(&mut decoder, &hex(block)).unwrap()), text);
            assert_eq!(decoder.bytes, bytes);
        }
    }

    #[test]
    fn a_damaged_block_is_found() {
        for block in [
            // Index 0; the first index behind the static table, while the other is empty.
            "80",
            "be",
            // A size of 4,097; a change of the size behind a field, and at the end.
            "3fe2 1f",
            "8220",
            // An integer without its end, and one that is too long.
            "ff",
            "ff80 8080 8001",
            // Strings longer than the block.
            "0001 61",
            "0005 6161",
            // A bad Huffman code.
            "0081 ff01 61",
        ] {
            let result = decoded(&mut Decoder::default(), &hex(block));
            assert_eq!(result, Err(Fault::BadHeaderBlock), "{block}");
        }
        let mut resized = Decoder::default();
        assert_eq!(
            decoded(&mut resized, &hex("203f e11f 82")).unwrap().len(),
            1
        );
        assert_eq!(resized.bytes_max, 4096);
    }

    #[test]
    fn a_small_block_does_not_become_a_large_head() {
        let mut decoder = Decoder::default();
        let mut block = vec![0x40];
        write_string(b"x", &mut block);
        write_string(&[b'a'; 3000], &mut block);
        decoded(&mut decoder, &block).unwrap();
        assert!(decoded(&mut decoder, &[0xbe; 20]).is_ok());
        assert_eq!(
            decoded(&mut decoder, &[0xbe; 22]),
            Err(Fault::HeadersTooLong)
        );
    }

    #[test]
    fn integers_of_any_length() {
        for value in [
            0,
            1,
            30,
            31,
            126,
            127,
            128,
            254,
            255,
            1337,
            65_535,
            2_097_152,
            268_435_456,
        ] {
            for prefix in 4..=7 {
                let mut out = Vec::new();
                write_integer(0, prefix, value, &mut out);
                let mut rest = &out[..];
                assert_eq!(integer(&mut rest, prefix), Ok(value));
                assert!(rest.is_empty());
            }
        }
    }

    proptest! {
        #[test]
        fn any_fields_come_back(fields in prop::collection::vec(("[a-z:-]{1,20}", "[ -~]{0,40}"), 0..20)) {
            let mut block = Vec::new();
            for (name, value) in &fields {
                write_field(name.as_bytes(), value.as_bytes(), &mut block);
            }
            let mut decoder = Decoder::default();
            prop_assert_eq!(decoded(&mut decoder, &block), Ok(fields));
            prop_assert_eq!(decoder.changes(), 0);
        }

        #[test]
        fn no_bytes_break_the_decoder(blocks: Vec<Vec<u8>>) {
            let mut decoder = Decoder::default();
            for block in &blocks {
                let _ = decoded(&mut decoder, block);
                prop_assert!(decoder.bytes <= decoder.bytes_max && decoder.bytes_max <= TABLE_BYTES_MAX);
            }
        }
    }

    /// The blocks of a story, with the fields that they are.
    fn cases(story: &std::path::Path) -> Vec<(Vec<u8>, Owned)> {
        let text = std::fs::read_to_string(story).unwrap();
        let story: serde_json::Value = serde_json::from_str(&text).unwrap();
        let case = |case: &serde_json::Value| {
            let field = |field: &serde_json::Value| {
                let (name, value) = field.as_object().unwrap().iter().next().unwrap();
                (name.clone(), value.as_str().unwrap().to_owned())
            };
            let fields = case["headers"].as_array().unwrap().iter().map(field);
            // Those of the raw data have no blocks.
            Some((hex(case["wire"].as_str()?), fields.collect()))
        };
        let cases = story["cases"].as_array().unwrap().iter();
        cases.filter_map(case).collect()
    }

    #[test]
    #[ignore = "needs HPACK_STORIES, a checkout of github.com/http2jp/hpack-test-case, whose text is not ours"]
    fn the_public_stories_are_read_and_written() {
        let folder = std::env::var("HPACK_STORIES").unwrap();
        let encoders = std::fs::read_dir(folder).unwrap();
        let encoders = encoders.filter_map(|entry| std::fs::read_dir(entry.unwrap().path()).ok());
        let files = encoders.flatten().map(|entry| entry.unwrap().path());
        let mut blocks = 0;
        for file in files.filter(|file| file.extension().is_some_and(|end| end == "json")) {
            let mut decoder = Decoder::default();
            for (block, fields) in cases(&file) {
                let found = decoded(&mut decoder, &block);
                assert_eq!(found.as_ref(), Ok(&fields), "{}", file.display());
                let mut own = Vec::new();
                for (name, value) in &fields {
                    write_field(name.as_bytes(), value.as_bytes(), &mut own);
                }
                assert_eq!(decoded(&mut Decoder::default(), &own), Ok(fields));
                blocks += 1;
            }
        }
        assert!(blocks > 40_000, "{blocks} blocks");
    }
}
