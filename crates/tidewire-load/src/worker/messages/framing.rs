//! Framing of messages within the frames of a WebSocket.

use crate::worker::template::form::{Form, Read};

/// How messages are found in frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Framing {
    /// Each frame is a message.
    #[default]
    Frames,
    /// These bytes end a message: a frame may contain several.
    Separator(Vec<u8>),
    /// The length of the rest is in each message: a frame may contain several, and a part of one.
    Length {
        /// The number of bytes before the length.
        at: usize,
        /// The form of the length.
        form: Form,
    },
}

/// The messages in some bytes, one after another.
#[derive(Debug)]
pub(super) struct Split<'f, 'm> {
    framing: &'f Framing,
    rest: Option<&'m [u8]>,
}

/// A length that is no number, or above the largest message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WrongLength;

impl Framing {
    /// The messages in the bytes of a frame. With lengths they may begin with what [`Split::rest`] has left of the
    /// frames before.
    pub(super) fn split<'m>(&self, bytes: &'m [u8]) -> Split<'_, 'm> {
        // A frame that is a message may be empty.
        let is_one = *self == Self::Frames;
        Split {
            framing: self,
            rest: Some(bytes).filter(|bytes| is_one || !bytes.is_empty()),
        }
    }

    /// The place after the length of a message; 0 if messages have none.
    pub(super) fn content_at(&self, message: &[u8]) -> usize {
        match self {
            Self::Frames | Self::Separator(_) => 0,
            Self::Length { at, form } => match form.read(message.get(*at..).unwrap_or_default()) {
                Read::Number(_, bytes) => at + bytes,
                Read::Incomplete | Read::Wrong => 0,
            },
        }
    }
}

impl<'m> Split<'_, 'm> {
    /// The next message, unless there is only a part of it.
    pub(super) fn next(&mut self, bytes_max: usize) -> Result<Option<&'m [u8]>, WrongLength> {
        let Some(rest) = self.rest else {
            return Ok(None);
        };
        let (end, next) = match self.framing {
            Framing::Frames => (rest.len(), rest.len()),
            Framing::Separator(separator) => match memchr::memmem::find(rest, separator) {
                Some(at) => (at, at + separator.len()),
                None => (rest.len(), rest.len()),
            },
            Framing::Length { at, form } => {
                let Some(end) = end_of(rest, (*at, *form), bytes_max)? else {
                    return Ok(None);
                };
                (end, end)
            }
        };
        self.rest = Some(&rest[next..]).filter(|rest| !rest.is_empty());
        Ok(Some(&rest[..end]))
    }

    /// The bytes that are not read yet.
    pub(super) fn rest(&self) -> &'m [u8] {
        self.rest.unwrap_or_default()
    }
}

/// The end of the message at the beginning of some bytes, if they contain it.
fn end_of(
    bytes: &[u8],
    (at, form): (usize, Form),
    bytes_max: usize,
) -> Result<Option<usize>, WrongLength> {
    let Some(after) = bytes.get(at..) else {
        return Ok(None);
    };
    let (length, length_bytes) = match form.read(after) {
        Read::Number(length, bytes) => (usize::try_from(length).unwrap_or(usize::MAX), bytes),
        Read::Incomplete => return Ok(None),
        Read::Wrong => return Err(WrongLength),
    };
    let end = (at + length_bytes).saturating_add(length);
    match end {
        _ if end > bytes_max => Err(WrongLength),
        _ => Ok(Some(end).filter(|end| *end <= bytes.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MQTT: Framing = Framing::Length {
        at: 1,
        form: Form::Varint,
    };

    fn split(framing: &Framing, bytes: &[u8]) -> Result<(Vec<Vec<u8>>, usize), WrongLength> {
        let (mut split, mut messages) = (framing.split(bytes), Vec::new());
        while let Some(message) = split.next(MAX)? {
            messages.push(message.to_vec());
        }
        Ok((messages, split.rest().len()))
    }

    const MAX: usize = 1000;

    #[test]
    fn a_frame_may_contain_several_messages() {
        let texts = |framing: &Framing, text: &str| {
            let (messages, rest) = split(framing, text.as_bytes()).unwrap();
            let messages = messages.into_iter().map(String::from_utf8);
            assert_eq!(rest, 0);
            messages.collect::<Result<Vec<_>, _>>().unwrap()
        };
        assert_eq!(texts(&Framing::Frames, "a\x1eb"), ["a\x1eb"]);
        assert_eq!(texts(&Framing::Frames, ""), [""]);
        let separator = Framing::Separator(b"\x1e".to_vec());
        assert_eq!(texts(&separator, "a\x1eb\x1e"), ["a", "b"]);
        assert_eq!(texts(&separator, "a\x1e\x1eb"), ["a", "", "b"]);
        assert!(texts(&separator, "").is_empty());
    }

    #[test]
    fn lengths_are_those_of_the_rest() {
        let u16_first = Framing::Length {
            at: 0,
            form: Form::Big(2),
        };
        let long = [&[0x30, 0x80, 0x01][..], &[7; 128]].concat();
        for (framing, bytes, messages, rest) in [
            (&MQTT, &[0xd0, 0][..], 1, 0),
            (&MQTT, &[0xd0, 0, 0x40, 2, 0, 1, 0x40], 2, 1),
            (&MQTT, &[0x40, 2, 0], 0, 3),
            (&MQTT, &[0x30, 0x80], 0, 2),
            (&MQTT, &[], 0, 0),
            (&MQTT, &long, 1, 0),
            (&u16_first, &[0, 1, 9, 0, 0, 0], 2, 1),
        ] {
            let (found, left) = split(framing, bytes).unwrap();
            assert_eq!((found.len(), left), (messages, rest), "{bytes:?}");
        }
        for wrong in [
            &[0x30, 0xff, 0xff, 0xff, 0xff][..],
            &[0x30, 0xff, 0xff, 0x7f],
        ] {
            assert_eq!(split(&MQTT, wrong), Err(WrongLength), "{wrong:?}");
        }
        assert_eq!(
            (MQTT.content_at(&long), MQTT.content_at(&[0x40, 2, 0, 1])),
            (3, 2)
        );
        assert_eq!(
            (MQTT.content_at(&[]), Framing::Frames.content_at(&long)),
            (0, 0)
        );
    }

    proptest! {
        #[test]
        fn any_cut_of_a_stream_gives_the_same_messages(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            cuts in prop::collection::vec(0..2000_usize, 0..20),
        ) {
            let packet = |content: &Vec<u8>| {
                let mut packet = vec![0x30];
                Form::Varint.write(content.len() as u64, &mut packet);
                packet.extend_from_slice(content);
                packet
            };
            let packets: Vec<Vec<u8>> = contents.iter().map(packet).collect();
            let stream = packets.concat();
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
            ends.push(stream.len());
            ends.sort_unstable();
            let (mut messages, mut kept, mut start) = (Vec::new(), Vec::new(), 0);
            for end in ends {
                kept.extend_from_slice(&stream[start..end]);
                let (found, rest) = split(&MQTT, &kept).unwrap();
                messages.extend(found);
                kept.drain(..kept.len() - rest);
                start = end;
            }
            prop_assert_eq!(messages, packets);
            prop_assert!(kept.is_empty());
        }
    }
}
