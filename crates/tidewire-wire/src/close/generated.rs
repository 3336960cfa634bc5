//! Generated from `protocol/codes.toml` by `cargo xtask codes`. Do not edit.

use super::CloseCode;
use crate::codes::{Condition, Fault, Retry};

impl CloseCode {
    /// 1000: the purpose of the connection has been fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// 1001: the server shuts down, or the page is left.
    pub const GOING_AWAY: Self = Self(1001);
    /// 1002: the peer violated RFC 6455 or an extension.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// 1003: a kind of data that this side does not accept.
    pub const UNSUPPORTED_DATA: Self = Self(1003);
    /// 1007: a text message is not UTF-8, or a payload does not match its type.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// 1008: a policy of this side forbids the session to continue.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// 1009: a message is larger than this side accepts.
    pub const MESSAGE_TOO_LARGE: Self = Self(1009);
    /// 1011: the server failed; the peer is not at fault.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// 1012: the server restarts.
    pub const SERVICE_RESTART: Self = Self(1012);
    /// 1013: the server is overloaded; try again later.
    pub const TRY_AGAIN_LATER: Self = Self(1013);
    /// 4300: the server drains its connections; reconnect, perhaps to another one.
    pub const DRAINING: Self = Self(4300);
    /// 4310: the peer reads too slowly: more messages wait for it than allowed.
    pub const SLOW_CONSUMER: Self = Self(4310);
    /// 4401: no valid token, or one that has expired.
    pub const NOT_AUTHENTICATED: Self = Self(4401);
    /// 4403: authenticated, but not allowed.
    pub const FORBIDDEN: Self = Self(4403);
    /// 4406: the client refuses a message of the server, and cannot send 1002 to 1009.
    pub const CLIENT_REFUSED: Self = Self(4406);
    /// 4408: silent for longer than the idle timeout.
    pub const IDLE_TIMEOUT: Self = Self(4408);
    /// 4409: another connection replaces this one as the producer.
    pub const PRODUCER_SUPERSEDED: Self = Self(4409);
    /// 4429: the rate limit was exceeded for too long.
    pub const RATE_LIMITED: Self = Self(4429);
    /// 4430: the connection repeatedly sent messages that were refused.
    pub const TOO_MANY_ERRORS: Self = Self(4430);
    /// 4431: unfinished messages of the user or address took more memory than allowed.
    pub const UNFINISHED_MESSAGES: Self = Self(4431);

    /// Whose fault the end was; `None` if it was nobody's or the code is not known.
    #[must_use]
    pub const fn fault(self) -> Option<Fault> {
        match self.0 {
            1002 | 1003 | 1007 | 1008 | 1009 | 4310 | 4401 | 4403 | 4406 | 4408 | 4409 | 4429
            | 4430 | 4431 => Some(Fault::Peer),
            1011 | 1012 | 1013 | 4300 => Some(Fault::Server),
            _ => None,
        }
    }

    /// Whether to open a new connection. What the code itself does not say, its range says.
    #[must_use]
    pub const fn reconnect(self) -> Retry {
        match self.0 {
            1000 | 1002 | 1003 | 1007 | 1008 | 1009 | 4403 | 4406 | 4409 => Retry::No,
            1001 | 1012 | 4300 | 4310 | 4408 => Retry::Yes,
            1011 | 1013 | 4429 | 4430 | 4431 => Retry::After(Condition::Delay),
            4401 => Retry::After(Condition::NewToken),
            1000..=2999 | 3000..=3999 | 4500..=4599 => Retry::After(Condition::Delay),
            4000..=4199 | 4300..=4399 => Retry::Yes,
            4200..=4299 | 4400..=4499 => Retry::No,
            _ => Retry::After(Condition::Delay),
        }
    }
}
