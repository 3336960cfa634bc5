//! Pings: those whose round trip is measured, and those whose pong confirms the frames before them.

use rand::Rng;
use tidewire_net::Io;
use tidewire_wire::frame::{OpCode, write_frame};

use super::Lab;
use crate::failure::Failure;
use crate::plan::Activity;
use crate::profile::{Profile, write_ping};
use crate::session::{Mark, PingOut, Talk, Task, send_at_once};

impl Lab {
    pub(super) fn handle_pong(&mut self, io: &mut Io, talk: &mut Talk, token: u64) {
        let Some(phase) = &mut self.phase else { return };
        let now_ns = self.setup.now_ns();
        let work = &mut talk.work;
        if work.ping.is_some_and(|ping| ping.token == token) {
            if let Some(ping) = work.ping.take()
                && !ping.is_farewell
            {
                phase.result.latency.record_ns(now_ns - ping.sent_ns);
                phase.result.pongs += 1;
                phase.count_confirmed(1, now_ns);
            }
            return self.next_ping(io, talk);
        }
        // A server may answer only the latest of several pings (RFC 6455, section 5.5.3).
        let Some(position) = work.marks.iter().position(|mark| mark.token == token) else {
            return;
        };
        let frames = work.marks[position].frames;
        work.marks.drain(..=position);
        let fresh = frames.saturating_sub(work.confirmed);
        work.confirmed += fresh;
        phase.result.confirmed += fresh;
        phase.count_confirmed(fresh, now_ns);
        if work.task == Task::Settling && work.barrier_sent && work.marks.is_empty() {
            self.end_member(io, talk);
        } else {
            self.extend_blast(io, talk);
        }
    }

    /// Sends the next ping of a series, sets the timer for that of a hold, or ends the connection's part.
    pub(super) fn next_ping(&mut self, io: &mut Io, talk: &mut Talk) {
        let Some(phase) = &self.phase else { return };
        let is_hold = matches!(phase.activity, Activity::Hold { .. });
        if talk.work.task == Task::Settling || talk.work.pings_left == 0 {
            self.end_member(io, talk);
        } else if is_hold {
            io.set_timer(talk.id, talk.work.ping_due_ms);
        } else {
            self.send_ping(io, talk);
        }
    }

    pub(super) fn send_ping(&mut self, io: &mut Io, talk: &mut Talk) {
        let now_ms = io.now().monotonic_ms;
        let mask = self.random.random();
        let mut frame = std::mem::take(&mut talk.out.controls);
        let token = match self.setup.profile {
            Profile::Raw => {
                let token = self.next_token();
                self.write_token(&mut frame, token, mask);
                token
            }
            Profile::V1 => {
                let token = io.now().unix_ms;
                write_ping(&mut frame, token, mask, talk.channel.as_deref_mut());
                token
            }
        };
        let Some(phase) = &mut self.phase else { return };
        phase.result.pings_sent += 1;
        talk.work.pings_left = talk.work.pings_left.saturating_sub(1);
        let lost_ms = now_ms + self.setup.timeouts.pong_ms;
        let sent_ns = self.setup.now_ns();
        talk.work.ping = Some(PingOut {
            token,
            sent_ns,
            lost_ms,
            is_farewell: talk.work.task == Task::Settling,
        });
        io.set_timer(talk.id, lost_ms);
        send_at_once(io, talk.id, &frame);
        frame.clear();
        talk.out.controls = frame;
    }

    /// Appends a ping whose pong confirms all frames written so far.
    pub(super) fn queue_mark(&mut self, talk: &mut Talk) {
        let token = self.next_token();
        let mask = self.random.random();
        self.write_token(&mut talk.out.controls, token, mask);
        let Some(phase) = &mut self.phase else { return };
        let Some(ring) = &phase.ring else { return };
        // It leaves when the frame at hand is complete.
        let frames = ring.frames_before(ring.boundary(talk.out.place));
        talk.work.marks.push_back(Mark {
            token,
            frames: frames - talk.work.first_frame,
        });
        phase.result.pings_sent += 1;
    }

    pub(super) fn handle_work_timer(&mut self, io: &mut Io, talk: &mut Talk) {
        let now_ms = io.now().monotonic_ms;
        if talk.work.task == Task::Idle {
            return;
        }
        match talk.work.ping {
            Some(ping) if now_ms >= ping.lost_ms => {
                talk.fate = Some(Failure::TimedOut);
                io.abort(talk.id);
            }
            Some(ping) => io.set_timer(talk.id, ping.lost_ms),
            None if self.phase.as_ref().is_some_and(|phase| phase.fan.is_some()) => {
                self.handle_quiet(io, talk);
            }
            None if talk.work.task == Task::Settling || self.is_subscribing() => {
                talk.fate = Some(Failure::TimedOut);
                io.abort(talk.id);
            }
            None => {
                let Some(phase) = &self.phase else { return };
                if let Activity::Hold { ping_every_ms } = phase.activity {
                    talk.work.ping_due_ms = now_ms + ping_every_ms;
                    self.send_ping(io, talk);
                }
            }
        }
    }

    fn next_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    fn write_token(&self, out: &mut Vec<u8>, token: u64, mask: [u8; 4]) {
        let mut payload = [0; TOKEN_BYTES];
        payload[..8].copy_from_slice(&self.nonce.to_be_bytes());
        payload[8..].copy_from_slice(&token.to_be_bytes());
        write_frame(out, OpCode::Ping, &payload, Some(mask));
    }
}

/// The worker's nonce and a number that no other of its pings has.
pub(super) const TOKEN_BYTES: usize = 16;
