//! Stream of frames that every subscriber must receive, as the first subscriber received it.
//!
//! All subscribers of a topic are sent the same frames. So the first one's are looked at one by one, and those
//! of the others are compared with them, many at a time: it is the one way to look at every byte of more
//! than ten million messages a second.

/// The newest frames, one behind the other.
#[derive(Debug)]
pub(crate) struct Stream {
    bytes: Vec<u8>,
    /// Where each frame ends in `bytes`.
    ends: Vec<usize>,
    /// The number of the message before the first frame.
    before: u64,
    /// Runs of messages that were meant to leave at the same time: the first one's number, and the time.
    runs: Vec<(u64, u64)>,
    /// Frames that are remembered however long they are.
    frames_min: usize,
}

impl Stream {
    /// An empty stream that remembers at least N frames.
    pub(crate) fn new(frames_min: u64) -> Self {
        Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            before: 0,
            runs: Vec::new(),
            frames_min: frames_min as usize,
        }
    }

    /// The number of the newest message.
    pub(crate) fn last(&self) -> u64 {
        self.before + self.ends.len() as u64
    }

    /// The bytes that follow message `number`; `None` if they are forgotten or not known yet.
    pub(crate) fn after(&self, number: u64) -> Option<&[u8]> {
        let start = self.end_of(number)?;
        self.bytes.get(start..).filter(|rest| !rest.is_empty())
    }

    /// Of `bytes` bytes that follow message `number`, the last message that is whole in them and where it
    /// ends.
    pub(crate) fn whole(&self, number: u64, bytes: usize) -> (u64, usize) {
        let Some(start) = self.end_of(number) else {
            return (number, 0);
        };
        let first = (number - self.before) as usize;
        let most = (first + bytes / FRAME_BYTES_MIN).min(self.ends.len());
        let ends = &self.ends[first..most];
        match ends.partition_point(|end| *end <= start + bytes) {
            0 => (number, 0),
            count => (number + count as u64, ends[count - 1] - start),
        }
    }

    /// Appends the next message's frame.
    pub(crate) fn push(&mut self, frame: &[u8], at_us: u64) {
        if self.bytes.len() + frame.len() > BYTES_KEPT && self.ends.len() > 2 * self.frames_min {
            self.forget();
        }
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
        if self.runs.last().is_none_or(|run| run.1 != at_us) {
            self.runs.push((self.last(), at_us));
        }
    }

    /// Starts anew after message `number`: earlier messages have nothing to do with later ones.
    pub(crate) fn restart(&mut self, number: u64) {
        self.bytes.clear();
        self.ends.clear();
        self.runs.clear();
        self.before = number;
    }

    /// Calls `record` with each time at which messages of `from + 1..=to` were meant to leave, in
    /// microseconds, and how many they were. All of them have to be remembered.
    pub(crate) fn times(&self, from: u64, to: u64, mut record: impl FnMut(u64, u64)) {
        let mut run = self.runs.partition_point(|run| run.0 <= from + 1);
        let mut next = from + 1;
        while next <= to && run > 0 {
            let end = self.runs.get(run).map_or(to, |run| to.min(run.0 - 1));
            record(self.runs[run - 1].1, end + 1 - next);
            next = end + 1;
            run += 1;
        }
    }

    fn end_of(&self, number: u64) -> Option<usize> {
        let index = number.checked_sub(self.before)? as usize;
        match index {
            0 => Some(0),
            _ => self.ends.get(index - 1).copied(),
        }
    }

    /// Gives the older half up; there is at least one frame.
    fn forget(&mut self) {
        let count = self.ends.len().div_ceil(2);
        let bytes = self.ends[count - 1];
        self.bytes.drain(..bytes);
        self.ends.drain(..count);
        self.ends.iter_mut().for_each(|end| *end -= bytes);
        self.before += count as u64;
        let first = self.before + 1;
        let run = self.runs.partition_point(|run| run.0 <= first);
        self.runs.drain(..run.saturating_sub(1));
    }
}

/// Past it, frames are given up that no subscriber is expected to need. It fits a core's cache.
const BYTES_KEPT: usize = 512 * 1024;

/// No frame of a publication is shorter.
const FRAME_BYTES_MIN: usize = super::MESSAGE_BYTES_MIN;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u64) -> Vec<u8> {
        vec![number as u8; 80 + (number % 7) as usize]
    }

    fn stream(count: u64, frames_min: u64) -> Stream {
        let mut stream = Stream::new(frames_min);
        for number in 1..=count {
            stream.push(&frame(number), number / 10);
        }
        stream
    }

    #[test]
    fn what_follows_a_message_is_told_whole_by_whole() {
        let stream = stream(30, 100);
        assert_eq!(
            (stream.last(), stream.after(30), stream.after(31)),
            (30, None, None)
        );
        for number in 0..30 {
            let expected: Vec<u8> = (number + 1..=30).flat_map(frame).collect();
            assert_eq!(stream.after(number), Some(&expected[..]));
            let mut end = 0;
            for last in number + 1..=30 {
                let before = end;
                end += frame(last).len();
                assert_eq!(stream.whole(number, end), (last, end));
                assert_eq!(stream.whole(number, end - 1), (last - 1, before));
            }
        }
    }

    #[test]
    fn old_frames_are_forgotten_but_not_those_still_needed() {
        let stream = stream(20_000, 3_000);
        assert_eq!(stream.after(1), None);
        assert!(stream.before + 3_000 <= 20_000 && stream.bytes.len() < 2 * BYTES_KEPT);
        let rest = stream.after(17_000).unwrap();
        assert!(rest.starts_with(&frame(17_001)));
        let mut seen = Vec::new();
        stream.times(17_000, 17_015, |at_us, count| seen.push((at_us, count)));
        assert_eq!(seen, [(1_700, 9), (1_701, 6)]);
    }

    #[test]
    fn a_frame_may_be_longer_than_what_is_kept() {
        let mut stream = Stream::new(0);
        for number in 1..=5 {
            stream.push(&vec![number as u8; BYTES_KEPT], number);
            assert_eq!(
                stream.after(number - 1),
                Some(&vec![number as u8; BYTES_KEPT][..])
            );
        }
        assert_eq!(stream.last(), 5);
    }

    #[test]
    fn times_are_told_in_runs() {
        let stream = stream(40, 100);
        let mut seen = Vec::new();
        stream.times(0, 40, |at_us, count| seen.push((at_us, count)));
        assert_eq!(seen, [(0, 9), (1, 10), (2, 10), (3, 10), (4, 1)]);
        seen.clear();
        stream.times(11, 19, |at_us, count| seen.push((at_us, count)));
        assert_eq!(seen, [(1, 8)]);
        stream.times(5, 5, |_, _| panic!("nothing is between"));
    }

    #[test]
    fn a_restarted_stream_goes_on_from_there() {
        let mut stream = stream(40, 100);
        stream.restart(70);
        stream.push(&frame(71), 9);
        assert_eq!((stream.last(), stream.after(40)), (71, None));
        assert_eq!(stream.after(70), Some(&frame(71)[..]));
    }
}
