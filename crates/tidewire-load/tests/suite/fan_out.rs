//! Fan-out: an honest server's figures are valid, and whatever one does wrong is found.

#![allow(clippy::unwrap_used)]

use crate::broadcast;
use crate::schema;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use broadcast::{Broadcaster, Manner};
use tidewire_load::accounting::stats::StatsSource;
use tidewire_load::plan::bench::TestKind;
use tidewire_load::plan::run::{BenchOptions, run};
use tidewire_load::report::{FanOut, LatencyOrigin, TestResult, Verdict};
use tidewire_load::worker::order::Timeouts;
use tidewire_load::worker::target::Target;
use tidewire_load::worker::websocket::profile::Profile;

const SUBSCRIBERS: u64 = 20;

/// This many publications are due at this rate in the time of a measurement.
const RATE_PER_S: f64 = 200.0;
const DUE: u64 = 60;

fn options(server: &Broadcaster, profile: Profile) -> BenchOptions {
    let mut options = BenchOptions::new(Target::parse(&server.url()).unwrap());
    options.profile = profile;
    options.tests = vec![TestKind::FanOut];
    options.tiers = vec![SUBSCRIBERS as usize];
    options.duration = Duration::from_millis(300);
    options.threads = 2;
    options.timeouts = Timeouts {
        barrier_ms: 1_000,
        ..Timeouts::default()
    };
    options
}

fn bench(options: &BenchOptions) -> TestResult {
    let mut report = run(options, &mut (), &AtomicBool::new(false)).unwrap();
    let written = serde_json::to_value(&report).unwrap();
    assert_eq!(schema::violations(&written), Vec::<String>::new());
    assert_eq!(report.results.len(), 1);
    report.results.remove(0)
}

fn at_full_speed(manner: Manner, profile: Profile) -> TestResult {
    let server = Broadcaster::start(manner, profile == Profile::V1);
    bench(&options(&server, profile))
}

fn at_a_rate(manner: Manner, profile: Profile) -> TestResult {
    let server = Broadcaster::start(manner, profile == Profile::V1);
    let mut options = options(&server, profile);
    options.rate_per_s = Some(RATE_PER_S);
    bench(&options)
}

fn fan_out(result: &TestResult) -> &FanOut {
    result.fan_out.as_ref().unwrap()
}

/// Neither side is pinned to a core, and the machine does other work: the generator may be the limit, or noisy. Nothing may
/// be lost.
#[track_caller]
fn assert_honest(result: &TestResult) {
    assert!(result.verdict < Verdict::Failed, "{result:#?}");
    let (messages, fan_out) = (result.messages.unwrap(), fan_out(result));
    assert_eq!(
        (result.connected, result.failed),
        (Some(SUBSCRIBERS), Some(0))
    );
    assert_eq!(messages.offered, fan_out.publications * SUBSCRIBERS);
    assert_eq!((messages.confirmed, messages.lost), (messages.offered, 0));
    assert_eq!((fan_out.gaps, fan_out.duplicates, fan_out.wrong), (0, 0, 0));
    assert_eq!(result.latency_us.as_ref().unwrap().count, messages.offered);
}

#[track_caller]
fn assert_failed(result: &TestResult, note: &str) {
    assert_eq!(result.verdict, Verdict::Failed, "{result:#?}");
    assert!(
        result.notes.iter().any(|line| line.contains(note)),
        "{:#?}",
        result.notes
    );
}

#[test]
fn an_honest_server_delivers_everything_at_full_speed() {
    for profile in [Profile::Raw, Profile::V1] {
        let result = at_full_speed(Manner::Honest, profile);
        assert_honest(&result);
        let fan_out = fan_out(&result);
        // More than one window, so that it was seen to move.
        assert!(fan_out.publications > 1_000, "{result:#?}");
        assert_eq!(
            (fan_out.in_flight, fan_out.publications_per_s),
            (Some(689), None)
        );
        assert_eq!(result.payload_bytes, Some(95));
        assert!(result.rate_per_s.unwrap() > 0.0);
        assert_eq!(
            result.latency_us.as_ref().unwrap().origin,
            LatencyOrigin::Sent
        );
        let skew = fan_out.skew_us.as_ref().unwrap();
        assert!(skew.count > 10 && skew.origin == LatencyOrigin::FirstReceived);
    }
}

#[test]
fn a_window_of_one_waits_for_everybody_each_time() {
    let server = Broadcaster::start(Manner::Honest, true);
    let mut options = options(&server, Profile::V1);
    options.fan_out_in_flight = Some(1);
    options.fan_out_sizes = vec![2_000];
    let result = bench(&options);
    assert_honest(&result);
    let fan_out = fan_out(&result);
    assert_eq!(
        fan_out.skew_us.as_ref().unwrap().count,
        fan_out.publications
    );
    assert!(fan_out.publications > 10, "{result:#?}");
    assert_eq!(result.payload_bytes, Some(2_000));
}

#[test]
fn a_rate_is_kept_and_every_publication_has_a_skew() {
    for profile in [Profile::Raw, Profile::V1] {
        let result = at_a_rate(Manner::Honest, profile);
        assert_honest(&result);
        let fan_out = fan_out(&result);
        assert_eq!(fan_out.publications, DUE);
        assert_eq!(fan_out.publications_per_s, Some(RATE_PER_S));
        assert_eq!(fan_out.skew_us.as_ref().unwrap().count, DUE);
        let latency = result.latency_us.as_ref().unwrap();
        assert_eq!(latency.origin, LatencyOrigin::Intended);
        assert!(fan_out.skew_us.as_ref().unwrap().max <= latency.max);
    }
}

#[test]
fn one_worker_without_subscribers_holds_up_nobody() {
    let server = Broadcaster::start(Manner::Honest, false);
    let mut options = options(&server, Profile::Raw);
    options.tiers = vec![1];
    options.threads = 3;
    let result = bench(&options);
    assert!(result.verdict <= Verdict::GeneratorBound, "{result:#?}");
    assert!(result.messages.unwrap().confirmed > 689, "{result:#?}");
    assert_eq!(fan_out(&result).skew_us, None);
}

#[test]
fn tls_pings_and_fragments_between_publications_lose_none() {
    let server = Broadcaster::secure(Manner::Pinging(100), true);
    assert_honest(&bench(&options(&server, Profile::V1)));
    for profile in [Profile::Raw, Profile::V1] {
        assert_honest(&at_full_speed(Manner::Pinging(7), profile));
        assert_honest(&at_a_rate(Manner::Pinging(7), profile));
    }
}

#[test]
fn a_dropped_publication_is_a_gap() {
    for profile in [Profile::Raw, Profile::V1] {
        for result in [
            at_full_speed(Manner::Dropping(500), profile),
            at_a_rate(Manner::Dropping(1), profile),
            at_a_rate(Manner::Dropping(30), profile),
        ] {
            assert_failed(&result, "missed 1 publications");
            assert_eq!(
                (fan_out(&result).gaps, result.messages.unwrap().lost),
                (1, 1)
            );
        }
    }
}

#[test]
fn the_last_publication_is_missed_as_well() {
    let result = at_a_rate(Manner::Dropping(DUE), Profile::V1);
    assert_failed(&result, "never confirmed");
    assert_eq!(
        (fan_out(&result).gaps, result.messages.unwrap().lost),
        (0, 1)
    );
}

#[test]
fn a_doubled_publication_is_found_wherever_it_is() {
    for result in [
        at_full_speed(Manner::Doubling(500), Profile::V1),
        at_a_rate(Manner::Doubling(1), Profile::Raw),
        at_a_rate(Manner::Doubling(DUE), Profile::Raw),
    ] {
        assert_failed(&result, "1 publications arrived again");
        assert_eq!(fan_out(&result).duplicates, 1);
        assert_eq!(result.messages.unwrap().lost, 0);
    }
}

#[test]
fn another_order_is_found() {
    for profile in [Profile::Raw, Profile::V1] {
        let result = at_full_speed(Manner::Swapping(500), profile);
        assert_failed(&result, "changed their order");
        assert_eq!((fan_out(&result).gaps, fan_out(&result).duplicates), (1, 1));
    }
}

#[test]
fn a_changed_publication_is_found() {
    let result = at_full_speed(Manner::Changing(500), Profile::Raw);
    assert_failed(&result, "differ from their publication");
    assert_eq!((fan_out(&result).wrong, fan_out(&result).gaps), (1, 1));
}

#[test]
fn offsets_have_to_follow_each_other() {
    // Their length changes on the way, from 97 on.
    assert_honest(&at_full_speed(Manner::Jumping(u64::MAX), Profile::V1));
    let result = at_a_rate(Manner::Jumping(50), Profile::V1);
    assert_failed(&result, "offsets are not consecutive");
    assert_eq!(fan_out(&result).wrong, (DUE - 49) * SUBSCRIBERS);
}

#[test]
fn a_subscriber_that_is_closed_is_missed_and_holds_up_nobody() {
    let result = at_full_speed(Manner::Closing(500), Profile::V1);
    assert_failed(&result, "broke during the test");
    assert_eq!(result.failed, Some(1));
    let publications = fan_out(&result).publications;
    assert!(publications > 1_000, "{result:#?}");
    // Whatever it had on its way is lost with it, and nothing else.
    let lost = result.messages.unwrap().lost;
    assert!(
        (publications - 499..=publications).contains(&lost),
        "{result:#?}"
    );
}

#[test]
fn a_refused_topic_is_told() {
    let result = at_a_rate(Manner::Refusing, Profile::V1);
    assert_failed(&result, "20 ended: the server refuses the subscription");
}

#[test]
fn the_servers_count_of_deliveries_is_compared() {
    for (manner, is_honest) in [(Manner::Honest, true), (Manner::Lying, false)] {
        let server = Broadcaster::start(manner, true);
        let mut options = options(&server, Profile::V1);
        let address = server.stats;
        options.stats = Some(StatsSource::at(address));
        let result = bench(&options);
        let messages = result.messages.unwrap();
        if is_honest {
            assert_honest(&result);
            assert_eq!(messages.delivered, Some(messages.offered));
        } else {
            assert_failed(&result, "counters claim");
        }
    }
}
