//! Tests of the sequencer, with examples and with random orders.

use super::*;
use proptest::prelude::*;

fn at(offset: u64) -> Position {
    Position { epoch: 7, offset }
}

fn small(held_messages_max: usize) -> Sequencer<u64> {
    Sequencer::new(SequencerLimits {
        topics_max: 3,
        held_messages_max,
        window_ms: 100,
    })
}

fn gap(from: u64, to: u64) -> Sequenced<u64> {
    let topic = "t".into();
    Sequenced::Gap(Gap {
        topic,
        epoch: 7,
        from,
        to,
    })
}

fn messages(offsets: impl IntoIterator<Item = u64>) -> Vec<Sequenced<u64>> {
    offsets.into_iter().map(Sequenced::Message).collect()
}

#[test]
fn a_gap_is_told_when_its_time_is_over_and_not_before() {
    let (mut sequencer, mut out) = (small(8), Vec::new());
    for (offset, now_ms) in [(1, 0), (4, 10), (5, 50), (8, 60)] {
        sequencer.handle("t", at(offset), offset, now_ms, &mut out);
    }
    assert_eq!(out, messages([1]));
    assert_eq!(sequencer.poll_deadline_ms(), Some(110));
    sequencer.handle_timeout(109, &mut out);
    assert_eq!(out.len(), 1);
    sequencer.handle_timeout(110, &mut out);
    let mut expected = messages([1]);
    expected.push(gap(2, 3));
    expected.extend(messages([4, 5]));
    assert_eq!(out, expected);
    assert_eq!(
        (sequencer.held(), sequencer.position("t")),
        (1, Some(at(5)))
    );
    // A late message of a reported gap counts as a duplicate.
    assert_eq!(
        sequencer.handle("t", at(3), 3, 111, &mut out),
        SequencerOutcome::Duplicate
    );
    sequencer.handle_timeout(210, &mut out);
    assert_eq!(out[expected.len()..], [gap(6, 7), Sequenced::Message(8)]);
    assert_eq!(sequencer.poll_deadline_ms(), None);
}

#[test]
fn what_is_held_is_bounded() {
    let (mut sequencer, mut out) = (small(2), Vec::new());
    sequencer.handle("t", at(1), 1, 0, &mut out);
    for offset in [3, 5] {
        assert_eq!(
            sequencer.handle("t", at(offset), offset, 0, &mut out),
            SequencerOutcome::Held
        );
    }
    out.clear();
    assert_eq!(
        sequencer.handle("t", at(7), 7, 0, &mut out),
        SequencerOutcome::Held
    );
    assert_eq!(out, [gap(2, 2), Sequenced::Message(3)]);
    assert_eq!(sequencer.held(), 2);
}

#[test]
fn without_a_window_nothing_is_held() {
    let limits = SequencerLimits {
        window_ms: 0,
        ..SequencerLimits::default()
    };
    let (mut sequencer, mut out) = (Sequencer::new(limits), Vec::new());
    sequencer.handle("t", at(1), 1, 0, &mut out);
    assert_eq!(
        sequencer.handle("t", at(9), 9, 0, &mut out),
        SequencerOutcome::Delivered
    );
    assert_eq!(
        out,
        [Sequenced::Message(1), gap(2, 8), Sequenced::Message(9)]
    );
    assert_eq!(sequencer.poll_deadline_ms(), None);
}

#[test]
fn another_epoch_counts_anew() {
    let (mut sequencer, mut out) = (small(8), Vec::new());
    sequencer.handle("t", at(5), 5, 0, &mut out);
    sequencer.handle("t", at(7), 7, 0, &mut out);
    let other = Position {
        epoch: 8,
        offset: 1,
    };
    assert_eq!(
        sequencer.handle("t", other, 100, 1, &mut out),
        SequencerOutcome::NewEpoch
    );
    let mut expected = messages([5]);
    expected.push(gap(6, 6));
    expected.extend(messages([7, 100]));
    assert_eq!(out, expected);
    assert_eq!(sequencer.position("t"), Some(other));
    assert_eq!(sequencer.poll_deadline_ms(), None);
}

#[test]
fn what_the_server_says_is_missing_is_not_waited_for() {
    let (mut sequencer, mut out) = (small(8), Vec::new());
    sequencer.handle("t", at(1), 1, 0, &mut out);
    sequencer.handle("t", at(4), 4, 0, &mut out);
    sequencer.skip("t", 7, 3, 3, 0, &mut out);
    assert_eq!(out, messages([1]), "2 is still missing");
    sequencer.skip("t", 7, 2, 3, 0, &mut out);
    assert_eq!(out, messages([1, 4]));
    sequencer.handle("t", at(7), 7, 0, &mut out);
    sequencer.advance("t", at(8), 0, &mut out);
    assert_eq!(out, messages([1, 4, 7]));
    assert_eq!(
        (sequencer.held(), sequencer.position("t")),
        (0, Some(at(8)))
    );
}

#[test]
fn topics_are_bounded_and_forgotten_with_what_they_hold() {
    let (mut sequencer, mut out) = (small(8), Vec::new());
    for topic in ["a", "b", "c"] {
        sequencer.advance(topic, at(0), 0, &mut out);
    }
    sequencer.handle("a", at(2), 2, 0, &mut out);
    assert!(out.is_empty() && sequencer.is_waiting("a"));
    sequencer.advance("d", at(0), 0, &mut out);
    assert_eq!(out.len(), 2, "a's message and the gap before it");
    assert_eq!((sequencer.topics(), sequencer.held()), (3, 0));
    assert_eq!(sequencer.position("a"), None);
    for _ in 0..1_000 {
        sequencer.forget("d", &mut out);
        sequencer.advance("d", at(0), 0, &mut out);
    }
    assert!(sequencer.order.len() < 50, "{}", sequencer.order.len());
}

proptest! {
    #[test]
    fn any_order_with_repeats_comes_out_once_and_sorted(
        offsets in prop::collection::vec(1u64..60, 1..200),
        held_messages_max in 1usize..20,
    ) {
        let mut sequencer = small(held_messages_max);
        let mut out = Vec::new();
        sequencer.advance("t", at(0), 0, &mut out);
        for (now_ms, offset) in offsets.iter().enumerate() {
            sequencer.handle("t", at(*offset), *offset, now_ms as u64 * 30, &mut out);
            sequencer.handle_timeout(now_ms as u64 * 30, &mut out);
            prop_assert!(sequencer.held() <= held_messages_max);
        }
        sequencer.forget("t", &mut out);
        // Messages and gaps together are all offsets up to the largest, each once, in order.
        let mut next = 1;
        for sequenced in out {
            match sequenced {
                Sequenced::Message(offset) => {
                    prop_assert_eq!(offset, next);
                    next += 1;
                }
                Sequenced::Gap(gap) => {
                    prop_assert_eq!(gap.from, next);
                    prop_assert!(gap.to >= gap.from);
                    next = gap.to + 1;
                }
            }
        }
        prop_assert_eq!(next, offsets.iter().max().unwrap() + 1);
    }
}
