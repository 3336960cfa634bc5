//! Liveness: the times of pings and of the idle timeout, equal for both sides.

/// The action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutAction {
    /// None yet.
    None,
    /// Encode a ping and send it; a server sends a ping of RFC 6455 directly after it.
    SendPing,
    /// Close the connection: its idle timeout is over.
    CloseIdle,
}

/// The times of the last received bytes and of the last ping, on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Liveness {
    last_heard_ms: u64,
    last_ping_ms: u64,
}

impl Liveness {
    pub(super) fn new(now_ms: u64) -> Self {
        Self {
            last_heard_ms: now_ms,
            last_ping_ms: now_ms,
        }
    }

    #[inline]
    pub(super) fn handle_heard(&mut self, now_ms: u64) {
        self.last_heard_ms = now_ms;
    }

    /// An interval or timeout of 0 means never.
    pub(super) fn poll_deadline_ms(&self, ping_interval_ms: u64, idle_timeout_ms: u64) -> u64 {
        let ping_ms = deadline_ms(self.last_ping_ms, ping_interval_ms);
        ping_ms.min(deadline_ms(self.last_heard_ms, idle_timeout_ms))
    }

    /// A requested ping counts as sent.
    pub(super) fn handle_timeout(
        &mut self,
        ping_interval_ms: u64,
        idle_timeout_ms: u64,
        now_ms: u64,
    ) -> TimeoutAction {
        if now_ms >= deadline_ms(self.last_heard_ms, idle_timeout_ms) {
            return TimeoutAction::CloseIdle;
        }
        if now_ms >= deadline_ms(self.last_ping_ms, ping_interval_ms) {
            self.last_ping_ms = now_ms;
            return TimeoutAction::SendPing;
        }
        TimeoutAction::None
    }
}

fn deadline_ms(since_ms: u64, interval_ms: u64) -> u64 {
    if interval_ms == 0 {
        u64::MAX
    } else {
        since_ms.saturating_add(interval_ms)
    }
}
