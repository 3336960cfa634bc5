use super::*;
use crate::report::model::{ErrorBounds, GeneratorHealth, Lateness, ReplyFaults};
use crate::verdict::account::Accounting;
use crate::verdict::evidence::{DeliveryFaults, PaceKept};
use crate::verdict::usage::{Side, Usage};

/// A test of two seconds without any flaw.
fn valid() -> Evidence {
    let side = |cpu_s| Side {
        busiest_s: cpu_s,
        total_s: cpu_s,
        cores: 1.0,
    };
    Evidence {
        aim: Aim::Saturate,
        account: Accounting {
            sends: true,
            offered: 1_000,
            confirmed: 990,
            delivered: Some(990),
            refused: Some(10),
            connections_attempted: 10,
            pings_sent: 20,
            ..Accounting::default()
        },
        refused_by: [(RATE_LIMIT.to_owned(), 10)].into(),
        pace: Some(PaceKept {
            planned_per_s: 500.0,
            poisson: false,
            planned: 1_000,
            released: 1_000,
            offered: 1_000,
            window_s: 2.0,
            released_s: 2.0,
            offered_s: 2.0,
        }),
        generator: GeneratorHealth {
            error_us: None,
            waited_s: Some(0.3),
            waited_for_others_s: Some(0.01),
            throttled_s: Some(0.0),
            stopped_s: 0.0,
            late_us: Some(Lateness {
                p99: 50.0,
                ..Lateness::default()
            }),
        },
        usage: Usage {
            duration_s: 2.0,
            client: side(1.0),
            server: Some(side(1.9)),
            shared_cores: 0.0,
        },
        windows: vec![100; 8],
        latency_p99_us: Some(200.0),
        ..Evidence::default()
    }
}

/// Every flaw that a test can have: its evidence, and the one doubt that it raises.
fn flaws() -> Vec<Flaw> {
    [of_messages(), of_answers(), of_the_run()].concat()
}

type Flaw = (&'static str, Verdict, fn(&mut Evidence));

fn of_messages() -> Vec<Flaw> {
    use Verdict::Failed;
    vec![
        ("nothing_sent", Failed, |e| {
            e.account = Accounting {
                sends: true,
                ..Accounting::default()
            };
        }),
        ("nothing_confirmed", Failed, |e| {
            e.account.confirmed = 0;
            e.account.delivered = Some(0);
            e.account.refused = Some(1_000);
        }),
        ("messages_lost", Failed, |e| {
            e.account.confirmed = 989;
            e.account.delivered = None;
        }),
        ("messages_overconfirmed", Failed, |e| {
            e.account.confirmed = 991;
        }),
        ("counters_short", Failed, |e| {
            e.account.delivered = Some(980);
        }),
        ("counters_over", Failed, |e| {
            e.account.delivered = Some(1_000);
        }),
        ("counters_unreadable", Failed, |e| {
            e.counters_error = Some("silent".to_owned());
        }),
    ]
}

fn of_answers() -> Vec<Flaw> {
    use Verdict::Failed;
    vec![
        ("connections_failed", Failed, |e| {
            e.account.connections_failed = 1;
        }),
        ("connections_ended", Failed, |e| {
            e.connections_ended = vec![EndedConnections {
                was_ready: true,
                count: 1,
                ..EndedConnections::default()
            }];
        }),
        ("requests_failed", Failed, |e| {
            e.requests_failed = Some("1 of 2 requests failed.".to_owned());
        }),
        ("requests_unanswered", Failed, |e| e.unanswered = 1),
        ("pongs_lost", Failed, |e| e.account.pongs_lost = 1),
        ("pongs_strange", Failed, |e| e.pongs_strange = 1),
        ("replies_wrong", Failed, |e| e.replies = faults(0)),
        ("replies_missing", Failed, |e| e.replies = faults(1)),
        ("replies_doubled", Failed, |e| e.replies = faults(2)),
        ("replies_reordered", Failed, |e| e.replies = faults(3)),
        ("replies_unsent", Failed, |e| e.replies = faults(4)),
        ("messages_refused", Failed, |e| {
            e.refused_by.insert("invalid".to_owned(), 1);
        }),
        ("refusals_untold", Failed, |e| e.refusals_in_doubt = true),
        ("publications_missed", Failed, |e| e.deliveries.gaps = 1),
        ("publications_doubled", Failed, |e| {
            e.deliveries.duplicates = 1;
        }),
        ("publications_wrong", Failed, |e| e.deliveries.wrong = 1),
        ("publications_unheard", Failed, |e| {
            e.deliveries = DeliveryFaults {
                unheard: true,
                ..DeliveryFaults::default()
            };
        }),
    ]
}

fn of_the_run() -> Vec<Flaw> {
    use Verdict::{Failed, GeneratorBound, Noisy};
    vec![
        ("interrupted", Failed, |e| e.interrupted = true),
        ("pace_not_taken", Failed, |e| {
            e.pace = e.pace.map(|pace| PaceKept {
                offered_s: 3.0,
                ..pace
            });
        }),
        ("pace_missed", GeneratorBound, |e| {
            e.pace = e.pace.map(|pace| PaceKept {
                released: 970,
                offered: 970,
                ..pace
            });
        }),
        ("generator_late", GeneratorBound, |e| {
            e.latency_p99_us = Some(2_000.0);
            e.generator.late_us = Some(Lateness {
                p99: 1_000.0,
                ..Lateness::default()
            });
        }),
        ("generator_noise", Noisy, |e| {
            e.latency_p99_us = Some(36_000.0);
            e.generator.waited_for_others_s = Some(0.07);
            e.generator.error_us = Some(ErrorBounds {
                p99: 20_000.0,
                ..ErrorBounds::default()
            });
        }),
        ("generator_starved", GeneratorBound, |e| {
            e.generator.waited_for_others_s = Some(0.2);
        }),
        ("generator_throttled", GeneratorBound, |e| {
            e.generator.throttled_s = Some(0.04);
        }),
        ("generator_stopped", GeneratorBound, |e| {
            e.generator.stopped_s = 0.04;
        }),
        ("generator_saturated", GeneratorBound, |e| {
            e.usage.client.busiest_s = 1.9;
            e.usage.server = None;
        }),
        ("noisy", Noisy, |e| {
            e.windows = vec![100, 100, 20, 180, 20, 180];
        }),
    ]
}

fn faults(which: usize) -> ReplyFaults {
    let mut counts = [0; 5];
    counts[which] = 1;
    let [wrong, missing, doubled, reordered, unsent] = counts;
    ReplyFaults {
        wrong,
        missing,
        doubled,
        reordered,
        unsent,
    }
}

/// The conditions of `valid`: none of the flaws. Each condition is needed, because each flaw alone
/// raises its own doubt, and nothing else makes the figure invalid.
#[test]
fn every_condition_of_valid_is_needed() {
    let judgement = judge(&valid());
    assert_eq!(
        (judgement.verdict, judgement.doubts),
        (Verdict::Valid, vec![])
    );
    let mut texts = std::collections::HashSet::new();
    for (name, verdict, spoil) in flaws() {
        let mut evidence = valid();
        spoil(&mut evidence);
        let judgement = judge(&evidence);
        let names: Vec<&str> = judgement.doubts.iter().map(Doubt::name).collect();
        assert_eq!(names, [name]);
        assert_eq!(judgement.verdict, verdict, "{name}");
        assert_eq!(judgement.notes[0], judgement.doubts[0].to_string());
        assert!(
            texts.insert(judgement.notes[0].clone()),
            "{:?}",
            judgement.notes
        );
    }
}

/// The list of flaws is the list of doubts: a new doubt does not compile here until it has a name, and
/// fails until it has a flaw.
#[test]
fn every_doubt_has_a_flaw_that_raises_it() {
    let raised: Vec<Doubt> = flaws()
        .into_iter()
        .flat_map(|(_, _, spoil)| {
            let mut evidence = valid();
            spoil(&mut evidence);
            judge(&evidence).doubts
        })
        .collect();
    for doubt in &raised {
        // Without a wildcard, so that the compiler names a missing variant.
        match doubt {
            Doubt::Account(_)
            | Doubt::Interrupted
            | Doubt::ConnectionsEnded { .. }
            | Doubt::RequestsFailed(_)
            | Doubt::RequestsUnanswered(_)
            | Doubt::RepliesWrong(_)
            | Doubt::RepliesMissing(_)
            | Doubt::RepliesDoubled(_)
            | Doubt::RepliesReordered(_)
            | Doubt::RepliesUnsent(_)
            | Doubt::PongsStrange(_)
            | Doubt::MessagesRefused { .. }
            | Doubt::RefusalsUntold { .. }
            | Doubt::CountersUnreadable(_)
            | Doubt::PublicationsMissed(_)
            | Doubt::PublicationsDoubled(_)
            | Doubt::PublicationsWrong(_)
            | Doubt::PublicationsUnheard
            | Doubt::PaceNotTaken { .. }
            | Doubt::PaceMissed { .. }
            | Doubt::GeneratorLate { .. }
            | Doubt::GeneratorNoise { .. }
            | Doubt::GeneratorStarved { .. }
            | Doubt::GeneratorThrottled { .. }
            | Doubt::GeneratorStopped { .. }
            | Doubt::GeneratorSaturated { .. }
            | Doubt::Noisy(_) => {}
        }
    }
    // 26 kinds beside the account's, which has 8.
    let kinds: std::collections::HashSet<&str> = raised.iter().map(Doubt::name).collect();
    assert_eq!(kinds.len(), 26 + 8);
}

#[test]
fn every_doubt_is_documented() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/verdicts.md");
    let text = std::fs::read_to_string(file).unwrap();
    for (name, _, _) in flaws() {
        assert!(text.contains(&format!("| `{name}` |")), "{name}");
    }
}

#[test]
fn the_worst_verdict_wins_and_every_reason_is_kept() {
    let mut evidence = valid();
    evidence.windows = vec![100, 100, 20, 180, 20, 180];
    evidence.generator.stopped_s = 1.0;
    assert_eq!(judge(&evidence).verdict, Verdict::GeneratorBound);
    evidence.account.pongs_lost = 1;
    let judgement = judge(&evidence);
    assert_eq!(
        (judgement.verdict, judgement.doubts.len()),
        (Verdict::Failed, 3)
    );
}

#[test]
fn the_generator_as_limit_spoils_rates_and_round_trips_and_no_given_rate() {
    let mut evidence = valid();
    evidence.usage.client.busiest_s = 1.9;
    evidence.usage.server = None;
    for (aim, expected) in [
        (Aim::Saturate, Verdict::GeneratorBound),
        (Aim::RoundTrips, Verdict::GeneratorBound),
        (Aim::Keep, Verdict::Valid),
    ] {
        evidence.aim = aim;
        assert_eq!(judge(&evidence).verdict, expected, "{aim:?}");
    }
}

#[test]
fn a_machine_that_works_is_no_disturbance() {
    let mut evidence = valid();
    // Just below each of the bounds.
    evidence.generator = GeneratorHealth {
        error_us: None,
        waited_s: Some(2.0),
        waited_for_others_s: Some(0.19),
        throttled_s: Some(0.039),
        stopped_s: 0.039,
        late_us: Some(Lateness {
            p99: 199.0,
            ..Lateness::default()
        }),
    };
    assert_eq!(judge(&evidence).verdict, Verdict::Valid);
    // A stall of the server causes its latency, which is the measured figure.
    evidence.latency_p99_us = Some(90_000.0);
    evidence.generator.late_us = Some(Lateness {
        p99: 8_999.0,
        ..Lateness::default()
    });
    assert_eq!(judge(&evidence).verdict, Verdict::Valid);
    // A disturbance that is shorter than its measurement can detect raises no doubt.
    evidence.usage.duration_s = 0.05;
    evidence.generator.waited_for_others_s = Some(0.019);
    evidence.generator.throttled_s = Some(0.019);
    evidence.generator.stopped_s = 0.019;
    assert_eq!(judge(&evidence).verdict, Verdict::Valid);
}

#[test]
fn sides_that_share_a_core_are_named_with_their_shares() {
    let mut evidence = valid();
    evidence.usage.client.busiest_s = 1.1;
    evidence.usage.server = evidence.usage.server.map(|server| Side {
        busiest_s: 0.8,
        total_s: 0.8,
        ..server
    });
    evidence.usage.client.total_s = 1.1;
    evidence.usage.shared_cores = 1.0;
    let notes = judge(&evidence).notes.join(" ");
    for words in ["55 %", "40 %", "share 1 of their cores", "lower bound"] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
}

#[test]
fn a_generator_that_is_held_back_has_one_note_and_accuses_nobody() {
    let mut evidence = valid();
    evidence.aim = Aim::Saturate;
    evidence.usage.server = evidence.usage.server.map(|server| Side {
        busiest_s: 0.2,
        total_s: 0.2,
        ..server
    });
    evidence.refused_by.clear();
    evidence.generator.error_us = Some(ErrorBounds {
        p99: 150_000.0,
        ..ErrorBounds::default()
    });
    evidence.latency_p99_us = Some(300_000.0);
    let not_held_back = judge(&evidence).notes;
    assert_eq!(not_held_back.len(), 1, "{not_held_back:?}");
    assert!(
        not_held_back[0].contains("Neither side"),
        "{not_held_back:?}"
    );

    evidence.generator.waited_for_others_s = Some(0.4);
    let judgement = judge(&evidence);
    let names: Vec<_> = judgement.doubts.iter().map(Doubt::name).collect();
    assert_eq!(names, ["generator_starved", "generator_noise"]);
    assert_eq!(judgement.notes.len(), 1, "{:?}", judgement.notes);
    assert!(
        judgement.notes[0].contains("other programs"),
        "{:?}",
        judgement.notes
    );
}

#[test]
fn a_closed_loop_with_a_stall_says_what_it_hides() {
    let mut evidence = valid();
    evidence.pace = None;
    evidence.windows = vec![100, 100, 100, 5, 100, 90];
    let stalled = |evidence: &Evidence| {
        let notes = judge(evidence).notes;
        notes
            .iter()
            .any(|note| note.contains("coordinated omission"))
    };
    assert!(stalled(&evidence));
    evidence.windows = vec![10, 100, 100, 60, 100, 90];
    assert!(!stalled(&evidence));
    evidence.windows = vec![100, 100, 100, 5, 100, 90];
    evidence.pace = valid().pace;
    assert!(!stalled(&evidence));
}

#[test]
fn variation_needs_some_windows_after_the_first_and_a_rate() {
    assert_eq!(coefficient_of_variation(&[]), None);
    assert_eq!(coefficient_of_variation(&[1, 2, 3, 4]), None);
    assert_eq!(coefficient_of_variation(&[9, 0, 0, 0, 0]), None);
    assert_eq!(coefficient_of_variation(&[1, 5, 5, 5, 5]), Some(0.0));
    let varied = coefficient_of_variation(&[9, 1, 2, 3, 2]).unwrap();
    assert!((varied - (2.0f64 / 3.0).sqrt() / 2.0).abs() < 1e-12);
}

#[test]
fn the_offered_rate_is_over_the_time_in_which_it_was_offered() {
    let pace = valid().pace.unwrap();
    assert!((pace.offered_per_s() - 500.0).abs() < 1e-9);
    // One message of an even pace stands for one interval.
    let slow = PaceKept {
        planned_per_s: 0.5,
        planned: 1,
        offered: 1,
        window_s: 0.3,
        offered_s: 0.0,
        ..pace
    };
    assert!((slow.offered_per_s() - 0.5).abs() < 1e-9);
    let behind = PaceKept {
        offered_s: 16.0,
        ..pace
    };
    assert!((behind.offered_per_s() - 62.5).abs() < 1e-9);
}

/// The evidence and the verdicts of the three benches that there were once: this judge agrees with them. It
/// decided against one of them in six cases: messages that leave 0.9 ms late, of a latency of 1 ms, are
/// `generator_late`.
#[test]
fn the_verdicts_of_all_benches_are_those_of_this_judge() {
    #[derive(serde::Deserialize)]
    struct Case {
        evidence: Evidence,
        verdict: Verdict,
        doubts: Vec<String>,
    }
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../tests/verdicts.json")).unwrap();
    for (number, case) in cases.iter().enumerate() {
        let judgement = judge(&case.evidence);
        let mut doubts: Vec<&str> = judgement.doubts.iter().map(Doubt::name).collect();
        let mut expected: Vec<&str> = case.doubts.iter().map(String::as_str).collect();
        doubts.sort_unstable();
        expected.sort_unstable();
        assert_eq!(
            (judgement.verdict, doubts),
            (case.verdict, expected),
            "case {number}"
        );
    }
}
