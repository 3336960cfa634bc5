//! Writing of messages to many connections: each is encoded once, and so without `ts`, `seq` and `v` or whatever
//! else differs between them.

use super::write::{pack_number, pack_text};
use super::{Category, Priority, SystemType};
use crate::format::{Format, FormatError, MESSAGEPACK_PREFIX, json_to_msgpack};
use crate::json::text::write_string;
use crate::timestamp::write_rfc3339_ms;
use crate::uuid::Uuid;

/// Everything of a publication's envelope but its payload.
#[derive(Clone, Copy, Debug)]
pub struct PublicationHeader<'a> {
    /// `c`.
    pub category: Category,
    /// `t`.
    pub t: &'a str,
    /// `tp`; `None` for a publication to a user, a connection or everyone.
    pub topic: Option<&'a str>,
    /// `e` and `o`, the epoch and the offset; only with history.
    pub position: Option<(u32, u64)>,
    /// `id`, if the publisher gave one.
    pub id: Option<&'a str>,
    /// `pri`, which is not written if it is normal.
    pub priority: Priority,
    /// `d`, and whether to write `rd`: the number under which a member of a queue group acknowledges the
    /// publication, and whether it was delivered before.
    pub delivery: Option<(u64, bool)>,
    /// `cid`.
    pub correlation_id: Option<&'a str>,
    /// `b`: the payload is binary. In JSON it is then the base64 of the bytes in quotes.
    pub binary: bool,
}

impl PublicationHeader<'_> {
    /// Appends the envelope as JSON. `payload` is one JSON value and is not checked.
    pub fn write_json(&self, payload: &[u8], out: &mut Vec<u8>) {
        let mut buffer = itoa::Buffer::new();
        out.extend_from_slice(b"{\"c\":\"");
        out.extend_from_slice(self.category.as_str().as_bytes());
        out.extend_from_slice(b"\",\"t\":");
        write_string(self.t, out);
        if let Some(topic) = self.topic {
            out.extend_from_slice(b",\"tp\":");
            write_string(topic, out);
        }
        if let Some((epoch, offset)) = self.position {
            out.extend_from_slice(b",\"e\":\"");
            write_epoch(epoch, out);
            out.extend_from_slice(b"\",\"o\":");
            out.extend_from_slice(buffer.format(offset).as_bytes());
        }
        if let Some(id) = self.id {
            out.extend_from_slice(b",\"id\":");
            write_string(id, out);
        }
        if self.priority != Priority::Normal {
            out.extend_from_slice(b",\"pri\":");
            out.extend_from_slice(buffer.format(self.priority.number()).as_bytes());
        }
        if let Some((delivery, redelivered)) = self.delivery {
            out.extend_from_slice(b",\"d\":");
            out.extend_from_slice(buffer.format(delivery).as_bytes());
            if redelivered {
                out.extend_from_slice(b",\"rd\":true");
            }
        }
        if let Some(correlation_id) = self.correlation_id {
            out.extend_from_slice(b",\"cid\":");
            write_string(correlation_id, out);
        }
        if self.binary {
            out.extend_from_slice(b",\"b\":true");
        }
        out.extend_from_slice(b",\"p\":");
        out.extend_from_slice(payload);
        out.push(b'}');
    }

    /// Appends `M:` and the envelope as MessagePack. `payload` is one MessagePack value and is not
    /// checked.
    pub fn write_msgpack(&self, payload: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(MESSAGEPACK_PREFIX);
        // A map of 3 to 12 pairs, whose keys are strings of one to three bytes.
        out.push(0x80 + self.fields());
        out.extend_from_slice(b"\xa1c");
        pack_text(self.category.as_str(), out);
        out.extend_from_slice(b"\xa1t");
        pack_text(self.t, out);
        if let Some(topic) = self.topic {
            out.extend_from_slice(b"\xa2tp");
            pack_text(topic, out);
        }
        if let Some((epoch, offset)) = self.position {
            out.extend_from_slice(b"\xa1e\xa8");
            write_epoch(epoch, out);
            out.extend_from_slice(b"\xa1o");
            pack_number(offset, out);
        }
        if let Some(id) = self.id {
            out.extend_from_slice(b"\xa2id");
            pack_text(id, out);
        }
        if self.priority != Priority::Normal {
            out.extend_from_slice(b"\xa3pri");
            out.push(self.priority.number());
        }
        if let Some((delivery, redelivered)) = self.delivery {
            out.extend_from_slice(b"\xa1d");
            pack_number(delivery, out);
            if redelivered {
                out.extend_from_slice(b"\xa2rd\xc3");
            }
        }
        if let Some(correlation_id) = self.correlation_id {
            out.extend_from_slice(b"\xa3cid");
            pack_text(correlation_id, out);
        }
        if self.binary {
            out.extend_from_slice(b"\xa1b\xc3");
        }
        out.extend_from_slice(b"\xa1p");
        out.extend_from_slice(payload);
    }

    fn fields(&self) -> u8 {
        let redelivered = matches!(self.delivery, Some((_, true)));
        3 + u8::from(self.topic.is_some())
            + 2 * u8::from(self.position.is_some())
            + u8::from(self.id.is_some())
            + u8::from(self.priority != Priority::Normal)
            + u8::from(self.delivery.is_some())
            + u8::from(redelivered)
            + u8::from(self.correlation_id.is_some())
            + u8::from(self.binary)
    }
}

/// Appends `presence_join`, `presence_leave` or `presence_update`, depending on `kind`, in `format`, with the
/// prefix `M:` if that is MessagePack. `data` is one JSON value and is not checked; `unix_ms` is in
/// milliseconds since 1970. The message has no `seq`, because it is sent to many.
///
/// # Errors
/// Only for MessagePack: `data` that is not JSON or nested too deep; `out` is as it was before.
#[expect(clippy::too_many_arguments, reason = "each is a field of the message")]
pub fn write_presence_event(
    kind: SystemType,
    topic: &str,
    user: &str,
    data: Option<&str>,
    id: Uuid,
    unix_ms: u64,
    format: Format,
    out: &mut Vec<u8>,
) -> Result<(), FormatError> {
    let mut text = Vec::new();
    let json = match format {
        Format::Json => &mut *out,
        Format::MessagePack => &mut text,
    };
    write_event(kind, id, unix_ms, json, |json| {
        json.extend_from_slice(b"{\"topic\":");
        write_string(topic, json);
        json.extend_from_slice(b",\"user_id\":");
        write_string(user, json);
        if let Some(data) = data {
            json.extend_from_slice(b",\"data\":");
            json.extend_from_slice(data.as_bytes());
        }
        json.push(b'}');
    });
    if format == Format::MessagePack {
        let before = out.len();
        out.extend_from_slice(MESSAGEPACK_PREFIX);
        if let Err(error) = json_to_msgpack(&text, out) {
            out.truncate(before);
            return Err(error);
        }
    }
    Ok(())
}

/// Appends a system message that goes to many, and so has no `seq`, as JSON.
pub(crate) fn write_event(
    kind: SystemType,
    id: Uuid,
    unix_ms: u64,
    json: &mut Vec<u8>,
    write_payload: impl FnOnce(&mut Vec<u8>),
) {
    json.extend_from_slice(b"{\"c\":\"WSE\",\"t\":");
    write_string(kind.as_str(), json);
    json.extend_from_slice(b",\"id\":\"");
    id.write(json);
    json.extend_from_slice(b"\",\"ts\":\"");
    write_rfc3339_ms(unix_ms, json);
    json.extend_from_slice(b"\",\"p\":");
    write_payload(json);
    json.extend_from_slice(b",\"v\":1}");
}

/// Appends `M:` and a system message without `seq`, as [`write_event`] does it in JSON.
pub(crate) fn pack_event(
    kind: SystemType,
    id: Uuid,
    unix_ms: u64,
    out: &mut Vec<u8>,
    write_payload: impl FnOnce(&mut Vec<u8>),
) {
    out.extend_from_slice(MESSAGEPACK_PREFIX);
    out.extend_from_slice(b"\x86\xa1c\xa3WSE\xa1t");
    pack_text(kind.as_str(), out);
    // A string of 36 bytes needs a length byte, one of 24 does not.
    out.extend_from_slice(b"\xa2id\xd9\x24");
    id.write(out);
    out.extend_from_slice(b"\xa2ts\xb8");
    write_rfc3339_ms(unix_ms, out);
    out.extend_from_slice(b"\xa1p");
    write_payload(out);
    out.extend_from_slice(b"\xa1v\x01");
}

/// Appends an epoch as it stands on the wire: 8 lower-case hexadecimal digits.
pub fn write_epoch(epoch: u32, out: &mut Vec<u8>) {
    for shift in (0..8).rev() {
        let nibble = (epoch >> (shift * 4)) & 0xf;
        out.push(b"0123456789abcdef"[nibble as usize]);
    }
}

/// An epoch as it stands on the wire.
#[must_use]
pub fn epoch_text(epoch: u32) -> String {
    format!("{epoch:08x}")
}

/// The epoch that 8 hexadecimal digits in either case stand for; `None` for anything else.
#[must_use]
pub fn parse_epoch(text: &str) -> Option<u32> {
    let is_hex = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::{Envelope, parse_json, parse_msgpack};
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const BARE: PublicationHeader<'_> = PublicationHeader {
        category: Category::Update,
        t: "trade",
        topic: Some("orders.eu"),
        position: None,
        id: None,
        priority: Priority::Normal,
        delivery: None,
        correlation_id: None,
        binary: false,
    };

    fn json_of(header: &PublicationHeader<'_>, payload: &str) -> String {
        let mut out = Vec::new();
        header.write_json(payload.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn bytes_of_publications() {
        assert_eq!(
            json_of(&BARE, "{\"x\": 1}"),
            r#"{"c":"U","t":"trade","tp":"orders.eu","p":{"x": 1}}"#
        );
        let mut out = Vec::new();
        BARE.write_msgpack(&[0x81, 0xa1, b'x', 1], &mut out);
        assert_eq!(
            out,
            b"M:\x84\xa1c\xa1U\xa1t\xa5trade\xa2tp\xa9orders.eu\xa1p\x81\xa1x\x01"
        );
        let full = PublicationHeader {
            position: Some((0x0bad_cafe, 17)),
            id: Some("i\"1"),
            priority: Priority::High,
            delivery: Some((300, true)),
            correlation_id: Some("c"),
            ..BARE
        };
        assert_eq!(
            json_of(&full, "[]"),
            r#"{"c":"U","t":"trade","tp":"orders.eu","e":"0badcafe","o":17,"id":"i\"1","pri":8,"d":300,"rd":true,"cid":"c","p":[]}"#
        );
        out.clear();
        full.write_msgpack(&[0x90], &mut out);
        assert_eq!(
            out,
            b"M:\x8b\xa1c\xa1U\xa1t\xa5trade\xa2tp\xa9orders.eu\xa1e\xa80badcafe\xa1o\x11\xa2id\xa3i\"1\
              \xa3pri\x08\xa1d\xcd\x01\x2c\xa2rd\xc3\xa3cid\xa1c\xa1p\x90"
        );
    }

    #[test]
    fn epochs() {
        for (epoch, text) in [
            (0, "00000000"),
            (0x0bad_cafe, "0badcafe"),
            (u32::MAX, "ffffffff"),
        ] {
            let mut out = Vec::new();
            write_epoch(epoch, &mut out);
            assert_eq!(out, text.as_bytes());
            assert_eq!(epoch_text(epoch), text);
            assert_eq!(parse_epoch(text), Some(epoch));
        }
        assert_eq!(parse_epoch("0BADCAFE"), Some(0x0bad_cafe));
        for wrong in [
            "",
            "badcafe",
            "+badcafe",
            "0badcafe0",
            "0badcafg",
            "0badcaé",
        ] {
            assert_eq!(parse_epoch(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn presence_events() {
        let write = |format, data, out: &mut Vec<u8>| {
            let kind = SystemType::PresenceJoin;
            write_presence_event(kind, "a", "u\n2", data, Uuid([1; 16]), 0, format, out)
        };
        let mut json = Vec::new();
        write(Format::Json, Some("{\"name\":\"x\"}"), &mut json).unwrap();
        let envelope = parse_json(&json).unwrap();
        let expected = Envelope {
            category: Some(Category::System),
            t: "presence_join".to_owned(),
            id: Some("01010101-0101-0101-0101-010101010101".to_owned()),
            ts: Some("1970-01-01T00:00:00.000Z".to_owned()),
            payload: json!({"topic": "a", "user_id": "u\n2", "data": {"name": "x"}}),
            version: Some(1),
            ..Envelope::default()
        };
        assert_eq!(envelope, expected);
        let mut packed = Vec::new();
        write(Format::MessagePack, Some("{\"name\":\"x\"}"), &mut packed).unwrap();
        assert_eq!(parse_msgpack(&packed[2..]), Ok(expected));
        assert!(write(Format::MessagePack, Some("{"), &mut packed).is_err());
        let mut bare = Vec::new();
        write(Format::Json, None, &mut bare).unwrap();
        assert_eq!(
            parse_json(&bare).unwrap().payload,
            json!({"topic": "a", "user_id": "u\n2"})
        );
    }

    proptest! {
        #[test]
        fn both_formats_read_back(
            t in "\\PC{1,40}",
            topic in prop::option::of("\\PC{1,300}"),
            position in prop::option::of(any::<(u32, u64)>()),
            id in prop::option::of("\\PC{1,40}"),
            priority in prop::sample::select(Priority::ALL.to_vec()),
            delivery in prop::option::of(any::<(u64, bool)>()),
            cid in prop::option::of("\\PC{0,40}"),
        ) {
            let header = PublicationHeader {
                category: Category::Snapshot,
                t: &t,
                topic: topic.as_deref(),
                position,
                id: id.as_deref(),
                priority,
                delivery,
                correlation_id: cid.as_deref(),
                binary: false,
            };
            let envelope = parse_json(json_of(&header, "7").as_bytes()).unwrap();
            let mut packed = Vec::new();
            header.write_msgpack(&[7], &mut packed);
            prop_assert_eq!(&parse_msgpack(&packed[2..]).unwrap(), &envelope);
            let number = u64::from(priority.number());
            let expected = Envelope {
                category: Some(Category::Snapshot),
                t,
                topic,
                epoch: position.map(|(epoch, _)| epoch_text(epoch)),
                offset: position.map(|(_, offset)| offset),
                id,
                priority: (priority != Priority::Normal).then_some(number),
                delivery: delivery.map(|(delivery, _)| delivery),
                redelivered: delivery.and_then(|(_, again)| again.then_some(true)),
                correlation_id: cid,
                payload: 7.into(),
                ..Envelope::default()
            };
            prop_assert_eq!(envelope, expected);
        }
    }
}
