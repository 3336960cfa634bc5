//! The thread that writes the log to standard error, and the queue in front of it.

use crate::failure::Failure;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write as _};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use tidewire_engine::{LogQueue, dropped_words};

/// The thread that writes the log. [`end`](Self::end) writes what waits; dropping it does the same, for a panic.
pub(in crate::serve) struct LogThread {
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

impl LogThread {
    pub(super) fn start() -> Result<Self, Failure> {
        let (end, ended) = sync_channel(0);
        std::thread::Builder::new()
            .name("tidewire-log".to_owned())
            .spawn(move || write_lines(end))
            .map_err(|error| Failure::run(format!("the log has no thread: {error}")))?;
        Ok(Self { ended })
    }

    /// Writes the lines that wait. False if nobody reads standard error: then the lines that are left are lost, and
    /// nothing else can be written there.
    pub(in crate::serve) fn end(&self) -> bool {
        IS_ENDING.store(true, Ordering::Release);
        QUEUE.wake();
        let mut written = WRITTEN.load(Ordering::Acquire);
        loop {
            match self.ended.recv_timeout(STUCK_TIME) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let before = written;
            written = WRITTEN.load(Ordering::Acquire);
            if written == before {
                return false;
            }
        }
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes lines until the log ends. `_end` is dropped then, which the owner of the thread notices.
fn write_lines(_end: SyncSender<()>) {
    let mut stderr = io::stderr();
    loop {
        let is_ending = IS_ENDING.load(Ordering::Acquire);
        let taken = QUEUE.take(if is_ending { Duration::ZERO } else { FOREVER });
        let is_empty = taken.lines.is_empty() && taken.dropped == 0;
        for line in taken.lines {
            // A reader that is gone is no reason to end.
            let _ = stderr.write_all(&line);
            WRITTEN.fetch_add(1, Ordering::AcqRel);
        }
        if taken.dropped > 0 {
            tracing::warn!(dropped = taken.dropped, "{}", dropped_words(taken.dropped));
        }
        if is_ending && is_empty {
            return;
        }
    }
}

/// Puts each line into the queue. The formatter writes a line in one call.
#[derive(Debug, Default)]
pub(super) struct LineWriter;

impl io::Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        QUEUE.push(line.into(), line.len());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs panics in place of writing them to standard error, which would wait for its reader.
pub(super) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::capture();
        let backtrace = match backtrace.status() {
            BacktraceStatus::Captured => Some(backtrace.to_string()),
            _ => None,
        };
        let thread = std::thread::current();
        let words = words(panic);
        let place = panic.location().map(ToString::to_string);
        if tracing::enabled!(tracing::Level::ERROR) {
            let thread = thread.name();
            tracing::error!(thread, place, backtrace, "a thread panicked: {words}");
        } else {
            // A panic is written even if the log is off.
            let line = format!(
                "a thread panicked at {}: {words}\n",
                place.unwrap_or_default()
            );
            QUEUE.push(line.into_bytes().into(), words.len());
        }
    }));
}

fn words(panic: &PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

static QUEUE: LogQueue<Box<[u8]>> = LogQueue::new();

/// The number of lines written to standard error.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// If no line is written in this time, the reader of standard error has stopped reading.
const STUCK_TIME: Duration = Duration::from_secs(1);

/// The thread waits until it is woken.
const FOREVER: Duration = Duration::from_secs(3_600);
