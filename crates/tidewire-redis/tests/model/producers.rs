//! Steps of producers, for the comparison of the model with a real server.

use proptest::prelude::*;
use tidewire_redis::OpenReply;
use tidewire_redis::script::{Attempt, Fence, Hashes, KeepCall, KeepItem, OpenCall};

/// One step of a connection that speaks for producers 0 to 2.
#[derive(Debug, Clone)]
pub(crate) enum ProducerStep {
    Open(u8, u64, Option<Attempt>),
    Keep(Vec<Kept>),
}

#[derive(Debug, Clone)]
pub(crate) struct Kept {
    producer: u8,
    opening: u8,
    epoch: u8,
    last: u8,
}

pub(crate) fn producer_step() -> impl Strategy<Value = ProducerStep> {
    let kept =
        (0..3_u8, 0..5_u8, 0..3_u8, 0..9_u8).prop_map(|(producer, opening, epoch, last)| Kept {
            producer,
            opening,
            epoch,
            last,
        });
    let attempt = (0..2_u64, 0..4_u64).prop_map(|(instance, number)| Attempt { instance, number });
    let waited_ms = prop_oneof![Just(0), 0..3_000_u64];
    prop_oneof![
        (0..3_u8, waited_ms, prop::option::of(attempt)).prop_map(
            |(producer, waited_ms, attempt)| ProducerStep::Open(producer, waited_ms, attempt)
        ),
        prop::collection::vec(kept, 1..4).prop_map(ProducerStep::Keep),
    ]
}

impl ProducerStep {
    pub(crate) fn write(&self, hashes: &Hashes, fence: &Fence, out: &mut Vec<u8>) {
        let key = |producer: u8| [b'a', producer];
        match self {
            Self::Open(producer, waited_ms, attempt) => {
                let call = OpenCall {
                    fence_key: b"f",
                    fence,
                    producer_key: &key(*producer),
                    epoch: 7,
                    keep_ms: 100_000,
                    waited_ms: *waited_ms,
                    attempt: *attempt,
                };
                call.write(hashes, out);
            }
            Self::Keep(kept) => {
                let keys: Vec<_> = kept.iter().map(|kept| key(kept.producer)).collect();
                let items = kept.iter().zip(&keys).map(|(kept, key)| KeepItem {
                    key,
                    opened: kept.opened(),
                });
                let call = KeepCall {
                    fence_key: b"f",
                    fence,
                    keep_ms: 100_000,
                    producers: &items.collect::<Vec<_>>(),
                };
                call.write(hashes, out);
            }
        }
    }
}

impl Kept {
    /// Openings are times: the even ones are before all that come of opening, the odd ones after.
    fn opened(&self) -> OpenReply {
        let late = if self.opening.is_multiple_of(2) {
            0
        } else {
            1 << 50
        };
        OpenReply {
            epoch: u32::from(self.epoch),
            last: u64::from(self.last),
            opening: u64::from(self.opening) + late,
        }
    }
}
