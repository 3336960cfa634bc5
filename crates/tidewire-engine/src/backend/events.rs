//! The bodies of events, and what the backend answers to them.

use crate::backend::failure::Failure;
use crate::config::backend::BackendEvent;
use crate::model::content::Content;
use crate::model::{ConnectionKey, payload_text, present};
use crate::topics::access::AccessRules;
use crate::topics::name::check_topic_or_pattern;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;
use tidewire_wire::format::NOT_BASE64;
use tidewire_wire::session::CallError;
use tidewire_wire::uuid::Uuid;

/// The body of an event as it grows: one JSON object.
#[derive(Debug)]
pub(crate) struct Body(Vec<u8>);

impl Body {
    /// With what every event has.
    pub(crate) fn new(
        event: BackendEvent,
        id: Uuid,
        connection: ConnectionKey,
        user: Option<&str>,
    ) -> Self {
        let mut body = Self(Vec::with_capacity(256));
        body.0.push(b'{');
        body.field("event", event.name())
            .field("id", &id.to_string())
            .field("connection", &connection.to_string())
            .field("user", &user);
        body
    }

    /// Adds a field.
    pub(crate) fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> &mut Self {
        self.name(name);
        serde_json::to_writer(&mut self.0, value)
            .expect("texts, numbers and lists of them are JSON, and memory accepts them");
        self
    }

    /// Adds a field whose value is JSON already.
    pub(crate) fn json(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.name(name);
        self.0.extend_from_slice(value);
        self
    }

    /// Adds a payload, and whether it is binary if it is.
    pub(crate) fn payload(&mut self, json: &[u8], is_binary: bool) -> &mut Self {
        if is_binary {
            self.field("binary", &true);
        }
        self.json("payload", json)
    }

    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

/// Why the backend refuses something.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refused {
    /// A word for programs.
    #[serde(default)]
    pub(crate) code: Option<String>,
    /// A sentence for people.
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

impl Refused {
    /// The code, or another one without it.
    pub(crate) fn code_or(&self, other: &str) -> String {
        let code = self.code.as_deref().filter(|code| !code.is_empty());
        shortened(code.unwrap_or(other), CODE_CHARS_MAX)
    }

    /// The reason, or another one without it.
    pub(crate) fn reason_or(&self, other: &str) -> String {
        shortened(self.reason.as_deref().unwrap_or(other), REASON_CHARS_MAX)
    }
}

fn shortened(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

/// The answer to `connect`.
#[derive(Debug, Default)]
pub(crate) struct ConnectAnswer {
    pub(crate) user: Option<String>,
    pub(crate) access: Option<AccessRules>,
    pub(crate) subscriptions: Vec<String>,
    /// When the session ends, in seconds since 1970.
    pub(crate) expires_at_s: Option<u64>,
    pub(crate) refused: Option<Refused>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ConnectBody {
    user: Option<String>,
    access: Option<Value>,
    subscriptions: Vec<String>,
    expires_at: Option<u64>,
    refused: Option<Refused>,
}

impl ConnectAnswer {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Failure> {
        let body: ConnectBody = read(body)?;
        if body.user.as_deref().is_some_and(str::is_empty) {
            return Err(invalid("the user is empty"));
        }
        if body.subscriptions.len() > SUBSCRIPTIONS_MAX {
            return Err(invalid(format!(
                "more than {SUBSCRIPTIONS_MAX} subscriptions"
            )));
        }
        let access = body.access.as_ref().map(AccessRules::from_claim);
        for topic in &body.subscriptions {
            check_topic_or_pattern(topic)
                .map_err(|error| invalid(format!("subscriptions: {error}")))?;
        }
        Ok(Self {
            user: body.user,
            access: access.transpose().map_err(invalid)?,
            subscriptions: body.subscriptions,
            expires_at_s: body.expires_at,
            refused: body.refused,
        })
    }
}

/// The answer to `subscribe`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SubscribeAnswer {
    /// All topics are refused.
    pub(crate) refused: Option<Refused>,
    /// Some are.
    pub(crate) refused_topics: HashMap<String, Refused>,
}

impl SubscribeAnswer {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Failure> {
        read(body)
    }
}

/// The answer to `publish`.
#[derive(Debug, Default)]
pub(crate) struct PublishAnswer {
    /// Another payload; null is one.
    pub(crate) payload: Option<Content>,
    pub(crate) refused: Option<Refused>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PublishBody {
    #[serde(deserialize_with = "present")]
    payload: Option<Box<RawValue>>,
    binary: Option<bool>,
    refused: Option<Refused>,
}

impl PublishAnswer {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Failure> {
        let body: PublishBody = read(body)?;
        let payload = content_of(body.payload.as_deref(), body.binary)?;
        if payload
            .as_ref()
            .is_some_and(|payload| !payload.is_readable())
        {
            return Err(invalid("the payload is nested too deep"));
        }
        Ok(Self {
            payload,
            refused: body.refused,
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RequestBody {
    #[serde(deserialize_with = "present")]
    payload: Option<Box<RawValue>>,
    binary: Option<bool>,
    error: Option<RequestError>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestError {
    code: String,
    #[serde(default)]
    message: String,
}

/// The answer to `request`: a payload, or an error of the backend for the client.
pub(crate) fn read_response(body: &[u8]) -> Result<Result<Content, CallError>, Failure> {
    let body: RequestBody = read(body)?;
    match (
        content_of(body.payload.as_deref(), body.binary)?,
        body.error,
    ) {
        (_, Some(error)) if error.code.is_empty() => Err(invalid("the error has no code")),
        (_, Some(error)) => Ok(Err(CallError {
            code: shortened(&error.code, CODE_CHARS_MAX),
            message: shortened(&error.message, REASON_CHARS_MAX),
        })),
        (payload, None) => Ok(Ok(payload.unwrap_or_else(|| Content::from("{}")))),
    }
}

/// A payload of the backend, which is base64 if it is marked as binary.
fn content_of(
    payload: Option<&RawValue>,
    binary: Option<bool>,
) -> Result<Option<Content>, Failure> {
    let is_binary = binary.unwrap_or_default();
    if payload.is_none() && !is_binary {
        return Ok(None);
    }
    let content = Content::read(payload_text(payload), is_binary);
    content.map(Some).ok_or_else(|| invalid(NOT_BASE64))
}

/// A body is one JSON object. Nothing, which a program sends that has failed, is no answer.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    match body.trim_ascii_start().first() {
        // Derived readers also accept an array in place of a structure.
        Some(b'{') => serde_json::from_slice(body).map_err(invalid),
        Some(_) => Err(invalid("it is not a JSON object")),
        None => Err(invalid(
            "it is empty; an answer without fields is {} or has status 204",
        )),
    }
}

fn invalid(words: impl ToString) -> Failure {
    Failure::Invalid(words.to_string())
}

/// Topics that an answer to `connect` may name.
const SUBSCRIPTIONS_MAX: usize = 1_000;

/// The longest code and the longest reason that clients receive, in characters. The rest is cut off.
const CODE_CHARS_MAX: usize = 64;
const REASON_CHARS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_no_answer() {
        for nothing in [&b""[..], b" \n", b"\t\r\n"] {
            let failures = [
                ConnectAnswer::read(nothing).err(),
                SubscribeAnswer::read(nothing).err(),
                PublishAnswer::read(nothing).err(),
                read_response(nothing).err(),
            ];
            for failure in failures {
                let words = failure.unwrap().to_string();
                assert!(words.contains("it is empty"), "{words}");
            }
        }
        assert!(ConnectAnswer::read(b" {} \n").unwrap().refused.is_none());
        assert_eq!(read_response(b"{}").unwrap(), Ok(Content::from("{}")));
        let null = br#"{"payload":null}"#;
        assert_eq!(read_response(null).unwrap(), Ok(Content::from("null")));
        let answer = PublishAnswer::read(null).unwrap();
        assert_eq!(answer.payload, Some(Content::from("null")));
        assert!(PublishAnswer::read(b"{}").unwrap().payload.is_none());
    }

    #[test]
    fn answers_are_read_and_others_say_what_is_wrong() {
        let answer = ConnectAnswer::read(
            br#"{"user":"ada","access":{"subscribe":{"allow":["a.>"]}},"subscriptions":["a.b"]}"#,
        );
        let answer = answer.unwrap();
        assert_eq!(answer.user.as_deref(), Some("ada"));
        assert!(answer.access.is_some());
        assert_eq!(
            read_response(br#"{"payload": {"a": 1}}"#).unwrap(),
            Ok(Content::from(r#"{"a": 1}"#))
        );
        let binary = br#"{"payload":"AAH\/","binary":true}"#;
        let bytes = Content::binary([0, 1, 255]);
        assert_eq!(read_response(binary).unwrap(), Ok(bytes.clone()));
        assert_eq!(PublishAnswer::read(binary).unwrap().payload, Some(bytes));
        for wrong in [
            &br#"{"binary":true}"#[..],
            br#"{"binary":true,"payload":"AAH"}"#,
            br#"{"binary":true,"payload":{}}"#,
        ] {
            let error = read_response(wrong).unwrap_err().to_string();
            assert!(error.contains("base64"), "{error}");
            assert!(PublishAnswer::read(wrong).is_err());
        }
        for (body, words) in [
            (&b"[]"[..], "object"),
            (b"<html>", "object"),
            (b"{\"refuse\":{}}", "refuse"),
            (b"{\"user\":\"\"}", "user"),
            (
                b"{\"access\":{\"subscribe\":{\"allow\":[\"a..b\"]}}}",
                "subscribe.allow[0]",
            ),
            (b"{\"subscriptions\":[\"a..b\"]}", "subscriptions"),
        ] {
            let error = ConnectAnswer::read(body).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(read_response(br#"{"error":{"code":""}}"#).is_err());
    }

    #[test]
    fn the_description_has_the_fields_of_all_answers() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/backend.openapi.json"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let description: Value = serde_json::from_str(&text).unwrap();
        let schemas = &description["components"]["schemas"];
        let wrong = br#"{"?":1}"#;
        let refused = serde_json::from_slice::<Refused>(wrong).map_err(invalid);
        let error = serde_json::from_slice::<RequestError>(wrong).map_err(invalid);
        let failures = [
            (&schemas["ConnectAnswer"], ConnectAnswer::read(wrong).err()),
            (
                &schemas["SubscribeAnswer"],
                SubscribeAnswer::read(wrong).err(),
            ),
            (&schemas["PublishAnswer"], PublishAnswer::read(wrong).err()),
            (&schemas["RequestAnswer"], read_response(wrong).err()),
            (&schemas["Refusal"], refused.err()),
            (
                &schemas["RequestAnswer"]["properties"]["error"],
                error.err(),
            ),
        ];
        for (schema, failure) in failures {
            // The reader names the fields that it knows.
            let words = failure.unwrap().to_string();
            let (_, known) = words.split_once("expected").unwrap();
            let mut known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
            known.sort_unstable();
            let mut described: Vec<&String> =
                schema["properties"].as_object().unwrap().keys().collect();
            described.sort_unstable();
            assert_eq!(described, known);
            assert_eq!(schema["additionalProperties"], false, "{schema}");
        }
        let subscriptions = &schemas["ConnectAnswer"]["properties"]["subscriptions"];
        assert_eq!(subscriptions["maxItems"], SUBSCRIPTIONS_MAX);
        let topics = vec!["a"; SUBSCRIPTIONS_MAX + 1];
        let body = serde_json::json!({ "subscriptions": topics }).to_string();
        assert!(ConnectAnswer::read(body.as_bytes()).is_err());
    }

    #[test]
    fn what_clients_are_told_is_bounded() {
        let long = "x".repeat(10_000);
        let refused = Refused {
            code: Some(long.clone()),
            reason: Some(long),
        };
        assert_eq!(refused.code_or("A").len(), CODE_CHARS_MAX);
        assert_eq!(refused.reason_or("a").len(), REASON_CHARS_MAX);
    }
}
