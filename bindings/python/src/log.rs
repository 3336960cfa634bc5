//! The engine's log, for Python's `logging`.
//!
//! The engine logs on threads that must not wait for the interpreter. Its events go into a bounded queue, from which a
//! thread of Python receives them.

use crate::errors::{Failure, Fault};
use pyo3::prelude::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, span};

/// A log line: the level as `logging` numbers it, the module that logs, and the words with the fields behind them.
type Line = (u8, String, String);

static LEVEL: AtomicU8 = AtomicU8::new(0);
static LINES: Mutex<VecDeque<Line>> = Mutex::new(VecDeque::new());
static ARRIVED: Condvar = Condvar::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);
static IS_WOKEN: AtomicBool = AtomicBool::new(false);
static STARTED: Once = Once::new();

/// Collects what the engine logs from a level on: `off`, `error`, `warn`, `info`, `debug` or `trace`. It holds for the
/// process. Raises `ConfigurationError` for another word.
#[pyfunction]
pub(crate) fn log_start(level: &str) -> Result<(), Failure> {
    let known = ["off", "error", "warn", "info", "debug", "trace"];
    let Some(index) = known.iter().position(|word| *word == level) else {
        let problem = format!("log_level: {level:?}: expected one of {}", known.join(", "));
        let kind = ("ConfigurationError", "CONFIGURATION");
        return Err(Failure::new(kind.0, kind.1, Fault::Caller, problem));
    };
    LEVEL.store(index as u8, Ordering::Release);
    STARTED.call_once(|| {
        // Nothing else in this process collects the events of this copy of the engine.
        let _ = tracing::subscriber::set_global_default(Collector);
    });
    tracing::callsite::rebuild_interest_cache();
    Ok(())
}

/// The lines that wait, or none after a time in milliseconds.
#[pyfunction]
pub(crate) fn log_take(py: Python<'_>, timeout_ms: u64) -> Vec<Line> {
    py.detach(|| {
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let is_woken = IS_WOKEN.swap(false, Ordering::AcqRel);
            if !lines.is_empty() || left.is_zero() || is_woken {
                let mut taken: Vec<Line> = lines.drain(..).collect();
                let dropped = DROPPED.swap(0, Ordering::AcqRel);
                if dropped > 0 {
                    let words = format!("{dropped} log lines were dropped: too many came at once");
                    taken.push((WARNING, "tidewire".to_owned(), words));
                }
                return taken;
            }
            let waited = ARRIVED.wait_timeout(lines, left);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    })
}

/// Ends the wait of [`log_take`].
#[pyfunction]
pub(crate) fn log_wake() {
    let _lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    IS_WOKEN.store(true, Ordering::Release);
    ARRIVED.notify_all();
}

/// Holds the lines until [`log_after_fork`], so that no other thread has them locked in the child.
#[pyfunction]
pub(crate) fn log_before_fork() {
    // Whoever holds them does not need the interpreter.
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    HELD.set(Some(lines));
}

/// Discards the lines: those from before the fork belong to the parent alone.
#[pyfunction]
pub(crate) fn log_after_fork(is_child: bool) {
    if let Some(mut lines) = HELD.take()
        && is_child
    {
        lines.clear();
    }
}

thread_local! {
    static HELD: RefCell<Option<MutexGuard<'static, VecDeque<Line>>>> = const { RefCell::new(None) };
}

struct Collector;

fn filter() -> LevelFilter {
    match LEVEL.load(Ordering::Acquire) {
        0 => LevelFilter::OFF,
        1 => LevelFilter::ERROR,
        2 => LevelFilter::WARN,
        3 => LevelFilter::INFO,
        4 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && metadata.target().starts_with("tidewire")
            && *metadata.level() <= filter()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(filter())
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let level = match *event.metadata().level() {
            Level::ERROR => ERROR,
            Level::WARN => WARNING,
            Level::INFO => 20,
            Level::DEBUG => 10,
            Level::TRACE => 5,
        };
        let target = event.metadata().target().replace("::", ".");
        let line = (level, target, words.message + &words.fields);
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= LINES_MAX {
            DROPPED.fetch_add(1, Ordering::AcqRel);
            return;
        }
        lines.push_back(line);
        drop(lines);
        ARRIVED.notify_one();
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The message of an event, and its fields as ` name=value`.
#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = value.to_owned();
        } else {
            // A String takes every write.
            let _ = write!(self.fields, " {}={value:?}", field.name());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            let _ = write!(self.fields, " {}={value:?}", field.name());
        }
    }
}

/// `logging.ERROR` and `logging.WARNING`.
const ERROR: u8 = 40;
const WARNING: u8 = 30;

/// Lines that wait for Python; further ones are counted.
const LINES_MAX: usize = 10_000;
