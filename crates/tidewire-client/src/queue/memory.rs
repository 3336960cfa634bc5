//! A store without a file, for as long as the process lives.

use super::{
    Durable, MessageLimits, Numbered, QueueDepth, Resumed, Store, StoreError, Taken, expiry,
};
use crate::config::{Queue, Uncertain};
use crate::event::QueuedMessage;
use crate::priority_queue::{PriorityQueue, QueueLimits};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
pub(super) struct MemoryStore {
    config: Queue,
    producer: String,
    waiting: PriorityQueue<Waiting>,
    /// In the order of their numbers.
    numbered: VecDeque<Numbered>,
    numbered_bytes: u64,
    /// By row: messages that the server may or may not have accepted, not yet reported to the application.
    uncertain: BTreeMap<u64, Durable>,
    uncertain_bytes: u64,
    limits: MessageLimits,
    epoch: Option<u32>,
    /// The last number that was given out on this connection.
    sent: u64,
    next_number: u64,
    next_row: u64,
}

#[derive(Debug)]
struct Waiting {
    row: u64,
    message: Durable,
    expires_unix_ms: Option<u64>,
}

impl MemoryStore {
    pub(super) fn new(config: &Queue, producer: &str) -> Self {
        // The limits are those of the whole store, which it counts itself.
        let limits = QueueLimits {
            items_max: usize::MAX,
            bytes_max: usize::MAX,
        };
        Self {
            config: config.clone(),
            producer: producer.to_owned(),
            waiting: PriorityQueue::new(limits),
            numbered: VecDeque::new(),
            numbered_bytes: 0,
            uncertain: BTreeMap::new(),
            uncertain_bytes: 0,
            limits: MessageLimits::default(),
            epoch: None,
            sent: 0,
            next_number: 1,
            next_row: 1,
        }
    }

    fn append(&mut self, waiting: Waiting) {
        let (priority, bytes) = (waiting.message.priority, waiting.message.payload.len());
        // It has no limits of its own, so there is room.
        let _ = self.waiting.push(priority, bytes, waiting);
    }

    /// Puts numbered messages, in their order, before messages that were never sent; returns the numbered ones.
    fn send_again(&mut self, numbered: VecDeque<Numbered>) -> Vec<QueuedMessage> {
        let later = self.waiting.remove_unless(|_| false);
        let mut resent = Vec::with_capacity(numbered.len());
        for Numbered { row, message, .. } in numbered {
            resent.push(message.clone().into());
            self.append(Waiting {
                row,
                message,
                expires_unix_ms: None,
            });
        }
        later
            .into_iter()
            .for_each(|(_, waiting)| self.append(waiting));
        resent
    }

    /// Deletes all numbers up to `last`.
    fn release(&mut self, last: u64) -> Vec<u64> {
        let mut rows = Vec::new();
        while let Some(first) = self.numbered.front() {
            if first.number > last {
                break;
            }
            self.numbered_bytes -= first.message.payload.len() as u64;
            rows.push(first.row);
            self.numbered.pop_front();
        }
        rows
    }
}

impl Store for MemoryStore {
    fn producer(&self) -> &str {
        &self.producer
    }

    fn push(&mut self, messages: &[Durable], now_unix_ms: u64) -> Result<Vec<u64>, StoreError> {
        let bytes: u64 = messages
            .iter()
            .map(|message| message.payload.len() as u64)
            .sum();
        let depth = self.depth();
        if depth.messages + messages.len() > self.config.messages_max
            || depth.bytes.saturating_add(bytes) > self.config.bytes_max
        {
            return Err(StoreError::Full);
        }
        let mut rows = Vec::with_capacity(messages.len());
        for message in messages {
            let row = self.next_row;
            self.next_row += 1;
            rows.push(row);
            self.append(Waiting {
                row,
                message: message.clone(),
                expires_unix_ms: expiry(message, &self.config, now_unix_ms),
            });
        }
        Ok(rows)
    }

    fn resume(
        &mut self,
        epoch: u32,
        last: u64,
        uncertain: Uncertain,
    ) -> Result<Resumed, StoreError> {
        let mut resumed = Resumed::default();
        if self
            .epoch
            .replace(epoch)
            .is_some_and(|known| known != epoch)
        {
            let numbered = std::mem::take(&mut self.numbered);
            let bytes = std::mem::take(&mut self.numbered_bytes);
            resumed.uncertain = numbered.iter().map(|message| message.row).collect();
            match uncertain {
                Uncertain::Drop => {
                    self.uncertain_bytes += bytes;
                    let marked = numbered.into_iter().map(|one| (one.row, one.message));
                    self.uncertain.extend(marked);
                }
                Uncertain::Resend => resumed.resent = self.send_again(numbered),
            }
            self.next_number = last.saturating_add(1);
        } else {
            resumed.acknowledged = self.release(last);
            self.next_number = self.next_number.max(last.saturating_add(1));
        }
        self.sent = last;
        Ok(resumed)
    }

    fn take(
        &mut self,
        count_max: usize,
        bytes_max: usize,
        now_unix_ms: u64,
    ) -> Result<Taken, StoreError> {
        let mut taken = Taken::default();
        let is_old = |waiting: &Waiting| {
            waiting
                .expires_unix_ms
                .is_some_and(|expires| expires < now_unix_ms)
        };
        let expired = self.waiting.remove_unless(|waiting| !is_old(waiting));
        taken.expired = expired
            .into_iter()
            .map(|(_, waiting)| waiting.row)
            .collect();
        let mut bytes = 0;
        let mut fits = |taken: &Taken, message: &Durable| {
            let is_first = taken.messages.is_empty();
            bytes += message.payload.len();
            is_first || (bytes <= bytes_max && taken.messages.len() < count_max)
        };
        let start = self
            .numbered
            .partition_point(|message| message.number <= self.sent);
        for message in self.numbered.iter().skip(start) {
            if !fits(&taken, &message.message) {
                return Ok(taken);
            }
            self.sent = message.number;
            taken.messages.push(message.clone());
        }
        while let Some((_, next)) = self.waiting.peek() {
            if !next.message.fits(self.limits.bytes_max) {
                taken.too_large.push(next.row);
                self.waiting.pop();
                continue;
            }
            if next.message.is_binary && !self.limits.takes_binary {
                taken.unsupported.push(next.row);
                self.waiting.pop();
                continue;
            }
            if !fits(&taken, &next.message) {
                break;
            }
            if self.next_number == u64::MAX {
                return Err(StoreError::Failed("the numbers are used up".to_owned()));
            }
            let Some((_, Waiting { row, message, .. })) = self.waiting.pop() else {
                break;
            };
            let number = self.next_number;
            self.next_number += 1;
            self.sent = number;
            self.numbered_bytes += message.payload.len() as u64;
            let numbered = Numbered {
                row,
                number,
                message,
            };
            self.numbered.push_back(numbered.clone());
            taken.messages.push(numbered);
        }
        Ok(taken)
    }

    fn acknowledge(&mut self, last: u64) -> Result<Vec<u64>, StoreError> {
        Ok(self.release(last.min(self.sent)))
    }

    fn rewind(&mut self, last: u64) {
        self.sent = self.sent.min(last);
    }

    fn uncertain(&mut self, bytes_max: usize) -> Result<Vec<(u64, Durable)>, StoreError> {
        let mut bytes = 0;
        let fits = |(_, message): &(&u64, &Durable)| {
            let is_first = bytes == 0;
            bytes += message.payload.len().max(1);
            is_first || bytes <= bytes_max
        };
        let page = self.uncertain.iter().take_while(fits);
        Ok(page.map(|(row, message)| (*row, message.clone())).collect())
    }

    fn forget(&mut self, rows: &[u64]) -> Result<(), StoreError> {
        for row in rows {
            if let Some(message) = self.uncertain.remove(row) {
                self.uncertain_bytes -= message.payload.len() as u64;
            }
        }
        Ok(())
    }

    fn limit_messages(&mut self, limits: MessageLimits) {
        self.limits = limits;
    }

    fn depth(&self) -> QueueDepth {
        QueueDepth {
            messages: self.waiting.len() + self.numbered.len() + self.uncertain.len(),
            bytes: self.waiting.bytes() as u64 + self.numbered_bytes + self.uncertain_bytes,
        }
    }
}
