//! Steps of queue groups, for the comparison of the model with a real server.

use proptest::prelude::*;
use tidewire_redis::script::{Fence, Hashes, JoinCall, LeaveCall, WorkCall};
use tidewire_redis::{NodeId, Position};

/// With letters, so that no part of it looks like a version.
pub(crate) fn node_id(node: u8) -> NodeId {
    NodeId(u64::MAX - u64::from(node))
}

pub(crate) fn lease_key(node: u8) -> &'static [u8] {
    [b"nffffffffffffffff", b"nfffffffffffffffe"][usize::from(node)]
}

/// One step of a node in a group of topic 0 or 1.
#[derive(Debug, Clone)]
pub(crate) struct GroupStep {
    kind: Kind,
    node: u8,
    topic: u8,
    group: u8,
    generation: u8,
}

#[derive(Debug, Clone)]
enum Kind {
    Join,
    Leave,
    Work {
        count: u8,
        done: Vec<u8>,
        handed_back: Vec<u8>,
    },
}

pub(crate) fn group_step() -> impl Strategy<Value = GroupStep> {
    let ids = || prop::collection::vec(0..12_u8, 0..4);
    let work = (0..20_u8, ids(), ids()).prop_map(|(count, done, handed_back)| Kind::Work {
        count,
        done,
        handed_back,
    });
    let kind = prop_oneof![2 => Just(Kind::Join), 1 => Just(Kind::Leave), 6 => work];
    (kind, 0..2_u8, 0..2_u8, 0..2_u8, 0..3_u8).prop_map(|(kind, node, topic, group, generation)| {
        GroupStep {
            kind,
            node,
            topic,
            group,
            generation,
        }
    })
}

impl GroupStep {
    pub(crate) fn write(&self, hashes: &Hashes, fence: &Fence, out: &mut Vec<u8>) {
        let own_key = [b'g', self.node];
        let group_keys: [&[u8]; 3] = [b"q", b"qi", &own_key];
        let topic = ["0", "1"][usize::from(self.topic)];
        let group = ["red", "blue"][usize::from(self.group)];
        let channel = [b"t:", topic.as_bytes()].concat();
        let (node, generation) = (node_id(self.node), u64::from(self.generation));
        let writer_key = [b'w', self.node];
        let ids = |offsets: &[u8]| -> Vec<Position> {
            let ids = offsets.iter().map(|offset| Position {
                epoch: fence.least_epoch,
                offset: u64::from(*offset),
            });
            ids.collect()
        };
        match &self.kind {
            Kind::Join => JoinCall {
                node_keys: [lease_key(self.node), &writer_key, b"f"],
                group_keys,
                node,
                generation,
                fence,
                topic,
                group,
                groups_max: 1 + u64::from(self.generation),
            }
            .write(hashes, out),
            Kind::Leave => LeaveCall {
                writer_key: &writer_key,
                group_keys,
                channel: &channel,
                node,
                generation,
                topic,
                group,
            }
            .write(hashes, out),
            Kind::Work {
                count,
                done,
                handed_back,
            } => WorkCall {
                writer_key: &writer_key,
                groups_key: b"q",
                own_key: &own_key,
                channel: &channel,
                node,
                generation,
                topic,
                group,
                count: u64::from(*count),
                done: &ids(done),
                handed_back: &ids(handed_back),
            }
            .write(hashes, out),
        }
    }
}
