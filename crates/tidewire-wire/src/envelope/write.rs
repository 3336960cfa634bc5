//! Writing an envelope around a payload.

use super::Category;
use crate::format::{Format, FormatError, MESSAGEPACK_PREFIX, binary_bytes, json_to_msgpack};
use crate::json::text::write_string;
use crate::timestamp::write_rfc3339_ms;
use crate::uuid::Uuid;

/// Everything of an envelope but its payload.
#[derive(Clone, Copy, Debug)]
pub struct EnvelopeHeader<'a> {
    /// `c`.
    pub category: Category,
    /// `t`.
    pub t: &'a str,
    /// `id`.
    pub id: Uuid,
    /// `ts`, as milliseconds since 1970.
    pub unix_ms: u64,
    /// `seq`.
    pub seq: u64,
    /// `cid`, if any.
    pub correlation_id: Option<&'a str>,
    /// `sig`, if any.
    pub signature: Option<&'a str>,
    /// `n`, if any: a producer's number of the message.
    pub number: Option<u64>,
    /// `b`: the payload is binary. In JSON it is then the base64 of the bytes in quotes.
    pub binary: bool,
}

impl EnvelopeHeader<'_> {
    /// Appends the envelope in `format`, with the prefix `M:` if that is MessagePack. `payload` is one
    /// JSON value; if it is binary, the base64 of the bytes in quotes.
    ///
    /// # Errors
    /// Only for MessagePack: a payload that is not JSON or nested too deep; `out` is as it was before.
    pub fn write(
        &self,
        format: Format,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        match format {
            Format::Json => {
                self.write_json(payload, out);
                Ok(())
            }
            Format::MessagePack => {
                let mut packed = Vec::with_capacity(payload.len());
                pack_payload(payload, self.binary, &mut packed)?;
                self.write_msgpack(&packed, out);
                Ok(())
            }
        }
    }

    /// Appends the envelope as JSON. `payload` is one JSON value and is not checked.
    pub fn write_json(&self, payload: &[u8], out: &mut Vec<u8>) {
        self.write_json_with(out, |out| out.extend_from_slice(payload));
    }

    /// Appends `M:` and the envelope as MessagePack. `payload` is one MessagePack value and is not
    /// checked.
    pub fn write_msgpack(&self, payload: &[u8], out: &mut Vec<u8>) {
        self.write_msgpack_with(out, |out| out.extend_from_slice(payload));
    }

    /// [`Self::write_json`] with a payload that `write_payload` appends. The type is near the start, so that
    /// the receiver can classify the message by its first bytes.
    pub(crate) fn write_json_with(
        &self,
        out: &mut Vec<u8>,
        write_payload: impl FnOnce(&mut Vec<u8>),
    ) {
        out.extend_from_slice(b"{\"c\":\"");
        out.extend_from_slice(self.category.as_str().as_bytes());
        out.extend_from_slice(b"\",\"t\":");
        write_string(self.t, out);
        out.extend_from_slice(b",\"id\":\"");
        self.id.write(out);
        out.extend_from_slice(b"\",\"ts\":\"");
        write_rfc3339_ms(self.unix_ms, out);
        out.extend_from_slice(b"\",\"seq\":");
        out.extend_from_slice(itoa::Buffer::new().format(self.seq).as_bytes());
        if let Some(correlation_id) = self.correlation_id {
            out.extend_from_slice(b",\"cid\":");
            write_string(correlation_id, out);
        }
        if let Some(signature) = self.signature {
            out.extend_from_slice(b",\"sig\":");
            write_string(signature, out);
        }
        if let Some(number) = self.number {
            out.extend_from_slice(b",\"n\":");
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
        if self.binary {
            out.extend_from_slice(b",\"b\":true");
        }
        out.extend_from_slice(b",\"p\":");
        write_payload(out);
        out.extend_from_slice(b",\"v\":1}");
    }

    /// [`Self::write_msgpack`] with a payload that `write_payload` appends.
    pub(crate) fn write_msgpack_with(
        &self,
        out: &mut Vec<u8>,
        write_payload: impl FnOnce(&mut Vec<u8>),
    ) {
        out.extend_from_slice(MESSAGEPACK_PREFIX);
        // A map of 7 to 11 pairs, whose keys are strings of one to three bytes.
        let texts = [self.correlation_id, self.signature];
        let optional = texts.into_iter().flatten().count() as u8;
        out.push(0x87 + optional + u8::from(self.number.is_some()) + u8::from(self.binary));
        out.extend_from_slice(b"\xa1c");
        pack_text(self.category.as_str(), out);
        out.extend_from_slice(b"\xa1t");
        pack_text(self.t, out);
        out.extend_from_slice(b"\xa2id");
        // Strings of 36 and 24 bytes: the length byte after str8, and the fixed form.
        out.extend_from_slice(&[0xd9, 36]);
        self.id.write(out);
        out.extend_from_slice(b"\xa2ts\xb8");
        write_rfc3339_ms(self.unix_ms, out);
        out.extend_from_slice(b"\xa3seq");
        pack_number(self.seq, out);
        if let Some(correlation_id) = self.correlation_id {
            out.extend_from_slice(b"\xa3cid");
            pack_text(correlation_id, out);
        }
        if let Some(signature) = self.signature {
            out.extend_from_slice(b"\xa3sig");
            pack_text(signature, out);
        }
        if let Some(number) = self.number {
            out.extend_from_slice(b"\xa1n");
            pack_number(number, out);
        }
        if self.binary {
            out.extend_from_slice(b"\xa1b\xc3");
        }
        out.extend_from_slice(b"\xa1p");
        write_payload(out);
        out.extend_from_slice(b"\xa1v\x01");
    }
}

/// Appends the MessagePack of a payload in JSON. One that is binary is the base64 of its bytes in quotes.
///
/// # Errors
/// It is not JSON or nested too deep; `out` is as it was before.
pub fn pack_payload(payload: &[u8], binary: bool, out: &mut Vec<u8>) -> Result<(), FormatError> {
    match binary.then(|| binary_bytes(payload)).flatten() {
        Some(bytes) => {
            rmp::encode::write_bin(out, &bytes).expect("a Vec takes every write");
            Ok(())
        }
        None => json_to_msgpack(payload, out),
    }
}

pub(super) fn pack_text(text: &str, out: &mut Vec<u8>) {
    rmp::encode::write_str(out, text).expect("a Vec takes every write");
}

/// Appends a MessagePack integer in its shortest form.
pub(crate) fn pack_number(number: u64, out: &mut Vec<u8>) {
    rmp::encode::write_uint(out, number).expect("a Vec takes every write");
}

#[cfg(test)]
mod tests {
    use super::super::{parse_json, parse_msgpack};
    use super::*;
    use crate::uuid::uuid_v7;
    use proptest::prelude::*;

    #[test]
    fn bytes_of_json() {
        let header = EnvelopeHeader {
            category: Category::Update,
            t: "trade",
            id: uuid_v7(1, [0; 10]),
            unix_ms: 1_732_212_345_678,
            seq: 3,
            correlation_id: None,
            signature: None,
            number: None,
            binary: false,
        };
        let mut out = Vec::new();
        header.write_json(b"{}", &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"c\":\"U\",\"t\":\"trade\",\"id\":\"00000000-0001-7000-8000-000000000000\",\
             \"ts\":\"2024-11-21T18:05:45.678Z\",\"seq\":3,\"p\":{},\"v\":1}"
        );
    }

    #[test]
    fn a_payload_that_is_not_json_leaves_no_trace() {
        let header = EnvelopeHeader {
            category: Category::System,
            t: "a",
            id: Uuid::default(),
            unix_ms: 0,
            seq: 0,
            correlation_id: None,
            signature: None,
            number: None,
            binary: false,
        };
        let mut out = b"x".to_vec();
        assert!(header.write(Format::MessagePack, b"{", &mut out).is_err());
        assert_eq!(out, b"x");
    }

    proptest! {
        #[test]
        fn both_formats_read_back(
            t in "\\PC{1,40}",
            cid in prop::option::of("\\PC{0,300}"),
            sig in prop::option::of("\\PC{0,300}"),
            seq: u64,
            n in prop::option::of(any::<u64>()),
            number: i64,
        ) {
            let header = EnvelopeHeader {
                category: Category::Snapshot,
                t: &t,
                id: uuid_v7(seq, [7; 10]),
                unix_ms: 5,
                seq,
                correlation_id: cid.as_deref(),
                signature: sig.as_deref(),
                number: n,
                binary: false,
            };
            let payload = serde_json::json!({ "n": number, "t": t.clone() });
            let payload_text = payload.to_string();
            let mut json = Vec::new();
            header.write(Format::Json, payload_text.as_bytes(), &mut json).unwrap();
            let mut packed = Vec::new();
            header.write(Format::MessagePack, payload_text.as_bytes(), &mut packed).unwrap();
            let envelope = parse_json(&json).unwrap();
            prop_assert_eq!(&envelope, &parse_msgpack(&packed[2..]).unwrap());
            prop_assert_eq!(envelope.t, t);
            prop_assert_eq!(envelope.seq, Some(seq));
            prop_assert_eq!(envelope.correlation_id, cid);
            prop_assert_eq!(envelope.signature, sig);
            prop_assert_eq!(envelope.number, n);
            prop_assert_eq!(envelope.payload, payload);
            prop_assert_eq!(envelope.version, Some(1));
        }
    }
}
