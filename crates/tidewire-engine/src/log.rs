//! The way of log lines out of a process: a bounded queue between the threads that log and the thread that writes.
//!
//! The engine logs on its event loops, and the reader of the log can stop reading: `journald` hangs, a pipe
//! is full. So a thread that logs does not write the log. [`LogQueue::push`] holds a lock for a moment and
//! never waits for a reader; a line that finds no room is dropped and counted. A [`LineBudget`] limits the
//! lines of one place in the code.

use crate::clock::after;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Log lines that wait for the thread that writes them.
#[derive(Debug)]
pub struct LogQueue<T> {
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
}

/// The lines that [`LogQueue::take`] returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLines<T> {
    /// In the order in which they were logged.
    pub lines: Vec<T>,
    /// The lines that were dropped since the last call, for lack of room.
    pub dropped: u64,
}

/// A few lines in a minute about one event, for places that know no address. The next line has a count of those that were
/// left out.
#[derive(Debug)]
pub(crate) struct LineBudget(Mutex<Minute>);

#[derive(Debug)]
struct Minute {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LineBudget {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Minute {
            since: None,
            lines: 0,
            left_out: 0,
        }))
    }

    /// The lines that were left out before this one, if this one may be logged.
    pub(crate) fn admit(&self, now: Instant) -> Option<u64> {
        let mut minute = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |since| now.saturating_duration_since(since) >= BUDGET_TIME;
        if minute.since.is_none_or(is_over) {
            minute.since = Some(now);
            minute.lines = 0;
        }
        if minute.lines >= BUDGET_LINES {
            minute.left_out += 1;
            return None;
        }
        minute.lines += 1;
        Some(std::mem::take(&mut minute.left_out))
    }
}

/// The queue, held by one thread: as long as this lives, no thread adds or removes a line.
#[derive(Debug)]
pub struct HeldLog<'a, T>(MutexGuard<'a, Waiting<T>>);

#[derive(Debug)]
struct Waiting<T> {
    lines: VecDeque<T>,
    bytes: usize,
    dropped: u64,
    is_woken: bool,
}

impl<T> LogQueue<T> {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                lines: VecDeque::new(),
                bytes: 0,
                dropped: 0,
                is_woken: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Adds a line of a size in bytes. False if there is no room for it: [`LOG_LINES_MAX`] lines or [`LOG_BYTES_MAX`]
    /// bytes wait. Then it is dropped and counted.
    pub fn push(&self, line: T, bytes: usize) -> bool {
        let mut waiting = self.lock();
        let bytes = waiting.bytes.saturating_add(bytes);
        if waiting.lines.len() >= LOG_LINES_MAX || bytes > LOG_BYTES_MAX {
            waiting.dropped += 1;
            DROPPED.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        waiting.bytes = bytes;
        waiting.lines.push_back(line);
        drop(waiting);
        self.changed.notify_one();
        true
    }

    /// The lines that wait. If there are none, those that arrive within a time, or none after [`wake`](Self::wake).
    pub fn take(&self, timeout: Duration) -> LogLines<T> {
        let deadline = after(timeout);
        let mut waiting = self.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let is_woken = std::mem::take(&mut waiting.is_woken);
            if !waiting.lines.is_empty() || waiting.dropped > 0 || left.is_zero() || is_woken {
                waiting.bytes = 0;
                return LogLines {
                    lines: std::mem::take(&mut waiting.lines).into(),
                    dropped: std::mem::take(&mut waiting.dropped),
                };
            }
            let waited = self.changed.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the wait of [`take`](Self::take).
    pub fn wake(&self) {
        self.lock().is_woken = true;
        self.changed.notify_all();
    }

    /// Holds the queue, for a fork: so no other thread holds it in the child.
    pub fn hold(&self) -> HeldLog<'_, T> {
        HeldLog(self.lock())
    }

    /// A thread that panicked has left the queue whole: it is changed in one step.
    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for LogQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> HeldLog<'_, T> {
    /// Forgets the lines that wait.
    pub fn clear(&mut self) {
        self.0.lines.clear();
        self.0.bytes = 0;
    }
}

/// The log lines of this process that were dropped since its start because the queue was full.
#[must_use]
pub fn dropped_log_lines() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// The words of the line that reports dropped lines.
#[must_use]
pub fn dropped_words(dropped: u64) -> String {
    format!("{dropped} log lines were dropped: the log is not read, or too many came at once")
}

/// The time of a [`LineBudget`].
const BUDGET_TIME: Duration = Duration::from_secs(60);

/// Lines of a [`LineBudget`] in its time.
const BUDGET_LINES: u32 = 5;

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Lines that wait in a [`LogQueue`]; further ones are dropped and counted.
pub const LOG_LINES_MAX: usize = 10_000;

/// Bytes of the lines that wait in a [`LogQueue`]; further lines are dropped and counted.
pub const LOG_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_bytes_are_bounded_and_what_is_dropped_is_counted() {
        let queue = LogQueue::new();
        let before = dropped_log_lines();
        for number in 0..LOG_LINES_MAX {
            assert!(queue.push(number, 1));
        }
        assert!(!queue.push(0, 1));
        assert!(!queue.push(0, 1));
        let taken = queue.take(Duration::ZERO);
        assert_eq!(taken.lines, (0..LOG_LINES_MAX).collect::<Vec<_>>());
        assert_eq!(taken.dropped, 2);
        assert!(dropped_log_lines() >= before + 2);
        assert!(queue.push(1, LOG_BYTES_MAX));
        assert!(!queue.push(2, 1));
        let taken = queue.take(Duration::ZERO);
        assert_eq!((taken.lines, taken.dropped), (vec![1], 1));
        let none = LogLines {
            lines: Vec::new(),
            dropped: 0,
        };
        assert_eq!(queue.take(Duration::ZERO), none);
    }

    #[test]
    fn a_budget_is_some_lines_in_a_minute_and_a_count_of_the_others() {
        let budget = LineBudget::new();
        let start = Instant::now();
        let admit = |s| budget.admit(start + Duration::from_secs(s));
        for _ in 0..BUDGET_LINES {
            assert_eq!(admit(0), Some(0));
        }
        assert_eq!((admit(0), admit(59)), (None, None));
        assert_eq!(admit(60), Some(2));
        assert_eq!(admit(60), Some(0));
    }

    #[test]
    fn a_wait_ends_with_a_line_or_when_it_is_woken() {
        let queue = LogQueue::new();
        std::thread::scope(|scope| {
            scope.spawn(|| queue.push("a", 1));
            assert_eq!(queue.take(Duration::from_secs(600)).lines, ["a"]);
            scope.spawn(|| queue.wake());
            assert!(queue.take(Duration::from_secs(600)).lines.is_empty());
        });
    }
}
