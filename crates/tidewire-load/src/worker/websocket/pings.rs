//! Pings: for the round-trip time, and for the confirmation of the frames before them.

use std::ops::Range;

use rand::Rng;
use tidewire_net::Io;
use tidewire_wire::frame::{OpCode, write_frame};

use super::Core;
use crate::accounting::failure::Failure;
use crate::worker::order::Activity;
use crate::worker::websocket::profile::{Profile, write_ping};
use crate::worker::websocket::session::{Connection, Mark, PingOut, Task, send_at_once};

impl Core {
    /// Handles a pong, with its token if it has one. It counts once, for an open ping with the same token.
    pub(super) fn handle_pong(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
        token: Option<u64>,
    ) {
        let now_ns = self.setup.now_ns();
        let Some(phase) = &mut self.phase else {
            self.pongs_strange += 1;
            return;
        };
        let progress = &mut connection.progress;
        if let Some(ping) = progress.ping.take_if(|ping| Some(ping.token) == token) {
            if !ping.is_farewell {
                phase.result.latency.record_ns(now_ns - ping.sent_ns);
                phase.result.pongs += 1;
                phase.count_confirmed(1, now_ns);
            }
            return self.next_ping(io, connection);
        }
        // A server may answer only the latest of several pings (RFC 6455, section 5.5.3).
        let mut marks = progress.marks.iter();
        let Some(position) = marks.position(|mark| Some(mark.token) == token) else {
            phase.result.pongs_strange += 1;
            return;
        };
        let Mark {
            frames, queued_ns, ..
        } = progress.marks[position];
        progress.marks.drain(..=position);
        phase.adapt(&mut progress.allowance, now_ns - queued_ns);
        let fresh = frames.saturating_sub(progress.confirmed);
        progress.confirmed += fresh;
        phase.result.confirmed += fresh;
        phase.count_confirmed(fresh, now_ns);
        if progress.task == Task::Settling && progress.barrier_sent && progress.marks.is_empty() {
            self.end_member(io, connection);
        } else {
            self.extend_blast(io, connection);
        }
    }

    /// Sends the next ping of a series, sets the timer for that of a hold, or ends the connection's part.
    pub(super) fn next_ping(&mut self, io: &mut Io, connection: &mut Connection) {
        let Some(phase) = &self.phase else { return };
        let is_hold = matches!(phase.activity, Activity::Hold { .. });
        if connection.progress.task == Task::Settling || connection.progress.pings_left == 0 {
            self.end_member(io, connection);
        } else if is_hold {
            io.set_timer(connection.id, connection.progress.ping_due_ms);
        } else {
            self.send_ping(io, connection);
        }
    }

    pub(super) fn send_ping(&mut self, io: &mut Io, connection: &mut Connection) {
        let now_ms = io.now().monotonic_ms;
        let mask = self.random.random();
        let mut frame = std::mem::take(&mut connection.out.controls);
        let token = match self.setup.profile {
            Profile::Raw => {
                let token = self.tokens.random();
                write_token(&mut frame, token, mask);
                token
            }
            Profile::V1 => {
                // The server returns only the timestamp. A real time could be guessed, so it is a random one, far in
                // the future and within the exact integers of every JSON reader.
                let token = self.tokens.random_range(FAR_AHEAD_MS);
                write_ping(&mut frame, token, mask, connection.channel.as_deref_mut());
                token
            }
        };
        let Some(phase) = &mut self.phase else { return };
        phase.result.pings_sent += 1;
        connection.progress.pings_left = connection.progress.pings_left.saturating_sub(1);
        let lost_ms = now_ms + self.setup.timeouts.pong_ms;
        let sent_ns = self.setup.now_ns();
        connection.progress.ping = Some(PingOut {
            token,
            sent_ns,
            lost_ms,
            is_farewell: connection.progress.task == Task::Settling,
        });
        io.set_timer(connection.id, lost_ms);
        send_at_once(io, connection.id, &frame);
        frame.clear();
        connection.out.controls = frame;
    }

    /// Appends a ping whose pong confirms all frames written so far.
    pub(super) fn queue_mark(&mut self, connection: &mut Connection) {
        let token = self.tokens.random();
        let mask = self.random.random();
        write_token(&mut connection.out.controls, token, mask);
        let Some(phase) = &mut self.phase else { return };
        let Some(ring) = &phase.ring else { return };
        // It is sent after the current frame.
        let frames = ring.frames_before(ring.boundary(connection.out.place));
        connection.progress.marks.push_back(Mark {
            token,
            frames: frames - connection.progress.first_frame,
            queued_ns: self.setup.now_ns(),
        });
        phase.result.pings_sent += 1;
    }

    pub(super) fn handle_phase_timer(&mut self, io: &mut Io, connection: &mut Connection) {
        let now_ms = io.now().monotonic_ms;
        if connection.progress.task == Task::Idle {
            return;
        }
        match connection.progress.ping {
            Some(ping) if now_ms >= ping.lost_ms => {
                connection.failure = Some(Failure::TimedOut);
                io.abort(connection.id);
            }
            Some(ping) => io.set_timer(connection.id, ping.lost_ms),
            None if self.phase.as_ref().is_some_and(|phase| phase.fan.is_some()) => {
                self.handle_quiet(io, connection);
            }
            None if connection.progress.task == Task::Settling || self.is_subscribing() => {
                connection.failure = Some(Failure::TimedOut);
                io.abort(connection.id);
            }
            None => {
                let Some(phase) = &self.phase else { return };
                if let Activity::Hold { ping_every_ms } = phase.activity {
                    connection.progress.ping_due_ms = now_ms + ping_every_ms;
                    self.send_ping(io, connection);
                }
            }
        }
    }
}

fn write_token(out: &mut Vec<u8>, token: u64, mask: [u8; 4]) {
    write_frame(out, OpCode::Ping, &token.to_be_bytes(), Some(mask));
}

/// The payload of a ping: a number that cannot be guessed.
pub(super) const TOKEN_BYTES: usize = 8;

/// Times some thousand years and more ahead, in milliseconds since 1970.
const FAR_AHEAD_MS: Range<u64> = 1 << 45..1 << 53;
