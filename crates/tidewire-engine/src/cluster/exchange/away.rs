//! Outages of the broker: their length, the news of them for clients, and the end of the sessions of a server that is cut
//! off, if an option asks for it.

use super::Exchange;
use crate::topics::broker::Control;
use tidewire_redis::Now;
use tidewire_wire::close::CloseCode;

/// Since when the broker is away.
#[derive(Debug)]
pub(super) struct Away {
    since_ms: Option<u64>,
    /// How long it has been away, as of the last look.
    pub(super) for_ms: u64,
    /// After this time all sessions end.
    close_after_ms: Option<u64>,
    /// They have ended in this outage.
    is_closed: bool,
    pub(super) closings: u64,
    /// It has answered once.
    was_there: bool,
    /// The beginning of its silence, also if it has never answered.
    silent_since_ms: Option<u64>,
    /// Clients know that it is away.
    is_told: bool,
}

impl Away {
    pub(super) fn new(close_after_ms: Option<u64>) -> Self {
        Self {
            since_ms: None,
            for_ms: 0,
            close_after_ms,
            is_closed: false,
            closings: 0,
            was_there: false,
            silent_since_ms: None,
            is_told: false,
        }
    }

    /// The broker answers.
    pub(super) fn note_answer(&mut self) {
        self.was_there = true;
    }

    pub(super) fn deadline_ms(&self) -> Option<u64> {
        let closes_ms = self.closes_ms();
        let silent_ms = self.silent_since_ms.filter(|_| !self.is_told);
        let told_ms = silent_ms.map(|since_ms| since_ms + TOLD_AFTER_MS);
        closes_ms.into_iter().chain(told_ms).min()
    }

    fn closes_ms(&self) -> Option<u64> {
        let close_after_ms = self.close_after_ms.filter(|_| !self.is_closed)?;
        Some(self.since_ms?.saturating_add(close_after_ms))
    }
}

impl Exchange {
    /// Looks whether the broker answers, and for how long it has not.
    pub(super) fn note_away(&mut self, now: Now) {
        let away = &mut self.life.away;
        if self.life.health.is_connected {
            *away = Away {
                closings: away.closings,
                was_there: true,
                is_told: away.is_told,
                ..Away::new(away.close_after_ms)
            };
            return;
        }
        away.silent_since_ms.get_or_insert(now.ms);
        if !away.was_there {
            return;
        }
        let since_ms = *away.since_ms.get_or_insert(now.ms);
        away.for_ms = now.ms - since_ms;
    }

    /// Notifies the clients of this server when the broker has been silent for some time, and when it is back.
    pub(super) fn tell_clients(&mut self, now: Now) {
        let (away, partition) = (&mut self.life.away, self.link.partition());
        let silent_ms = away.silent_since_ms.map(|since_ms| now.ms - since_ms);
        let was_away = self.partition.siblings.is_away(partition);
        let is_silent = silent_ms.is_some_and(|ms| ms >= TOLD_AFTER_MS || was_away);
        self.partition.siblings.set_away(partition, is_silent);
        if !partition.is_first() {
            return;
        }
        let is_away = self.partition.siblings.is_any_away();
        if is_away != away.is_told
            && let Some(server) = &self.server
        {
            // If a shard has no room, the next call tries again.
            let control = Control::TellBroker { is_away };
            away.is_told ^= server.0.obey(control, None);
        }
    }

    /// Ends all sessions when the first partition of the broker has been away for too long, so that their clients go to
    /// servers that reach it: once in an outage, because it may be away for all servers. Call it after the health of the
    /// broker was reported: sessions that end read there how long the broker has been away.
    pub(super) fn end_cut_off(&mut self, now: Now) {
        let away = &mut self.life.away;
        let is_due = away.closes_ms().is_some_and(|at_ms| at_ms <= now.ms);
        let is_first = self.link.partition().is_first();
        let Some(server) = self.server.as_ref().filter(|_| is_due && is_first) else {
            return;
        };
        let control = Control::CloseAll {
            code: CloseCode::SERVICE_RESTART.value(),
            reason: "the server is cut off from the others".to_owned(),
        };
        // If a shard has no room, the next call repeats the command.
        if server.0.obey(control, Some(now.unix_ms)) {
            away.is_closed = true;
            away.closings += 1;
            tracing::warn!(
                away_ms = away.for_ms,
                "the broker has been away for broker_lost_close_s: all sessions end"
            );
        }
    }
}

/// The silence of the broker after which clients are notified. A connection that breaks and is back before that is not
/// reported.
const TOLD_AFTER_MS: u64 = 3_000;
