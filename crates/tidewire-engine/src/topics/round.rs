//! Rounds of delivery: publications that are gathered and delivered together, and which of them a
//! connection with several matching subscriptions has got.

/// The publications that are gathered and delivered together.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) number: u64,
    marks: u32,
    /// No more publications are gathered in this round.
    pub(crate) is_over: bool,
}

/// Which marked publications of a round a connection has got.
#[derive(Debug, Default)]
pub(crate) struct Received {
    round: u64,
    bits: Vec<u64>,
}

impl Round {
    /// A number for a publication; with `is_last` the round ends with it.
    pub(crate) fn mark(&mut self, is_last: bool) -> u32 {
        let mark = self.marks;
        self.marks += 1;
        self.is_over |= is_last || self.marks >= MARKS_MAX;
        mark
    }

    /// Begins the next round.
    pub(crate) fn start(&mut self) {
        self.number += 1;
        self.marks = 0;
        self.is_over = false;
    }
}

impl Received {
    /// Whether the connection has not got this publication before; it has now.
    pub(crate) fn take(&mut self, round: u64, mark: Option<u32>) -> bool {
        let Some(mark) = mark else { return true };
        self.start(round);
        let (word, bit) = (mark as usize / 64, 1 << (mark % 64));
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        let is_first = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        is_first
    }

    /// Marks all of these as given to the connection, if it has none of them yet; true if so.
    pub(crate) fn take_all(
        &mut self,
        round: u64,
        marks: impl Iterator<Item = Option<u32>> + Clone,
    ) -> bool {
        self.start(round);
        let has = |mark: u32| {
            let word = self.bits.get(mark as usize / 64);
            word.is_some_and(|word| word & (1 << (mark % 64)) != 0)
        };
        if marks.clone().flatten().any(has) {
            return false;
        }
        marks.for_each(|mark| {
            self.take(round, mark);
        });
        true
    }

    fn start(&mut self, round: u64) {
        if self.round != round {
            self.round = round;
            self.bits.clear();
            self.bits.shrink_to(BITS_KEPT);
        }
    }
}

/// Publications of a round that several topics and patterns match, at most.
const MARKS_MAX: u32 = 4_096;

/// Words of marks that a connection keeps.
const BITS_KEPT: usize = 8;
