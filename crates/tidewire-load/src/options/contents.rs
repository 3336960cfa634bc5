//! Checks of the messages of a WebSocket load: that each fits into a frame of its kind, and that replies find it.

use super::OptionError;
use crate::worker::messages::{Matching, MessagesSetup};
use crate::worker::script::{Encoded, Script};
use crate::worker::service::order::{DialogueKind, ServiceTarget};
use crate::worker::template::Template;

/// Checks of each WebSocket server that text messages are text, that constant parts fit into their sizes, and that each
/// message has the number by which its reply is found.
///
/// # Errors
/// The first message that does not.
pub(super) fn check_contents(
    targets: &[ServiceTarget],
    script: &Script,
) -> Result<(), OptionError> {
    for (number, target) in targets.iter().enumerate() {
        if let DialogueKind::Messages(setup) = &target.dialogue {
            let steps = script.steps.iter();
            let steps = steps.filter(|step| usize::from(step.target) == number);
            let messages = steps.filter_map(|step| match &step.request {
                Encoded::Message(message) => Some(message),
                _ => None,
            });
            check_messages(setup, &messages.collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

fn check_messages(setup: &MessagesSetup, messages: &[&Template]) -> Result<(), OptionError> {
    let own = setup.conversation.iter().flat_map(|all| all.texts());
    let others = setup.first_messages.iter().chain(own);
    for message in messages.iter().copied().chain(others) {
        message.check().map_err(OptionError::new)?;
        if !setup.is_binary && !message.is_text() {
            return Err(OptionError::new(
                "a text message has bytes that are no text (UTF-8): give --binary, or `binary = true` in the profile",
            ));
        }
    }
    match &setup.matching {
        Matching::Sequence(number) if !messages.iter().all(|all| all.has_sequence(number.form)) => {
            Err(OptionError::new(format_args!(
                "the reply is found by the number of the message, and a message has none: write {{{{{}:seq}}}} in it",
                number.form.name()
            )))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::options::load::LoadOptions;

    fn error(json: &str) -> Option<String> {
        let options = LoadOptions::from_json("ws://127.0.0.1:9/", json).unwrap();
        options.plan().err().map(|error| error.to_string())
    }

    #[test]
    fn messages_fit_into_their_frames() {
        for (json, expected) in [
            (r#"{"message":"{{hex:ff}}"}"#, "--binary"),
            (
                r#"{"message":"{{hex:e2 82}}{{seq}}{{hex:ac}}"}"#,
                "--binary",
            ),
            (r#"{"message":"{{u8:seq}}"}"#, "--binary"),
            (r#"{"message":"{{size:u8}}{{uuid}}"}"#, "--binary"),
            (r#"{"subscribe":["{{hex:ff}}"]}"#, "--binary"),
            (
                r#"{"message":"{{u8:seq}}","binary":true,"reply":"seq:0..2"}"#,
                "{{u16:seq}}",
            ),
            (r#"{"message":"a","reply":"seq:0..2"}"#, "{{u16:seq}}"),
        ] {
            let error = error(json).unwrap_or_default();
            assert!(error.contains(expected), "{json}: {error}");
        }
        let long = "a".repeat(256);
        for message in [
            format!("{{{{size:u8}}}}{long}"),
            format!("{{{{size:u8}}}}{{{{seq}}}}{{{{size:u8}}}}{long}"),
        ] {
            let options = LoadOptions::from_json(
                "ws://127.0.0.1:9/",
                &format!(r#"{{"message":"{message}"}}"#),
            );
            let error = options.unwrap().plan().unwrap_err().to_string();
            assert!(error.contains("256 does not fit into u8"), "{error}");
        }
        for json in [
            r#"{"message":"{{hex:e2 82 ac}}"}"#,
            r#"{"message":"{{hex:ff}}","binary":true}"#,
            r#"{"message":"{{size:varint}}a{{size:u16}}{{u16:seq}}","binary":true,"reply":"seq:0..2"}"#,
            r#"{"profile":"mqtt"}"#,
            r#"{"profile":"mqtt5","profile_values":{"username":"a","password":"b"}}"#,
        ] {
            assert_eq!(error(json), None, "{json}");
        }
    }

    #[test]
    fn bytes_of_an_http_request_are_in_its_body_alone() {
        let error = |json: &str| {
            let options = LoadOptions::from_json("http://127.0.0.1:9/", json).unwrap();
            options.plan().err().map(|error| error.to_string())
        };
        assert_eq!(
            error(r#"{"body":"{{hex:00}}{{size:u32}}{{u32:seq}}"}"#),
            None
        );
        let small = error(r#"{"body":"{{size:u8}}{{seq}}"}"#).unwrap_or_default();
        assert!(small.contains("varint or u32"), "{small}");
        for json in [
            r#"{"json_text":"{\"a\":{{u8:seq}}}"}"#,
            r#"{"headers":{"A":"{{hex:41}}"}}"#,
            r#"{"basic_auth":"a:{{hex:41}}"}"#,
            r#"{"form":{"a":"{{size:u8}}"}}"#,
        ] {
            let error = error(json).unwrap_or_default();
            assert!(error.contains("makes bytes"), "{json}: {error}");
        }
    }
}
