//! The callers that wait until the server has accepted their messages.

use crate::error::Error;
use std::collections::{BTreeMap, HashMap};
use tokio::sync::oneshot;

/// Reports the result of a message: it was acknowledged, or why not.
pub(crate) type Receipt = oneshot::Sender<Result<(), Error>>;

/// Waits for a [`Receipt`].
pub(crate) type WhenReceived = oneshot::Receiver<Result<(), Error>>;

/// Those who wait for an acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Receipts {
    by_row: HashMap<u64, Receipt>,
    /// The rows of those on their way, by number.
    on_way: BTreeMap<u64, u64>,
}

impl Receipts {
    pub(super) fn insert(&mut self, row: u64, receipt: Receipt) {
        if !receipt.is_closed() {
            self.by_row.insert(row, receipt);
        }
    }

    /// A message has got its number.
    pub(super) fn number(&mut self, row: u64, number: u64) {
        if self.by_row.contains_key(&row) {
            self.on_way.insert(number, row);
        }
    }

    /// Settles all numbers up to `last`, which the server has accepted.
    pub(super) fn acknowledge(&mut self, last: u64) {
        let later = match last.checked_add(1) {
            Some(next) => self.on_way.split_off(&next),
            None => BTreeMap::new(),
        };
        let taken = std::mem::replace(&mut self.on_way, later);
        for row in taken.into_values() {
            self.settle(&[row], &Ok(()));
        }
    }

    /// Numbers count anew.
    pub(super) fn forget_numbers(&mut self) {
        self.on_way.clear();
    }

    pub(super) fn settle(&mut self, rows: &[u64], result: &Result<(), Error>) {
        for row in rows {
            if let Some(receipt) = self.by_row.remove(row) {
                let _ = receipt.send(result.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_is_for_all_numbers_before_it() {
        let mut receipts = Receipts::default();
        let mut waiting: Vec<WhenReceived> = Vec::new();
        for row in 1..=4 {
            let (receipt, when_received) = oneshot::channel();
            receipts.insert(row, receipt);
            waiting.push(when_received);
            // The last one has no number.
            if row < 4 {
                receipts.number(row, 10 + row);
            }
        }
        receipts.acknowledge(12);
        let mut told = |index: usize| waiting[index].try_recv().ok();
        assert_eq!(
            [told(0), told(1), told(2), told(3)],
            [Some(Ok(())), Some(Ok(())), None, None]
        );
        receipts.acknowledge(u64::MAX);
        assert_eq!([told(2), told(3)], [Some(Ok(())), None]);
        receipts.settle(&[4], &Err(Error::Expired));
        assert_eq!(told(3), Some(Err(Error::Expired)));
    }
}
