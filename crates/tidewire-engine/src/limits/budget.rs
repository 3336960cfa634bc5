//! Budgets in bytes per second of owners, for what one message makes a server send to others.

use crate::limits::owner::OwnerId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The budgets of the owners of a server. An owner may spend as long as something is left, and then has a debt, so that
/// what costs more than the budget of a second is still possible, and is paid for afterwards.
#[derive(Debug, Default)]
pub(crate) struct OwnerBudgets(Mutex<Budgets>);

#[derive(Debug, Default)]
struct Budgets {
    /// Owners that have spent something that is not refilled yet.
    owners: HashMap<OwnerId, Budget>,
    /// The number of owners at which those are forgotten whose budget is full.
    sweep_at: usize,
}

#[derive(Debug, Clone, Copy)]
struct Budget {
    /// Spent, and not refilled at `at`.
    spent: u64,
    at: Instant,
}

impl OwnerBudgets {
    /// Whether an owner may spend, with `per_s` bytes a second; if not, the seconds until it may. 0 for no limit.
    pub(crate) fn check(&self, owner: OwnerId, per_s: u64, now: Instant) -> Result<(), u64> {
        if per_s == 0 {
            return Ok(());
        }
        let budgets = self.lock();
        let spent = budgets
            .owners
            .get(&owner)
            .map_or(0, |budget| budget.spent_at(per_s, now));
        match spent.checked_sub(per_s) {
            None => Ok(()),
            Some(over) => Err(over / per_s + 1),
        }
    }

    /// Charges an owner.
    pub(crate) fn spend(&self, owner: OwnerId, bytes: usize, per_s: u64, now: Instant) {
        if per_s == 0 {
            return;
        }
        let mut budgets = self.lock();
        let budget = budgets
            .owners
            .entry(owner)
            .or_insert(Budget { spent: 0, at: now });
        let spent = budget.spent_at(per_s, now);
        *budget = Budget {
            spent: spent.saturating_add(bytes as u64),
            at: now,
        };
        if budgets.owners.len() > budgets.sweep_at {
            budgets
                .owners
                .retain(|_, budget| budget.spent_at(per_s, now) > 0);
            budgets.sweep_at = SWEEP_MIN.max(2 * budgets.owners.len());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Budgets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Budget {
    fn spent_at(self, per_s: u64, now: Instant) -> u64 {
        // The turn of another shard may have begun later.
        let passed = now.saturating_duration_since(self.at);
        let refilled = u128::from(per_s) * passed.as_millis() / 1_000;
        self.spent
            .saturating_sub(u64::try_from(refilled).unwrap_or(u64::MAX))
    }
}

/// Owners are not looked through before there are this many.
const SWEEP_MIN: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const ANN: OwnerId = OwnerId(1);
    const BOB: OwnerId = OwnerId(2);

    #[test]
    fn who_has_spent_a_second_waits_and_a_debt_is_paid() {
        let budgets = OwnerBudgets::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(budgets.check(ANN, 1_000, at(5)), Ok(()));
        budgets.spend(ANN, 999, 1_000, at(5));
        assert_eq!(budgets.check(ANN, 1_000, at(5)), Ok(()));
        budgets.spend(ANN, 2_501, 1_000, at(5));
        assert_eq!(budgets.check(ANN, 1_000, at(5)), Err(3));
        assert_eq!(budgets.check(BOB, 1_000, at(5)), Ok(()));
        assert_eq!(budgets.check(ANN, 1_000, at(2_505)), Err(1));
        assert_eq!(budgets.check(ANN, 1_000, at(2_506)), Ok(()));
        assert_eq!(budgets.check(ANN, 0, at(5)), Ok(()));
    }

    #[test]
    fn owners_with_a_full_budget_are_forgotten() {
        let budgets = OwnerBudgets::default();
        let start = Instant::now();
        for number in 0..100_000 {
            budgets.spend(
                OwnerId(number),
                1,
                1_000,
                start + Duration::from_millis(number),
            );
        }
        assert!(budgets.lock().owners.len() <= SWEEP_MIN);
    }
}
