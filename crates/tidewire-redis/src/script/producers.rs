//! Producers: who holds them, and the numbers of their last accepted messages.

use crate::resp::{Value, argument, number_argument};
use crate::script::{Fence, Fenced, Hashes, Script, UnknownReply, boolean, is_fenced, unsigned};

/// Opens a producer for a connection.
#[derive(Debug)]
pub struct OpenCall<'a> {
    /// The key of the fence.
    pub fence_key: &'a [u8],
    /// The result of the fence.
    pub fence: &'a Fence,
    /// The key of the producer.
    pub producer_key: &'a [u8],
    /// The epoch that it begins with if it is not known.
    pub epoch: u32,
    /// How long it is kept, in milliseconds.
    pub keep_ms: u64,
    /// How long ago the connection has asked for it, in milliseconds.
    pub waited_ms: u64,
    /// Which of the client's connections it is, if the client reports it.
    pub attempt: Option<Attempt>,
}

/// One of the connections that a client opens for a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Random; drawn when the client starts.
    pub instance: u64,
    /// Larger for each next connection of the instance; at most 2^53 - 1.
    pub number: u64,
}

/// A producer that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenReply {
    /// The epoch of its numbers.
    pub epoch: u32,
    /// The number of its last accepted message.
    pub last: u64,
    /// The opening; later ones are greater. 0 if a later one was done before.
    pub opening: u64,
}

impl OpenCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        hashes.begin(Script::Open, 2, 7, out);
        argument(out, self.fence_key);
        argument(out, self.producer_key);
        self.fence.write(out);
        number_argument(out, u64::from(self.epoch));
        number_argument(out, self.keep_ms);
        number_argument(out, self.waited_ms);
        let instance = self
            .attempt
            .map(|attempt| format!("{:016x}", attempt.instance));
        argument(out, instance.unwrap_or_default().as_bytes());
        number_argument(out, self.attempt.map_or(0, |attempt| attempt.number));
    }
}

impl OpenReply {
    /// Reads the reply.
    pub fn read(value: Value<'_>) -> Result<Fenced<Self>, UnknownReply> {
        if is_fenced(value) {
            return Ok(Fenced::Fenced);
        }
        let mut items = value.items();
        let epoch = unsigned(items.next())?;
        Ok(Fenced::Done(Self {
            epoch: u32::try_from(epoch).map_err(|_| UnknownReply)?,
            last: unsigned(items.next())?,
            opening: unsigned(items.next())?,
        }))
    }
}

/// Keeps the numbers of producers.
#[derive(Debug)]
pub struct KeepCall<'a> {
    /// The key of the fence.
    pub fence_key: &'a [u8],
    /// The result of the fence.
    pub fence: &'a Fence,
    /// How long they are kept, in milliseconds.
    pub keep_ms: u64,
    /// The producers.
    pub producers: &'a [KeepItem<'a>],
}

/// The number of one producer.
#[derive(Debug, Clone, Copy)]
pub struct KeepItem<'a> {
    /// The key of the producer.
    pub key: &'a [u8],
    /// The result of the opening, with the number to be kept.
    pub opened: OpenReply,
}

impl KeepCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        let count = self.producers.len();
        hashes.begin(Script::Keep, 1 + count, 3 + 3 * count, out);
        argument(out, self.fence_key);
        for producer in self.producers {
            argument(out, producer.key);
        }
        self.fence.write(out);
        number_argument(out, self.keep_ms);
        for KeepItem { opened, .. } in self.producers {
            number_argument(out, opened.opening);
            number_argument(out, u64::from(opened.epoch));
            number_argument(out, opened.last);
        }
    }
}

/// For each producer, whether its number is kept; if not, it was opened again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepReply(pub Vec<bool>);

impl KeepReply {
    /// Reads the reply.
    pub fn read(value: Value<'_>) -> Result<Fenced<Self>, UnknownReply> {
        if is_fenced(value) {
            return Ok(Fenced::Fenced);
        }
        let held = value.items().map(|item| boolean(Some(item)));
        Ok(Fenced::Done(Self(held.collect::<Result<_, _>>()?)))
    }
}
