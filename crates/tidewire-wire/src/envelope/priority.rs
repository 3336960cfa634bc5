//! `pri`: what leaves first when not everything can.

/// The priority of a message. It decides only among messages that wait for the same connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// 1.
    Background,
    /// 3.
    Low,
    /// 5, and what a message without `pri` has.
    #[default]
    Normal,
    /// 8.
    High,
    /// 10.
    Critical,
}

impl Priority {
    /// All of them, the least urgent first.
    pub const ALL: [Self; 5] = [
        Self::Background,
        Self::Low,
        Self::Normal,
        Self::High,
        Self::Critical,
    ];

    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Background => 1,
            Self::Low => 3,
            Self::Normal => 5,
            Self::High => 8,
            Self::Critical => 10,
        }
    }

    /// The priority with this number on the wire.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|priority| u64::from(priority.number()) == number)
    }

    /// Its place among [`Self::ALL`], from 0 (background) to 4 (critical).
    #[must_use]
    pub const fn lane(self) -> usize {
        self as usize
    }
}
