#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod connection;
pub mod layout;
pub mod link;
pub mod partition;
pub mod record;
pub mod resp;
pub mod script;

pub use layout::{Layout, NodeId, Position};
pub use link::{
    Action, Address, Addressee, Allowed, Counters, Draft, Entries, Event, Handover, Health,
    History, HistoryRules, Keep, Lineage, Link, LinkOptions, Now, PageQuery, Placed, Present,
    Problem, Problems, Refusal, Slot, Standing,
};
pub use partition::Partition;
pub use record::{Category, Excluded, Mark, Priority, Record, RecordError};
pub use script::{Attempt, Member, OpenReply, Seen, Work};
