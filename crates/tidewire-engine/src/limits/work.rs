//! Work: what one message makes a shard do, metered where it is done.
//!
//! A turn of a shard reads each socket once, so the bytes of a turn are bounded; but a small
//! message can ask for much work. Each step that a message can multiply is charged here in units of
//! about a nanosecond of one core, and each connection has a budget for a turn. A message that
//! needs more is a [`Job`](crate::session::message_jobs::Job): the rest of it waits for the next turn, and
//! the connection is not read meanwhile. The connections of one owner (a user or, without
//! authentication, an address) share a budget for each turn and for each second, and all jobs
//! together one for each turn of the shard.

use crate::limits::owner::OwnerId;
use std::collections::HashMap;

/// The work of one shard in the turn at hand.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Since [`Self::start`]: of one connection in this turn.
    spent: u64,
    /// The part of the turn that the connection at hand has.
    spent_max: u64,
    /// Since the start.
    total: u64,
    /// Of all connections since the turn, or its jobs, began.
    turn_spent: u64,
    owners: HashMap<OwnerId, OwnerWork>,
    /// The second that `owners` is about.
    second: u64,
    /// The work that one owner may spend in a second; 0 for no limit.
    owner_second_max: u64,
    peaks: WorkPeaks,
}

/// The most that was spent in one turn, in units.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct WorkPeaks {
    /// By one connection.
    pub(crate) connection: u64,
    /// By all connections of one owner.
    pub(crate) owner: u64,
    /// By all connections of the shard.
    pub(crate) shard: u64,
}

#[derive(Debug, Default)]
struct OwnerWork {
    turn: u64,
    second: u64,
}

impl Meter {
    pub(crate) fn new(owner_work_ms_per_s: u64) -> Self {
        Self {
            owner_second_max: owner_work_ms_per_s.saturating_mul(1_000_000),
            ..Self::default()
        }
    }

    /// The work of a connection begins.
    #[inline]
    pub(crate) fn start(&mut self) {
        self.spent = 0;
        self.spent_max = match self.turn_spent < WORK_PER_TURN {
            true => CONNECTION_WORK_PER_TURN,
            false => LATE_WORK_PER_TURN,
        };
    }

    /// Charges work that has been done or is about to be.
    #[inline]
    pub(crate) fn spend(&mut self, units: u64) {
        self.spent += units;
    }

    /// Whether the connection has had its part of this turn.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.spent >= self.spent_max
    }

    /// The work of a connection ends: what it spent counts for its owner and for the shard.
    #[inline]
    pub(crate) fn settle(&mut self, owner: OwnerId) {
        self.total += self.spent;
        if self.spent < LIGHT_WORK {
            return;
        }
        self.turn_spent += self.spent;
        let work = self.owners.entry(owner).or_default();
        work.turn += self.spent;
        work.second += self.spent;
        self.peaks = WorkPeaks {
            connection: self.peaks.connection.max(self.spent),
            owner: self.peaks.owner.max(work.turn),
            shard: self.peaks.shard.max(self.turn_spent),
        };
        self.spent = 0;
    }

    /// Charges an owner for work that was done outside its own messages: it counts for the second.
    pub(crate) fn charge(&mut self, owner: OwnerId, units: u64) {
        if self.owner_second_max > 0 {
            self.owners.entry(owner).or_default().second += units;
        }
    }

    /// The second that owners are charged in.
    pub(crate) fn second(&self) -> u64 {
        self.second
    }

    /// Whether a job of this owner may run now, or a message that may need much work.
    pub(crate) fn may_work(&self, owner: OwnerId) -> bool {
        self.turn_spent < WORK_PER_TURN
            && self
                .owners
                .get(&owner)
                .is_none_or(|work| work.turn < OWNER_WORK_PER_TURN)
    }

    /// Returns whether the work of this turn is used up.
    pub(crate) fn is_turn_over(&self) -> bool {
        self.turn_spent >= WORK_PER_TURN
    }

    /// Whether this owner has had its part of this second.
    pub(crate) fn waits_for_second(&self, owner: OwnerId) -> bool {
        self.owners
            .get(&owner)
            .is_some_and(|work| self.is_over(work))
    }

    fn is_over(&self, work: &OwnerWork) -> bool {
        self.owner_second_max > 0 && work.second >= self.owner_second_max
    }

    /// The sockets have been read; the jobs have a part of the turn of their own, of each owner and of all, so that neither
    /// can starve the other.
    pub(crate) fn start_jobs(&mut self) {
        self.turn_spent = 0;
        for work in self.owners.values_mut() {
            work.turn = 0;
        }
    }

    /// A turn begins.
    pub(crate) fn start_turn(&mut self, now_ms: u64) {
        self.turn_spent = 0;
        let second = now_ms / 1_000;
        let is_new = std::mem::replace(&mut self.second, second) != second;
        if self.owners.is_empty() {
            return;
        }
        if is_new {
            self.owners = HashMap::new();
        }
        for work in self.owners.values_mut() {
            work.turn = 0;
        }
    }

    /// The work charged since the shard started.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The most that was spent in one turn so far.
    pub(crate) fn peaks(&self) -> WorkPeaks {
        self.peaks
    }
}

/// The cost of steps, in units.
pub(crate) mod cost {
    use tidewire_wire::format::Format;

    /// A message inside a batch, or a request without its bytes and the steps that it causes.
    pub(crate) const MESSAGE: u64 = 500;
    /// Writing an answer of the server's about itself.
    pub(crate) const ANSWER: u64 = 1_500;
    /// Checking a token with one key, whatever its algorithm: 136 us were measured with RS256, a
    /// key of 4,096 bits and 251 access rules.
    pub(crate) const TOKEN: u64 = 200_000;
    /// Checking a signature with HMAC-SHA256 besides the hash of its bytes, and remembering its nonce.
    pub(crate) const HMAC: u64 = 2_000;
    /// The same with ECDSA on P-256: `openssl speed ecdsap256` verifies one in 72 us.
    pub(crate) const ECDSA: u64 = 80_000;
    /// Looking whether the token of a subscription has expired.
    pub(crate) const TOKEN_TOPIC: u64 = 20;
    /// Checking the name of a topic.
    pub(crate) const CHECK: u64 = 300;
    /// Copying the name of a topic.
    pub(crate) const NAME: u64 = 100;
    /// Comparing a name with a glob of the access rules.
    pub(crate) const GLOB: u64 = 40;
    /// Entering a topic: names, tables, the hub, the answer.
    pub(crate) const SUBSCRIBE: u64 = 2_500;
    /// Putting a publication into the batch of a topic or pattern that it matches.
    pub(crate) const MATCH: u64 = 100;
    /// Writing the queued data to a socket, besides the bytes.
    pub(crate) const WRITE: u64 = 1_500;
    /// Leaving a topic.
    pub(crate) const UNSUBSCRIBE: u64 = 1_500;
    /// Reading a kept publication.
    pub(crate) const ENTRY: u64 = 100;
    /// Writing a message to one connection, besides its bytes.
    pub(crate) const SEND: u64 = 250;
    /// Queuing a publication for a subscription that lags, or removing it from that queue.
    pub(crate) const LAG: u64 = 750;
    /// Looking whether an owner can pay for a filter.
    pub(crate) const OWNER: u64 = 40;
    /// Noting that a subscription misses publications.
    pub(crate) const SKIP: u64 = 150;
    /// Compiling one byte of a filter.
    pub(crate) const FILTER_SOURCE_BYTE: u64 = 20;
    /// Compiling a regular expression, whether or not that succeeds.
    pub(crate) const FILTER_REGEX: u64 = 100_000;
    /// Making one byte of its automaton.
    pub(crate) const FILTER_AUTOMATON_BYTE: u64 = 30;
    /// Compiling a filter that is refused.
    pub(crate) const FILTER_REFUSED: u64 = 1_000_000;
    /// Announcing a change of presence, besides its bytes.
    pub(crate) const PRESENCE_EVENT: u64 = 4_000;
    /// Naming a member in an answer about presence, besides its bytes.
    pub(crate) const PRESENCE_MEMBER: u64 = 400;
    /// A topic of a question about presence.
    pub(crate) const PRESENCE_TOPIC: u64 = 1_500;

    /// Copying or writing bytes.
    pub(crate) fn bytes(bytes: usize) -> u64 {
        bytes as u64 / 4
    }

    /// Writing bytes to a socket at once: the kernel copies them, often to memory that is in no
    /// cache.
    pub(crate) fn written(bytes: usize) -> u64 {
        bytes as u64
    }

    /// Inflating to N bytes, refused or not.
    pub(crate) fn inflated(bytes: usize) -> u64 {
        2 * bytes as u64
    }

    /// Hashing N bytes, which SHA-256 does at a nanosecond each with the instructions for it.
    pub(crate) fn hashed(bytes: usize) -> u64 {
        bytes as u64
    }

    /// Reading a request of N bytes: in those that cost most nearly every byte is a value of its own (5.9 and 12.2 ns
    /// were measured). Most publications have longer values.
    pub(crate) fn read(format: Format, bytes: usize, is_publication: bool) -> u64 {
        let units = match (format, is_publication) {
            (Format::Json, false) => 6,
            (Format::Json, true) => 2,
            (Format::MessagePack, _) => 12,
        };
        units * bytes as u64
    }
}

/// The work of one connection in a turn before it waits for the next: 2 ms.
pub(crate) const CONNECTION_WORK_PER_TURN: u64 = 2_000_000;

/// The work of a connection that is read after others have used up the turn: 0.1 ms, which ordinary messages do not need.
const LATE_WORK_PER_TURN: u64 = 100_000;

/// Messages from this length on, in bytes, and those in a layer, wait for a turn in which their owner has work left. The
/// others are short enough that their number bounds them.
pub(crate) const LONG_MESSAGE_BYTES: usize = 16 * 1024;

/// The work of all jobs of one owner in a turn: 3 ms.
const OWNER_WORK_PER_TURN: u64 = 3_000_000;

/// The work of a turn for received data, and the same amount once more for all jobs of the shard: 4 ms. While
/// other processes want the same cores, a turn lasts three times its own time; with 12 ms, others waited for
/// 60 to 90 ms.
const WORK_PER_TURN: u64 = 4_000_000;

/// Less work than this in one call is not charged to the owner, so that ordinary messages need no
/// look-up.
const LIGHT_WORK: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: OwnerId = OwnerId(1);
    const BOB: OwnerId = OwnerId(2);

    fn work(meter: &mut Meter, owner: OwnerId, units: u64) {
        meter.start();
        meter.spend(units);
        meter.settle(owner);
    }

    #[test]
    fn an_owner_past_its_part_of_the_turn_waits_and_others_do_not() {
        let mut meter = Meter::new(0);
        work(&mut meter, ANN, OWNER_WORK_PER_TURN - 1);
        assert!(meter.may_work(ANN));
        work(&mut meter, ANN, LIGHT_WORK);
        assert!(!meter.may_work(ANN) && meter.may_work(BOB));
        meter.start_turn(0);
        assert!(meter.may_work(ANN));
    }

    #[test]
    fn all_jobs_together_have_a_part_of_the_turn() {
        let mut meter = Meter::new(0);
        work(&mut meter, ANN, WORK_PER_TURN);
        assert!(!meter.may_work(BOB));
        meter.start_turn(0);
        assert!(meter.may_work(BOB));
    }

    #[test]
    fn an_owner_past_its_part_of_the_second_waits_for_the_next() {
        let mut meter = Meter::new(10);
        meter.start_turn(5_000);
        work(&mut meter, ANN, 10_000_000);
        meter.start_turn(5_001);
        assert!(meter.may_work(ANN) && meter.waits_for_second(ANN));
        assert!(!meter.waits_for_second(BOB));
        meter.start_turn(6_000);
        assert!(!meter.waits_for_second(ANN));
    }

    #[test]
    fn work_for_others_counts_for_the_second_alone() {
        let mut meter = Meter::new(10);
        meter.charge(ANN, 9_999_999);
        assert!(meter.may_work(ANN) && !meter.waits_for_second(ANN));
        meter.charge(ANN, 1);
        assert!(meter.waits_for_second(ANN) && !meter.waits_for_second(BOB));
        let mut unlimited = Meter::new(0);
        unlimited.charge(ANN, u64::MAX);
        assert!(!unlimited.waits_for_second(ANN));
    }

    #[test]
    fn peaks_are_those_of_turns() {
        let mut meter = Meter::new(0);
        work(&mut meter, ANN, 100_000);
        work(&mut meter, ANN, 200_000);
        work(&mut meter, BOB, 250_000);
        meter.start_turn(0);
        work(&mut meter, BOB, 240_000);
        let peaks = meter.peaks();
        assert_eq!(
            (peaks.connection, peaks.owner, peaks.shard),
            (250_000, 300_000, 550_000)
        );
    }

    #[test]
    fn whoever_comes_late_has_little_of_the_turn() {
        let mut meter = Meter::new(0);
        work(&mut meter, ANN, WORK_PER_TURN);
        meter.start();
        meter.spend(LATE_WORK_PER_TURN);
        assert!(meter.is_spent());
        meter.start_jobs();
        assert!(meter.may_work(ANN));
        meter.start();
        meter.spend(LATE_WORK_PER_TURN);
        assert!(!meter.is_spent());
    }

    #[test]
    fn light_work_is_nobodys() {
        let mut meter = Meter::new(1);
        for _ in 0..10_000 {
            work(&mut meter, ANN, LIGHT_WORK - 1);
        }
        assert!(meter.may_work(ANN));
    }
}
