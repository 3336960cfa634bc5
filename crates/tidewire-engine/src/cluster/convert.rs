//! The same thing in the words of the link and of the engine.

use crate::model::{ConnectionKey, Position, is_payload};
use crate::topics::broker as seam;
use crate::topics::excluded::Excluded;
use crate::topics::publication::{Draft, Placed, Publication, Published};
use std::sync::Arc;
use tidewire_net::ConnectionId;
use tidewire_redis as link;
use tidewire_wire::envelope::{Category, Priority};

pub(super) fn position(position: link::Position) -> Position {
    Position {
        epoch: position.epoch,
        offset: position.offset,
    }
}

pub(super) fn link_position(position: Position) -> link::Position {
    link::Position {
        epoch: position.epoch,
        offset: position.offset,
    }
}

pub(super) fn published(placed: link::Placed) -> Published {
    Published {
        position: placed.position.map(position),
        is_duplicate: placed.is_duplicate,
    }
}

pub(super) fn refusal(refusal: link::Refusal) -> seam::Refusal {
    match refusal {
        link::Refusal::Busy => seam::Refusal::Busy,
        link::Refusal::Unavailable => seam::Refusal::Unavailable,
        link::Refusal::Unknown => seam::Refusal::Unknown,
    }
}

pub(super) fn link_category(category: Category) -> link::Category {
    match category {
        Category::Snapshot => link::Category::Snapshot,
        _ => link::Category::Update,
    }
}

pub(super) fn category(category: link::Category) -> Category {
    match category {
        link::Category::Snapshot => Category::Snapshot,
        link::Category::Update => Category::Update,
    }
}

pub(super) fn link_priority(priority: Priority) -> link::Priority {
    match priority {
        Priority::Background => link::Priority::Background,
        Priority::Low => link::Priority::Low,
        Priority::Normal => link::Priority::Normal,
        Priority::High => link::Priority::High,
        Priority::Critical => link::Priority::Critical,
    }
}

pub(super) fn priority(priority: link::Priority) -> Priority {
    match priority {
        link::Priority::Background => Priority::Background,
        link::Priority::Low => Priority::Low,
        link::Priority::Normal => Priority::Normal,
        link::Priority::High => Priority::High,
        link::Priority::Critical => Priority::Critical,
    }
}

fn excluded(node: link::NodeId, key: ConnectionKey) -> link::Excluded {
    let node = match key.server() {
        0 => node,
        server => link::NodeId(server),
    };
    link::Excluded {
        node,
        shard: key.shard(),
        number: key.id.to_u64(),
    }
}

/// The excluded connections in the form of a record: the first, and the others in `also`.
pub(super) fn excluded_in_record(
    node: link::NodeId,
    exclude: &Excluded,
    also: &mut Vec<u8>,
) -> Option<link::Excluded> {
    let (first, others) = exclude.connections().split_first()?;
    for key in others {
        excluded(node, *key).write(also);
    }
    Some(excluded(node, *first))
}

/// Those of the node `own` that a record excludes.
pub(super) fn excluded_here(own: link::NodeId, record: &link::Record<'_>) -> Excluded {
    let here = record
        .all_excluded()
        .filter(|excluded| excluded.node == own);
    here.map(|excluded| {
        let id = ConnectionId::from_u64(excluded.number);
        ConnectionKey::new(own.0, excluded.shard, id)
    })
    .collect()
}

/// The beginning of the id of a publication whose publisher gave none. It is not delivered.
pub(super) const UNIQUE: char = '\u{1}';

/// The publication of a record in a history, as [`publication`] makes it. Its payload is checked: earlier versions accepted
/// payloads that are nested too deep for the answer to a `history_request`.
pub(super) fn kept(
    own: link::NodeId,
    topic: &Arc<str>,
    at: link::Position,
    record: &[u8],
    to_unix_ms: impl Fn(u64) -> u64,
) -> Option<Arc<Publication>> {
    let record = decode(topic, record)?;
    if !record.binary && !std::str::from_utf8(record.payload).is_ok_and(is_payload) {
        tracing::error!(%topic, "a publication of the broker has a payload that clients cannot read");
        return None;
    }
    Some(made(own, topic, Some(at), &record, to_unix_ms))
}

/// The publication of a record, as the node `own` sends it. `to_unix_ms` converts a time of the broker to
/// this server's clock. `None` if the record cannot be read.
pub(super) fn publication(
    own: link::NodeId,
    topic: &Arc<str>,
    at: Option<link::Position>,
    record: &[u8],
    to_unix_ms: impl Fn(u64) -> u64,
) -> Option<Arc<Publication>> {
    let record = decode(topic, record)?;
    Some(made(own, topic, at, &record, to_unix_ms))
}

fn decode<'a>(topic: &str, record: &'a [u8]) -> Option<link::Record<'a>> {
    let decoded = link::Record::decode(record);
    decoded
        .inspect_err(|error| {
            tracing::error!(%topic, %error, "a publication of the broker cannot be read");
        })
        .ok()
}

fn made(
    own: link::NodeId,
    topic: &Arc<str>,
    at: Option<link::Position>,
    record: &link::Record<'_>,
    to_unix_ms: impl Fn(u64) -> u64,
) -> Arc<Publication> {
    let draft = Draft {
        t: record.t,
        payload: record.payload,
        is_binary: record.binary,
        category: category(record.category),
        priority: None,
        id: record.id.filter(|id| !id.starts_with(UNIQUE)),
        key: record.key,
        exclude: &excluded_here(own, record),
        ttl_ms: None,
        is_volatile: record.volatile,
        unique: None,
    };
    let mut publication = draft.place(&Placed {
        topic: Some(topic),
        position: at.map(position),
        priority: priority(record.priority),
        unix_ms: 0,
    });
    if let Some(expires_ms) = record.expires_redis_ms {
        publication.expires_unix_ms = to_unix_ms(expires_ms);
    }
    Arc::new(publication)
}
