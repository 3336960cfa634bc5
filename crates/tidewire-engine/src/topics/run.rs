//! Runs: consecutive publications of one priority, written once for all subscribers of a group.

use super::item::Item;
use crate::topics::publication::Payload;
use std::sync::Arc;
use tidewire_wire::envelope::Priority;
use tidewire_wire::format::Format;
use tidewire_wire::session::{BATCH_MESSAGES_MAX, write_shared_batch};
use tidewire_wire::uuid::Uuid;

/// Consecutive publications of one priority, as frames.
pub(crate) struct Run {
    pub(crate) chunk: Arc<Vec<u8>>,
    pub(crate) priority: Priority,
    /// Publications in it.
    pub(crate) messages: u64,
    /// Payloads of its frames, in bytes.
    pub(crate) payload_bytes: u64,
    /// No connection is excluded or passed over, and none receives one of the publications by another
    /// subscription.
    pub(crate) is_for_all: bool,
}

impl Run {
    /// Each publication in a frame of its own.
    pub(crate) fn of(items: &[Item], format: Format) -> Vec<Self> {
        let run = |items: &[Item]| {
            Self::with_frames(items, |chunk| {
                let write = |item: &Item| item.publication.payload(format).write_frame(chunk);
                items.iter().map(write).sum()
            })
        };
        items.chunk_by(has_same_priority).map(run).collect()
    }

    /// Publications in `batch` messages, each with at most [`BATCH_BYTES`] unless one publication
    /// alone has more. A publication without neighbours has a frame of its own. `new_id` makes the
    /// id of a batch.
    pub(crate) fn batched(
        items: &[Item],
        format: Format,
        unix_ms: u64,
        mut new_id: impl FnMut() -> Uuid,
    ) -> Vec<Self> {
        let run = |items: &[Item]| {
            Self::with_frames(items, |chunk| {
                let mut rest = items;
                let mut payload_bytes = 0;
                while !rest.is_empty() {
                    let batch = batch_of(rest, format);
                    payload_bytes += if batch.len() > 1 {
                        write_batch(&batch, format, unix_ms, new_id(), chunk)
                    } else {
                        rest[0].publication.payload(format).write_frame(chunk)
                    };
                    rest = &rest[batch.len().max(1)..];
                }
                payload_bytes
            })
        };
        items.chunk_by(has_same_priority).map(run).collect()
    }

    /// `write_frames` appends the frames and returns the bytes of their payloads.
    fn with_frames(items: &[Item], write_frames: impl FnOnce(&mut Vec<u8>) -> usize) -> Self {
        let mut chunk = Vec::with_capacity(items.len() * CHUNK_BYTES_EACH);
        let payload_bytes = write_frames(&mut chunk) as u64;
        let is_for_all = |item: &Item| item.mark.is_none() && item.publication.is_for_all();
        Self {
            chunk: Arc::new(chunk),
            priority: items[0].publication.priority,
            messages: items.len() as u64,
            payload_bytes,
            is_for_all: items.iter().all(is_for_all),
        }
    }
}

fn has_same_priority(a: &Item, b: &Item) -> bool {
    a.publication.priority == b.publication.priority
}

/// The envelopes of the first publications that fit into one batch; fewer than two if a batch is of
/// no use.
fn batch_of(items: &[Item], format: Format) -> Vec<&[u8]> {
    let mut bytes = 0;
    let envelopes = items.iter().map_while(|item| {
        let envelope = item.publication.envelope(format)?;
        bytes += envelope.len();
        Some((bytes, envelope))
    });
    envelopes
        .enumerate()
        .take_while(|(index, (bytes, _))| *index == 0 || *bytes <= BATCH_BYTES)
        .map(|(_, (_, envelope))| envelope)
        .take(BATCH_MESSAGES_MAX)
        .collect()
}

/// Appends a batch in a frame; how many bytes its payload has.
fn write_batch(
    envelopes: &[&[u8]],
    format: Format,
    unix_ms: u64,
    id: Uuid,
    chunk: &mut Vec<u8>,
) -> usize {
    let bytes: usize = envelopes.iter().map(|envelope| envelope.len() + 1).sum();
    let mut message = Vec::with_capacity(bytes + BATCH_ENVELOPE_BYTES);
    let opcode = write_shared_batch(envelopes, format, id, unix_ms, &mut message);
    Payload::new(opcode, &message).write_frame(chunk)
}

/// Most bytes of envelopes in one batch. A page handles one batch in one task, which it must not
/// hold up.
const BATCH_BYTES: usize = 64 * 1024;

/// Bytes that a batch adds to its messages, about.
const BATCH_ENVELOPE_BYTES: usize = 160;

/// The expected size of a publication in a chunk, in bytes.
const CHUNK_BYTES_EACH: usize = 128;
