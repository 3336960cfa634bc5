//! Panics: one of the application ends the connection that it was called for, one of the engine
//! ends the server.
//!
//! The application's calls are marked, and each call of the event loop that may reach it is caught,
//! so that a panic costs nothing until there is one. Whether it was the application's is known from
//! the mark.

use crate::clock::unix_ms;
use crate::limits::lines::LineKind;
use crate::model::callback::words;
use crate::session::application::{Application, Marked};
use crate::shard::EngineShard;
use crate::state::connection::Phase;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::close::CloseCode;

/// The payload of a panic.
pub(crate) type Panic = Box<dyn Any + Send>;

impl<A: Application> EngineShard<A> {
    /// Calls the application for a connection that is gone already, so that nothing is left to end
    /// if it panics.
    pub(crate) fn contained_last(&mut self, call: impl FnOnce(&mut Marked<A>)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| call(&mut self.app))) {
            self.note_panic(panic);
        }
    }

    /// Calls what may reach the application for a connection. If that panics, the connection ends,
    /// and the result is `None`.
    #[inline(always)]
    pub(crate) fn contained<T>(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        call: impl FnOnce(&mut Self, &mut Io) -> T,
    ) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(|| call(self, io))) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.note_panic(panic);
                self.end_failed(io, id);
                None
            }
        }
    }

    /// Calls the application for no connection in particular. If it panics, all connections end at
    /// the end of the turn, and the result is `None`.
    #[inline(always)]
    pub(crate) fn contained_all<T>(&mut self, call: impl FnOnce(&mut Marked<A>) -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(|| call(&mut self.app))) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.note_panic(panic);
                self.has_failed = true;
                None
            }
        }
    }

    /// Ends all connections if the application has failed for no connection in particular.
    pub(crate) fn end_all_failed(&mut self, io: &mut Io) {
        if std::mem::take(&mut self.has_failed) {
            for index in 0..self.connections.len() {
                let connection = self.connections[index].as_ref();
                if let Some(id) = connection.map(|connection| connection.state.key.id) {
                    self.end_failed(io, id);
                }
            }
        }
    }

    /// Counts and logs a panic of the application; one of the engine goes on.
    #[cold]
    fn note_panic(&mut self, panic: Panic) {
        if !self.app.is_called.replace(false) {
            resume_unwind(panic);
        }
        self.core.counters.application_panics.add(1);
        if self
            .core
            .shared
            .lines
            .permit(LineKind::ApplicationPanic, None, unix_ms())
        {
            tracing::error!(
                shard = self.core.index,
                panic = words(&*panic),
                "the application panicked; the connections that it was called for end with close code 1011",
            );
        }
    }

    #[cold]
    fn end_failed(&mut self, io: &mut Io, id: ConnectionId) {
        self.with_session(io, id, |session| match session.state.phase() {
            Phase::Opening | Phase::Over => {}
            Phase::Open | Phase::Closing(_) => {
                session.end(CloseCode::INTERNAL_ERROR, "the application failed");
            }
        });
    }
}
