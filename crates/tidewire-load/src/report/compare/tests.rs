use super::*;
use crate::report::model::{
    Cpu, Machine, Messages, Pace, Plan, Processes, SUSTAINED_HOLD, THROUGHPUT, Target,
};

fn report(rates: &[(u64, f64)]) -> Report {
    let target = Target {
        url: "ws://h/".into(),
        server: None,
        embedded: false,
    };
    let mut report = Report::new(Machine::default(), target);
    report
        .results
        .extend(rates.iter().map(|&(connections, rate)| TestResult {
            rate_per_s: Some(rate),
            ..TestResult::new(THROUGHPUT, connections)
        }));
    report
}

#[test]
fn figures_of_the_same_set_up_meet_in_a_row_with_ratios_to_the_first() {
    let reports = [
        ("a".into(), report(&[(10, 100.0)])),
        ("b".into(), report(&[(10, 250.0), (99, 1.0)])),
    ];
    let compared = Comparison::new(&reports);
    assert_eq!(compared.rows.len(), 2);
    let second = compared.rows[0].cells[1].unwrap();
    assert_eq!((second.value, second.ratio), (250.0, Some(2.5)));
    assert_eq!(compared.rows[1].cells[0], None);
    assert_eq!(compared.rows[1].cells[1].unwrap().ratio, None);
    assert!(
        compared.markdown().contains("| 100 | 250 (2.50×) |"),
        "{}",
        compared.markdown()
    );
}

#[test]
fn repeated_results_give_their_median_and_worst_verdict() {
    let mut repeated = report(&[(10, 900.0), (10, 100.0), (10, 200.0)]);
    repeated.results[0].verdict = Verdict::Noisy;
    let compared = Comparison::new(&[("a".into(), repeated)]);
    let cell = compared.rows[0].cells[0].unwrap();
    assert_eq!((cell.value, cell.verdict), (200.0, Verdict::Noisy));
    assert!(
        compared.terminal().contains("[200 noisy]"),
        "{}",
        compared.terminal()
    );
    let even = Comparison::new(&[("a".into(), report(&[(1, 1.0), (1, 3.0)]))]);
    assert_eq!(even.rows[0].cells[0].unwrap().value, 2.0);
}

#[test]
fn server_time_is_for_one_confirmed_message() {
    let mut costly = report(&[(10, 1.0)]);
    costly.results[0].cpu = Some(Cpu {
        client_s: 1.0,
        server_s: Some(2.0),
        ..Cpu::default()
    });
    costly.results[0].messages = Some(Messages {
        offered: 1_000_000,
        confirmed: 1_000_000,
        ..Messages::default()
    });
    let compared = Comparison::new(&[("a".into(), costly)]);
    assert_eq!(compared.rows[1].metric, Metric::ServerCpu);
    assert_eq!(compared.rows[1].cells[0].unwrap().value, 2.0);
}

#[test]
fn only_results_with_the_same_plan_are_compared() {
    use crate::report::model::{Latency, LoopKind, Pace, Plan};
    let closed = |in_flight| Pace {
        in_flight: Some(in_flight),
        ..Pace::default()
    };
    let open = |rate, poisson| Pace {
        kind: LoopKind::Open,
        planned_per_s: Some(rate),
        poisson,
        ..Pace::default()
    };
    let with = |pace: Pace, profile: &str| {
        let mut report = report(&[(10, 100.0)]);
        report.results[0].pace = Some(pace);
        report.results[0].latency_us = Some(Latency::default());
        report.plan = Some(Plan {
            profile: Some(profile.into()),
            ..Plan::default()
        });
        report
    };
    let rates = |one: Report, other: Report| {
        let compared = Comparison::new(&[("a".into(), one), ("b".into(), other)]);
        compared
            .rows
            .iter()
            .filter(|row| row.metric == Metric::Rate)
            .count()
    };
    let plan = || with(closed(64), "raw");
    assert_eq!(rates(plan(), plan()), 1);
    for other in [
        with(closed(1), "raw"),
        with(open(100.0, false), "raw"),
        with(closed(64), "v1"),
    ] {
        assert_eq!(rates(plan(), other), 2);
    }
    assert_eq!(
        rates(with(open(9.0, true), "raw"), with(open(9.0, false), "raw")),
        2
    );
    // A report of an older version, which states its pace for the whole run and the rest in a note.
    let mut old = plan();
    old.results[0].pace = None;
    old.results[0].format = Some("json".into());
    let mut new = plan();
    new.results[0].format = Some("json".into());
    old.results[0].notes = vec!["64 messages in flight on each connection.".into()];
    old.plan.as_mut().unwrap().pace = Some("closed loop".into());
    assert_eq!(rates(old, new), 1);
}

#[test]
fn latencies_from_different_origins_have_no_ratio() {
    use crate::report::model::Latency;
    let with = |origin| {
        let mut report = report(&[(10, 100.0)]);
        report.results[0].latency_us = Some(Latency {
            origin,
            p50: 5.0,
            p99: 9.0,
            ..Latency::default()
        });
        ("r".to_owned(), report)
    };
    let compared = Comparison::new(&[with(LatencyOrigin::Sent), with(LatencyOrigin::Intended)]);
    let p99 = compared
        .rows
        .iter()
        .find(|row| row.metric == Metric::LatencyP99);
    assert_eq!(p99.unwrap().cells[1].unwrap().ratio, None);
}

#[test]
fn what_is_not_valid_is_bracketed_with_its_ratio() {
    let failed = || {
        let mut failed = report(&[(10, 200.0)]);
        failed.results[0].verdict = Verdict::Failed;
        failed
    };
    let against = |one: Report, other: Report| {
        Comparison::new(&[("a".into(), one), ("b".into(), other)]).terminal()
    };
    let text = against(report(&[(10, 100.0)]), failed());
    assert!(text.contains("[200 (2.00×) failed]"), "{text}");
    let text = against(failed(), report(&[(10, 100.0)]));
    assert!(
        text.contains("[200 failed]") && text.contains("100 [0.50×]"),
        "{text}"
    );
}

#[test]
fn what_differs_besides_is_listed() {
    let mut slow = report(&[(10, 100.0)]);
    slow.machine.cores = Some(2);
    slow.plan = Some(crate::report::model::Plan {
        threads: Some(1),
        duration_s: Some(5.0),
        ..Default::default()
    });
    let compared = Comparison::new(&[("a".into(), slow.clone()), ("b".into(), slow.clone())]);
    assert_eq!(compared.differences, []);
    let mut fast = slow.clone();
    fast.machine.cores = Some(8);
    fast.plan.as_mut().unwrap().threads = None;
    let compared = Comparison::new(&[("a".into(), slow), ("b".into(), fast)]);
    let names: Vec<&str> = compared.differences.iter().map(|one| one.name).collect();
    assert_eq!(names, ["Machine", "Generator threads"]);
    assert_eq!(compared.differences[1].values, ["1", ""]);
    for text in [compared.terminal(), compared.markdown(), compared.html()] {
        assert!(
            text.contains("2 cores") && text.contains("8 cores"),
            "{text}"
        );
    }
}

#[test]
fn hostile_column_names_are_escaped() {
    let compared = Comparison::new(&[("<script>".into(), report(&[(1, 1.0)]))]);
    assert!(!compared.html().contains("<script>"));
    assert!(!compared.markdown().contains("<script>"));
    assert_eq!(Comparison::new(&[]).rows, []);
}

#[test]
fn an_overview_has_a_line_for_each_report_with_its_highest_figures() {
    let result = |test: &str, connections, rate, format: Option<&str>| TestResult {
        rate_per_s: Some(rate),
        connected: Some(connections),
        format: format.map(str::to_owned),
        ..TestResult::new(test, connections)
    };
    let mut rust = report(&[]);
    rust.results = vec![
        result("connection-storm", 100, 20_000.0, None),
        result("throughput", 100, 5e6, Some("json")),
        result("throughput", 1000, 4e6, Some("json")),
        result("format-comparison", 100, 6e6, Some("msgpack")),
        result("size-matrix", 100, 9e6, Some("json")),
    ];
    rust.results[3].verdict = Verdict::GeneratorBound;
    let mut typescript = report(&[]);
    typescript.tool.language = "typescript".to_owned();
    typescript.plan = Some(Plan {
        threads: Some(2),
        ..Plan::default()
    });
    typescript.results = vec![
        result("throughput", 100, 9e5, Some("json")),
        result("throughput", 10_000, 4e5, Some("json")),
    ];
    typescript.results[0].verdict = Verdict::Failed;
    let compared = Comparison::new(&[("a".into(), rust), ("b".into(), typescript)]);
    let lines: Vec<Vec<&str>> = compared
        .overview
        .iter()
        .map(|line| line.iter().map(String::as_str).collect())
        .collect();
    let first = ["a", "rust", "–", "20 k at 100", "5 M at 100"];
    assert_eq!(lines[0][..5], first);
    assert_eq!(lines[0][5..], ["[6 M at 100, generator bound]", "1,000"]);
    let second = [
        "b",
        "typescript",
        "2",
        "–",
        "400 k at 10,000",
        "–",
        "10,000",
    ];
    assert_eq!(lines[1], second);
    for text in [compared.terminal(), compared.markdown(), compared.html()] {
        assert!(text.contains("Binary msgs/s"), "{text}");
    }
}

#[test]
fn an_overview_without_figures_is_left_out() {
    let alone = Comparison::new(&[("a".into(), report(&[(10, 1.0)]))]);
    assert_eq!(alone.overview, Vec::<Vec<String>>::new());
    let bare = || report(&[]);
    let two = Comparison::new(&[("a".into(), bare()), ("b".into(), bare())]);
    assert!(!two.terminal().contains("Binary"), "{}", two.terminal());
}

/// A report with this number of processes and the rate of each.
fn with_processes(count: u64, each_per_s: f64) -> (String, Report) {
    let rate = count as f64 * each_per_s;
    let mut report = report(&[(100, rate)]);
    report.results[0].processes = Some(Processes {
        count,
        rates_per_s: vec![each_per_s; count as usize],
        mean_per_s: each_per_s,
        ..Processes::default()
    });
    (count.to_string(), report)
}

#[test]
fn several_numbers_of_processes_have_a_table_of_their_scaling() {
    let mut reports = [
        with_processes(1, 100.0),
        with_processes(2, 90.0),
        with_processes(4, 50.0),
    ];
    scale(&mut reports);
    let percents: Vec<_> = reports
        .iter()
        .map(|(_, report)| {
            report.results[0]
                .processes
                .as_ref()
                .unwrap()
                .scaling_percent
        })
        .collect();
    assert_eq!(percents, [None, Some(90.0), Some(50.0)]);
    let compared = Comparison::new(&reports);
    let name = "throughput, 100 connections";
    assert_eq!(
        compared.scaling[0],
        [name, "1", "1", "100", "100", "100", "100", "–"]
    );
    assert_eq!(
        compared.scaling[2],
        [name, "4", "4", "200", "50", "50", "50", "50 %"]
    );
    for text in [compared.markdown(), compared.terminal(), compared.html()] {
        assert!(text.contains("Slowest/s"), "{text}");
    }
}

#[test]
fn a_planned_rate_and_a_hold_do_not_scale() {
    let mut reports = [with_processes(1, 100.0), with_processes(2, 50.0)];
    for (_, report) in &mut reports {
        let paced = report.results[0].clone();
        report.results[0].test = SUSTAINED_HOLD.to_owned();
        report.results.push(TestResult {
            pace: Some(Pace {
                planned_per_s: Some(100.0),
                ..Pace::default()
            }),
            ..paced
        });
    }
    scale(&mut reports);
    for result in reports.iter().flat_map(|(_, report)| &report.results) {
        assert_eq!(result.processes.as_ref().unwrap().scaling_percent, None);
    }
}

#[test]
fn the_run_of_one_process_may_be_the_last() {
    let mut reports = [with_processes(4, 50.0), with_processes(1, 100.0)];
    scale(&mut reports);
    let processes = reports[0].1.results[0].processes.as_ref().unwrap();
    assert_eq!(
        (processes.alone_per_s, processes.scaling_percent),
        (Some(100.0), Some(50.0))
    );
}

#[test]
fn the_scaling_is_unknown_without_a_report_of_one_process() {
    let mut reports = [with_processes(2, 90.0), with_processes(4, 50.0)];
    scale(&mut reports);
    let processes = reports[1].1.results[0].processes.as_ref().unwrap();
    assert_eq!(
        (processes.alone_per_s, processes.scaling_percent),
        (None, None)
    );
    let same = [with_processes(2, 90.0), with_processes(2, 50.0)];
    assert!(Comparison::new(&same).scaling.is_empty());
}
