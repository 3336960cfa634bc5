//! Applications that come with the engine, for trying and measuring it.

use crate::model::Message;
use crate::session::application::Application;
use crate::session::context::Context;

/// Sends every message back as it came.
#[derive(Debug, Clone, Copy, Default)]
pub struct Echo;

impl Application for Echo {
    #[inline]
    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        context.send(message);
    }
}

/// Takes every message and does nothing with it; the engine counts it as delivered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sink;

impl Application for Sink {
    #[inline]
    fn on_message(&mut self, _context: &mut Context<'_>, _message: Message<'_>) {}
}
