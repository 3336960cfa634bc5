//! The engine's log, for Python's `logging`: a thread of Python receives the lines.

use crate::errors::Failure;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::time::Duration;
use tidewire_bindings::log::{self, Held, Level};

/// A log line: the level as `logging` numbers it, the module that logs, and the words with the fields behind them.
type Line = (u8, String, String);

/// Collects what the engine logs from a level on: `off`, `error`, `warn`, `info`, `debug` or `trace`. It holds for the
/// process. Raises `ConfigurationError` for another word.
#[pyfunction]
pub(crate) fn log_start(level: &str) -> Result<(), Failure> {
    Ok(log::start("log_level", level)?)
}

/// The lines that wait, or none after a time in milliseconds.
#[pyfunction]
pub(crate) fn log_take(py: Python<'_>, timeout_ms: u64) -> Vec<Line> {
    let lines = py.detach(|| log::take(Duration::from_millis(timeout_ms)));
    let lines = lines.into_iter();
    lines
        .map(|line| (number(line.level), line.module, line.words))
        .collect()
}

/// Ends the wait of [`log_take`].
#[pyfunction]
pub(crate) fn log_wake() {
    log::wake();
}

/// Holds the lines until [`log_after_fork`], so that no other thread has them locked in the child.
#[pyfunction]
pub(crate) fn log_before_fork() {
    // Whoever holds them does not need the interpreter.
    HELD.set(Some(log::hold()));
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
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// The level as `logging` numbers it.
fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}
