//! The log of a process: its listeners, its levels and its limit. A program of its own, because the servers of other tests
//! write to the same log.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidewire_bindings::log::{Level, leave, listen, take};
use tidewire_engine::LOG_LINES_MAX as LINES_MAX;

#[test]
fn the_newest_listener_that_is_there_is_called_for_lines_of_its_level() {
    let count = |answer: bool| {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let wake = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            answer
        };
        (calls, wake)
    };
    let (first_calls, first_wake) = count(true);
    let (gone_calls, gone_wake) = count(false);
    let (newest_calls, newest_wake) = count(true);
    let first = listen("level", "info", first_wake).expect("a level");
    let _gone = listen("level", "info", gone_wake).expect("a level");
    let newest = listen("level", "warn", newest_wake).expect("a level");
    tracing::info!(target: "tidewire", "below the level of the newest");
    tracing::warn!(target: "tidewire::part", port = 5, "a warning");
    assert_eq!(newest_calls.load(Ordering::SeqCst), 1);
    let [line] = &take(Duration::ZERO)[..] else {
        panic!("one line was expected");
    };
    assert_eq!(
        (line.level, line.module.as_str()),
        (Level::WARN, "tidewire.part")
    );
    assert_eq!(line.words, "a warning port=5");

    leave(newest);
    tracing::info!(target: "tidewire", "for the first");
    tracing::info!(target: "tidewire", "for the first again");
    tracing::error!(target: "another", "of another library");
    assert_eq!(
        gone_calls.load(Ordering::SeqCst),
        1,
        "it was gone and is not asked again"
    );
    assert_eq!(first_calls.load(Ordering::SeqCst), 2);
    assert_eq!(newest_calls.load(Ordering::SeqCst), 1);
    assert_eq!(take(Duration::ZERO).len(), 2);

    for _ in 0..LINES_MAX + 3 {
        tracing::warn!(target: "tidewire", "a flood");
    }
    let taken = take(Duration::ZERO);
    assert_eq!(taken.len(), LINES_MAX + 1);
    assert!(
        taken[LINES_MAX]
            .words
            .starts_with("3 log lines were dropped")
    );

    leave(first);
    tracing::error!(target: "tidewire", "for nobody");
    assert_eq!(take(Duration::ZERO), []);
}
