//! The engine's log, for the logs of the languages.
//!
//! The engine logs on threads that must not wait for an interpreter. Its events go into a [`LogQueue`] of the process,
//! from which a package receives them: it waits on a thread of its own ([`take`] with a time), or it is called when a
//! line arrives ([`listen`]).

use crate::failure::{Failure, Fault};
use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;
use tidewire_engine::{HeldLog, LogQueue, dropped_words};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber, span};

pub use tracing::Level;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How much it matters.
    pub level: Level,
    /// The module that logs, such as `tidewire_engine.shard.handshake`.
    pub module: String,
    /// The words, with the fields behind them.
    pub words: String,
}

/// Somebody who is called when a line arrives.
struct Listener {
    id: u64,
    level: u8,
    /// Gives false if nobody is there any more.
    wake: Box<dyn Fn() -> bool + Send>,
}

/// The names of the levels, from the fewest lines to the most.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

static LEVEL: AtomicU8 = AtomicU8::new(0);
static QUEUE: LogQueue<Line> = LogQueue::new();
static LISTENERS: Mutex<Vec<Listener>> = Mutex::new(Vec::new());
static STARTED: Once = Once::new();

/// Collects what the engine logs from a level on: `off`, `error`, `warn`, `info`, `debug` or `trace`. It holds for the
/// process. `option` is the name of the option that has the level, for the error.
///
/// # Errors
/// There is no level of this name.
pub fn start(option: &str, level: &str) -> Result<(), Failure> {
    set_level(level_number(option, level)?);
    Ok(())
}

/// Calls `wake` for each line from a level on, until it gives false or [`leave`] ends it. The newest listener is the only
/// one who is called. `wake` runs on threads of the engine and must not wait.
///
/// # Errors
/// There is no level of this name.
pub fn listen(
    option: &str,
    level: &str,
    wake: impl Fn() -> bool + Send + 'static,
) -> Result<u64, Failure> {
    static NEXT_ID: AtomicU64 = AtomicU64::new(0);
    let level = level_number(option, level)?;
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let wake = Box::new(wake);
    locked(&LISTENERS).push(Listener { id, level, wake });
    set_level(level);
    Ok(id)
}

/// Ends what [`listen`] began. The listener before it is called again, if there is one.
pub fn leave(id: u64) {
    let mut listeners = locked(&LISTENERS);
    listeners.retain(|listener| listener.id != id);
    let level = listeners.last().map_or(0, |listener| listener.level);
    drop(listeners);
    set_level(level);
}

/// The lines that wait; if there are none, those that arrive within a time, or none.
pub fn take(timeout: Duration) -> Vec<Line> {
    let mut taken = QUEUE.take(timeout);
    if taken.dropped > 0 {
        taken.lines.push(Line {
            level: Level::WARN,
            module: "tidewire".to_owned(),
            words: dropped_words(taken.dropped),
        });
    }
    taken.lines
}

/// Ends the wait of [`take`].
pub fn wake() {
    QUEUE.wake();
}

/// The queue, held: as long as this lives, nobody adds or receives a line. For a fork, so that no other thread holds it
/// in the child.
pub struct Held {
    lines: HeldLog<'static, Line>,
    _listeners: MutexGuard<'static, Vec<Listener>>,
}

/// Holds the queue.
#[must_use]
pub fn hold() -> Held {
    Held {
        lines: QUEUE.hold(),
        _listeners: locked(&LISTENERS),
    }
}

impl Held {
    /// Forgets the lines that wait.
    pub fn clear(&mut self) {
        self.lines.clear();
    }
}

fn level_number(option: &str, level: &str) -> Result<u8, Failure> {
    let known = LEVELS.iter().position(|word| *word == level);
    known.map(|index| index as u8).ok_or_else(|| {
        let expected = LEVELS.join(", ");
        let problem = format!("{option}: {level:?}: expected one of {expected}");
        Failure::new(
            "ConfigurationError",
            "CONFIGURATION",
            Fault::Caller,
            problem,
        )
    })
}

fn set_level(level: u8) {
    LEVEL.store(level, Ordering::Release);
    STARTED.call_once(|| {
        // Nothing else in this process collects the events of this copy of the engine.
        let _ = tracing::subscriber::set_global_default(Collector);
    });
    tracing::callsite::rebuild_interest_cache();
}

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

/// Calls the newest listener that is still there.
fn notify() {
    let mut listeners = locked(&LISTENERS);
    while let Some(listener) = listeners.last() {
        if (listener.wake)() {
            return;
        }
        listeners.pop();
    }
}

/// A thread that panicked has left the queue whole: it is changed in one step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Collector;

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
        let line = Line {
            level: *event.metadata().level(),
            module: event.metadata().target().replace("::", "."),
            words: words.message + &words.fields,
        };
        let bytes = line.module.len() + line.words.len();
        if QUEUE.push(line, bytes) {
            notify();
        }
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
            // A write to a String never fails.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_level_names_the_option_and_the_levels() {
        let error = start("logLevel", "loud").expect_err("no level");
        assert_eq!(error.class, "ConfigurationError");
        let words = "logLevel: \"loud\": expected one of off, error, warn, info, debug, trace";
        assert_eq!(error.message, words);
    }
}
