//! The fence, the lease and new epochs.

use crate::layout::{NodeId, Position};
use crate::resp::{Value, argument, number_argument};
use crate::script::{
    Fence, Fenced, Hashes, Script, UnknownReply, boolean, is_fenced, text, unsigned,
};

/// The first script of each connection that publishes.
#[derive(Debug)]
pub struct FenceCall<'a> {
    /// The key of the fence.
    pub fence_key: &'a [u8],
    /// The key of the writer.
    pub writer_key: &'a [u8],
    /// The run id of the process at the other end.
    pub run_id: &'a str,
    /// Whether what this process acknowledges outlives it.
    pub is_durable: bool,
    /// The greatest epoch that the node has seen.
    pub known_epoch: u32,
    /// The number of this connection among those of the node; earlier ones are refused from now on.
    pub generation: u64,
    /// The run ids of the processes whose data was handed over to this one, all of it.
    pub handed_over_by: &'a [String],
}

/// The result of the fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FenceReply {
    /// No publication has a smaller epoch from here on.
    pub least_epoch: u32,
    /// Earlier epochs stay valid.
    pub stays: bool,
    /// The time of Redis, in milliseconds since 1970.
    pub redis_ms: u64,
}

impl FenceCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        hashes.begin(Script::Fence, 2, 4 + self.handed_over_by.len(), out);
        argument(out, self.fence_key);
        argument(out, self.writer_key);
        argument(out, self.run_id.as_bytes());
        argument(out, if self.is_durable { b"1" } else { b"0" });
        number_argument(out, u64::from(self.known_epoch));
        number_argument(out, self.generation);
        for run_id in self.handed_over_by {
            argument(out, run_id.as_bytes());
        }
    }
}

impl FenceReply {
    /// The time until the least epoch may be used, in milliseconds: no epoch is used before its time, so that
    /// a process that has lost everything can begin one that was never used. A clock that was set back is not
    /// waited for.
    #[must_use]
    pub fn early_ms(&self) -> u64 {
        let begins_ms = EPOCHS_BEGIN_MS + u64::from(self.least_epoch) * EPOCH_MS;
        let early_ms = begins_ms.saturating_sub(self.redis_ms);
        if early_ms > EARLY_MS_MAX { 0 } else { early_ms }
    }

    /// Reads the reply.
    pub fn read(value: Value<'_>) -> Result<Self, UnknownReply> {
        let mut items = value.items();
        Ok(Self {
            least_epoch: epoch(unsigned(items.next())?)?,
            stays: boolean(items.next())?,
            redis_ms: time_ms(items.next(), items.next())?,
        })
    }
}

/// Renews the lease of a node and sends a probe.
#[derive(Debug)]
pub struct LeaseCall<'a> {
    /// The key of the lease.
    pub lease_key: &'a [u8],
    /// The key of the fence.
    pub fence_key: &'a [u8],
    /// The channel of the node.
    pub inbox: &'a [u8],
    /// How long the lease holds.
    pub lease_ms: u64,
    /// The number of the probe.
    pub probe: u64,
    /// The key of the list of nodes.
    pub nodes_key: &'a [u8],
    /// The node.
    pub node: NodeId,
    /// The key of the queue groups.
    pub groups_key: &'a [u8],
    /// The key of those without nodes.
    pub idle_groups_key: &'a [u8],
    /// The data of the node that others see.
    pub info: &'a [u8],
}

/// The result of the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseReply {
    /// The lease still held.
    pub held: bool,
    /// The time of Redis, in milliseconds since 1970.
    pub redis_ms: u64,
    /// The fence, `None` if there is none any more.
    pub fence: Option<Fence>,
    /// Some nodes whose lease has ended.
    pub ended: Vec<NodeId>,
    /// The stamp of the agreement, which changes with it.
    pub agreed: Vec<u8>,
}

impl LeaseCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        hashes.begin(Script::Lease, 6, 4, out);
        for key in [self.lease_key, self.fence_key, self.inbox, self.nodes_key] {
            argument(out, key);
        }
        argument(out, self.groups_key);
        argument(out, self.idle_groups_key);
        number_argument(out, self.lease_ms);
        number_argument(out, self.probe);
        argument(out, self.node.to_string().as_bytes());
        argument(out, self.info);
    }
}

impl LeaseReply {
    /// Reads the reply.
    pub fn read(value: Value<'_>) -> Result<Self, UnknownReply> {
        let mut items = value.items();
        let held = boolean(items.next())?;
        let redis_ms = time_ms(items.next(), items.next())?;
        let run_id = String::from_utf8_lossy(text(items.next())?).into_owned();
        let least = items.next();
        let fence = match (run_id.is_empty(), text(least)?) {
            (true, _) | (_, b"") => None,
            (false, _) => Some(Fence {
                run_id,
                least_epoch: epoch(unsigned(least)?)?,
            }),
        };
        let ended = items.next().ok_or(UnknownReply)?.items();
        let ended = ended.map(|item| NodeId::read(text(Some(item))?).ok_or(UnknownReply));
        Ok(Self {
            held,
            redis_ms,
            fence,
            ended: ended.collect::<Result<_, _>>()?,
            agreed: text(items.next())?.to_vec(),
        })
    }
}

/// Begins a new epoch of a topic.
#[derive(Debug)]
pub struct RenewCall<'a> {
    /// The key of the fence.
    pub fence_key: &'a [u8],
    /// The stream of the topic.
    pub stream: &'a [u8],
    /// The channel of its subscribers.
    pub channel: &'a [u8],
    /// The result of the fence.
    pub fence: &'a Fence,
    /// Only if this is the present epoch.
    pub only_epoch: Option<u32>,
    /// The new epoch exceeds this one.
    pub greater_than: u32,
}

/// The result for the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenewReply {
    /// Where the topic stands; `None` if there is no such topic.
    pub head: Option<Position>,
    /// An epoch was begun.
    pub is_new: bool,
}

impl RenewCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        hashes.begin(Script::Renew, 2, 5, out);
        argument(out, self.fence_key);
        argument(out, self.stream);
        self.fence.write(out);
        match self.only_epoch {
            Some(epoch) => number_argument(out, u64::from(epoch)),
            None => argument(out, b""),
        }
        number_argument(out, u64::from(self.greater_than));
        argument(out, self.channel);
    }
}

impl RenewReply {
    /// Reads the reply.
    pub fn read(value: Value<'_>) -> Result<Fenced<Self>, UnknownReply> {
        if is_fenced(value) {
            return Ok(Fenced::Fenced);
        }
        let mut items = value.items();
        let head = match text(items.next())? {
            b"" => None,
            id => Some(Position::parse(id).ok_or(UnknownReply)?),
        };
        Ok(Fenced::Done(Self {
            head,
            is_new: boolean(items.next())?,
        }))
    }
}

fn epoch(number: u64) -> Result<u32, UnknownReply> {
    u32::try_from(number).map_err(|_| UnknownReply)
}

fn time_ms(seconds: Option<Value<'_>>, micros: Option<Value<'_>>) -> Result<u64, UnknownReply> {
    let seconds = unsigned(seconds)?.checked_mul(1_000).ok_or(UnknownReply)?;
    seconds
        .checked_add(unsigned(micros)? / 1_000)
        .ok_or(UnknownReply)
}

/// 2020-01-01, in milliseconds since 1970.
pub const EPOCHS_BEGIN_MS: u64 = 1_577_836_800_000;

/// The unit of epochs that begin. 32 bits of it are 34 years.
pub const EPOCH_MS: u64 = 250;

const EARLY_MS_MAX: u64 = 1_000;
