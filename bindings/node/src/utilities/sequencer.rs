//! Messages of topics once and in order. They are numbers; JavaScript holds what they stand for.

use crate::errors::{Failure, argument};
use napi::bindgen_prelude::Either;
use napi_derive::napi;
use std::cell::RefCell;
use std::time::Instant;
use tidewire_client::sequencer::{
    Position, Sequenced, Sequencer, SequencerLimits, SequencerOutcome,
};
use tidewire_wire::envelope::{epoch_text, parse_epoch};

/// Messages of a topic that have not arrived: those from `first` to `last`, both included.
#[napi(object)]
pub struct NativeGap {
    pub topic: String,
    pub epoch: String,
    pub first: f64,
    pub last: f64,
}

/// The items to let through: numbers of messages, and gaps.
type Released = Vec<Either<u32, NativeGap>>;

/// Puts numbers of messages in order by the positions of the messages.
#[napi]
pub struct NativeSequencer {
    sequencer: RefCell<Sequencer<u32>>,
    /// The items that the last `add` let through besides its own message.
    released: RefCell<Vec<Sequenced<u32>>>,
    started: Instant,
}

#[napi]
impl NativeSequencer {
    #[napi(constructor)]
    pub fn new(topics_max: f64, held_messages_max: f64, window_ms: f64) -> Self {
        let limits = SequencerLimits {
            topics_max: topics_max as usize,
            held_messages_max: held_messages_max as usize,
            window_ms: window_ms as u64,
        };
        Self {
            sequencer: RefCell::new(Sequencer::new(limits)),
            released: RefCell::default(),
            started: Instant::now(),
        }
    }

    /// Accepts a message: 0 if it was let through, 1 if it is held, 2 if it is a duplicate, 3 if it is the first of
    /// another epoch. With 4 added, other messages or gaps are let through as well: `take_released` has all of them.
    #[napi]
    pub fn add(
        &self,
        topic: String,
        epoch: String,
        offset: f64,
        item: u32,
        now_ms: Option<f64>,
    ) -> napi::Result<u32> {
        let position = position(&epoch, offset)?;
        let mut out = self.released.borrow_mut();
        out.clear();
        let mut sequencer = self.sequencer.borrow_mut();
        let outcome = sequencer.handle(&topic, position, item, self.now(now_ms), &mut out);
        let code = match outcome {
            SequencerOutcome::Delivered => 0,
            SequencerOutcome::Held => 1,
            SequencerOutcome::Duplicate => 2,
            SequencerOutcome::NewEpoch => 3,
        };
        let is_alone = out.is_empty() || *out == [Sequenced::Message(item)];
        Ok(if is_alone { code } else { code + OTHERS })
    }

    /// Everything that the last `add` let through, in order.
    #[napi]
    pub fn take_released(&self) -> Released {
        listed(self.released.take())
    }

    /// Counts everything up to a position as seen.
    #[napi]
    pub fn advance(
        &self,
        topic: String,
        epoch: String,
        offset: f64,
        now_ms: Option<f64>,
    ) -> napi::Result<Released> {
        let position = position(&epoch, offset)?;
        let mut out = Vec::new();
        let mut sequencer = self.sequencer.borrow_mut();
        sequencer.advance(&topic, position, self.now(now_ms), &mut out);
        Ok(listed(out))
    }

    /// Stops waiting for the messages from `first` to `last`.
    #[napi]
    pub fn skip(
        &self,
        topic: String,
        epoch: String,
        first: f64,
        last: f64,
        now_ms: Option<f64>,
    ) -> napi::Result<Released> {
        let Position { epoch, offset } = position(&epoch, first)?;
        let (last, now_ms) = (last as u64, self.now(now_ms));
        let mut out = Vec::new();
        let mut sequencer = self.sequencer.borrow_mut();
        sequencer.skip(&topic, epoch, offset, last, now_ms, &mut out);
        Ok(listed(out))
    }

    /// Stops waiting where the time is over.
    #[napi]
    pub fn expire(&self, now_ms: Option<f64>) -> Released {
        let mut out = Vec::new();
        let mut sequencer = self.sequencer.borrow_mut();
        sequencer.handle_timeout(self.now(now_ms), &mut out);
        listed(out)
    }

    /// Forgets a topic, and lets through what it held.
    #[napi]
    pub fn forget(&self, topic: String) -> Released {
        let mut out = Vec::new();
        self.sequencer.borrow_mut().forget(&topic, &mut out);
        listed(out)
    }

    /// The epoch and the offset of the last message of a topic that was let through.
    #[napi]
    pub fn position(&self, topic: String) -> Option<(String, f64)> {
        let position = self.sequencer.borrow().position(&topic)?;
        Some((epoch_text(position.epoch), position.offset as f64))
    }

    /// When `expire` has something to do, in milliseconds on the clock of `now_ms`.
    #[napi(getter)]
    pub fn deadline_ms(&self) -> Option<f64> {
        let deadline_ms = self.sequencer.borrow().poll_deadline_ms()?;
        Some(deadline_ms as f64)
    }

    /// The number of topics that are known.
    #[napi(getter)]
    pub fn topics(&self) -> u32 {
        self.sequencer.borrow().topics() as u32
    }

    /// The number of messages that are held.
    #[napi(getter)]
    pub fn held(&self) -> u32 {
        self.sequencer.borrow().held() as u32
    }
}

impl NativeSequencer {
    fn now(&self, now_ms: Option<f64>) -> u64 {
        let own = || self.started.elapsed().as_millis() as u64;
        now_ms.map_or_else(own, |now_ms| now_ms as u64)
    }
}

fn position(epoch: &str, offset: f64) -> Result<Position, Failure> {
    let problem = "an epoch is 8 hexadecimal digits";
    Ok(Position {
        epoch: parse_epoch(epoch).ok_or_else(|| argument(problem))?,
        offset: offset as u64,
    })
}

fn listed(out: Vec<Sequenced<u32>>) -> Released {
    let item = |item| match item {
        Sequenced::Message(item) => Either::A(item),
        Sequenced::Gap(gap) => Either::B(NativeGap {
            topic: gap.topic.to_string(),
            epoch: epoch_text(gap.epoch),
            first: gap.from as f64,
            last: gap.to as f64,
        }),
    };
    out.into_iter().map(item).collect()
}

const OTHERS: u32 = 4;
