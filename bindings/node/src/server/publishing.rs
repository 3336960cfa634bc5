//! Direct sending and changes: each call crosses from JavaScript to Rust once.

use super::NativeServer;
use crate::content::{content_of, shown_content};
use crate::errors::{Failure, argument, invalid_message};
use napi::bindgen_prelude::BufferSlice;
use napi_derive::napi;
use serde::Deserialize;
use tidewire_engine::{
    AccessRules, ConnectionKey, NewCall, NewPublication, Outgoing, Priority, PublishError, Rules,
};
use tidewire_wire::close::CloseCode;

/// Options of `publish` besides topic, type and payload.
#[napi(object)]
pub struct NewPublicationOptions {
    pub priority: Option<u32>,
    pub id: Option<String>,
    pub key: Option<String>,
    pub ttl_ms: Option<f64>,
    /// The place and the generation of each excluded connection, one after another.
    pub exclude: Option<Vec<u32>>,
    pub snapshot: Option<bool>,
}

/// Rules of access as JavaScript writes them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Access {
    subscribe_allow: Vec<String>,
    subscribe_deny: Vec<String>,
    publish_allow: Vec<String>,
    publish_deny: Vec<String>,
    presence_allow: Option<Vec<String>>,
    presence_deny: Option<Vec<String>>,
    queue_group_allow: Vec<String>,
    queue_group_deny: Vec<String>,
}

/// The offset, the epoch and whether it is a duplicate.
pub type Published = (Option<f64>, Option<String>, bool);

#[napi]
impl NativeServer {
    /// Publishes to a topic.
    #[napi]
    pub fn publish(
        &self,
        topic: String,
        name: String,
        payload: String,
        options: Option<NewPublicationOptions>,
    ) -> napi::Result<Published> {
        let mut new = NewPublication::new(name, content_of(payload)?);
        if let Some(options) = options {
            new = self.with_options(new, options)?;
        }
        let published = self.handle()?.publish(&topic, &new);
        Ok(shown(&published.map_err(Failure::from)?))
    }

    /// Sends to every connection of a user.
    #[napi]
    pub fn send_to_user(
        &self,
        user: String,
        name: String,
        payload: String,
        priority_number: u32,
        exclude: Option<Vec<u32>>,
    ) -> napi::Result<()> {
        let new = publication(name, payload, priority_number)?;
        let new = self.without(new, exclude.as_deref());
        let sent = self.handle()?.publish_to_user(&user, &new);
        Ok(sent.map_err(Failure::from)?)
    }

    /// Sends to every connection.
    #[napi]
    pub fn broadcast(
        &self,
        name: String,
        payload: String,
        priority_number: u32,
        exclude: Option<Vec<u32>>,
    ) -> napi::Result<()> {
        let new = publication(name, payload, priority_number)?;
        let new = self.without(new, exclude.as_deref());
        let sent = self.handle()?.publish_to_everyone(&new);
        Ok(sent.map_err(Failure::from)?)
    }

    /// Sends text to every connection as it is.
    #[napi]
    pub fn broadcast_text(&self, text: String) -> napi::Result<()> {
        let sent = self.handle()?.broadcast(Outgoing::Text(text.into()));
        Ok(sent.map_err(Failure::from)?)
    }

    /// Sends bytes to every connection as they are.
    #[napi]
    pub fn broadcast_binary(&self, bytes: BufferSlice<'_>) -> napi::Result<()> {
        let sent = self.handle()?.broadcast(Outgoing::Binary((*bytes).into()));
        Ok(sent.map_err(Failure::from)?)
    }

    /// Answers a request for snapshots, for one of its topics.
    #[napi]
    pub fn send_snapshot(
        &self,
        place: u32,
        generation: u32,
        topic: String,
        name: String,
        payload: String,
        correlation_id: Option<String>,
    ) -> napi::Result<()> {
        let Some(connection) = self.connection(place, generation) else {
            return Ok(());
        };
        let id = correlation_id.as_deref();
        let handle = self.handle()?;
        let sent = handle.send_snapshot(connection, &topic, &name, content_of(payload)?, id);
        Ok(sent.map_err(Failure::from)?)
    }

    /// True while a request waits for its answer.
    #[napi]
    pub fn is_unanswered(&self, place: u32, generation: u32) -> bool {
        let inbox = self.inbox.borrow();
        let requests = inbox.as_ref().map(|inbox| &inbox.requests);
        requests.is_some_and(|requests| requests.contains(place, generation))
    }

    /// True if the connection has been received as open, and its end has not been received yet.
    #[napi]
    pub fn is_open(&self, place: u32, generation: u32) -> bool {
        self.connection(place, generation).is_some()
    }

    /// Ends a connection.
    #[napi]
    pub fn close(
        &self,
        place: u32,
        generation: u32,
        code: u32,
        reason: String,
    ) -> napi::Result<()> {
        let code = close_code(code)?;
        match self.connection(place, generation) {
            Some(connection) => Ok(self.end(connection, code, &reason)?),
            None => Ok(()),
        }
    }

    /// Subscribes a connection, or ends its subscription.
    #[napi]
    pub fn subscribe(
        &self,
        place: u32,
        generation: u32,
        topic: String,
        is_wanted: bool,
    ) -> napi::Result<()> {
        let handle = self.handle()?;
        let Some(connection) = self.connection(place, generation) else {
            return Ok(());
        };
        let changed = match is_wanted {
            true => handle.subscribe(connection, &topic),
            false => handle.unsubscribe(connection, &topic),
        };
        Ok(changed.map_err(Failure::from)?)
    }

    /// Gives a connection access rules of its own, from JSON.
    #[napi]
    pub fn set_access(&self, place: u32, generation: u32, access: String) -> napi::Result<()> {
        let access: Access = serde_json::from_str(&access).map_err(argument)?;
        let handle = self.handle()?;
        let Some(connection) = self.connection(place, generation) else {
            return Ok(());
        };
        let names_presence = access.presence_allow.is_some() || access.presence_deny.is_some();
        let rules = |allow, deny| Rules { allow, deny };
        let presence = rules(
            access.presence_allow.unwrap_or_default(),
            access.presence_deny.unwrap_or_default(),
        );
        let rules = AccessRules {
            subscribe: rules(access.subscribe_allow, access.subscribe_deny),
            publish: rules(access.publish_allow, access.publish_deny),
            presence: names_presence.then_some(presence),
            queue_group: rules(access.queue_group_allow, access.queue_group_deny),
        };
        let changed = handle.set_access(connection, rules);
        Ok(changed.map_err(Failure::from)?)
    }

    /// Asks the client of a connection; `done` is called with the JSON text of its answer, or with an error.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn request<'env>(
        &self,
        env: &'env napi::Env,
        place: u32,
        generation: u32,
        name: String,
        payload: String,
        timeout_ms: u32,
    ) -> napi::Result<napi::bindgen_prelude::Object<'env>> {
        let handle = self.handle()?;
        let (deferred, promise) = env.create_deferred::<String, _>()?;
        let Some(connection) = self.connection(place, generation) else {
            deferred.reject(Failure::from(tidewire_engine::CallFailure::Closed).into());
            return Ok(promise);
        };
        let timeout = std::time::Duration::from_millis(timeout_ms.into());
        let call = NewCall::new(name, content_of(payload)?).with_timeout(timeout);
        handle.call(connection, call, move |answer| match answer {
            Ok(answer) => deferred.resolve(move |_env| {
                Ok(shown_content(answer.as_json(), answer.is_binary()).into_owned())
            }),
            Err(failure) => deferred.reject(Failure::from(failure).into()),
        });
        Ok(promise)
    }

    /// Subscribes every connection that a user has now, or ends their subscriptions.
    #[napi]
    pub fn subscribe_user(&self, user: String, topic: String, is_wanted: bool) -> napi::Result<()> {
        let handle = self.handle()?;
        let changed = match is_wanted {
            true => handle.subscribe_user(&user, &topic),
            false => handle.unsubscribe_user(&user, &topic),
        };
        Ok(changed.map_err(Failure::from)?)
    }

    /// Ends every connection of a user.
    #[napi]
    pub fn disconnect_user(&self, user: String, code: u32, reason: String) -> napi::Result<()> {
        let closed = self.handle()?.close_user(&user, close_code(code)?, &reason);
        Ok(closed.map_err(Failure::from)?)
    }

    /// Ends the connection with this id.
    #[napi]
    pub fn disconnect(&self, id: String, code: u32, reason: String) -> napi::Result<()> {
        let key: ConnectionKey = id.parse().map_err(argument)?;
        Ok(self.end(key, close_code(code)?, &reason)?)
    }
}

impl NativeServer {
    fn end(&self, connection: ConnectionKey, code: CloseCode, reason: &str) -> Result<(), Failure> {
        Ok(self.handle()?.close_with(connection, code, reason)?)
    }

    pub(super) fn with_options(
        &self,
        mut new: NewPublication,
        options: NewPublicationOptions,
    ) -> Result<NewPublication, Failure> {
        new = with_urgency(new, options.priority.unwrap_or(0))?;
        if let Some(id) = options.id {
            new = new.with_id(id);
        }
        if let Some(key) = options.key {
            new = new.with_key(key);
        }
        if let Some(ttl_ms) = options.ttl_ms {
            new = new.with_ttl_ms(ttl_ms as u64);
        }
        new = self.without(new, options.exclude.as_deref());
        if options.snapshot == Some(true) {
            new = new.as_snapshot();
        }
        Ok(new)
    }
}

fn publication(name: String, payload: String, number: u32) -> Result<NewPublication, Failure> {
    with_urgency(NewPublication::new(name, content_of(payload)?), number)
}

/// The same with the priority of this number, where 0 is the topic's; volatile with [`VOLATILE`] in it.
pub(super) fn with_urgency(
    mut new: NewPublication,
    number: u32,
) -> Result<NewPublication, Failure> {
    if number & VOLATILE != 0 {
        new = new.as_volatile();
    }
    let number = number & !VOLATILE;
    if number == 0 {
        return Ok(new);
    }
    let priority = Priority::from_number(number.into());
    let problem = "a priority is 1, 3, 5, 8 or 10";
    let priority = priority.ok_or_else(|| argument(problem))?;
    Ok(new.with_priority(priority))
}

/// Stands beside the number of a priority, as in `lib/arguments.js`.
const VOLATILE: u32 = 128;

pub(super) fn text_of(bytes: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(bytes).map_err(invalid_message)
}

/// A result as JavaScript receives it.
pub(super) fn shown(published: &tidewire_engine::Published) -> Published {
    let position = published.position;
    (
        position.map(|position| position.offset as f64),
        position.map(|position| position.epoch_hex()),
        published.is_duplicate,
    )
}

/// Payloads for one topic: each is its length as a number of 32 bits and its text.
pub(super) struct PackedPayloads<'a> {
    name: String,
    priority_number: u32,
    bytes: &'a [u8],
    at: usize,
    /// The length of the first one.
    length: usize,
}

impl<'a> PackedPayloads<'a> {
    pub(super) fn new(
        name: String,
        priority_number: u32,
        bytes: &'a [u8],
        at: u32,
    ) -> Result<Self, Failure> {
        Ok(Self {
            name,
            priority_number,
            bytes,
            at: at as usize,
            length: 0,
        })
    }

    /// Where the first one begins.
    pub(super) fn at(&self) -> u32 {
        self.at as u32
    }

    /// The first one as a publication; `None` if all are published.
    pub(super) fn first(&mut self) -> Result<Option<NewPublication>, Failure> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let payload = self.bytes.get(self.at..).and_then(sized);
        let payload = payload.ok_or_else(|| argument("the payloads are damaged"))?;
        self.length = payload.len();
        let new = NewPublication::new(self.name.as_str(), content_of(text_of(payload)?)?);
        with_urgency(new, self.priority_number).map(Some)
    }

    /// Goes on to the next one, and gives whether the first was new; `None` if the server has not caught up.
    pub(super) fn published(
        &mut self,
        result: Result<tidewire_engine::Published, PublishError>,
    ) -> Result<Option<bool>, Failure> {
        match result {
            Ok(published) => {
                self.at += 4 + self.length;
                Ok(Some(!published.is_duplicate))
            }
            Err(PublishError::Busy) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The first of several texts, each after its length as a number of 32 bits.
fn sized(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.get(..u32::from_le_bytes(*length) as usize)
}

pub(super) fn close_code(code: u32) -> Result<CloseCode, Failure> {
    Ok(tidewire_bindings::server::close_code(code.into())?)
}
