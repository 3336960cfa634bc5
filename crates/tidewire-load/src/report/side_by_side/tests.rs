use super::*;
use crate::report::model::{
    Latency, LatencyOverTime, LatencyWindow, LoadFigures, Machine, RateStep, Requests, Target,
    TargetFigures, Verdict,
};

/// A load of 20 s: 1,000 requests per second, all but a hundredth of them of this latency, of which `failed` had a 503.
fn load(us: f64, failed: u64) -> Report {
    let target = Target {
        url: "http://h/".to_owned(),
        server: None,
        embedded: false,
    };
    let mut report = Report::new(Machine::default(), target);
    let requests = Requests {
        sent: 20_000,
        succeeded: 20_000 - failed,
        failed,
        ..Requests::default()
    };
    let window = |second: u64| LatencyWindow {
        count: 1_000 + second % 3,
        p50: Some(us),
        p99: Some(us * 2.0),
        mean: Some(us),
        histogram: vec![(us, 980), (us * 2.0, 20)],
        ..LatencyWindow::default()
    };
    let latency = Latency {
        p50: us,
        p90: us,
        p99: us * 2.0,
        p99_9: us * 2.0,
        mean: us,
        count: 20_000,
        ..Latency::default()
    };
    report.results.push(TestResult {
        rate_per_s: Some(1_000.0),
        latency_us: Some(latency.clone()),
        load: LoadFigures {
            measurement: Some(Verdict::Valid),
            requests: Some(requests),
            statuses: [(200, 20_000 - failed), (503, failed)]
                .into_iter()
                .filter(|one| one.1 > 0)
                .collect(),
            histogram: vec![(us, 19_600), (us * 2.0, 400)],
            latency_over_time: Some(LatencyOverTime {
                window_s: 1.0,
                windows: (0..20).map(window).collect(),
            }),
            targets: vec![TargetFigures {
                name: "GET /items".to_owned(),
                requests: Requests {
                    sent: 5_000,
                    succeeded: 5_000,
                    ..Requests::default()
                },
                latency_us: Some(latency),
                ..TargetFigures::default()
            }],
            ..LoadFigures::default()
        },
        ..TestResult::new("http", 10)
    });
    report
}

fn pair(before: Report, after: Report) -> SideBySide {
    SideBySide::new(&[("before".to_owned(), before), ("<after>".to_owned(), after)])
}

#[test]
fn the_answer_comes_first_with_the_figures_that_say_so() {
    let beside = pair(load(2_000.0, 0), load(3_000.0, 0));
    let answers = &beside.loads.as_ref().unwrap().answers;
    let said = &answers[0];
    assert!(
        said.starts_with("<after>, compared with before: slower. "),
        "{said}"
    );
    assert!(
        said.contains("p99 was 4 ms and is 6 ms (+50.0 %)"),
        "{said}"
    );
    assert!(said.ends_with("Cannot tell: rate, p99.9."), "{said}");
    let lines = beside.terminal();
    assert!(
        lines.starts_with("<after>, compared with before: slower."),
        "{lines}"
    );
    let faster = pair(load(3_000.0, 0), load(2_000.0, 0));
    assert!(faster.terminal().contains(": faster. "));
    let same = pair(load(3_000.0, 0), load(3_000.0, 0));
    assert!(
        same.terminal().contains("no difference that can be told"),
        "{}",
        same.terminal()
    );
    let mut failed = load(3_000.0, 0);
    failed.results[0].verdict = Verdict::Failed;
    let failed = pair(load(3_000.0, 0), failed).terminal();
    assert!(
        failed.contains(": cannot tell, because this result has the verdict failed."),
        "{failed}"
    );
    let mut other = load(3_000.0, 0);
    other.results[0].connections = 11;
    let other = pair(load(3_000.0, 0), other).terminal();
    assert!(other.contains("no result with the same plan"), "{other}");
}

#[test]
fn rows_are_in_the_words_of_http_also_of_each_request() {
    let beside = pair(load(2_000.0, 0), load(2_000.0, 2_000));
    let text = beside.markdown();
    for row in [
        "| http | 10 connections | Requests/s | 1 k | 1 k (1.00×) |",
        "|  |  | Errors | 0 % | 10 % |",
        "|  |  | Status 503 | 0 % | 10 % |",
        "|  |  | Latency, p99.9 | 4 ms | 4 ms (1.00×) |",
        "| GET /items | Requests/s |",
    ] {
        assert!(text.contains(row), "{row} in {text}");
    }
    assert!(
        !text.contains("Confirmed") && !text.contains("msgs/s"),
        "{text}"
    );
}

#[test]
fn the_page_has_a_line_for_each_report_in_each_chart() {
    let mut reports = [load(2_000.0, 0), load(3_000.0, 0)];
    for report in &mut reports {
        report.results[0].load.latency_by_rate = [1_000.0, 2_000.0]
            .map(|offered_per_s| RateStep {
                offered_per_s,
                p99: Some(offered_per_s),
                ..RateStep::default()
            })
            .into();
    }
    let [before, after] = reports;
    let beside = pair(before, after);
    let figures = &beside.loads.as_ref().unwrap().figures;
    let captions: Vec<&str> = figures
        .iter()
        .map(|figure| figure.caption.as_str())
        .collect();
    let expected = [
        "Latency by percentile",
        "p99 over time",
        "Median over time",
        "Requests/s over time",
        "p99 by offered rate",
    ];
    assert_eq!(captions, expected);
    for figure in figures {
        assert_eq!(figure.legend, ["before", "<after>"], "{}", figure.caption);
        assert_eq!(
            figure.svg.matches("class=\"line\" d=\"M").count(),
            2,
            "{}",
            figure.svg
        );
    }
    let page = beside.html();
    assert_eq!(page.matches("<figure>").count(), 5);
    assert!(!page.contains("<after>"), "names are escaped");
}

#[test]
fn reports_of_bench_stay_as_they_are_and_absurd_ones_make_no_panic() {
    let mut bench = load(1.0, 0);
    bench.results = vec![TestResult::new("throughput", 10)];
    let pair_of_bench = [
        ("a".to_owned(), bench.clone()),
        ("b".to_owned(), bench.clone()),
    ];
    let beside = SideBySide::new(&pair_of_bench);
    assert!(beside.loads.is_none());
    assert_eq!(beside.html(), Comparison::new(&pair_of_bench).html());
    let empty = SideBySide::new(&[]);
    assert!(empty.loads.is_none());
    for us in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
        let page = pair(load(us, 0), load(1.0, 20_000)).html();
        assert!(!page.contains("NaN\"") && !page.contains("\"inf"), "{us}");
    }
}
