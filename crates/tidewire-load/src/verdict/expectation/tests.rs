use std::collections::BTreeMap;

use super::*;

/// Times in microseconds.
#[derive(Clone, Default)]
struct Times(Vec<f64>);

impl Times {
    fn up_to(count: u32) -> Self {
        Self((1..=count).map(f64::from).collect())
    }
}

impl Distribution for Times {
    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn percentile_us(&self, percentile: f64) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (percentile * sorted.len() as f64 / 100.0).ceil() as usize;
        sorted.get(rank.max(1) - 1).copied()
    }

    fn min_us(&self) -> Option<f64> {
        self.0.iter().copied().reduce(f64::min)
    }

    fn mean_us(&self) -> Option<f64> {
        Some(self.0.iter().sum::<f64>() / self.0.len() as f64)
    }

    fn max_us(&self) -> Option<f64> {
        self.0.iter().copied().reduce(f64::max)
    }
}

fn expectation(text: &str) -> Expectation {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn advice(text: &str) -> String {
    text.parse::<Expectation>().unwrap_err().to_string()
}

/// 1,000 latencies from 1 to 1,000 µs, 3 errors of 1,000, 12.5 k/s.
fn with_figures<T>(see: impl FnOnce(&Figures<'_>) -> T) -> T {
    let (latency, service, late) = (Times::up_to(1_000), Times::up_to(500), Times::up_to(200));
    let statuses: BTreeMap<u16, u64> = [(200, 980), (404, 10), (503, 9), (500, 1)].into();
    see(&Figures {
        latency: Some(&latency),
        service: Some(&service),
        late: Some(&late),
        connect: Some(&late),
        connect_parts: [Some(&late), None, Some(&service), Some(&latency), None],
        rate_per_s: Some(12_500.0),
        bytes_per_s: Some(2_500_000.0),
        errors: Some(Part {
            count: 3,
            of: 1_000,
        }),
        statuses: Some(&statuses),
        connected: Some(Part { count: 99, of: 100 }),
        failed: Some(Part { count: 1, of: 100 }),
        ..Figures::default()
    })
}

#[test]
fn every_figure_is_compared_in_its_unit() {
    let cases = [
        ("p50<501us", true, "500 µs"),
        ("p50 < 500us", false, "500 µs"),
        ("p50<=0.5ms", true, "500 µs"),
        ("p99.9<0.001s", true, "999 µs"),
        ("p99>=990000ns", true, "990 µs"),
        ("min==1us", true, "1 µs"),
        ("mean<500us", false, "500 µs"),
        ("max>1s", false, "1 ms"),
        ("median==500us", true, "500 µs"),
        ("service.p99<496us", true, "495 µs"),
        ("late<198us", false, "198 µs"),
        ("late.max<=200us", true, "200 µs"),
        ("connect.p50<1ms", true, "100 µs"),
        ("proxy.p50<1ms", true, "250 µs"),
        ("dns<1ms", true, "200 µs"),
        ("tls.p99.9<1s", true, "999 µs"),
        ("rate>10k", true, "12.5 k/s"),
        ("rate>=12_500/s", true, "12.5 k/s"),
        ("rate>1.5M", false, "12.5 k/s"),
        ("bytes>2MB/s", true, "2.50 MB/s"),
        ("errors<0.5%", true, "0.30 %"),
        ("errors<0.1%", false, "0.30 %"),
        ("errors<=3", true, "3"),
        ("errors==0", false, "3"),
        ("status:5xx<=1%", true, "1 %"),
        ("status:503<5", false, "9"),
        ("status:40x<1%", false, "1 %"),
        ("status:200>90%", true, "98 %"),
        ("connected==100", false, "99"),
        ("connected>=99%", true, "99 %"),
        ("failed<2%", true, "1 %"),
        ("p(99)<2", true, "990 µs"),
        ("p( 99.9 ) < 0.9", false, "999 µs"),
        ("avg<1", true, "500 µs"),
        ("med<1s", true, "500 µs"),
    ];
    for (text, kept, seen) in cases {
        let result = with_figures(|figures| expectation(text).result(figures));
        assert_eq!(
            (result.kept, result.text.as_str()),
            (kept, text),
            "{result:?}"
        );
        assert_eq!(result.seen.as_deref(), Some(seen), "{text}");
        assert_eq!(result.reason, None);
    }
}

#[test]
fn what_cannot_be_told_is_broken_with_the_reason() {
    let result = with_figures(|figures| expectation("p99.99<1s").result(figures));
    assert!(!result.kept && result.seen.is_none());
    assert_eq!(
        result.reason.as_deref(),
        Some("not known: it needs at least 10,000 values, and there are 1,000")
    );
    let nothing = Figures::default();
    for text in [
        "p50<1s",
        "rate>0",
        "errors==0",
        "status:5xx==0",
        "late<1ms",
        "first_byte.p50<1s",
    ] {
        let reason = expectation(text).result(&nothing).reason.unwrap();
        assert!(reason.starts_with("not known: the load has no"), "{reason}");
    }
    let none = Figures {
        errors: Some(Part::default()),
        ..nothing
    };
    assert!(
        !expectation("errors<1%").result(&none).kept,
        "nothing was sent"
    );
    assert!(expectation("errors==0").result(&none).kept);
}

#[test]
fn a_percentile_needs_as_many_values_as_tell_it_from_the_largest() {
    let needed = [50.0, 90.0, 99.0, 99.9, 99.99, 100.0].map(values_needed);
    assert_eq!(needed, [2, 10, 100, 1_000, 10_000, 1]);
}

#[test]
fn a_closed_loop_has_one_latency_for_both_names() {
    let latency = Times::up_to(100);
    let figures = Figures {
        latency: Some(&latency),
        ..Figures::default()
    };
    assert!(expectation("service.p99<1ms").result(&figures).kept);
}

#[test]
fn the_scope_ends_at_the_last_colon_before_the_figure() {
    for (text, scope, figure) in [
        ("GET /items: p99<50ms", Some("GET /items"), "p99<50ms"),
        (
            "GET /a:b?c=d&e<=5 : status:5xx<1%",
            Some("GET /a:b?c=d&e<=5"),
            "status:5xx<1%",
        ),
        (
            "log in: status 503 < 0.1%",
            Some("log in"),
            "status 503 < 0.1%",
        ),
        ("status: p99<50ms", Some("status"), "p99<50ms"),
        ("status: 503<1", None, "status: 503<1"),
        ("status:503<1", None, "status:503<1"),
        ("rate>5", None, "rate>5"),
        (
            "GET /{{rand:1:9}}:errors==0",
            Some("GET /{{rand:1:9}}"),
            "errors==0",
        ),
    ] {
        let whole = expectation(text);
        assert_eq!(whole.scope(), scope, "{text}");
        assert_eq!(whole.to_string(), text);
        let (name, alone) = whole.into_parts();
        assert_eq!(
            (name.as_deref(), alone.to_string().as_str()),
            (scope, figure)
        );
        assert_eq!(alone.scope(), None);
        assert_eq!(expectation(figure), alone, "{text}");
    }
}

#[test]
fn an_expectation_with_a_scope_is_judged_by_its_figures_alone() {
    let (slow, fast) = (Times(vec![9e6; 200]), Times::up_to(200));
    let of_items = Figures {
        latency: Some(&fast),
        ..Figures::default()
    };
    let scopes = BTreeMap::from([("GET /items".to_owned(), of_items)]);
    let figures = Figures {
        latency: Some(&slow),
        rate_per_s: Some(5.0),
        scopes: Some(&scopes),
        ..Figures::default()
    };
    let result = |text: &str| expectation(text).result(&figures);
    assert!(result("GET /items: p99<1ms").kept && !result("p99<1ms").kept);
    // Nothing of the whole load stands in for what the request lacks.
    for (text, reason) in [
        ("GET /items: rate>1", "the load has no rate"),
        (
            "GET /other: p99<1ms",
            "the load has no figures of `GET /other`",
        ),
    ] {
        let result = result(text);
        assert!(
            !result.kept && result.reason.unwrap().ends_with(reason),
            "{text}"
        );
    }
}

#[test]
fn only_what_is_known_second_by_second_ends_a_load_early() {
    let texts = ["GET /: p50<1ms", "tcp.p50<1ms", "status:5xx==0"];
    let mut patience = Patience::new(&texts.map(expectation), 1.0);
    assert_eq!(patience.observe(&second(9e6, 10)), None);
    assert_eq!(patience.observe(&second(9e6, 10)), None);
}

#[test]
fn a_wrong_expectation_is_told_in_one_line_what_to_write() {
    let cases = [
        ("p99", "a comparison is missing: write it as in p99<20ms"),
        ("", "a comparison is missing"),
        ("<20ms", "a figure before the comparison is missing"),
        ("p99<", "a value after the comparison is missing"),
        ("p99=20ms", "the comparisons are <, <=, >, >= and =="),
        ("p99!=20ms", "the comparisons are"),
        ("p99<20", "write p99<20ms"),
        ("max<20", "write max<20ms"),
        ("p99<20min", "`min` is not a unit of time"),
        ("p99<-1ms", "a value begins with a number from 0 on"),
        ("p101<1s", "at most 100"),
        ("p0<1s", "above 0"),
        ("pp<1s", "there is no figure `pp`"),
        ("latency<1s", "there is no figure `latency`; there are p50"),
        (
            "server.p99<1s",
            "write succeeded, service, connect, first_byte or late",
        ),
        ("rate>10s", "write a number of requests per second"),
        ("bytes>10", "write bytes>10MB/s"),
        ("errors<0.1", "write errors<0.1% for a share"),
        ("errors<200%", "at most 100%"),
        ("errors<1ms", "write errors<1% for a share"),
        ("status:abc<1%", "`abc` is not a status"),
        ("status:7xx<1%", "is not a status"),
        ("status:5x<1%", "is not a status"),
        ("p99<20ms,p50<1ms", "give --expect several times"),
        (": p99<1ms", "the name of a request is missing"),
        ("GET /: latency<1s", "there is no figure `latency`"),
        ("GET /: p99<1", "write p99<1ms"),
    ];
    for (text, expected) in cases {
        let error = advice(text);
        assert!(error.starts_with(&format!("`{text}`: ")), "{error}");
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

/// Seconds, and the latencies in them.
#[derive(Clone)]
struct Second(f64, Times);

impl Piece for Second {
    fn extend(&mut self, later: &Self) {
        self.0 += later.0;
        self.1.0.extend(&later.1.0);
    }

    fn seconds(&self) -> f64 {
        self.0
    }

    fn figures(&self) -> Figures<'_> {
        Figures {
            latency: Some(&self.1),
            ..Figures::default()
        }
    }

    fn of_name(&self, _: &str) -> Option<Self> {
        None
    }
}

fn second(latency_us: f64, count: usize) -> Second {
    Second(1.0, Times(vec![latency_us; count]))
}

#[test]
fn a_load_is_aborted_when_an_expectation_is_broken_for_long_enough() {
    let expectations = [expectation("p50<1ms"), expectation("max<1s")];
    let mut patience = Patience::new(&expectations, 3.0);
    let (slow, fast) = (second(2_000.0, 10), second(100.0, 10));
    assert_eq!(patience.observe(&slow), None);
    assert_eq!(patience.observe(&slow), None);
    assert_eq!(patience.observe(&fast), None, "it was kept between");
    assert_eq!(patience.observe(&slow), None);
    assert_eq!(patience.observe(&slow), None);
    assert_eq!(patience.observe(&slow), Some(&expectations[0]));
}

#[test]
fn parts_with_too_few_values_are_judged_together() {
    let expectations = [expectation("p99<1ms")];
    let mut patience = Patience::new(&expectations, 4.0);
    for count in [50, 30] {
        assert_eq!(patience.observe(&second(5_000.0, count)), None);
    }
    // With 20 more there are 100 latencies of three seconds, all of them too long.
    assert_eq!(patience.observe(&second(5_000.0, 20)), None);
    assert_eq!(
        patience.observe(&second(5_000.0, 0)),
        None,
        "a silent second says nothing"
    );
    let aborted = patience.observe(&second(5_000.0, 100));
    assert_eq!(aborted, Some(&expectations[0]));
}
