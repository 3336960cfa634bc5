//! Ready-made applications for trials and measurements.

use crate::model::Message;
use crate::session::application::Application;
use crate::session::context::Context;

/// Sends every message back as it arrived, without reading it, even one whose content is invalid.
#[derive(Debug, Clone, Copy, Default)]
pub struct Echo;

impl Application for Echo {
    #[inline]
    fn reads_messages(&self) -> bool {
        false
    }

    #[inline]
    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        context.send(message);
    }
}

/// Accepts every message and does nothing with it; the engine counts it as delivered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sink;

impl Application for Sink {
    #[inline]
    fn reads_messages(&self) -> bool {
        false
    }

    #[inline]
    fn on_message(&mut self, _context: &mut Context<'_>, _message: Message<'_>) {}
}
