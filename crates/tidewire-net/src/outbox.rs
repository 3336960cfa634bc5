//! Outbox: the queue of a socket, in lanes by priority; each lane is a queue of segments of whole frames.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use tidewire_wire::envelope::Priority;

/// The queue of one connection; it has no memory while it is empty.
///
/// The highest lane is sent first. A partly sent segment is finished before another lane, so that frames are never
/// interleaved.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Option<Box<Queue>>);

#[derive(Debug, Default)]
pub(crate) struct Queue {
    lanes: [VecDeque<Segment>; LANES],
    /// Unsent bytes, without those appended to the open segment since it was returned.
    counted_bytes: usize,
    /// The bytes of shared segments among them, including the sent part of the first.
    shared_bytes: usize,
    open: Option<Open>,
    /// The lane whose first segment has to be finished before any other's.
    begun_lane: Option<usize>,
    /// The sent bytes of that segment.
    begun_bytes: usize,
}

/// Whole frames, except in the first segment after a partial write.
#[derive(Debug)]
pub(crate) enum Segment {
    /// Bytes that the handler appends.
    Own(Vec<u8>),
    /// The same bytes for many connections.
    Shared(Arc<Vec<u8>>),
}

/// The length of the last segment of this lane when it was returned for appending.
#[derive(Debug)]
struct Open {
    lane: usize,
    len: usize,
}

/// Unused memory of empty outboxes, for the next one.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    buffers: Vec<Vec<u8>>,
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    queues: Vec<Box<Queue>>,
}

impl Outbox {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Unsent bytes of all lanes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.len())
    }

    /// Unsent bytes that no other outbox shares.
    pub(crate) fn own_bytes(&self) -> usize {
        self.0
            .as_ref()
            .map_or(0, |queue| queue.len().saturating_sub(queue.shared_bytes))
    }

    /// The buffer for whole frames. A full or partly sent segment is not extended, so that a higher lane need not
    /// wait for frames after it.
    pub(crate) fn buffer(&mut self, priority: Priority, spares: &mut Spares) -> &mut Vec<u8> {
        let queue = self.queue(spares);
        queue.count_open();
        let lane = priority.lane();
        let is_begun = queue.begun_lane == Some(lane) && queue.lanes[lane].len() == 1;
        let has_room = matches!(
            queue.lanes[lane].back(),
            Some(Segment::Own(bytes)) if bytes.len() < SEGMENT_BYTES && !is_begun
        );
        if !has_room {
            queue.lanes[lane].push_back(Segment::Own(spares.take_buffer()));
        }
        let Some(Segment::Own(bytes)) = queue.lanes[lane].back_mut() else {
            unreachable!("an own segment was there or has been put there");
        };
        queue.open = Some(Open {
            lane,
            len: bytes.len(),
        });
        bytes
    }

    /// Queues a segment.
    pub(crate) fn push(&mut self, segment: Segment, priority: Priority, spares: &mut Spares) {
        let queue = self.queue(spares);
        queue.count_open();
        queue.counted_bytes += segment.bytes().len();
        queue.shared_bytes += segment.shared_bytes();
        queue.lanes[priority.lane()].push_back(segment);
    }

    /// Queues a segment whose first `sent_bytes` were sent, in an empty outbox.
    pub(crate) fn push_begun(
        &mut self,
        segment: Segment,
        sent_bytes: usize,
        priority: Priority,
        spares: &mut Spares,
    ) {
        debug_assert!(self.is_empty(), "what waited before has to leave before");
        std::mem::take(self).recycle(spares);
        let queue = self.queue(spares);
        queue.counted_bytes = segment.bytes().len() - sent_bytes;
        queue.begun_lane = Some(priority.lane());
        queue.begun_bytes = sent_bytes;
        queue.shared_bytes = segment.shared_bytes();
        queue.lanes[priority.lane()].push_back(segment);
    }

    /// Moves all waiting segments, in their order, before everything that is queued later.
    pub(crate) fn fence(&mut self) {
        let Some(queue) = &mut self.0 else {
            return;
        };
        queue.count_open();
        let mut order = VecDeque::new();
        if let Some(lane) = queue.begun_lane {
            order.extend(queue.lanes[lane].pop_front());
            queue.begun_lane = Some(LANES - 1);
        }
        for lane in queue.lanes.iter_mut().rev() {
            order.append(lane);
        }
        queue.lanes[LANES - 1] = order;
    }

    /// The unsent bytes in the order of sending, in as many slices as fit. Returns their number.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let Some(queue) = &self.0 else {
            return 0;
        };
        let mut count = 0;
        for (slot, bytes) in slices.iter_mut().zip(queue.unsent()) {
            *slot = IoSlice::new(bytes);
            count += 1;
        }
        count
    }

    /// The unsent bytes if they are in one segment.
    #[inline]
    pub(crate) fn only(&self) -> Option<&[u8]> {
        let mut unsent = self.0.as_ref()?.unsent();
        let first = unsent.next()?;
        unsent.next().is_none().then_some(first)
    }

    /// Removes bytes that were sent.
    pub(crate) fn mark_sent(&mut self, bytes: usize, spares: &mut Spares) {
        if let Some(queue) = &mut self.0 {
            queue.mark_sent(bytes, spares);
        }
    }

    /// Releases the memory.
    pub(crate) fn recycle(self, spares: &mut Spares) {
        if let Some(queue) = self.0 {
            spares.give_queue(queue);
        }
    }

    fn queue(&mut self, spares: &mut Spares) -> &mut Queue {
        self.0
            .get_or_insert_with(|| spares.queues.pop().unwrap_or_default())
    }
}

impl Queue {
    #[inline]
    fn len(&self) -> usize {
        let appended = self.open.as_ref().map_or(0, |open| {
            let last = self.lanes[open.lane].back();
            last.map_or(0, |segment| segment.bytes().len() - open.len)
        });
        self.counted_bytes + appended
    }

    /// Counts the bytes that the handler has appended.
    fn count_open(&mut self) {
        self.counted_bytes = self.len();
        self.open = None;
    }

    fn unsent(&self) -> impl Iterator<Item = &[u8]> {
        let begun = self
            .begun_lane
            .and_then(|lane| self.lanes[lane].front())
            .map(|segment| &segment.bytes()[self.begun_bytes..]);
        let others = (0..LANES).rev().flat_map(|lane| {
            let begun = usize::from(self.begun_lane == Some(lane));
            self.lanes[lane].iter().skip(begun).map(Segment::bytes)
        });
        begun
            .into_iter()
            .chain(others)
            .filter(|bytes| !bytes.is_empty())
    }

    fn next_lane(&self) -> Option<usize> {
        self.begun_lane
            .or_else(|| (0..LANES).rev().find(|lane| !self.lanes[*lane].is_empty()))
    }

    fn mark_sent(&mut self, bytes: usize, spares: &mut Spares) {
        self.count_open();
        self.counted_bytes -= bytes;
        let mut bytes = bytes;
        while let Some(lane) = self.next_lane() {
            let Some(first) = self.lanes[lane].front() else {
                return;
            };
            let left = first.bytes().len() - self.begun_bytes;
            if bytes < left {
                if bytes > 0 {
                    self.begun_lane = Some(lane);
                    self.begun_bytes += bytes;
                }
                return;
            }
            bytes -= left;
            self.begun_lane = None;
            self.begun_bytes = 0;
            match self.lanes[lane].pop_front() {
                Some(Segment::Own(buffer)) => spares.give_buffer(buffer),
                Some(segment) => self.shared_bytes -= segment.shared_bytes(),
                None => {}
            }
            shrink(&mut self.lanes[lane]);
        }
    }
}

impl Segment {
    fn shared_bytes(&self) -> usize {
        match self {
            Self::Own(_) => 0,
            Self::Shared(bytes) => bytes.len(),
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl Spares {
    /// An empty buffer.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    fn give_buffer(&mut self, mut buffer: Vec<u8>) {
        let is_worth_it = (1..=SPARE_BUFFER_BYTES).contains(&buffer.capacity());
        if is_worth_it && self.buffers.len() < SPARE_BUFFERS {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    fn give_queue(&mut self, mut queue: Box<Queue>) {
        for lane in &mut queue.lanes {
            for segment in lane.drain(..) {
                if let Segment::Own(buffer) = segment {
                    self.give_buffer(buffer);
                }
            }
            shrink(lane);
        }
        if self.queues.len() < SPARE_QUEUES {
            queue.counted_bytes = 0;
            queue.shared_bytes = 0;
            queue.open = None;
            queue.begun_lane = None;
            queue.begun_bytes = 0;
            self.queues.push(queue);
        }
    }
}

/// Releases unused capacity of a lane.
fn shrink(lane: &mut VecDeque<Segment>) {
    if lane.capacity() > LANE_SEGMENTS_KEPT && lane.len() < lane.capacity() / 4 {
        lane.shrink_to(lane.len() * 2);
    }
}

const LANES: usize = Priority::ALL.len();

/// A segment of this size is not extended, so that a higher lane can overtake later frames, and memory is released
/// as segments are sent.
const SEGMENT_BYTES: usize = 64 * 1024;

/// The number of buffers stored for later outboxes, and their maximum size.
const SPARE_BUFFERS: usize = 64;
const SPARE_BUFFER_BYTES: usize = 64 * 1024;

/// The number of queues stored for later outboxes, about 300 bytes each. In a fan-out, every subscriber uses one for
/// the rest of a turn.
const SPARE_QUEUES: usize = 1024;

/// Places that a lane keeps when it gets short.
const LANE_SEGMENTS_KEPT: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Own { lane: usize, bytes: usize },
        Shared { lane: usize, bytes: usize },
        Send { bytes: usize, slices: usize },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = prop_oneof![4 => 0..200usize, 1 => 30_000..90_000usize];
        // A frame is never empty.
        let frame_bytes = bytes.clone().prop_map(|bytes| bytes.max(1));
        let queue =
            (0..LANES, frame_bytes, any::<bool>()).prop_map(|(lane, bytes, shared)| match shared {
                true => Step::Shared { lane, bytes },
                false => Step::Own { lane, bytes },
            });
        let send = (bytes, 1..8usize).prop_map(|(bytes, slices)| Step::Send { bytes, slices });
        proptest::collection::vec(prop_oneof![3 => queue, 2 => send], 1..120)
    }

    /// The rule in its plainest form: a list from which the first of the highest lane is removed.
    #[derive(Default)]
    struct Model {
        segments: Vec<(usize, bool, Vec<u8>)>,
        begun_lane: Option<usize>,
        sent: Vec<u8>,
    }

    impl Model {
        fn push(&mut self, lane: usize, is_own: bool, bytes: &[u8]) {
            let count = self.segments.iter().filter(|(at, ..)| *at == lane).count();
            let is_begun = count == 1 && self.begun_lane == Some(lane);
            let last = self.segments.iter_mut().rfind(|(at, ..)| *at == lane);
            match last {
                Some((_, true, last)) if is_own && last.len() < SEGMENT_BYTES && !is_begun => {
                    last.extend_from_slice(bytes);
                }
                _ => self.segments.push((lane, is_own, bytes.to_vec())),
            }
        }

        fn send(&mut self, bytes: usize) {
            let mut left = bytes;
            let highest =
                |segments: &[(usize, bool, Vec<u8>)]| segments.iter().map(|(lane, ..)| *lane).max();
            while let Some(lane) = self.begun_lane.or_else(|| highest(&self.segments)) {
                let first = self.segments.iter().position(|(at, ..)| *at == lane);
                let (.., bytes) = &mut self.segments[first.unwrap()];
                let taken = left.min(bytes.len());
                self.sent.extend(bytes.drain(..taken));
                left -= taken;
                if !bytes.is_empty() {
                    self.begun_lane = self.begun_lane.or((taken > 0).then_some(lane));
                    return;
                }
                self.segments.remove(first.unwrap());
                self.begun_lane = None;
            }
        }
    }

    fn first_bytes(outbox: &Outbox, bytes: usize, slices: usize) -> Vec<u8> {
        let mut room = vec![IoSlice::new(&[]); slices];
        let count = outbox.slices(&mut room);
        if let Some(only) = outbox.only() {
            assert_eq!((count, &room[0][..]), (1, only));
        }
        let all = room[..count].iter().flat_map(|slice| slice.iter().copied());
        all.take(bytes).collect()
    }

    #[test]
    fn nothing_passes_a_fence_but_what_is_critical() {
        let mut spares = Spares::default();
        let mut outbox = Outbox::default();
        let own = |text: &[u8]| Segment::Own(text.to_vec());
        outbox.push_begun(own(b"ab"), 1, Priority::Low, &mut spares);
        outbox.push(own(b"c"), Priority::Background, &mut spares);
        outbox.push(own(b"d"), Priority::High, &mut spares);
        outbox.fence();
        outbox.push(own(b"e"), Priority::Critical, &mut spares);
        outbox.push(own(b"f"), Priority::Low, &mut spares);
        outbox.push(own(b"g"), Priority::High, &mut spares);
        let mut slices = [IoSlice::new(&[]); 8];
        let count = outbox.slices(&mut slices);
        let sent: Vec<u8> = slices[..count]
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect();
        assert_eq!(sent, b"bdcegf");
        assert_eq!(outbox.len(), 6);
    }

    proptest! {
        #[test]
        fn bytes_leave_as_the_model_says(steps in steps()) {
            let mut spares = Spares::default();
            let mut outbox = Outbox::default();
            let mut model = Model::default();
            let mut sent = Vec::new();
            let mut queued_bytes = 0;
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Own { lane, bytes } => {
                        let frame = vec![number as u8; bytes];
                        let priority = Priority::ALL[lane];
                        outbox.buffer(priority, &mut spares).extend_from_slice(&frame);
                        model.push(lane, true, &frame);
                        queued_bytes += bytes;
                    }
                    Step::Shared { lane, bytes } => {
                        let frame = vec![number as u8; bytes];
                        model.push(lane, false, &frame);
                        let segment = Segment::Shared(Arc::new(frame));
                        outbox.push(segment, Priority::ALL[lane], &mut spares);
                        queued_bytes += bytes;
                    }
                    Step::Send { bytes, slices } => {
                        let taken = first_bytes(&outbox, bytes, slices);
                        outbox.mark_sent(taken.len(), &mut spares);
                        model.send(taken.len());
                        queued_bytes -= taken.len();
                        sent.extend(taken);
                    }
                }
                prop_assert_eq!(outbox.len(), queued_bytes);
                prop_assert_eq!(outbox.is_empty(), queued_bytes == 0);
            }
            model.send(queued_bytes);
            while !outbox.is_empty() {
                let taken = first_bytes(&outbox, usize::MAX, 3);
                outbox.mark_sent(taken.len(), &mut spares);
                sent.extend(taken);
            }
            prop_assert!(sent == model.sent);
            prop_assert!(outbox.0.iter().all(|queue| queue.lanes.iter().all(VecDeque::is_empty)));
        }
    }

    #[test]
    fn memory_goes_back_as_it_leaves() {
        let mut spares = Spares::default();
        let mut outbox = Outbox::default();
        let chunk = Arc::new(vec![1; 100]);
        for _ in 0..10_000 {
            outbox.push(
                Segment::Shared(Arc::clone(&chunk)),
                Priority::Low,
                &mut spares,
            );
        }
        outbox.buffer(Priority::High, &mut spares).extend([2; 50]);
        outbox.mark_sent(50, &mut spares);
        assert_eq!(spares.buffers.len(), 1);
        outbox.mark_sent(100 * 9_990, &mut spares);
        assert_eq!((outbox.len(), Arc::strong_count(&chunk)), (1_000, 11));
        let places = |outbox: &Outbox| outbox.0.as_ref().unwrap().lanes[1].capacity();
        assert!(
            places(&outbox) <= 4 * LANE_SEGMENTS_KEPT,
            "{}",
            places(&outbox)
        );
        outbox.recycle(&mut spares);
        assert_eq!(Arc::strong_count(&chunk), 1);
        assert_eq!(spares.queues.len(), 1);
        let mut next = Outbox::default();
        next.buffer(Priority::Normal, &mut spares).push(3);
        assert_eq!(
            (next.len(), spares.buffers.len(), spares.queues.len()),
            (1, 0, 0)
        );
    }

    #[test]
    fn a_begun_segment_stays_first_though_nothing_of_it_was_sent() {
        let mut spares = Spares::default();
        let mut outbox = Outbox::default();
        let rest = Segment::Own(b"rest of a frame".to_vec());
        outbox.push_begun(rest, 0, Priority::Background, &mut spares);
        outbox
            .buffer(Priority::Background, &mut spares)
            .extend(b"-next");
        outbox
            .buffer(Priority::Critical, &mut spares)
            .extend(b"-urgent");
        assert_eq!(first_bytes(&outbox, 99, 9), b"rest of a frame-urgent-next");
        let chunk = Arc::new(b"0123456789".to_vec());
        let mut outbox = Outbox::default();
        // A buffer that was handed out and left empty does no harm.
        outbox.buffer(Priority::Low, &mut spares);
        outbox.push_begun(Segment::Shared(chunk), 4, Priority::Low, &mut spares);
        outbox.buffer(Priority::Normal, &mut spares).extend(b"!");
        assert_eq!(outbox.len(), 7);
        assert_eq!(first_bytes(&outbox, 99, 9), b"456789!");
    }
}
