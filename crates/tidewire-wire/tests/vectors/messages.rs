//! Messages in every form, as a server and a client take them.

use super::reason;
use std::borrow::Cow;
use tidewire_testkit::vectors::frames::Side;
use tidewire_testkit::vectors::load;
use tidewire_testkit::vectors::messages::{Case, Envelope as Expected, Form, Kind as Business};
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{
    Category, Envelope, EnvelopeError, EnvelopeHeader, Kind, Outline, SystemType, accept_json,
    accept_msgpack, classify_json, classify_msgpack, message_content, parse_json, parse_msgpack,
};
use tidewire_wire::format::{Format, FormatError, Framing, identify, inflate};
use tidewire_wire::session::{
    ClientEvent, ClientSession, Now, PublishRequest, Reply, ServerProfile, ServerSession,
    SystemEvent,
};
use tidewire_wire::uuid::Uuid;

pub(crate) fn run(file: &str) {
    for case in load::<Case>(file) {
        for (index, form) in case.frames.iter().enumerate() {
            let name = format!("{}, frame {index}", case.name);
            let found = take(form, case.inflated_bytes_max);
            match case.kind {
                Business::Refused => check_refused(&name, &case, found),
                Business::Application | Business::System => {
                    let (format, bytes) = found.unwrap_or_else(|error| panic!("{name}: {error:?}"));
                    check_taken(&name, &case, format, &bytes);
                }
            }
        }
    }
}

/// Why a message is refused before its envelope is looked at.
#[derive(Debug)]
struct Refusal(ErrorCode, &'static str);

/// Takes the layers off, as `PROTOCOL.md` has it: compression around any form but itself.
fn take(form: &Form, inflated_bytes_max: usize) -> Result<(Format, Vec<u8>), Refusal> {
    let bytes = match form {
        Form::Text(text) => return Ok((Format::Json, text.clone().into_bytes())),
        Form::Binary(bytes) => &bytes[..],
    };
    let content = match identify(bytes) {
        Framing::Zlib { prefix_bytes } => {
            let mut inflated = Vec::new();
            inflate(&bytes[prefix_bytes..], &mut inflated, inflated_bytes_max).map_err(
                |error| match error {
                    FormatError::TooLarge { .. } => {
                        Refusal(ErrorCode::MessageTooLarge, "too_large")
                    }
                    _ => Refusal(ErrorCode::InvalidMessage, "inflate"),
                },
            )?;
            Cow::Owned(inflated)
        }
        _ => Cow::Borrowed(bytes),
    };
    let refused = |reason| Err(Refusal(ErrorCode::InvalidMessage, reason));
    match identify(&content) {
        Framing::Json if std::str::from_utf8(&content).is_err() => refused("not_utf8"),
        Framing::Json => Ok((Format::Json, content.into_owned())),
        framing @ Framing::MessagePack => Ok((
            Format::MessagePack,
            content[framing.prefix_bytes()..].to_vec(),
        )),
        Framing::Zlib { .. } => refused("nested_compression"),
        Framing::Encrypted => refused("not_encrypted"),
    }
}

fn classify(format: Format, bytes: &[u8]) -> Result<Kind, EnvelopeError> {
    match format {
        Format::Json => accept_json(bytes),
        Format::MessagePack => accept_msgpack(bytes),
    }
}

/// As a client does, which takes what a server would refuse.
fn classify_loosely(format: Format, bytes: &[u8]) -> Result<Kind, EnvelopeError> {
    match format {
        Format::Json => classify_json(bytes),
        Format::MessagePack => classify_msgpack(bytes),
    }
}

fn parse(format: Format, bytes: &[u8]) -> Result<Envelope, EnvelopeError> {
    match format {
        Format::Json => parse_json(bytes),
        Format::MessagePack => parse_msgpack(bytes),
    }
}

fn check_taken(name: &str, case: &Case, format: Format, bytes: &[u8]) {
    let kind = match case.by.contains(&Side::Server) {
        true => classify(format, bytes),
        false => classify_loosely(format, bytes),
    };
    match case.kind {
        Business::System => {
            let expected = case.system_type.as_deref().expect("a system type");
            let Ok(Kind::System(system)) = kind else {
                panic!("{name}: {kind:?}")
            };
            assert_eq!(system.as_str(), expected, "{name}");
        }
        _ => assert_eq!(kind, Ok(Kind::Application), "{name}"),
    }
    let envelope = case
        .envelope
        .as_ref()
        .unwrap_or_else(|| panic!("{name}: no envelope"));
    match (parse(format, bytes), envelope) {
        (Ok(found), Some(expected)) => {
            assert_eq!(wire_names(&found), *expected, "{name}");
            check_written(name, &found);
        }
        (Err(_), None) => {}
        (found, _) => panic!("{name}: {found:?}"),
    }
}

/// A writer's envelope reads back as the one it was made from.
fn check_written(name: &str, envelope: &Envelope) {
    let header = EnvelopeHeader {
        category: envelope.category.unwrap_or(Category::System),
        t: &envelope.t,
        id: Uuid([7; 16]),
        unix_ms: 1_732_212_345_678,
        seq: envelope.seq.unwrap_or(3),
        correlation_id: envelope.correlation_id.as_deref(),
        signature: envelope.signature.as_deref(),
        number: envelope.number,
        binary: envelope.binary,
    };
    let expected = Envelope {
        category: Some(header.category),
        id: Some(header.id.to_string()),
        ts: Some("2024-11-21T18:05:45.678Z".to_owned()),
        seq: Some(header.seq),
        version: Some(1),
        priority: None,
        topic: None,
        epoch: None,
        offset: None,
        delivery: None,
        redelivered: None,
        ..envelope.clone()
    };
    for format in [Format::Json, Format::MessagePack] {
        let mut out = Vec::new();
        let payload = envelope.payload.to_string();
        header
            .write(format, payload.as_bytes(), &mut out)
            .expect("a payload that was read");
        let content = match format {
            Format::Json => &out[..],
            Format::MessagePack => out.strip_prefix(b"M:").expect("the prefix"),
        };
        assert_eq!(
            parse(format, content).as_ref(),
            Ok(&expected),
            "{name}, written"
        );
    }
}

fn check_refused(name: &str, case: &Case, found: Result<(Format, Vec<u8>), Refusal>) {
    let expected = (case.code.as_deref(), case.reason.as_deref());
    let (format, bytes) = match found {
        Ok(found) => found,
        Err(Refusal(code, reason)) => {
            assert_eq!((Some(code.as_str()), Some(reason)), expected, "{name}");
            return;
        }
    };
    for side in &case.by {
        match side {
            Side::Server => {
                let (code, reason) = server(format, &bytes);
                let code = code.map(ErrorCode::as_str);
                // A request's own fields are refused without an error of the envelope's.
                let reason = reason.as_ref().map_or("request", super::reason);
                assert_eq!((code, Some(reason)), expected, "{name}, by the server");
            }
            Side::Client if classify(format, &bytes) == Ok(Kind::Application) => {
                let found = parse(format, &bytes).map(|_| ());
                let wanted = case.reason.as_deref();
                assert_eq!(
                    found.as_ref().err().map(reason),
                    wanted,
                    "{name}, by the client"
                );
                assert!(Outline::find(format, &bytes).is_err(), "{name}");
            }
            Side::Client => {
                let mut session = ClientSession::new(format, Now::default());
                let event = session.handle_message(format, &bytes, Now::default());
                let found = event.as_ref().map_err(reason).map(|_: &ClientEvent| ());
                let wanted = case.reason.as_deref().unwrap_or_default();
                assert_eq!(found, Err(wanted), "{name}, by the client");
            }
        }
    }
}

/// The error code that a server answers with, and the error of the envelope that it stands for.
fn server(format: Format, bytes: &[u8]) -> (Option<ErrorCode>, Option<EnvelopeError>) {
    let system: SystemType = match classify(format, bytes) {
        Ok(Kind::System(system)) => system,
        Ok(Kind::Application) => {
            let error = message_content(format, bytes).err();
            return (error.as_ref().map(|_| ErrorCode::InvalidMessage), error);
        }
        Err(error) => return (Some(ErrorCode::InvalidMessage), Some(error)),
    };
    let mut session = ServerSession::new(format, false, Now::default());
    match session.handle_system(&ServerProfile::default(), system, format, bytes) {
        SystemEvent::Reply(Reply::Error { code, .. }) => {
            let error = parse(format, bytes).err();
            let in_batch = system == SystemType::Batch && error.is_none();
            let error = if in_batch {
                Some(EnvelopeError::InvalidField("messages"))
            } else {
                error
            };
            (Some(code), error)
        }
        SystemEvent::Publish => {
            let mut scratch = Vec::new();
            let refusal = PublishRequest::parse(format, bytes, &mut scratch).err();
            (refusal.map(|refusal| refusal.code), None)
        }
        other => panic!("no error: {other:?}"),
    }
}

fn wire_names(envelope: &Envelope) -> Expected {
    Expected {
        t: envelope.t.clone(),
        c: envelope
            .category
            .map(|category| category.as_str().to_owned()),
        id: envelope.id.clone(),
        ts: envelope.ts.clone(),
        seq: envelope.seq,
        p: envelope.payload.clone(),
        v: envelope.version,
        pri: envelope.priority,
        cid: envelope.correlation_id.clone(),
        sig: envelope.signature.clone(),
        tp: envelope.topic.clone(),
        e: envelope.epoch.clone(),
        o: envelope.offset,
        d: envelope.delivery,
        rd: envelope.redelivered,
        n: envelope.number,
        b: envelope.binary.then_some(true),
    }
}
