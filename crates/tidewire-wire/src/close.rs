//! Close codes (RFC 6455, section 7.4, and the 4000 range of protocol version 1), the side at fault and
//! whether to reconnect. Generated from `protocol/codes.toml`.

mod generated;

use std::fmt;

/// The code of a close frame.
///
/// It can be any number that may appear on the wire; [`CloseCode::from_wire`] rejects the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CloseCode(u16);

impl CloseCode {
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

/// The most bytes that the reason of a close has: what a control frame holds besides the code (RFC 6455, section 5.5).
pub const REASON_BYTES_MAX: usize = 123;

/// The words for a code that [`CloseCode::from_wire`] rejects.
pub const CLOSE_CODES: &str = "a close code is 1000 to 1003, 1007 to 1014 or 3000 to 4999; an application's own are 4000 to 4299";

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
    use crate::codes::{Condition, Fault, Retry};

    #[test]
    fn reserved_codes_never_come_from_the_wire() {
        for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535] {
            assert_eq!(CloseCode::from_wire(code), None, "{code}");
        }
        for code in [1000, 1003, 1007, 1014, 3000, 4300, 4999] {
            assert_eq!(CloseCode::from_wire(code).map(CloseCode::value), Some(code));
        }
    }

    #[test]
    fn ranges_say_whether_to_reconnect() {
        let after = |condition| Retry::After(condition);
        for (code, reconnect) in [
            (1000, Retry::No),
            (1001, Retry::Yes),
            (1010, after(Condition::Delay)),
            (1013, after(Condition::Delay)),
            (3000, after(Condition::Delay)),
            (4000, Retry::Yes),
            (4199, Retry::Yes),
            (4200, Retry::No),
            (4299, Retry::No),
            (4300, Retry::Yes),
            (4350, Retry::Yes),
            (4400, Retry::No),
            (4401, after(Condition::NewToken)),
            (4403, Retry::No),
            (4408, Retry::Yes),
            (4429, after(Condition::Delay)),
            (4499, Retry::No),
            (4503, after(Condition::Delay)),
            (4999, after(Condition::Delay)),
        ] {
            let found = CloseCode::from_wire(code).map(CloseCode::reconnect);
            assert_eq!(found, Some(reconnect), "{code}");
        }
    }

    #[test]
    fn faults() {
        assert_eq!(CloseCode::NORMAL.fault(), None);
        assert_eq!(CloseCode::PROTOCOL_ERROR.fault(), Some(Fault::Peer));
        assert_eq!(CloseCode::DRAINING.fault(), Some(Fault::Server));
        assert_eq!(CloseCode::from_wire(4001).and_then(CloseCode::fault), None);
    }
}
