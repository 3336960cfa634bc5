//! A client's side of a WebSocket connection without its socket: bytes and messages in, bytes and events out.
//! `tidewire.asgi` puts it between the connection that an ASGI server accepted and the engine.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::borrow::Cow;
use tidewire_wire::close::CloseCode;
use tidewire_wire::connection::{Connection, ConnectionState, Masked};
use tidewire_wire::frame::{self, OpCode, Role};
use tidewire_wire::handshake::client::{
    HEAD_BYTES_MAX, Offer, RequestHead, Response, ResponseError, parse_response,
};
use tidewire_wire::message::{Event, Input};

/// The connection from the request to the close.
#[pyclass(module = "tidewire._native")]
pub(crate) struct Relay {
    key: [u8; 16],
    protocols: Vec<String>,
    request: Vec<u8>,
    phase: Phase,
    websocket: Connection,
    /// The unread bytes: a part of a head or of a frame's header.
    unread: Vec<u8>,
    /// Control frames that are to be sent.
    replies: Vec<u8>,
    masks: StdRng,
}

/// The engine let the connection in.
#[pyclass(module = "tidewire._native", frozen, get_all)]
pub(crate) struct RelayOpened {
    protocol: Option<String>,
}

/// The engine did not let the connection in.
#[pyclass(module = "tidewire._native", frozen, get_all)]
pub(crate) struct RelayRefused {
    status: u16,
    reason: String,
    retry_after: Option<u64>,
}

/// The engine ended the connection, or broke it.
#[pyclass(module = "tidewire._native", frozen, get_all)]
pub(crate) struct RelayClosed {
    code: Option<u16>,
    reason: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Opening,
    Open,
    Refused,
}

#[pymethods]
impl Relay {
    /// Headers are names and values as received. The request is empty if one of its parts cannot stand in a
    /// request.
    #[new]
    fn new(
        host: &str,
        target: &str,
        headers: Vec<(Vec<u8>, Vec<u8>)>,
        protocols: Vec<String>,
        message_bytes_max: usize,
    ) -> Self {
        let mut masks = StdRng::from_os_rng();
        let mut relay = Self {
            key: masks.random(),
            protocols,
            request: Vec::new(),
            phase: Phase::Opening,
            websocket: Connection::new(Role::Client, message_bytes_max),
            unread: Vec::new(),
            replies: Vec::new(),
            masks,
        };
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (text_of(name), text_of(value)))
            .collect();
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_ref(), value.as_ref()))
            .collect();
        let mut request = Vec::new();
        let protocols = relay.protocols();
        let head = RequestHead {
            host,
            target,
            offer: relay.offer(&protocols),
            headers: &headers,
        };
        if head.write(&mut request).is_ok() {
            relay.request = request;
        }
        relay
    }

    /// The opening request.
    #[getter]
    fn request<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.request)
    }

    /// The content of the bytes, in order: events of the connection, texts and binary messages.
    fn receive(&mut self, py: Python<'_>, data: &[u8]) -> PyResult<Vec<Py<PyAny>>> {
        let mut bytes = std::mem::take(&mut self.unread);
        bytes.extend_from_slice(data);
        let mut events = Vec::new();
        let mut at = 0;
        if self.phase == Phase::Opening {
            at = self.read_answer(py, &bytes, &mut events)?;
        }
        if self.phase == Phase::Open {
            at += self.read_messages(py, &mut bytes[at..], &mut events)?;
        }
        if !self.is_over() {
            bytes.drain(..at);
            self.unread = bytes;
        }
        Ok(events)
    }

    /// Control frames that have become due; each is given once.
    fn take_replies<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &std::mem::take(&mut self.replies))
    }

    /// A text as a frame; empty after a close frame.
    fn text<'py>(&mut self, py: Python<'py>, text: &str) -> Bound<'py, PyBytes> {
        self.frame(py, OpCode::Text, text.as_bytes())
    }

    /// Bytes as a frame; empty after a close frame.
    fn binary<'py>(&mut self, py: Python<'py>, data: &[u8]) -> Bound<'py, PyBytes> {
        self.frame(py, OpCode::Binary, data)
    }

    /// A close frame; without a code if a close frame may not carry it. Empty if one was sent before.
    fn close<'py>(&mut self, py: Python<'py>, code: u16, reason: &str) -> Bound<'py, PyBytes> {
        let mut out = Vec::new();
        let mut frames = masked(&mut self.masks, &mut out);
        let code = CloseCode::from_wire(code);
        self.websocket.control.close(code, reason, &mut frames);
        drop(frames);
        PyBytes::new(py, &out)
    }
}

impl Relay {
    fn is_over(&self) -> bool {
        self.phase == Phase::Refused || self.websocket.control.state() == ConnectionState::Closed
    }

    fn protocols(&self) -> Vec<&str> {
        self.protocols.iter().map(String::as_str).collect()
    }

    fn offer<'a>(&'a self, protocols: &'a [&'a str]) -> Offer<'a> {
        Offer {
            key: &self.key,
            protocols,
            deflate: None,
        }
    }

    /// Reads the engine's answer to the request; returns how many bytes it was, 0 while it is incomplete.
    fn read_answer(
        &mut self,
        py: Python<'_>,
        bytes: &[u8],
        events: &mut Vec<Py<PyAny>>,
    ) -> PyResult<usize> {
        let protocols = self.protocols();
        match parse_response(bytes, &self.offer(&protocols), HEAD_BYTES_MAX) {
            Ok(None) => Ok(0),
            Ok(Some(Response {
                head_bytes,
                protocol,
                ..
            })) => {
                self.phase = Phase::Open;
                events.push(Py::new(py, RelayOpened { protocol })?.into_any());
                Ok(head_bytes)
            }
            Err(error) => {
                self.phase = Phase::Refused;
                events.push(Py::new(py, refusal(error, bytes))?.into_any());
                Ok(0)
            }
        }
    }

    /// Reads the messages at the front of the bytes; returns how many bytes they were.
    fn read_messages(
        &mut self,
        py: Python<'_>,
        bytes: &mut [u8],
        events: &mut Vec<Py<PyAny>>,
    ) -> PyResult<usize> {
        let mut input = Input::new(bytes);
        let mut frames = masked(&mut self.masks, &mut self.replies);
        let closed = loop {
            match self.websocket.receive(&mut input, &mut frames) {
                Ok(None) => break None,
                Ok(Some(Event::Text(text))) => {
                    events.push(PyString::new(py, text.as_str()).unbind().into_any());
                }
                Ok(Some(Event::Binary(data))) => {
                    events.push(PyBytes::new(py, data).unbind().into_any());
                }
                // No ping was sent, and permessage-deflate was not offered.
                Ok(Some(Event::Ping(_) | Event::Pong(_) | Event::Compressed(_))) => {}
                Ok(Some(Event::Close(code, reason))) => {
                    break Some(RelayClosed {
                        code: code.map(CloseCode::value),
                        reason: reason.to_owned(),
                    });
                }
                Err(error) => {
                    let control = &mut self.websocket.control;
                    control.fail(error.close_code(), "", &mut frames);
                    break Some(RelayClosed {
                        code: Some(CloseCode::INTERNAL_ERROR.value()),
                        reason: error.to_string(),
                    });
                }
            }
        };
        if let Some(closed) = closed {
            events.push(Py::new(py, closed)?.into_any());
        }
        Ok(input.consumed())
    }

    fn frame<'py>(
        &mut self,
        py: Python<'py>,
        opcode: OpCode,
        payload: &[u8],
    ) -> Bound<'py, PyBytes> {
        let mut out = Vec::with_capacity(payload.len() + frame::HEADER_BYTES_MAX);
        let mut frames = masked(&mut self.masks, &mut out);
        self.websocket.control.send(opcode, payload, &mut frames);
        drop(frames);
        PyBytes::new(py, &out)
    }
}

/// A buffer for frames, each with a mask from `masks`.
fn masked<'a>(
    masks: &'a mut StdRng,
    buffer: &'a mut Vec<u8>,
) -> Masked<'a, impl FnMut() -> [u8; 4]> {
    Masked {
        buffer,
        mask: || masks.random(),
    }
}

/// The text for the caller: the text of the engine, if it sent one.
fn refusal(error: ResponseError, bytes: &[u8]) -> RelayRefused {
    match error {
        ResponseError::Refused {
            status,
            reason,
            retry_after,
            ..
        } => {
            let body = body_of(bytes);
            RelayRefused {
                status,
                reason: if body.is_empty() { reason } else { body },
                retry_after,
            }
        }
        error => RelayRefused {
            status: 502,
            reason: error.to_string(),
            retry_after: None,
        },
    }
}

/// The text behind the head of an answer. The engine writes both at once, so that it is there with the head.
fn body_of(bytes: &[u8]) -> String {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let body = end.map_or(&[][..], |end| &bytes[end + 4..]);
    String::from_utf8_lossy(body).into_owned()
}

/// Headers are bytes in ASGI; those that are not UTF-8 are Latin-1 (RFC 9110, section 5.5).
fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().copied().map(char::from).collect()),
    }
}
