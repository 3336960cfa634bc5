//! State that a shard shares among its connections.

use crate::counters::Counters;
use crate::limits::published::Published;
use crate::limits::work::Meter;
use crate::live::Reader;
use crate::state::broker_operations::Operations;
use crate::state::delivery_times::DeliveryTimes;
use crate::state::layers::SharedDeflate;
use crate::state::open_calls::ShardCalls;
use crate::state::pending_questions::Questions;
use crate::state::session_topics::{Departure, EndedSessions};
use crate::state::shared::{Setup, Shared};
use crate::topics::local::LocalTopics;
use crate::topics::rates::TopicRates;
use crate::topics::users::Users;
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::VecDeque;
use std::sync::Arc;
use tidewire_net::ConnectionId;
use tidewire_wire::format::{Deflater, Inflater};
use tidewire_wire::uuid::{Uuid, uuid_v7};

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) index: u32,
    pub(crate) shared: Arc<Shared>,
    /// The configuration as it is for this call.
    pub(crate) setup: Reader<Setup>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) rng: StdRng,
    /// The memory in which messages are compressed and decrypted.
    pub(crate) codec: Codec,
    pub(crate) draining: bool,
    pub(crate) topics: LocalTopics,
    pub(crate) delivery_times: DeliveryTimes,
    pub(crate) users: Users,
    pub(crate) calls: ShardCalls,
    pub(crate) operations: Operations,
    pub(crate) questions: Questions,
    pub(crate) marks: TopicRates,
    /// Sessions whose rights are being checked.
    pub(crate) rights_checks: VecDeque<ConnectionId>,
    /// The work of this turn.
    pub(crate) turn: Turn,
    /// The sessions that have ended.
    pub(crate) leaving: Leaving,
}

/// The memory in which a shard compresses and decrypts the messages of all its connections.
#[derive(Debug)]
pub(crate) struct Codec {
    pub(crate) inflater: Inflater,
    /// The buffer of an inflated message. It is empty between two messages, as the next two are: see [`emptied`].
    pub(crate) inflated: Vec<u8>,
    /// The buffer of a decrypted message.
    pub(crate) decrypted: Vec<u8>,
    /// Made when a message is first sent as `C:`.
    pub(crate) deflater: Option<Deflater>,
    pub(crate) deflate: SharedDeflate,
    /// The buffer of a compressed message.
    pub(crate) scratch: Vec<u8>,
}

/// The sessions of a shard that have ended.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// Sessions that have ended, whose leaves are not reported yet.
    pub(crate) departures: VecDeque<Departure>,
    /// Sessions that have ended and are still in some of their topics.
    pub(crate) ended_sessions: EndedSessions,
}

/// The work that a shard has done in a turn, and what it has left.
#[derive(Debug)]
pub(crate) struct Turn {
    /// A job has to wait for the clock.
    pub(crate) work_waits: bool,
    /// The work of the turn.
    pub(crate) meter: Meter,
    /// The publications of clients in this turn.
    pub(crate) published: Published,
    /// A publication made in this call has left more to be delivered than there should be.
    pub(crate) backlog_is_full: bool,
}

impl Core {
    pub(crate) fn new(index: usize, shared: &Arc<Shared>, rng: StdRng) -> Self {
        let setup = Reader::new(&shared.setup);
        Self {
            index: index as u32,
            shared: Arc::clone(shared),
            counters: Arc::clone(&shared.counters[index]),
            rng,
            codec: Codec {
                inflater: Inflater::new(),
                inflated: Vec::new(),
                decrypted: Vec::new(),
                deflater: None,
                deflate: SharedDeflate::default(),
                scratch: Vec::new(),
            },
            draining: false,
            topics: LocalTopics::default(),
            delivery_times: DeliveryTimes::default(),
            users: Users::default(),
            calls: ShardCalls::default(),
            operations: Operations::default(),
            questions: Questions::default(),
            marks: TopicRates::default(),
            turn: Turn {
                work_waits: false,
                meter: Meter::new(setup.config.limits.owner_work_ms_per_s),
                published: Published::default(),
                backlog_is_full: false,
            },
            rights_checks: VecDeque::new(),
            leaving: Leaving {
                departures: VecDeque::new(),
                ended_sessions: EndedSessions::default(),
            },
            setup,
        }
    }

    /// Switches to the current configuration, before anything is done with an event.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        self.setup.refresh(&self.shared.setup);
    }

    /// Counts a message with a payload of N bytes that has been written.
    #[inline]
    pub(crate) fn count_sent(&self, payload_bytes: usize) {
        self.counters.messages_sent.add(1);
        self.counters.bytes_sent.add(payload_bytes as u64);
    }

    /// A new message or connection id.
    pub(crate) fn new_id(&mut self, unix_ms: u64) -> Uuid {
        uuid_v7(unix_ms, self.rng.random())
    }
}

/// An empty buffer for further use: without its content, and without the room that a long message needed.
pub(crate) fn emptied(mut buffer: Vec<u8>) -> Vec<u8> {
    buffer.clear();
    buffer.shrink_to(BUFFER_BYTES_KEPT);
    buffer
}

/// Room that a shard keeps in each of its buffers between messages.
const BUFFER_BYTES_KEPT: usize = 64 * 1024;
