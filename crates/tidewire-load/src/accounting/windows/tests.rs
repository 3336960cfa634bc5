use super::*;

const MS: u64 = 1_000_000;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn events_are_in_the_window_of_their_time_and_empty_windows_exist() {
    let mut series = WindowSeries::new();
    series.succeed(0, MS, 10);
    series.succeed(999_999_999, 2 * MS, 10);
    series.succeed(3_000_000_000, 5 * MS, 7);
    series.fail(3_500_000_000);
    let counts: Vec<_> = series
        .whole(seconds(5))
        .iter()
        .map(|window| (window.succeeded, window.failed, window.bytes))
        .collect();
    assert_eq!(
        counts,
        [(2, 0, 20), (0, 0, 0), (0, 0, 0), (1, 1, 7), (0, 0, 0)]
    );
    let whole = series.whole(Duration::from_millis(3_999));
    assert_eq!(whole.len(), 3, "a part of a window is none");
}

#[test]
fn events_of_an_earlier_window_are_added_to_it() {
    let mut series = WindowSeries::new();
    series.succeed(100, MS, 0);
    series.succeed(5 * SECOND_NS, MS, 0);
    series.succeed(200, 9 * MS, 0);
    series.succeed(5 * SECOND_NS + 1, MS, 0);
    let whole = series.whole(seconds(6));
    assert_eq!((whole[0].latencies(), whole[5].latencies()), (2, 2));
    assert_eq!(whole[0].max_us(), Some(9_000.0));
    assert_eq!(whole[0].mean_us(), Some(5_000.0));
}

#[test]
fn percentiles_are_within_the_width_of_a_bucket() {
    let mut series = WindowSeries::new();
    (1..=1_000).for_each(|us| series.succeed(us, us * 1_000, 0));
    let window = &series.whole(seconds(1))[0];
    for (percentile, expected) in [
        (50.0, 500.0),
        (90.0, 900.0),
        (99.0, 990.0),
        (100.0, 1_000.0),
    ] {
        let found = window.percentile_us(percentile).unwrap();
        assert!(
            (found / expected - 1.0).abs() <= buckets::RESOLUTION,
            "{found} for {expected}"
        );
    }
    assert_eq!(Window::default().percentile_us(50.0), None);
}

#[test]
fn a_long_run_has_longer_windows_and_loses_nothing() {
    let mut series = WindowSeries::new();
    let day = 24 * 3_600;
    for second in 0..day {
        series.succeed(second * SECOND_NS, (second % 50 + 1) * MS, 1);
    }
    let whole = series.whole(seconds(day));
    assert!(whole.len() <= WINDOWS_MAX, "{}", whole.len());
    assert_eq!(series.window(), seconds(32));
    assert_eq!(
        whole.iter().map(|window| window.succeeded).sum::<u64>(),
        day
    );
    assert_eq!(whole.iter().map(Window::latencies).sum::<u64>(), day);
    assert!(whole.iter().all(|window| window.succeeded == 32));
}

#[test]
fn merged_series_equal_one_that_saw_everything() {
    let (mut a, mut b, mut all) = (
        WindowSeries::new(),
        WindowSeries::new(),
        WindowSeries::new(),
    );
    for step in 0..20_000u64 {
        let (at, latency) = (step * SECOND_NS / 2, (step * 7 % 900 + 1) * MS);
        // One series ends long before the other, so that their windows differ in length.
        let part = if step % 3 == 0 && step < 900 {
            &mut a
        } else {
            &mut b
        };
        part.succeed(at, latency, step);
        all.succeed(at, latency, step);
    }
    assert_ne!(a.window(), b.window());
    a.merge(&b);
    let measured = seconds(10_000);
    assert_eq!(a.whole(measured), all.whole(measured));
    a.succeed(9_999 * SECOND_NS, MS, 0);
    assert_eq!(a.total().succeeded, 20_001);
}

#[test]
fn the_last_whole_window_is_known_while_the_run_goes_on() {
    let mut series = WindowSeries::new();
    series.succeed(10, MS, 1);
    assert_eq!(series.last_whole(Duration::from_millis(900)), None);
    let found = series.last_whole(Duration::from_millis(1_100)).unwrap();
    assert_eq!((found.start(), found.end()), (seconds(0), seconds(1)));
    assert_eq!((found.window.succeeded, found.window.latencies()), (1, 1));
    let found = series.last_whole(seconds(7)).unwrap();
    assert_eq!((found.start(), found.end()), (seconds(6), seconds(7)));
    assert_eq!(found.window, Window::default());
}

#[test]
fn a_series_that_fell_silent_has_the_windows_of_one_that_did_not() {
    let (mut busy, mut silent) = (WindowSeries::new(), WindowSeries::new());
    for second in 0..3_599 {
        busy.succeed(second * SECOND_NS, MS, 0);
        silent.succeed(second * SECOND_NS, MS, 0);
    }
    busy.succeed(3_600 * SECOND_NS, MS, 0);
    assert_ne!(busy.window(), silent.window());
    let now = Duration::from_millis(3_600_300);
    let found = silent.last_whole(now).unwrap();
    assert_eq!(
        (found.start(), found.end()),
        (seconds(3_598), seconds(3_600))
    );
    assert_eq!((found.window.succeeded, found.window.latencies()), (1, 1));
    assert_eq!(Some(found), busy.last_whole(now));
    let found = silent.last_whole(seconds(50_000)).unwrap();
    assert_eq!(found.length, seconds(16));
}

#[test]
fn the_report_has_whole_windows_only() {
    let mut series = WindowSeries::new();
    (0..100u64).for_each(|n| series.succeed(n * SECOND_NS / 10, (n + 1) * MS, 100));
    let measured = Duration::from_millis(9_500);
    let over_time = series.over_time(measured).unwrap();
    assert_eq!((over_time.window_s, over_time.windows.len()), (1.0, 9));
    let last = &over_time.windows[8];
    assert_eq!(
        (last.count, last.bytes, last.max),
        (10, 1_000, Some(90_000.0))
    );
    let spread = series.spread(measured).unwrap();
    assert_eq!(
        (spread.requests_per_s.count, spread.requests_per_s.stdev),
        (9, 0.0)
    );
    assert_eq!(spread.bytes_per_s.mean, 1_000.0);
    assert_eq!(
        series
            .histogram()
            .iter()
            .map(|bucket| bucket.1)
            .sum::<u64>(),
        100
    );
    assert_eq!(series.spread(Duration::from_millis(500)), None);
}
