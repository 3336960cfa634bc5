//! Messages and requests of a client.

use super::answer::TicketAnswer;
use super::message::ClientMessage;
use super::{ClientCore, Ticket};
use crate::arguments::{Flag, Names, Str, Whole};
use crate::errors::{Failure, argument, wrong_type};
use crate::json;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use tidewire_client::request::{Overload, SubscribeOptions, Value};
use tidewire_client::sequencer::Position;
use tidewire_client::{HistoryQuery, Priority, Publication, QueueOptions, TopicTokens};
use tidewire_wire::envelope::parse_epoch;

#[pymethods]
impl ClientCore {
    /// Puts a message behind those that wait to be sent; raises `BusyError` if there is no room.
    #[pyo3(signature = (r#type, payload, priority = Whole(5)), text_signature = "($self, type, payload, priority=5)")]
    fn try_send(&self, r#type: Str, payload: &Bound<'_, PyAny>, priority: Whole) -> PyResult<()> {
        let payload = json::content(payload)?;
        let priority = priority_of(priority.0)?;
        let client = self.client()?;
        Ok(client
            .try_send(&r#type, payload, priority)
            .map_err(Failure::from)?)
    }

    /// The same for a whole message, which is JSON text and is sent as it is.
    fn try_send_raw(&self, message: &Bound<'_, PyAny>) -> PyResult<()> {
        let client = self.client()?;
        let sent = if let Ok(text) = message.cast::<PyString>() {
            client.try_send_envelope(&text.extract::<Str>()?)
        } else if let Ok(bytes) = message.cast::<PyBytes>() {
            let text = std::str::from_utf8(bytes.as_bytes())
                .map_err(|_| argument("the message is not UTF-8"))?;
            client.try_send_envelope(text)
        } else {
            let (bytes, _) = json::bytes_of(message)?;
            let text =
                String::from_utf8(bytes).map_err(|_| argument("the message is not UTF-8"))?;
            client.try_send_envelope(&text)
        };
        Ok(sent.map_err(Failure::from)?)
    }

    /// Done when there may be room for what waits to be sent.
    fn room(&self) -> PyResult<Ticket> {
        let client = self.client()?;
        Ok(self.spawn(async move { client.room().await }, |()| {
            TicketAnswer::Nothing
        })?)
    }

    /// Done when a server has let the client in.
    fn connected(&self) -> PyResult<Ticket> {
        let client = self.client()?;
        Ok(self.spawn(async move { client.connected().await }, |()| {
            TicketAnswer::Nothing
        })?)
    }

    /// Done when a server has let the client in for the first time; also if that session has ended since.
    fn first_connected(&self) -> PyResult<Ticket> {
        let client = self.client()?;
        Ok(
            self.spawn(async move { client.first_connected().await }, |()| {
                TicketAnswer::Nothing
            })?,
        )
    }

    /// Done when what waited was sent and the connection is closed.
    fn close(&self, code: Whole, reason: Str) -> PyResult<Ticket> {
        let code = u16::try_from(code.0).map_err(|_| argument("a close code has 16 bits"))?;
        let client = self.client()?;
        // A caller that stops waiting does not cancel the close.
        client.request_close(code, &reason);
        let closed = async move {
            client.closed().await;
            Ok(())
        };
        Ok(self.spawn(closed, |()| TicketAnswer::Nothing)?)
    }

    /// Done when the message is in the queue or, with `acknowledged`, when the server has accepted it.
    #[pyo3(signature = (topic, r#type, payload, *, priority, ttl_ms, key, acknowledged))]
    #[expect(
        clippy::too_many_arguments,
        reason = "each is an option of the message"
    )]
    fn enqueue(
        &self,
        topic: Option<Str>,
        r#type: Str,
        payload: &Bound<'_, PyAny>,
        priority: Whole,
        ttl_ms: Option<Whole>,
        key: Option<Str>,
        acknowledged: Flag,
    ) -> PyResult<Ticket> {
        let payload = json::content(payload)?;
        let options = QueueOptions {
            priority: priority_of(priority.0)?,
            ttl: ttl_ms.map(Whole::ms),
            key: key.map(Str::into_string),
        };
        let (topic, t) = (topic.map(Str::into_string), r#type.into_string());
        let client = self.client()?;
        let work = async move {
            let receipt = match topic {
                None => client.send_acknowledged(&t, payload, options).await?,
                Some(topic) => {
                    client
                        .publish_acknowledged(&topic, &t, payload, options)
                        .await?
                }
            };
            if acknowledged.0 {
                receipt.wait().await
            } else {
                Ok(())
            }
        };
        Ok(self.spawn(work, |()| TicketAnswer::Nothing)?)
    }

    /// Done when the server's application has answered.
    fn request(
        &self,
        r#type: Str,
        payload: &Bound<'_, PyAny>,
        timeout_ms: Option<Whole>,
    ) -> PyResult<Ticket> {
        let payload = json::content(payload)?;
        let timeout = timeout_ms.map(Whole::ms);
        let r#type = r#type.into_string();
        let client = self.client()?;
        let work = async move { client.request(&r#type, payload, timeout).await };
        Ok(self.spawn(work, TicketAnswer::Payload)?)
    }

    /// Done when the server has answered for each topic.
    fn subscribe(&self, topics: Names, options: &Bound<'_, PyDict>) -> PyResult<Ticket> {
        let options = subscribe_options(options)?;
        let topics = topics.into_strings();
        let client = self.client()?;
        let work = async move { client.subscribe_with(topics, options).await };
        Ok(self.spawn(work, TicketAnswer::Subscribed)?)
    }

    fn unsubscribe(&self, topics: Names) -> PyResult<Ticket> {
        let topics = topics.into_strings();
        let client = self.client()?;
        let work = async move { client.unsubscribe(topics).await };
        Ok(self.spawn(work, TicketAnswer::Subscribed)?)
    }

    /// Done when the publication has its place.
    fn publish(&self, publication: &Bound<'_, PyDict>) -> PyResult<Ticket> {
        let publication = publication_of(publication)?;
        let client = self.client()?;
        let work = async move { client.publish(publication).await };
        Ok(self.spawn(work, TicketAnswer::Published)?)
    }

    /// Publishes without an answer; raises `BusyError` if there is no room.
    fn try_publish(&self, publication: &Bound<'_, PyDict>) -> PyResult<()> {
        let publication = publication_of(publication)?;
        Ok(self
            .client()?
            .try_publish(publication)
            .map_err(Failure::from)?)
    }

    fn presence(&self, topics: Names) -> PyResult<Ticket> {
        let topics = topics.into_strings();
        let client = self.client()?;
        let work = async move { client.presence(topics).await };
        Ok(self.spawn(work, TicketAnswer::Presence)?)
    }

    /// Done when the server has answered with the publications that it keeps of a topic.
    #[pyo3(signature = (topic, *, since, limit, newest_first))]
    fn history(
        &self,
        topic: Str,
        since: Option<(Str, Whole)>,
        limit: Whole,
        newest_first: Flag,
    ) -> PyResult<Ticket> {
        let query = HistoryQuery {
            topic: topic.into_string(),
            since: since
                .map(|(epoch, offset)| position_of(&epoch, offset.0))
                .transpose()?,
            limit: limit.0,
            newest_first: newest_first.0,
        };
        let client = self.client()?;
        let work = async move { client.history(query).await };
        Ok(self.spawn(work, |page| TicketAnswer::History(Box::new(page)))?)
    }

    fn sync(&self, topics: Names) -> PyResult<Ticket> {
        let topics = topics.into_strings();
        let client = self.client()?;
        Ok(self.spawn(async move { client.sync(topics).await }, |()| {
            TicketAnswer::Nothing
        })?)
    }

    /// Acknowledges deliveries to a member of a queue group.
    fn acknowledge(&self, messages: &Bound<'_, PyAny>) -> PyResult<Ticket> {
        let wrong = || wrong_type("a list of messages that were received is needed");
        let each = messages.try_iter().map_err(|_| wrong())?;
        let found = each.map(|message| {
            let message = message?;
            let message = message.cast::<ClientMessage>().map_err(|_| wrong())?;
            let message = message.get().message().cloned();
            message.ok_or_else(|| argument("only messages are acknowledged").into())
        });
        let messages = found.collect::<PyResult<Vec<_>>>()?;
        let client = self.client()?;
        let work = async move { client.acknowledge(&messages).await };
        Ok(self.spawn(work, |()| TicketAnswer::Nothing)?)
    }

    fn ping(&self) -> PyResult<Ticket> {
        let client = self.client()?;
        let work = async move { client.ping().await };
        Ok(self.spawn(work, |latency| TicketAnswer::Seconds(latency.as_secs_f64()))?)
    }

    /// Latency and jitter in milliseconds, loss from 0 to 1, the score from 0 to 100, and the number of pings.
    fn quality_figures(&self) -> PyResult<(f64, f64, f64, u8, u64)> {
        let quality = self.client()?.quality();
        let times = (quality.latency_ms, quality.jitter_ms);
        Ok((
            times.0,
            times.1,
            quality.loss,
            quality.score,
            quality.answered,
        ))
    }

    /// For each address: its score, the milliseconds to connect, and the state of its circuit breaker.
    fn endpoint_figures(&self) -> PyResult<Vec<EndpointFigures>> {
        let endpoints = self.client()?.endpoints().into_iter();
        let figures = endpoints.map(|endpoint| {
            let breaker = format!("{:?}", endpoint.breaker).to_lowercase();
            (endpoint.url, endpoint.score, endpoint.connect_ms, breaker)
        });
        Ok(figures.collect())
    }

    /// Messages in the queue, and their bytes.
    fn queue_figures(&self) -> PyResult<(usize, u64)> {
        let depth = self.client()?.queue_depth();
        Ok((depth.messages, depth.bytes))
    }

    /// Bytes that wait to be sent.
    #[getter]
    fn waiting_bytes(&self) -> PyResult<usize> {
        Ok(self.client()?.waiting_bytes())
    }
}

fn priority_of(number: u64) -> Result<Priority, Failure> {
    Priority::from_number(number)
        .ok_or_else(|| argument(format!("priority is {number}, it is 1, 3, 5, 8 or 10")))
}

/// A field of a dict that Python made, if it is there and not `None`.
fn field<'py, T>(fields: &Bound<'py, PyDict>, name: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    match fields.get_item(name)?.filter(|value| !value.is_none()) {
        None => Ok(None),
        Some(value) => {
            let wrong = |error: PyErr| argument(format!("{name}: {error}"));
            Ok(Some(value.extract::<T>().map_err(wrong)?))
        }
    }
}

fn document(fields: &Bound<'_, PyDict>, name: &str) -> PyResult<Option<Value>> {
    match fields.get_item(name)?.filter(|value| !value.is_none()) {
        None => Ok(None),
        Some(value) => {
            let wrong = || argument(format!("{name} is a dict"));
            let json::Content::Json(text) = json::content(&value)? else {
                return Err(wrong().into());
            };
            let document: Value = serde_json::from_str(&text).map_err(argument)?;
            if !document.is_object() {
                return Err(wrong().into());
            }
            if has_wide_integer(&text) {
                return Err(
                    argument(format!("{name}: an integer has at most 64 bits here")).into(),
                );
            }
            Ok(Some(document))
        }
    }
}

/// True if JSON text has an integer that 64 bits do not have.
fn has_wide_integer(text: &str) -> bool {
    let mut is_outside = false;
    // A quote behind a backslash is no end of a string.
    text.replace("\\\\", "")
        .replace("\\\"", "")
        .split('"')
        .any(|part| {
            is_outside = !is_outside;
            let is_of_number = |char: char| char.is_ascii_digit() || "+-.eE".contains(char);
            let mut tokens = part.split(|char| !is_of_number(char));
            is_outside
                && tokens.any(|token| {
                    let is_integer = token.bytes().any(|byte| byte.is_ascii_digit())
                        && !token.contains(['.', 'e', 'E']);
                    is_integer && token.parse::<u64>().is_err() && token.parse::<i64>().is_err()
                })
        })
}

fn subscribe_options(fields: &Bound<'_, PyDict>) -> PyResult<SubscribeOptions> {
    let overload: Option<String> = field(fields, "overload")?;
    let known = |text: String| {
        let words = "overload is disconnect, conflate or drop_oldest";
        Overload::parse(&text).ok_or_else(|| argument(words))
    };
    let positions: Option<Vec<(String, (String, u64))>> = field(fields, "positions")?;
    let from = positions
        .unwrap_or_default()
        .into_iter()
        .map(|(topic, (epoch, offset))| Ok::<_, Failure>((topic, position_of(&epoch, offset)?)));
    Ok(SubscribeOptions {
        recover: field(fields, "recover")?.unwrap_or(true),
        from: from.collect::<Result<_, _>>()?,
        replay: field(fields, "replay")?.unwrap_or_default(),
        presence: document(fields, "presence")?,
        queue_group: field(fields, "queue_group")?,
        acknowledge: field(fields, "acknowledge")?.unwrap_or(false),
        window: field(fields, "window")?,
        filter: document(fields, "filter")?,
        overload: overload.map(known).transpose()?,
        tokens: topic_tokens(fields)?,
    })
}

/// The source of subscription tokens. It raises nothing: what the application's function raises is logged in Python.
fn topic_tokens(fields: &Bound<'_, PyDict>) -> PyResult<Option<TopicTokens>> {
    let source: Option<Py<PyAny>> = fields
        .get_item("tokens")?
        .filter(|source| !source.is_none())
        .map(Bound::unbind);
    let token_of = |source: &Py<PyAny>, topic: &str, py: Python<'_>| -> Option<String> {
        let token = source.call1(py, (topic,));
        let token = token.and_then(|token| token.extract::<Option<String>>(py));
        token.unwrap_or_else(|error| {
            error.write_unraisable(py, Some(source.bind(py)));
            None
        })
    };
    Ok(source.map(|source| {
        // The interpreter may be on its way out.
        TopicTokens::new(move |topic| {
            Python::try_attach(|py| token_of(&source, topic, py)).flatten()
        })
    }))
}

fn position_of(epoch: &str, offset: u64) -> Result<Position, Failure> {
    let words = || argument(format!("the epoch {epoch:?} is not 8 hex digits"));
    let epoch = parse_epoch(epoch).ok_or_else(words)?;
    Ok(Position { epoch, offset })
}

fn publication_of(fields: &Bound<'_, PyDict>) -> PyResult<Publication> {
    let payload = fields.get_item("payload")?;
    let payload = payload.ok_or_else(|| argument("a publication needs a payload"))?;
    let topic: Option<String> = field(fields, "topic")?;
    let t: Option<String> = field(fields, "type")?;
    let (topic, t) = (topic.unwrap_or_default(), t.unwrap_or_default());
    let priority: Option<u64> = field(fields, "priority")?;
    let mut publication = Publication::new(topic, t, json::content(&payload)?);
    publication.id = field(fields, "id")?;
    publication.key = field(fields, "key")?;
    publication.ttl_ms = field(fields, "ttl_ms")?;
    publication.priority = priority.map(priority_of).transpose()?;
    publication.exclude_self = field(fields, "exclude_self")?.unwrap_or(false);
    publication.is_snapshot = field(fields, "snapshot")?.unwrap_or(false);
    Ok(publication)
}

/// An address, its score, the milliseconds to connect, and the state of its circuit breaker.
type EndpointFigures = (String, u8, Option<f64>, String);
