//! The outcome of a simulated run.

/// The events of a run, to be printed and to be compared with another run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) publications_received: u64,
    pub(crate) recoveries: u64,
    pub(crate) incomplete_recoveries: u64,
    /// Publications that new subscribers requested and received.
    pub(crate) replayed: u64,
    pub(crate) gaps: u64,
    pub(crate) resets: u64,
    pub(crate) jobs_done: u64,
    pub(crate) presence_checks: u64,
    pub(crate) connections: u64,
    /// A digest of everything that was received, with its time.
    pub(crate) trace: u64,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: &Self) {
        self.publications_received += other.publications_received;
        self.recoveries += other.recoveries;
        self.incomplete_recoveries += other.incomplete_recoveries;
        self.replayed += other.replayed;
        self.gaps += other.gaps;
        self.resets += other.resets;
        self.jobs_done += other.jobs_done;
        self.presence_checks += other.presence_checks;
        self.connections += other.connections;
    }
}
