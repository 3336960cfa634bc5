//! Closures of the application that are called where an answer arrives: on a shard or on the broker's thread.

use crate::log::LineBudget;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Calls a closure of the application. If it panics, that is logged, and the thread continues: a client can cause the
/// answer that the closure cannot bear.
pub(crate) fn call_back(call: impl FnOnce()) {
    static LINES: LineBudget = LineBudget::new();
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call))
        && let Some(left_out) = LINES.admit(Instant::now())
    {
        tracing::error!(
            left_out,
            panic = words(&*panic),
            "a callback of the application panicked; the server continues",
        );
    }
}

/// The message of a panic.
pub(crate) fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words")
}
