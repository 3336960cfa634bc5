//! Queue groups: nodes that join and leave them, and the work of their members.

use crate::layout::{NodeId, Position};
use crate::resp::{Value, argument, number_argument};
use crate::script::{Fence, Hashes, Script, UnknownReply, boolean, text};

/// Adds a node to a group.
#[derive(Debug)]
pub struct JoinCall<'a> {
    /// The keys of the lease, the writer and the fence.
    pub node_keys: [&'a [u8]; 3],
    /// The keys of the groups, of those without nodes, and of those of the node.
    pub group_keys: [&'a [u8]; 3],
    /// The node.
    pub node: NodeId,
    /// The number of the connection among those of the node.
    pub generation: u64,
    /// The result of the fence.
    pub fence: &'a Fence,
    /// The topic.
    pub topic: &'a str,
    /// The name of the group.
    pub group: &'a str,
    /// How many groups a topic may have.
    pub groups_max: u64,
}

/// Whether a node is in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinReply {
    /// It is.
    Joined,
    /// It is, and there was no such group before: it has no work from before.
    New,
    /// Nothing was done: the topic has as many groups as it may have.
    Full,
    /// Nothing was done: the key holds something else.
    WrongType,
    /// Nothing was done: the lease of the node has ended.
    Lost,
    /// Nothing was done: the node has a newer connection.
    Stale,
    /// Nothing was done: another process, or another least epoch.
    Fenced,
}

impl JoinCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        hashes.begin(Script::Join, 6, 7, out);
        for key in self.node_keys.iter().chain(&self.group_keys) {
            argument(out, key);
        }
        argument(out, self.node.to_string().as_bytes());
        number_argument(out, self.generation);
        self.fence.write(out);
        argument(out, self.topic.as_bytes());
        argument(out, self.group.as_bytes());
        number_argument(out, self.groups_max);
    }
}

impl JoinReply {
    /// Reads the reply.
    pub fn read(value: Value<'_>) -> Result<Self, UnknownReply> {
        match value.text() {
            Some(b"joined") => Ok(Self::Joined),
            Some(b"new") => Ok(Self::New),
            Some(b"full") => Ok(Self::Full),
            Some(b"wrong") => Ok(Self::WrongType),
            Some(b"lost") => Ok(Self::Lost),
            Some(b"stale") => Ok(Self::Stale),
            Some(b"fenced") => Ok(Self::Fenced),
            _ => Err(UnknownReply),
        }
    }
}

/// Removes a node from a group.
#[derive(Debug)]
pub struct LeaveCall<'a> {
    /// The key of the writer.
    pub writer_key: &'a [u8],
    /// The keys of the groups, of those without nodes, and of those of the node.
    pub group_keys: [&'a [u8]; 3],
    /// The channel of the topic.
    pub channel: &'a [u8],
    /// The node.
    pub node: NodeId,
    /// The number of the connection among those of the node.
    pub generation: u64,
    /// The topic.
    pub topic: &'a str,
    /// The name of the group.
    pub group: &'a str,
}

/// Whether a node is out of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaveReply {
    /// It is.
    Left,
    /// It has work left to be handed back.
    More,
    /// Nothing was done: the node has a newer connection.
    Stale,
}

impl LeaveCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        hashes.begin(Script::Leave, 5, 4, out);
        argument(out, self.writer_key);
        for key in &self.group_keys {
            argument(out, key);
        }
        argument(out, self.channel);
        argument(out, self.node.to_string().as_bytes());
        number_argument(out, self.generation);
        argument(out, self.topic.as_bytes());
        argument(out, self.group.as_bytes());
    }
}

impl LeaveReply {
    /// Reads the reply.
    pub fn read(value: Value<'_>) -> Result<Self, UnknownReply> {
        match value.text() {
            Some(b"left") => Ok(Self::Left),
            Some(b"more") => Ok(Self::More),
            Some(b"stale") => Ok(Self::Stale),
            _ => Err(UnknownReply),
        }
    }
}

/// Ends work of a group, hands some back and requests more.
#[derive(Debug)]
pub struct WorkCall<'a> {
    /// The key of the writer.
    pub writer_key: &'a [u8],
    /// The key of the groups.
    pub groups_key: &'a [u8],
    /// The key of the groups of the node.
    pub own_key: &'a [u8],
    /// The channel of the topic.
    pub channel: &'a [u8],
    /// The node.
    pub node: NodeId,
    /// The number of the connection among those of the node.
    pub generation: u64,
    /// The topic.
    pub topic: &'a str,
    /// The name of the group.
    pub group: &'a str,
    /// How many publications to request at most.
    pub count: u64,
    /// The work that is done.
    pub done: &'a [Position],
    /// The work for others.
    pub handed_back: &'a [Position],
}

/// The result of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkReply {
    /// It was done.
    Done {
        /// Publications that the group has lost; `None` if nobody knows how many.
        lost: Option<u64>,
        /// There may be more work.
        has_more: bool,
        /// The received work, in the order in which it is to be done.
        works: Vec<Work>,
    },
    /// Nothing was done: the node is not in the group.
    Lost,
    /// Nothing was done: the node has a newer connection.
    Stale,
}

/// A publication that one member of a group gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Names it among the work of the topic.
    pub id: Position,
    /// Another member may have had it before.
    pub is_again: bool,
    /// The place of the publication in its topic; `None` without history.
    pub position: Option<Position>,
    /// A [`Record`](crate::Record).
    pub record: Box<[u8]>,
}

impl WorkCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        let ids = self.done.len() + self.handed_back.len();
        hashes.begin(Script::Work, 4, 6 + ids, out);
        for key in [self.writer_key, self.groups_key, self.own_key, self.channel] {
            argument(out, key);
        }
        argument(out, self.node.to_string().as_bytes());
        number_argument(out, self.generation);
        argument(out, self.topic.as_bytes());
        argument(out, self.group.as_bytes());
        number_argument(out, self.count);
        number_argument(out, self.done.len() as u64);
        for id in self.done.iter().chain(self.handed_back) {
            argument(out, id.to_string().as_bytes());
        }
    }
}

impl WorkReply {
    /// Reads the reply.
    pub fn read(value: Value<'_>) -> Result<Self, UnknownReply> {
        match value.text() {
            Some(b"lost") => return Ok(Self::Lost),
            Some(b"stale") => return Ok(Self::Stale),
            Some(_) => return Err(UnknownReply),
            None => {}
        }
        let mut items = value.items();
        let lost = match items.next() {
            Some(Value::Integer(-1)) => None,
            Some(Value::Integer(lost)) => Some(u64::try_from(lost).map_err(|_| UnknownReply)?),
            _ => return Err(UnknownReply),
        };
        let has_more = boolean(items.next())?;
        let mut works = Vec::new();
        for is_again in [true, false] {
            let mut parts = items.next().ok_or(UnknownReply)?.items();
            while let Some(id) = parts.next() {
                let position = match text(parts.next())? {
                    b"-" => None,
                    place => Some(Position::parse(place).ok_or(UnknownReply)?),
                };
                works.push(Work {
                    id: Position::parse(text(Some(id))?).ok_or(UnknownReply)?,
                    is_again,
                    position,
                    record: text(parts.next())?.into(),
                });
            }
        }
        Ok(Self::Done {
            lost,
            has_more,
            works,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Frames, Limits};
    use std::ops::ControlFlow;

    fn read(reply: &str) -> Result<WorkReply, UnknownReply> {
        let mut found = None;
        let frames = Frames::new(Limits::default()).read(reply.as_bytes(), |value| {
            found = Some(WorkReply::read(value));
            ControlFlow::Continue(())
        });
        assert_eq!(frames, Ok(()));
        found.unwrap()
    }

    #[test]
    fn work_is_read_and_anything_else_refused() {
        let whole = "*4\r\n:2\r\n:1\r\n*3\r\n+7-1\r\n+5-9\r\n+one\r\n*3\r\n+7-2\r\n+-\r\n+two\r\n";
        let work = |offset, is_again, position, record: &str| Work {
            id: Position { epoch: 7, offset },
            is_again,
            position,
            record: record.as_bytes().into(),
        };
        let place = Position {
            epoch: 5,
            offset: 9,
        };
        let done = WorkReply::Done {
            lost: Some(2),
            has_more: true,
            works: vec![
                work(1, true, Some(place), "one"),
                work(2, false, None, "two"),
            ],
        };
        assert_eq!(read(whole), Ok(done));
        let unknown = read("*4\r\n:-1\r\n:0\r\n*0\r\n*0\r\n");
        assert!(matches!(unknown, Ok(WorkReply::Done { lost: None, .. })));
        assert_eq!(read("+lost\r\n"), Ok(WorkReply::Lost));
        for reply in [
            "+ok\r\n",
            ":1\r\n",
            "*0\r\n",
            "*4\r\n:-2\r\n:0\r\n*0\r\n*0\r\n",
            "*4\r\n:0\r\n:2\r\n*0\r\n*0\r\n",
            "*3\r\n:0\r\n:0\r\n*0\r\n",
            "*4\r\n:0\r\n:0\r\n*1\r\n+7-1\r\n*0\r\n",
            "*4\r\n:0\r\n:0\r\n*3\r\n+x\r\n+-\r\n+one\r\n*0\r\n",
            "*4\r\n:0\r\n:0\r\n*3\r\n+7-1\r\n+x\r\n+one\r\n*0\r\n",
        ] {
            assert_eq!(read(reply), Err(UnknownReply), "{reply}");
        }
    }
}
