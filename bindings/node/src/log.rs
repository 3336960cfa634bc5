//! The log of the engine for JavaScript: `lib/log.js` is called when there are lines, and receives them.

use crate::errors::Failure;
use napi::Status;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use std::time::Duration;
use tidewire_bindings::log::{self, Level};

/// Calls the function of JavaScript that receives. It does not keep the process alive.
type Waker = ThreadsafeFunction<(), (), (), Status, false, true>;

/// Calls `wake` when the engine logs something of this level or above. Gives the number for `logLeave`. The newest
/// listener of the process is the only one.
#[napi]
pub fn log_listen(level: String, wake: Function<'_, (), ()>) -> napi::Result<u32> {
    let waker: Waker = wake
        .build_threadsafe_function()
        .weak::<true>()
        .callee_handled::<false>()
        .build()?;
    // A thread of JavaScript that has ended is nobody.
    let wake = move || waker.call((), ThreadsafeFunctionCallMode::NonBlocking) == Status::Ok;
    let id = log::listen("logLevel", &level, wake).map_err(Failure::from)?;
    Ok(id as u32)
}

/// Ends what `logListen` began.
#[napi]
pub fn log_leave(id: u32) {
    log::leave(id.into());
}

/// The lines that wait: their levels and words, in turns.
#[napi]
pub fn log_take() -> Vec<String> {
    let lines = log::take(Duration::ZERO).into_iter();
    lines
        .flat_map(|line| [name(line.level).to_owned(), line.words])
        .collect()
}

fn name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}
