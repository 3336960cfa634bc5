//! Session: one connection, its output, and its progress in a phase.

use std::collections::{BTreeSet, VecDeque};

use tidewire_net::{ConnectionId, Io};
use tidewire_wire::connection::Control;
use tidewire_wire::message::MessageReader;

use super::allowance::Allowance;
use crate::accounting::failure::Failure;
use crate::worker::websocket::channel::{Channel, KeyPair};
use crate::worker::websocket::layer::Layer;
use crate::worker::websocket::profile::Profile;
use crate::worker::websocket::ring::FrameRing;

/// A connection. The reader is a separate field, because events borrow from it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) reader: MessageReader,
    pub(crate) connection: Connection,
}

/// Everything of a connection except its reader.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    /// Its number in the fleet, counted from 0.
    pub(crate) number: usize,
    pub(crate) state: ConnectionState,
    /// Answers control frames, and keeps the state of the closing handshake.
    pub(crate) control: Control,
    /// Whether the reader holds no part of a message, so that replies can be matched without it.
    pub(crate) reads_plainly: bool,
    /// The encryption after the key exchange.
    pub(crate) channel: Option<Box<Channel>>,
    /// The reason for its end, if this side knows more than the socket.
    pub(crate) failure: Option<Failure>,
    pub(crate) opening: Option<Box<PendingHandshake>>,
    /// Version 1: `client_hello` was not sent yet.
    pub(crate) hello_is_due: bool,
    /// It is closed as soon as it is ready, and its number is opened again.
    pub(crate) is_reopened: bool,
    pub(crate) out: Outgoing,
    pub(crate) progress: PhaseProgress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// TCP and TLS.
    Connecting,
    /// It waits for the response to the upgrade request.
    Upgrading,
    /// Version 1: it waits for `server_ready`.
    AwaitingReady,
    /// It waits for the `server_hello` with a key.
    AwaitingKey,
    Open,
    /// Our close frame was sent.
    Closing,
}

#[derive(Debug)]
pub(crate) struct PendingHandshake {
    pub(crate) number: usize,
    pub(crate) key: [u8; 16],
    pub(crate) started_ns: u64,
    /// The key pair of the key exchange, between `client_hello` and `server_hello`.
    pub(crate) key_pair: Option<KeyPair>,
}

/// The output of a connection: frames of the shared ring and, between two of them, control frames.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// The written part of the ring, as a place of [`FrameRing`].
    pub(crate) place: u64,
    /// The place up to which it may be written; always the end of a frame.
    pub(crate) goal: u64,
    /// Whole frames that are sent after the ring's current frame.
    pub(crate) controls: Vec<u8>,
    /// Frames encrypted with this connection's key, as long as the ring; only with encryption.
    pub(crate) sealed: Vec<u8>,
    /// Whether it is in the worker's list of connections that can continue.
    pub(crate) is_hot: bool,
}

/// The result of [`Outgoing::pump`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pump {
    /// Everything up to the goal was written.
    AtGoal,
    /// The socket is full; the event loop reports when it accepts data again.
    Blocked,
    /// The socket accepts more data, but other connections have their turn first.
    Again,
}

impl Outgoing {
    /// Writes up to the goal.
    pub(crate) fn pump(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        ring: Option<&FrameRing>,
        write_bytes_max: usize,
    ) -> Pump {
        let Some(ring) = ring else {
            self.flush_controls(io, id);
            return Pump::AtGoal;
        };
        for _ in 0..WRITES_PER_PUMP {
            let mut limit = self.goal;
            if !self.controls.is_empty() {
                limit = ring.boundary(self.place);
                if limit == self.place {
                    if self.place < self.goal {
                        match self.write_with_controls(io, id, ring, write_bytes_max) {
                            true => continue,
                            false => return Pump::Blocked,
                        }
                    }
                    self.flush_controls(io, id);
                    limit = self.goal;
                }
            }
            if self.place >= limit {
                return Pump::AtGoal;
            }
            let mut unsent = ring.unsent(self.place, limit);
            unsent.end = unsent.end.min(unsent.start.saturating_add(write_bytes_max));
            let taken = io.write_now(id, &self.frames(ring)[unsent.clone()]);
            self.place += taken as u64;
            if taken < unsent.len() {
                return Pump::Blocked;
            }
        }
        Pump::Again
    }

    /// Writes the control frames and the ring's next frames in one system call. Returns whether everything was
    /// written.
    fn write_with_controls(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        ring: &FrameRing,
        write_bytes_max: usize,
    ) -> bool {
        let mut unsent = ring.unsent(self.place, self.goal);
        unsent.end = unsent.end.min(unsent.start.saturating_add(write_bytes_max));
        let taken = io.write_both_now(id, &self.controls, &self.frames(ring)[unsent.clone()]);
        let of_controls = taken.min(self.controls.len());
        if of_controls < self.controls.len() {
            io.send(id, &self.controls[of_controls..]);
        }
        let of_frames = taken - of_controls;
        let is_whole = taken == self.controls.len() + unsent.len();
        self.controls.clear();
        self.place += of_frames as u64;
        is_whole
    }

    /// The bytes of the ring's frames, or of this connection's encrypted ones.
    fn frames<'a>(&'a self, ring: &'a FrameRing) -> &'a [u8] {
        if ring.layer() == Layer::Encryption {
            &self.sealed
        } else {
            ring.bytes()
        }
    }

    /// Sends the control frames; only between two frames of the ring.
    pub(crate) fn flush_controls(&mut self, io: &mut Io, id: ConnectionId) {
        if !self.controls.is_empty() {
            send_at_once(io, id, &self.controls);
            self.controls.clear();
        }
    }
}

/// Writes at once, so that the time of sending is known. The rest waits in the outbox.
pub(crate) fn send_at_once(io: &mut Io, id: ConnectionId, bytes: &[u8]) {
    let taken = io.write_now(id, bytes);
    if taken < bytes.len() {
        io.send(id, &bytes[taken..]);
    }
}

/// The progress of a connection in the current phase.
#[derive(Debug, Default)]
pub(crate) struct PhaseProgress {
    pub(crate) task: Task,
    /// The first frame of the ring in this phase.
    pub(crate) first_frame: u64,
    /// Frames confirmed in this phase.
    pub(crate) confirmed: u64,
    /// At full speed: how many bytes may be unconfirmed.
    pub(super) allowance: Allowance,
    /// Open pings whose pongs confirm the frames before them.
    pub(crate) marks: VecDeque<Mark>,
    pub(crate) barrier_sent: bool,
    /// Messages in flight that wait for their replies, oldest first.
    pub(crate) batches: VecDeque<Batch>,
    /// Messages in all of them.
    pub(crate) waiting: u64,
    /// The number of the newest ones that are not written yet; only with a pace.
    pub(crate) unwritten: usize,
    /// The number of answered or skipped messages, which is the number of the next one, counted from 0.
    pub(crate) replies: u64,
    /// Skipped messages: the reply to a later one arrived first.
    pub(crate) skipped: BTreeSet<u64>,
    /// The number of messages that the server reports as rejected.
    pub(crate) refused: u64,
    /// In a fan-out, the number of the newest publication that this subscriber received.
    pub(crate) received: u64,
    /// The number of replies in the current read.
    pub(crate) fresh_replies: u32,
    /// The number of rejected messages in the current read.
    pub(crate) fresh_refusals: u32,
    pub(crate) pings_left: u64,
    pub(crate) ping: Option<PingOut>,
    /// The time of the next ping of a hold, on the shard's clock.
    pub(crate) ping_due_ms: u64,
}

impl PhaseProgress {
    /// The number of the message whose reply is expected next.
    #[inline]
    pub(crate) fn next_reply(&self) -> u64 {
        self.replies + u64::from(self.fresh_replies)
    }

    /// Skips the messages before this number. Only a limited number of them is stored: they certainly count as
    /// missing, and it is not needed to know which of them arrive late.
    pub(crate) fn skip(&mut self, number: u64) {
        let room = SKIPPED_MAX.saturating_sub(self.skipped.len());
        self.skipped.extend((self.replies..number).take(room));
        self.replies = number;
    }

    /// The number of skipped messages that were not rejected.
    pub(crate) fn missing(&self) -> u64 {
        (self.skipped.len() as u64).saturating_sub(self.refused)
    }

    /// The number of messages that still wait, although the server has refused them.
    pub(crate) fn refused_waiting(&self) -> u64 {
        let refused = self.refused.saturating_sub(self.skipped.len() as u64);
        refused.min(self.waiting)
    }

    /// Whether no further reply is due for the messages sent: those that still wait were refused.
    pub(crate) fn is_answered(&self) -> bool {
        self.waiting == self.refused_waiting()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Task {
    /// Has no part in the phase, or has ended its part.
    #[default]
    Idle,
    Active,
    /// Sends nothing new; waits for pending answers.
    Settling,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) token: u64,
    /// Frames of this phase before the ping.
    pub(crate) frames: u64,
    pub(crate) queued_ns: u64,
}

/// Messages that were released together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) intended_ns: u64,
    /// When the last of them was with the operating system; `None` before, and when it is not kept.
    pub(crate) sent_ns: Option<u64>,
    /// The ring's frame behind the last of them.
    pub(crate) end_frame: u64,
    pub(crate) left: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PingOut {
    /// The token of a WebSocket ping, or the timestamp of an application's.
    pub(crate) token: u64,
    pub(crate) sent_ns: u64,
    pub(crate) lost_ms: u64,
    /// Asks at the end of a hold whether the connection still lives; its time is not a measurement,
    /// because all connections are asked at once.
    pub(crate) is_farewell: bool,
}

impl Session {
    pub(crate) fn new(
        id: ConnectionId,
        opening: PendingHandshake,
        reader: MessageReader,
        profile: Profile,
    ) -> Self {
        let connection = Connection {
            id,
            number: opening.number,
            state: ConnectionState::Connecting,
            control: Control::default(),
            reads_plainly: profile == Profile::Raw,
            channel: None,
            failure: None,
            opening: Some(Box::new(opening)),
            hello_is_due: false,
            is_reopened: false,
            out: Outgoing::default(),
            progress: PhaseProgress::default(),
        };
        Self { reader, connection }
    }
}

/// Writes of one connection before the next one's turn.
const WRITES_PER_PUMP: usize = 4;

/// Messages of one connection that are remembered as passed over.
const SKIPPED_MAX: usize = 10_000;
