//! A bounded queue of five priorities. The items are numbers; JavaScript holds what they stand for.

use crate::errors::{Failure, argument};
use napi_derive::napi;
use std::cell::RefCell;
use tidewire_client::priority_queue::{Priority, PriorityQueue, QueueLimits};

/// A queue of numbers. An item with its priority is `16 * item + priority`, and -1 is none.
#[napi]
pub struct NativePriorityQueue {
    queue: RefCell<PriorityQueue<u32>>,
}

#[napi]
impl NativePriorityQueue {
    #[napi(constructor)]
    pub fn new(items_max: f64, bytes_max: f64) -> Self {
        let limits = QueueLimits {
            items_max: items_max as usize,
            bytes_max: bytes_max as usize,
        };
        Self {
            queue: RefCell::new(PriorityQueue::new(limits)),
        }
    }

    /// Adds an item behind those of its priority; false if there is no room.
    #[napi]
    pub fn push(&self, item: u32, priority: u32, bytes: f64) -> napi::Result<bool> {
        let pushed = self
            .queue
            .borrow_mut()
            .push(level(priority)?, bytes as usize, item);
        Ok(pushed.is_ok())
    }

    /// Adds an item for which less urgent ones give way, and gives those; nothing is changed if there is no room still.
    #[napi]
    pub fn push_displacing(
        &self,
        item: u32,
        priority: u32,
        bytes: f64,
    ) -> napi::Result<Option<Vec<f64>>> {
        let mut queue = self.queue.borrow_mut();
        let displaced = queue.push_displacing(level(priority)?, bytes as usize, item);
        Ok(displaced
            .ok()
            .map(|items| items.into_iter().map(joined).collect()))
    }

    /// Removes and returns the next item.
    #[napi]
    pub fn pop(&self) -> f64 {
        self.queue.borrow_mut().pop().map_or(NONE, joined)
    }

    /// The next item, which stays.
    #[napi]
    pub fn peek(&self) -> f64 {
        let queue = self.queue.borrow();
        queue
            .peek()
            .map_or(NONE, |(priority, item)| joined((priority, *item)))
    }

    /// The sum of the bytes of the items.
    #[napi(getter)]
    pub fn bytes(&self) -> f64 {
        self.queue.borrow().bytes() as f64
    }

    /// The number of items.
    #[napi(getter)]
    pub fn length(&self) -> u32 {
        self.queue.borrow().len() as u32
    }
}

fn joined((priority, item): (Priority, u32)) -> f64 {
    f64::from(item) * 16.0 + f64::from(priority.number())
}

fn level(number: u32) -> Result<Priority, Failure> {
    let problem = "priority has to be 1, 3, 5, 8 or 10";
    Priority::from_number(number.into()).ok_or_else(|| argument(problem))
}

const NONE: f64 = -1.0;
