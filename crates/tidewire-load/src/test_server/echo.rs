//! WebSocket echo: every text and binary message is sent back.

use super::counts::Ledger;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::connection::Connection;
use tidewire_wire::frame::{OpCode, Role, write_frame};
use tidewire_wire::message::{Event, Input};

/// One WebSocket connection.
#[derive(Debug)]
pub(super) struct Echo {
    websocket: Connection,
}

impl Echo {
    pub(super) fn new() -> Self {
        Self {
            websocket: Connection::new(Role::Server, MESSAGE_BYTES_MAX),
        }
    }

    /// Sends the content of `data` back, and returns how many bytes were used. Stops while too much waits for
    /// the client.
    pub(super) fn read(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        data: &mut [u8],
        ledger: &Ledger,
    ) -> usize {
        let mut input = Input::new(data);
        let (mut messages, mut bytes_sent) = (0, 0);
        let mut ends = false;
        while !ends && io.queued_bytes(id) <= super::QUEUED_BYTES_MAX {
            let Some(out) = io.buffer(id) else {
                break;
            };
            let before = out.len();
            match self.websocket.receive(&mut input, out) {
                Ok(None) => break,
                Ok(Some(Event::Text(text))) => {
                    messages += 1;
                    write_frame(out, OpCode::Text, text.as_bytes(), None);
                }
                Ok(Some(Event::Binary(bytes))) => {
                    messages += 1;
                    write_frame(out, OpCode::Binary, bytes, None);
                }
                // No extension was agreed, so nothing is compressed.
                Ok(Some(Event::Ping(_) | Event::Pong(_) | Event::Compressed(_))) => {}
                Ok(Some(Event::Close(..))) => ends = true,
                Err(error) => {
                    self.websocket.control.fail(error.close_code(), "", out);
                    ends = true;
                }
            }
            bytes_sent += out.len() - before;
        }
        ledger.messages_received.add(messages);
        ledger.messages_sent.add(messages);
        ledger.bytes_sent.add(bytes_sent as u64);
        if ends {
            io.close(id);
        } else if io.queued_bytes(id) > super::QUEUED_BYTES_MAX {
            io.pause_reading(id);
            io.await_drained(id);
        }
        input.consumed()
    }
}

const MESSAGE_BYTES_MAX: usize = 16 << 20;
