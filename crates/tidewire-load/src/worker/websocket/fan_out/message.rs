//! The publications of a fan-out: JSON of one size, numbered and stamped.

use crate::worker::websocket::channel::Channel;
use crate::worker::websocket::profile::{Profile, write_text};

/// Writes and recognizes the publications of one measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    /// Bytes of the payload object, always the same.
    object_bytes: usize,
}

/// The parts of a publication that a subscriber checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// Counted from 1.
    pub(crate) number: u64,
    /// When it was meant to leave, in microseconds since the epoch.
    pub(crate) at_us: u64,
    /// Epoch and offset, on a topic with history.
    pub(crate) position: Option<(u32, u64)>,
}

impl Template {
    /// Publications that are `message_bytes` bytes long where they have no position, but at least
    /// [`MESSAGE_BYTES_MIN`].
    pub(crate) fn new(message_bytes: usize) -> Self {
        let message_bytes = message_bytes.max(MESSAGE_BYTES_MIN);
        Self {
            object_bytes: message_bytes - HEAD.len() - NAME.len() - 1,
        }
    }

    /// Bytes of a publication without a position.
    pub(crate) fn message_bytes(&self) -> usize {
        HEAD.len() + NAME.len() + self.object_bytes + 1
    }

    /// Appends the frame with which a publisher has the publication made. To a plain WebSocket server it is the
    /// publication itself.
    pub(crate) fn write(
        &self,
        profile: Profile,
        (number, at_us): (u64, u64),
        mask: [u8; 4],
        channel: Option<&mut Channel>,
        out: &mut Vec<u8>,
    ) {
        let mut text = Vec::with_capacity(REQUEST_HEAD.len() + self.object_bytes + 8);
        let tail: &[u8] = match profile {
            Profile::Raw => {
                text.extend_from_slice(HEAD);
                text.extend_from_slice(NAME);
                b"}"
            }
            Profile::V1 => {
                text.extend_from_slice(REQUEST_HEAD);
                br#"},"v":1}"#
            }
        };
        self.write_object(number, at_us, &mut text);
        text.extend_from_slice(tail);
        write_text(out, &text, mask, channel);
    }

    fn write_object(&self, number: u64, at_us: u64, out: &mut Vec<u8>) {
        let end = out.len() + self.object_bytes;
        out.extend_from_slice(NUMBER);
        write_number(number, out);
        out.extend_from_slice(AT);
        write_number(at_us, out);
        out.extend_from_slice(FILLER);
        // Only numbers that no run reaches leave no room.
        let filler = end.saturating_sub(out.len() + CLOSING.len());
        out.resize(out.len() + filler, FILL);
        out.extend_from_slice(CLOSING);
    }

    /// The publication that a message is; `None` for anything else, and for one that was changed on its way.
    pub(crate) fn read(&self, message: &[u8]) -> Option<Delivery> {
        let rest = message.strip_suffix(b"}")?;
        let (front, object) = rest.split_at_checked(rest.len().checked_sub(self.object_bytes)?)?;
        let position = read_position(front.strip_prefix(HEAD)?.strip_suffix(NAME)?)?;
        let (number, rest) = read_number(object.strip_prefix(NUMBER)?)?;
        let (at_us, rest) = read_number(rest.strip_prefix(AT)?)?;
        let filler = rest.strip_prefix(FILLER)?.strip_suffix(CLOSING)?;
        filler.iter().all(|byte| *byte == FILL).then_some(Delivery {
            number,
            at_us,
            position,
        })
    }
}

/// The fields between the topic and the payload: nothing, or epoch and offset.
fn read_position(fields: &[u8]) -> Option<Option<(u32, u64)>> {
    if fields.is_empty() {
        return Some(None);
    }
    let (epoch, rest) = fields.strip_prefix(br#""e":""#)?.split_at_checked(8)?;
    let epoch = u32::from_str_radix(std::str::from_utf8(epoch).ok()?, 16).ok()?;
    let (offset, rest) = read_number(rest.strip_prefix(br#"","o":"#)?)?;
    (rest == b",").then_some(Some((epoch, offset)))
}

fn read_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let digits = bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (digits, rest) = bytes.split_at(digits);
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0_u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })?;
    Some((number, rest))
}

fn write_number(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// The topic of all fan-out measurements.
pub(crate) const TOPIC: &str = "fan-out";

const HEAD: &[u8] = br#"{"c":"U","t":"f","tp":"fan-out","#;
const NAME: &[u8] = br#""p":"#;
const REQUEST_HEAD: &[u8] =
    br#"{"c":"WSE","t":"publish_request","p":{"topic":"fan-out","type":"f","payload":"#;
const NUMBER: &[u8] = br#"{"n":"#;
const AT: &[u8] = br#","at":"#;
const FILLER: &[u8] = br#","x":""#;
const CLOSING: &[u8] = br#""}"#;
const FILL: u8 = b'x';

/// The shortest publication: room for ten digits of the number and thirteen of the time.
pub const MESSAGE_BYTES_MIN: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_wire::format::Format;
    use tidewire_wire::frame::Role;
    use tidewire_wire::message::{Event, Input, MessageReader};
    use tidewire_wire::session::PublishRequest;

    fn text(profile: Profile, template: &Template, number: u64, at_us: u64) -> String {
        let mut frame = Vec::new();
        template.write(profile, (number, at_us), [1, 2, 3, 4], None, &mut frame);
        match MessageReader::new(Role::Server, 70_000).read(&mut Input::new(&mut frame)) {
            Ok(Some(Event::Text(text))) => text.as_str().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_publication_has_its_size_and_reads_back() {
        for bytes in [80, 95, 1_000] {
            let template = Template::new(bytes);
            assert_eq!(template.message_bytes(), bytes);
            for (number, at_us) in [(1, 0), (9_999_999_999, 9_999_999_999_999), (70, 123_456)] {
                let text = text(Profile::Raw, &template, number, at_us);
                assert_eq!(text.len(), bytes, "{text}");
                serde_json::from_str::<serde_json::Value>(&text).unwrap();
                let expected = Delivery {
                    number,
                    at_us,
                    position: None,
                };
                assert_eq!(template.read(text.as_bytes()), Some(expected));
            }
        }
        assert_eq!(Template::new(1).message_bytes(), MESSAGE_BYTES_MIN);
    }

    #[test]
    fn the_request_asks_for_the_same_publication() {
        let template = Template::new(95);
        let asked = text(Profile::V1, &template, 12, 345);
        let mut scratch = Vec::new();
        let (request, id) =
            PublishRequest::parse(Format::Json, asked.as_bytes(), &mut scratch).unwrap();
        assert_eq!((&*request.topic, &*request.t, id), (TOPIC, "f", None));
        let object = std::str::from_utf8(&request.payload).unwrap();
        let published = format!(r#"{{"c":"U","t":"f","tp":"fan-out","p":{object}}}"#);
        assert_eq!(published, text(Profile::Raw, &template, 12, 345));
    }

    #[test]
    fn a_position_is_found_and_what_was_changed_is_not() {
        let template = Template::new(95);
        let plain = text(Profile::Raw, &template, 7, 8);
        let placed = plain.replace(r#""p":"#, r#""e":"0badcafe","o":17,"p":"#);
        let delivery = template.read(placed.as_bytes()).unwrap();
        assert_eq!(delivery.position, Some((0x0bad_cafe, 17)));
        for changed in [
            plain.replace("xx", "xy"),
            plain.replace("fan-out", "fan-in!"),
            plain.replace(r#""n":7"#, r#""n":x"#),
            placed.replace("17", ""),
            placed.replace("0badcafe", "0badcafé"),
            plain.replace("xx", "x"),
            String::new(),
        ] {
            assert_eq!(template.read(changed.as_bytes()), None, "{changed}");
        }
    }
}
