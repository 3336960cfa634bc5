//! When the first and the last subscriber have a publication: every publication, or one in N.

use std::collections::VecDeque;

use super::UNKNOWN;

/// The milestones of one worker's subscribers. Each of these passes them in their order.
#[derive(Debug)]
pub(crate) struct Milestones {
    /// Publications from one to the next; milestone `i`, counted from 0, is publication `(i + 1) * stride`.
    stride: u64,
    members: u32,
    /// Members that are gone and hold up nobody.
    gone: u32,
    /// Those that not all have passed; the first is that behind the last of `spans_ns`.
    open: VecDeque<Milestone>,
    /// When the first and the last subscriber passed those that all have.
    spans_ns: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Milestone {
    /// Members that have passed it or are gone.
    passed: u32,
    first_ns: u64,
}

impl Milestones {
    pub(crate) fn new(stride: u64, members: u32) -> Self {
        Self {
            stride,
            members,
            gone: 0,
            open: VecDeque::new(),
            spans_ns: Vec::new(),
        }
    }

    /// A member that had everything up to publication `from` now has it up to `to`. Whether that lets the
    /// slowest one's place move.
    #[inline]
    pub(crate) fn pass(&mut self, from: u64, to: u64, now_ns: u64) -> bool {
        let (first, end) = (from / self.stride, to / self.stride);
        if first == end {
            return false;
        }
        self.pass_some(first, end, now_ns)
    }

    fn pass_some(&mut self, first: u64, end: u64, now_ns: u64) -> bool {
        let done = self.spans_ns.len() as u64;
        while done + (self.open.len() as u64) < end {
            self.open.push_back(Milestone {
                passed: self.gone,
                first_ns: now_ns,
            });
        }
        for index in first.max(done)..end {
            self.open[(index - done) as usize].passed += 1;
        }
        self.complete(now_ns)
    }

    /// A member that had everything up to publication `last` gets nothing more.
    pub(crate) fn leave(&mut self, last: u64, now_ns: u64) -> bool {
        let done = self.spans_ns.len() as u64;
        let passed = (last / self.stride).saturating_sub(done) as usize;
        self.gone += 1;
        for milestone in self.open.iter_mut().skip(passed) {
            milestone.passed += 1;
        }
        self.complete(now_ns) || self.gone >= self.members
    }

    /// The newest publication that all are known to have; [`UNKNOWN`] if nobody is left.
    pub(crate) fn received(&self) -> u64 {
        if self.gone >= self.members {
            return UNKNOWN;
        }
        self.spans_ns.len() as u64 * self.stride
    }

    /// The spans of those that all have passed.
    pub(crate) fn into_spans_ns(self) -> Vec<(u64, u64)> {
        self.spans_ns
    }

    fn complete(&mut self, now_ns: u64) -> bool {
        let before = self.spans_ns.len();
        while let Some(milestone) = self.open.front()
            && milestone.passed >= self.members
        {
            self.spans_ns.push((milestone.first_ns, now_ns));
            self.open.pop_front();
        }
        self.spans_ns.len() > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_milestone_is_complete_when_the_last_has_passed_it() {
        let mut milestones = Milestones::new(10, 2);
        assert!(!milestones.pass(0, 9, 1));
        assert!(!milestones.pass(9, 25, 2));
        assert_eq!(milestones.received(), 0);
        assert!(milestones.pass(0, 10, 5));
        assert_eq!(milestones.received(), 10);
        assert!(!milestones.pass(10, 19, 6));
        assert!(milestones.pass(19, 31, 7));
        assert!(milestones.pass(25, 30, 9));
        assert_eq!(milestones.received(), 30);
        assert_eq!(milestones.into_spans_ns(), [(2, 5), (2, 7), (7, 9)]);
    }

    #[test]
    fn one_that_is_gone_holds_up_nobody() {
        let mut milestones = Milestones::new(1, 3);
        milestones.pass(0, 4, 1);
        milestones.pass(0, 2, 2);
        assert!(milestones.leave(0, 3));
        assert_eq!(milestones.received(), 2);
        assert!(milestones.pass(2, 4, 4));
        assert!(!milestones.pass(4, 5, 5));
        assert!(milestones.pass(4, 5, 6));
        assert_eq!(milestones.received(), 5);
    }
}
