//! The thread on which all clients of this process live.

use crate::errors::{Failure, stopped};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::runtime::{Builder, Handle};

/// Counts forks: an object that is older than the last fork belongs to another process.
static GENERATION: AtomicU64 = AtomicU64::new(0);

static RUNTIME: Mutex<Option<(u64, Handle)>> = Mutex::new(None);

/// The number of forks up to this process.
pub(super) fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// To be called in the child after a fork, by its only thread.
pub(super) fn forget() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// The thread's runtime, which is started if there is none in this process.
pub(super) fn runtime() -> Result<Handle, Failure> {
    let generation = generation();
    // Held only here, for moments, and by a thread that has the interpreter, which a fork does not interrupt.
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((made_in, handle)) = &*runtime
        && *made_in == generation
    {
        return Ok(handle.clone());
    }
    let failed = |error: std::io::Error| stopped(format!("no thread for clients: {error}"));
    let made = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let handle = made.handle().clone();
    std::thread::Builder::new()
        .name("tidewire-client".to_owned())
        .spawn(move || made.block_on(std::future::pending::<()>()))
        .map_err(failed)?;
    // The handle of a parent's runtime must not be dropped here: its thread does not exist in this process.
    std::mem::forget(runtime.replace((generation, handle.clone())));
    Ok(handle)
}
