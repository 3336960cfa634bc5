//! Batched sending: JavaScript writes records into a buffer, and one call executes them all.
//!
//! A record begins at a multiple of 4 with seven numbers of 32 bits: its length with this head, its kind, the
//! place and the generation of a connection or request, the lengths of two texts, and a priority (0 for
//! none). The texts follow. A record whose bytes are in a batch has the place of their begin in the memory of
//! the batch, and their number, instead of the two lengths. `lib/outbox.js` writes all this.

use super::NativeServer;
use super::publishing::{text_of, with_urgency};
use crate::content::content_of;
use crate::errors::{Failure, argument};
use napi::bindgen_prelude::BufferSlice;
use napi_derive::napi;
use tidewire_engine::{CallError, Handle, NewPublication, Outgoing, PublishError, SendError};

#[napi]
impl NativeServer {
    /// Carries out the records from `at` to `end`, some of which have their bytes in `batch`. Returns `end`, or the begin
    /// of the first record that was not carried out because the server has not caught up. After a record that is refused
    /// it returns the negative end of that record, and `take_refusal` the reason.
    #[napi]
    pub fn flush(
        &self,
        buffer: BufferSlice<'_>,
        at: u32,
        end: u32,
        batch: BufferSlice<'_>,
    ) -> napi::Result<i32> {
        let handle = self.handle()?;
        let mut at = at as usize;
        let end = end as usize;
        while at < end {
            let bytes = buffer.get(at..end);
            let Some(record) = bytes.and_then(|bytes| Record::read(bytes, &batch)) else {
                return Err(argument("a record is damaged").into());
            };
            match self.carry_out(handle, &record) {
                Ok(true) => at += record.length,
                Ok(false) => return Ok(at as i32),
                Err(failure) => {
                    self.refusal.set(Some(failure));
                    return Ok(-((at + record.length) as i32));
                }
            }
        }
        Ok(end as i32)
    }

    /// Throws the reason why the last record was refused.
    #[napi]
    pub fn take_refusal(&self) -> napi::Result<()> {
        self.refusal
            .take()
            .map_or(Ok(()), |failure| Err(failure.into()))
    }
}

impl NativeServer {
    /// True if there was room for it.
    fn carry_out(&self, handle: &Handle, record: &Record<'_>) -> Result<bool, Failure> {
        let Record {
            place, generation, ..
        } = *record;
        match record.what {
            REPLY | FAIL | ACCEPT => {
                self.answer(record)?;
                return Ok(true);
            }
            SEND_TEXT | SEND_BINARY | SEND => {}
            _ => return Err(argument("a record is of no known kind")),
        }
        // A message to a connection that is gone is dropped, as the engine does it.
        let Some(connection) = self.connection(place, generation) else {
            return Ok(true);
        };
        let sent = match record.what {
            SEND_TEXT => handle.send(connection, Outgoing::Text(text_of(record.second)?.into())),
            SEND_BINARY => handle.send(connection, Outgoing::Binary(record.second.into())),
            _ => {
                let content = content_of(text_of(record.second)?)?;
                let new = NewPublication::new(text_of(record.first)?, content);
                let new = with_urgency(new, record.priority)?;
                match handle.publish_to_connection(connection, &new) {
                    Ok(()) => Ok(()),
                    Err(PublishError::Busy) => Err(SendError::Busy),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        match sent {
            Ok(()) => Ok(true),
            Err(SendError::Busy) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn answer(&self, record: &Record<'_>) -> Result<(), Failure> {
        let mut inbox = self.inbox.borrow_mut();
        let requests = inbox.as_mut().map(|inbox| &mut inbox.requests);
        let removed = requests.and_then(|all| all.remove(record.place, record.generation));
        let Some(responder) = removed else {
            return Ok(());
        };
        if record.what == ACCEPT {
            responder.accept();
            return Ok(());
        }
        let second = text_of(record.second)?;
        responder.respond_with(match record.what {
            REPLY => Ok(content_of(second)?),
            _ => Err(CallError {
                code: text_of(record.first)?.to_owned(),
                message: second.to_owned(),
            }),
        });
        Ok(())
    }
}

struct Record<'a> {
    length: usize,
    what: u32,
    place: u32,
    generation: u32,
    priority: u32,
    first: &'a [u8],
    second: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the begin of these bytes, perhaps with bytes of a batch; `None` if they are none.
    fn read(bytes: &'a [u8], batch: &'a [u8]) -> Option<Self> {
        let (head, texts) = bytes.split_at_checked(4 * OUTBOX_HEAD_NUMBERS)?;
        let (numbers, _) = head.as_chunks::<4>();
        let number = |index: usize| u32::from_ne_bytes(numbers[index]);
        let length = number(0) as usize;
        if length < head.len() || length > bytes.len() {
            return None;
        }
        let what = number(1);
        let (first, texts) = match what & IN_BATCH {
            0 => texts.split_at_checked(number(4) as usize)?,
            _ => (Default::default(), batch.get(number(4) as usize..)?),
        };
        Some(Self {
            length,
            what: what & !IN_BATCH,
            place: number(2),
            generation: number(3),
            priority: number(6),
            first,
            second: texts.get(..number(5) as usize)?,
        })
    }
}

const OUTBOX_HEAD_NUMBERS: usize = 7;

// What a record is.
const SEND_TEXT: u32 = 1;
const SEND_BINARY: u32 = 2;
const SEND: u32 = 3;
const REPLY: u32 = 4;
const FAIL: u32 = 5;
const ACCEPT: u32 = 6;
/// Added to the others.
const IN_BATCH: u32 = 8;
