//! Close codes (RFC 6455, section 7.4, and the 4000 range of protocol version 1).

use std::fmt;

/// The number that a close frame carries.
///
/// Any number that may appear on the wire can be held; [`CloseCode::from_wire`] refuses the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CloseCode(u16);

impl CloseCode {
    /// 1000: the purpose of the connection has been fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// 1001: the server goes down, or the page is left.
    pub const GOING_AWAY: Self = Self(1001);
    /// 1002: the peer broke RFC 6455.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// 1003: a kind of data that this side does not accept.
    pub const UNSUPPORTED_DATA: Self = Self(1003);
    /// 1007: a text message is not UTF-8, or a payload is not what its type says.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// 1008: a policy of this side forbids to go on.
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
    /// 4401: no valid token.
    pub const NOT_AUTHENTICATED: Self = Self(4401);
    /// 4403: authenticated, but not allowed.
    pub const FORBIDDEN: Self = Self(4403);
    /// 4408: silent for longer than the idle timeout.
    pub const IDLE_TIMEOUT: Self = Self(4408);
    /// 4429: the rate limit was exceeded for too long.
    pub const RATE_LIMITED: Self = Self(4429);

    /// The code, if a close frame may carry it: 1000 to 1014 without the reserved 1004, 1005 and
    /// 1006, and 3000 to 4999.
    #[must_use]
    pub fn from_wire(code: u16) -> Option<Self> {
        matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999).then_some(Self(code))
    }

    /// The number as it stands in the frame.
    #[must_use]
    pub fn value(self) -> u16 {
        self.0
    }
}

impl fmt::Debug for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CloseCode({})", self.0)
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_codes_never_come_from_the_wire() {
        for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535] {
            assert_eq!(CloseCode::from_wire(code), None, "{code}");
        }
        for code in [1000, 1003, 1007, 1014, 3000, 4300, 4999] {
            assert_eq!(CloseCode::from_wire(code).map(CloseCode::value), Some(code));
        }
    }
}
