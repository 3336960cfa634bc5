#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod connection;
pub mod layout;
pub mod link;
pub mod record;
pub mod resp;
pub mod script;

pub use layout::{Layout, NodeId, Position};
pub use link::{
    Action, Address, Addressee, Counters, Draft, Entries, Event, Health, History, HistoryRules,
    Keep, Lineage, Link, LinkOptions, Now, PageQuery, Placed, Present, Problem, Problems, Refusal,
    Slot,
};
pub use record::{Category, Excluded, Mark, Priority, Record, RecordError};
pub use script::{Attempt, Member, OpenReply, Seen, Work};
