//! `history_request` and `history_response`: reading the history of a topic without a subscription.

use super::Object;
use super::objection::{Objection, parse_number};
use super::walk::{as_json, bounded, flag, unsigned, walk};
use crate::codes::ErrorCode;
use crate::envelope::raw::Raw;
use crate::envelope::{EnvelopeError, epoch_text, parse_epoch};
use crate::format::{Format, Place};
use crate::json::fields::elements;
use std::borrow::Cow;

/// The requested part of the history of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// The topic, not empty; it may be an invalid name.
    pub topic: String,
    /// The answer has publications after this position or, with the newest first, before it.
    pub since: Option<HistoryPosition>,
    /// The maximum number of publications: 1 to [`HISTORY_LIMIT_MAX`].
    pub limit: u64,
    /// Whether the answer starts with the newest publication.
    pub newest_first: bool,
}

/// A position in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPosition {
    /// The epoch, as the client wrote it.
    pub epoch: String,
    /// The offset.
    pub offset: u64,
}

/// A part of a topic's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPage {
    /// The topic.
    pub topic: String,
    /// The current position of the topic.
    pub epoch: u32,
    /// The offset of the newest publication; 0 if there was none.
    pub offset: u64,
    /// The offset of the oldest stored publication; without any, the offset of the next one.
    pub oldest: u64,
    /// The publications in the requested order: JSON envelopes, which the writer does not check.
    pub publications: Vec<Vec<u8>>,
    /// Whether more stored publications follow in this direction.
    pub more: bool,
    /// Whether no publication is missing between the requested position and the returned publications.
    pub complete: bool,
}

impl HistoryQuery {
    /// A query for the oldest stored publications of `topic`, at most [`HISTORY_LIMIT`].
    #[must_use]
    pub fn new(topic: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            since: None,
            limit: HISTORY_LIMIT,
            newest_first: false,
        }
    }

    pub(super) fn write_payload(&self, out: &mut Vec<u8>) {
        let mut object = Object::open(out);
        object.text("topic", &self.topic);
        if let Some(since) = &self.since {
            object.with("since", |out| {
                let mut object = Object::open(out);
                object.text("epoch", &since.epoch);
                object.number("offset", since.offset);
                object.close();
            });
        }
        object.number("limit", self.limit);
        object.text("order", if self.newest_first { NEWEST } else { OLDEST });
        object.close();
    }
}

/// Reads the payload of a `history_request`.
pub(super) fn parse_query(payload: Raw<'_>) -> Result<HistoryQuery, Objection> {
    let wrong = |words| (ErrorCode::InvalidSubscription, words);
    let [topic, since, limit, order] = payload.pick(["topic", "since", "limit", "order"]);
    let topic = topic.text().filter(|topic| !topic.is_empty());
    let topic = topic.ok_or(wrong("topic is not a name"))?.into_owned();
    let since = if since.is_null() {
        None
    } else {
        let (epoch, offset) =
            parse_position(since).ok_or(wrong("since has no epoch and offset"))?;
        Some(HistoryPosition {
            epoch: epoch.into_owned(),
            offset,
        })
    };
    let words = "limit is not a number from 1 to 1000";
    let limit = parse_number(limit, words)?.unwrap_or(HISTORY_LIMIT);
    if !(1..=HISTORY_LIMIT_MAX).contains(&limit) {
        return Err(wrong(words));
    }
    let newest_first = match order.text().as_deref() {
        None if order.is_null() => false,
        Some(OLDEST) => false,
        Some(NEWEST) => true,
        _ => return Err(wrong("order is oldest or newest")),
    };
    Ok(HistoryQuery {
        topic,
        since,
        limit,
        newest_first,
    })
}

/// The epoch and the offset of a position in a history.
pub(super) fn parse_position(position: Raw<'_>) -> Option<(Cow<'_, str>, u64)> {
    let [epoch, offset] = position.pick(["epoch", "offset"]);
    epoch.text().zip(offset.unsigned())
}

/// Appends the payload of a `history_response`.
pub(super) fn write_page(page: &HistoryPage, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.text("topic", &page.topic);
    object.text("epoch", &epoch_text(page.epoch));
    object.number("offset", page.offset);
    object.number("oldest", page.oldest);
    object.boolean("more", page.more);
    object.boolean("complete", page.complete);
    object.with("publications", |out| {
        out.push(b'[');
        for (index, publication) in page.publications.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(publication);
        }
        out.push(b']');
    });
    object.close();
}

/// Reads a `history_response`, with its correlation id.
pub(super) fn read_page(
    encoding: Format,
    bytes: &[u8],
) -> Result<(HistoryPage, Option<String>), EnvelopeError> {
    let mut scratch = Vec::new();
    let text = as_json(encoding, Place::History, bytes, &mut scratch)?;
    let mut page = HistoryPage {
        topic: String::new(),
        epoch: 0,
        offset: 0,
        oldest: 0,
        publications: Vec::new(),
        more: false,
        complete: false,
    };
    let mut array = None;
    let correlation_id = walk(text, |name, value| {
        match name {
            b"topic" => page.topic = bounded(value, usize::MAX, "topic")?.into_owned(),
            b"epoch" => {
                let epoch = bounded(value, usize::MAX, "epoch")?;
                let wrong = (ErrorCode::InvalidMessage, "epoch");
                page.epoch = parse_epoch(&epoch).ok_or(wrong)?;
            }
            b"offset" => page.offset = unsigned(value, "offset")?,
            b"oldest" => page.oldest = unsigned(value, "oldest")?,
            b"more" => page.more = flag(value, "more")?,
            b"complete" => page.complete = flag(value, "complete")?,
            b"publications" => array = Some(value),
            _ => {}
        }
        Ok(())
    });
    let correlation_id = correlation_id.map_err(EnvelopeError::from)?;
    let wrong = EnvelopeError::InvalidField("publications");
    elements(array.ok_or(wrong.clone())?, |publication| {
        if !publication.starts_with(b"{") || page.publications.len() as u64 == HISTORY_LIMIT_MAX {
            return Err(wrong.clone());
        }
        page.publications.push(publication.to_vec());
        Ok(())
    })?;
    Ok((page, correlation_id.map(Cow::into_owned)))
}

/// The default limit of publications in an answer.
pub const HISTORY_LIMIT: u64 = 100;

/// The maximum number of publications in an answer.
pub const HISTORY_LIMIT_MAX: u64 = 1000;

const OLDEST: &str = "oldest";
const NEWEST: &str = "newest";
