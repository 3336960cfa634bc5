//! The scripts that run inside Redis, with typed arguments and replies.
//!
//! Redis runs a script as one step, so that a batch, a fence or a new epoch is seen whole or not at all. What each one
//! does is in the comment at the head of its file in `scripts/`.

mod agree;
mod control;
mod groups;
mod presence;
mod producers;
mod publish;
mod read;

pub use agree::{AgreeCall, AgreeReply, Agreed, Channels, OtherNode};
pub use control::{
    EPOCH_MS, EPOCHS_BEGIN_MS, FenceCall, FenceReply, LeaseCall, LeaseReply, RenewCall, RenewReply,
};
pub use groups::{JoinCall, JoinReply, LeaveCall, LeaveReply, Work, WorkCall, WorkReply};
pub use presence::{
    Change, Member, NodesCall, NodesReply, PRESENCE_MAX, PresenceCall, PresenceReply, RosterCall,
    RosterReply, Seen, SweepCall, SweepReply,
};
pub use producers::{Attempt, KeepCall, KeepItem, KeepReply, OpenCall, OpenReply};
pub use publish::{BATCH_MAX, PlaceReply, PublishCall, PublishItem, PublishReply};
pub use read::{PageCall, PageRange, PageReply, TAILS_MAX, TailReply, TailsCall};

use crate::connection::PubSub;
use crate::resp::{Value, argument, command_head, number_argument};

macro_rules! source {
    ($($name:literal),+) => {
        concat!($(include_str!(concat!("scripts/", $name))),+)
    };
}

/// All scripts; `$form` is the file that defines how they notify subscribers.
macro_rules! sources {
    ($form:literal) => {
        &[
            source!($form, "epoch.lua", "work_added.lua", "publish.lua"),
            source!("epoch.lua", "fence.lua"),
            source!("epoch.lua", "tails.lua"),
            source!("epoch.lua", "page.lua"),
            source!($form, "tell.lua", "epoch.lua", "renew.lua"),
            source!($form, "tell.lua", "groups.lua", "lease.lua"),
            source!($form, "tell.lua", "members.lua", "presence.lua"),
            source!($form, "tell.lua", "members.lua", "roster.lua"),
            source!($form, "tell.lua", "members.lua", "groups.lua", "sweep.lua"),
            source!($form, "tell.lua", "members.lua", "nodes.lua"),
            source!($form, "tell.lua", "groups.lua", "join.lua"),
            source!($form, "tell.lua", "groups.lua", "work.lua"),
            source!($form, "tell.lua", "groups.lua", "leave.lua"),
            source!("epoch.lua", "open.lua"),
            source!("epoch.lua", "keep.lua"),
            source!("agree.lua"),
        ]
    };
}

/// One of the scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Script {
    /// Publishes a batch.
    Publish,
    /// Ties the epochs to a process.
    Fence,
    /// Where topics stand.
    Tails,
    /// Reads a part of a topic.
    Page,
    /// Begins a new epoch of a topic.
    Renew,
    /// Renews a lease and sends a probe.
    Lease,
    /// Sets what a node has of some users.
    Presence,
    /// Reads who is on a topic.
    Roster,
    /// Removes a node whose lease has ended.
    Sweep,
    /// Lists the nodes.
    Nodes,
    /// Adds a node to a queue group.
    Join,
    /// Ends work of a queue group, hands some back and requests more.
    Work,
    /// Removes a node from a queue group.
    Leave,
    /// Opens a producer.
    Open,
    /// Keeps the numbers of producers.
    Keep,
    /// Joins a node to the agreement of its cluster.
    Agree,
}

impl Script {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Publish,
        Self::Fence,
        Self::Tails,
        Self::Page,
        Self::Renew,
        Self::Lease,
        Self::Presence,
        Self::Roster,
        Self::Sweep,
        Self::Nodes,
        Self::Join,
        Self::Work,
        Self::Leave,
        Self::Open,
        Self::Keep,
        Self::Agree,
    ];

    /// Its text, as it is loaded.
    #[must_use]
    pub fn source(self, form: PubSub) -> &'static str {
        sources(form)[self as usize]
    }

    /// The name under which the server knows it: the SHA-1 of its text in hexadecimal digits.
    #[must_use]
    pub fn hash(self, form: PubSub) -> String {
        let text = self.source(form);
        sha1_smol::Sha1::from(text).digest().to_string()
    }
}

/// The texts of all scripts, in the order of [`Script::ALL`].
#[must_use]
pub fn sources(form: PubSub) -> &'static [&'static str] {
    match form {
        PubSub::Plain => sources!("plain.lua"),
        PubSub::Sharded => sources!("sharded.lua"),
    }
}

/// The names of the scripts, computed once.
#[derive(Debug, Clone)]
pub struct Hashes([String; Script::ALL.len()]);

impl Hashes {
    /// Computes them.
    #[must_use]
    pub fn new(form: PubSub) -> Self {
        Self(Script::ALL.map(|script| script.hash(form)))
    }

    /// Begins `EVALSHA`; exactly `keys` keys and `arguments` arguments must follow.
    fn begin(&self, script: Script, keys: usize, arguments: usize, out: &mut Vec<u8>) {
        command_head(out, 3 + keys + arguments);
        argument(out, b"EVALSHA");
        argument(out, self.0[script as usize].as_bytes());
        number_argument(out, keys as u64);
    }
}

impl Default for Hashes {
    fn default() -> Self {
        Self::new(PubSub::default())
    }
}

/// The run id and the least epoch, without which no script touches a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fence {
    /// The run id of the process.
    pub run_id: String,
    /// No publication has a smaller epoch from here on.
    pub least_epoch: u32,
}

impl Fence {
    fn write(&self, out: &mut Vec<u8>) {
        argument(out, self.run_id.as_bytes());
        number_argument(out, u64::from(self.least_epoch));
    }
}

/// A reply that the script does not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a script gave a reply that does not belong to it; is another program using these keys?")]
pub struct UnknownReply;

/// The result of a script that may find another fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fenced<T> {
    /// The fence is as expected.
    Done(T),
    /// Another process, or another least epoch: nothing was done.
    Fenced,
}

fn is_fenced(value: Value<'_>) -> bool {
    value.text() == Some(b"fenced")
}

fn boolean(value: Option<Value<'_>>) -> Result<bool, UnknownReply> {
    match value {
        Some(Value::Integer(0)) => Ok(false),
        Some(Value::Integer(1)) => Ok(true),
        _ => Err(UnknownReply),
    }
}

fn text<'a>(value: Option<Value<'a>>) -> Result<&'a [u8], UnknownReply> {
    value.and_then(Value::text).ok_or(UnknownReply)
}

fn unsigned(value: Option<Value<'_>>) -> Result<u64, UnknownReply> {
    value.and_then(Value::unsigned).ok_or(UnknownReply)
}
