//! Parcels: messages for the sessions of a user, or for everybody, on the other servers.

use crate::cluster::convert;
use crate::model::{ConnectionKey, Outgoing};
use crate::topics::broker::Sending;
use crate::topics::publication::{Draft, Placed, Publication};
use std::sync::Arc;
use tidewire_net::ConnectionId;
use tidewire_redis as link;

/// The content of a parcel.
#[derive(Debug)]
pub(super) enum Arrived {
    /// A publication for the addressee of the parcel, or for this connection.
    Publication(Arc<Publication>, Option<ConnectionKey>),
    /// Another node asks a client of this one: which, and the question in JSON.
    Call(link::NodeId, Box<[u8]>),
    /// The answer of another node, in JSON.
    Answer(Box<[u8]>),
}

/// The bytes of a parcel: its kind, the node that sends it, the connection it is for if it is for one, and
/// the rest. `None` for one that is too large. The clock of the broker is `ahead_ms` ahead of this server's.
pub(super) fn write(
    node: link::NodeId,
    connection: Option<ConnectionKey>,
    sending: &Sending<'_>,
    ahead_ms: i64,
) -> Option<Box<[u8]>> {
    let kind = match sending {
        Sending::Publication(..) => PUBLICATION,
        Sending::Verbatim(Outgoing::Text(_)) => TEXT,
        Sending::Verbatim(Outgoing::Binary(_)) => BINARY,
        Sending::Event(_) => EVENT,
    };
    let mut bytes = head(node, kind);
    if let Some(connection) = connection {
        bytes[0] |= TO_CONNECTION;
        bytes.extend_from_slice(&connection.shard().to_be_bytes());
        bytes.extend_from_slice(&connection.id.to_u64().to_be_bytes());
    }
    match sending {
        Sending::Event(json) => bytes.extend_from_slice(json),
        Sending::Publication(draft, unix_ms) => {
            let redis_ms = unix_ms.saturating_add_signed(ahead_ms);
            let mut also = Vec::new();
            let record = record_of(node, draft, redis_ms, &mut also);
            if let Err(error) = record.encode(&mut bytes) {
                tracing::warn!(%error, "a message cannot be sent to the other servers");
                return None;
            }
        }
        Sending::Verbatim(Outgoing::Text(text)) => bytes.extend_from_slice(text.as_bytes()),
        Sending::Verbatim(Outgoing::Binary(binary)) => bytes.extend_from_slice(binary),
    }
    Some(bytes.into())
}

/// A parcel of JSON: a call or an answer.
pub(super) fn write_json(node: link::NodeId, kind: u8, json: &[u8]) -> Box<[u8]> {
    let mut bytes = head(node, kind);
    bytes.extend_from_slice(json);
    bytes.into()
}

fn head(node: link::NodeId, kind: u8) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&node.0.to_be_bytes());
    bytes
}

fn record_of<'a>(
    node: link::NodeId,
    draft: &'a Draft<'_>,
    redis_ms: u64,
    also: &'a mut Vec<u8>,
) -> link::Record<'a> {
    let excluded = convert::excluded_in_record(node, draft.exclude, also);
    link::Record {
        mark: link::Mark {
            node,
            batch: 0,
            index: 0,
        },
        category: convert::link_category(draft.category),
        priority: convert::link_priority(draft.priority.unwrap_or_default()),
        published_redis_ms: None,
        expires_redis_ms: draft.ttl_ms.map(|ttl_ms| redis_ms.saturating_add(ttl_ms)),
        excluded,
        also_excluded: also,
        t: draft.t,
        id: draft.id,
        key: draft.key,
        volatile: draft.is_volatile,
        binary: draft.is_binary,
        payload: draft.payload,
    }
}

/// The content of a parcel of another node; `None` for one of this node and for one that cannot be read.
/// `to_unix_ms` converts a time of the broker to this server's clock.
pub(super) fn read(
    own: link::NodeId,
    parcel: &[u8],
    to_unix_ms: impl Fn(u64) -> u64,
) -> Option<Arrived> {
    let (kind, rest) = parcel.split_first()?;
    let (node, mut body) = rest.split_first_chunk::<8>()?;
    let node = link::NodeId(u64::from_be_bytes(*node));
    if node == own {
        return None;
    }
    let connection = match kind & TO_CONNECTION {
        0 => None,
        _ => {
            let (shard, rest) = body.split_first_chunk()?;
            let (id, rest) = rest.split_first_chunk()?;
            body = rest;
            let id = ConnectionId::from_u64(u64::from_be_bytes(*id));
            Some(ConnectionKey::new(own.0, u32::from_be_bytes(*shard), id))
        }
    };
    let made = match *kind & !TO_CONNECTION {
        CALL => return Some(Arrived::Call(node, body.into())),
        ANSWER => return Some(Arrived::Answer(body.into())),
        PUBLICATION => publication(own, body, to_unix_ms),
        EVENT => Some(Publication::event(None, body.to_vec())),
        TEXT => std::str::from_utf8(body)
            .ok()
            .map(|text| Publication::verbatim(Outgoing::Text(text.into()))),
        BINARY => Some(Publication::verbatim(Outgoing::Binary(body.into()))),
        _ => None,
    };
    if made.is_none() {
        tracing::error!(
            kind,
            "a message of another server cannot be read; update this server"
        );
    }
    made.map(|publication| Arrived::Publication(Arc::new(publication), connection))
}

fn publication(
    own: link::NodeId,
    body: &[u8],
    to_unix_ms: impl Fn(u64) -> u64,
) -> Option<Publication> {
    let record = link::Record::decode(body).ok()?;
    let draft = Draft {
        t: record.t,
        payload: record.payload,
        is_binary: record.binary,
        category: convert::category(record.category),
        priority: None,
        id: record.id,
        key: record.key,
        exclude: &convert::excluded_here(own, &record),
        ttl_ms: None,
        is_volatile: record.volatile,
        unique: None,
    };
    let mut publication = draft.place(&Placed {
        topic: None,
        position: None,
        priority: convert::priority(record.priority),
        unix_ms: 0,
    });
    if let Some(expires_ms) = record.expires_redis_ms {
        publication.expires_unix_ms = to_unix_ms(expires_ms);
    }
    Some(publication)
}

const PUBLICATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const EVENT: u8 = 3;
pub(super) const CALL: u8 = 4;
pub(super) const ANSWER: u8 = 5;

/// Beside a kind: the parcel is for one connection.
const TO_CONNECTION: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::new_publication::NewPublication;

    #[test]
    fn a_parcel_brings_to_others_what_was_sent() {
        let (own, other) = (link::NodeId(1), link::NodeId(2));
        let publication = NewPublication::new("t", r#"{"n":1}"#).with_ttl_ms(50);
        let draft = publication.draft();
        let text = Outgoing::Text("hello".into());
        let sendings = [
            Sending::Publication(&draft, 1_000),
            Sending::Verbatim(&text),
        ];
        for (sending, json) in sendings.iter().zip([true, false]) {
            let connection = ConnectionKey::new(other.0, 3, ConnectionId::from_u64(17));
            for to in [None, Some(connection)] {
                let parcel = write(own, to, sending, 5_000).expect("a parcel");
                // The clock of the receiver is 1 s behind that of the broker.
                let to_unix_ms = |redis_ms: u64| redis_ms - 1_000;
                assert!(
                    read(own, &parcel, to_unix_ms).is_none(),
                    "it has been delivered here"
                );
                let Some(Arrived::Publication(arrived, found)) = read(other, &parcel, to_unix_ms)
                else {
                    panic!("a message");
                };
                assert_eq!(found, to);
                assert_eq!(arrived.content() == br#"{"n":1}"#, json);
                assert_eq!(arrived.expires_unix_ms == 5_050, json);
            }
        }
        for garbage in [
            &[][..],
            &[0],
            &[9; 9],
            &[0; 30],
            &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0xff],
            &[0x81, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0],
        ] {
            assert!(read(other, garbage, |ms| ms).is_none(), "{garbage:?}");
        }
    }
}
