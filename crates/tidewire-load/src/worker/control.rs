//! Control frames of a connection: where they go, and their masks.

use rand::Rng;
use rand::rngs::SmallRng;
use tidewire_wire::close::CloseCode;
use tidewire_wire::connection::Output;
use tidewire_wire::frame::OpCode;

/// A buffer for control frames, each with a random mask.
pub(crate) struct ControlFrames<'a> {
    random: &'a mut SmallRng,
    buffer: &'a mut Vec<u8>,
}

impl<'a> ControlFrames<'a> {
    pub(crate) fn new(random: &'a mut SmallRng, buffer: &'a mut Vec<u8>) -> Self {
        Self { random, buffer }
    }
}

impl Output for ControlFrames<'_> {
    fn buffer(&mut self, _opcode: OpCode) -> Option<&mut Vec<u8>> {
        Some(self.buffer)
    }

    fn mask(&mut self) -> Option<[u8; 4]> {
        Some(self.random.random())
    }

    /// The lab answers each close with a normal one, whatever the server's code.
    fn close_code(&self, _received: Option<CloseCode>) -> Option<CloseCode> {
        Some(CloseCode::NORMAL)
    }
}
