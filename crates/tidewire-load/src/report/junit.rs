//! A report as JUnit XML, which build servers show as tests: each result is a suite, and each requirement of
//! the result is a case.
//!
//! A case has failed if the service or a figure is not as it must be, and has an error if the measurement
//! cannot be relied on. A report has neither exactly when its exit code is 0.

use super::escape::escape;
use super::model::{
    BaselineFigure, BaselineFinding, ExpectationResult, Report, TestResult, Verdict,
};
use super::{number, table};

/// The report as an XML document in UTF-8.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut suites: Vec<Suite> = report
        .results
        .iter()
        .map(|one| suite(report, one))
        .collect();
    suites.extend(suite_of_run(report));
    let (tests, failures, errors, skipped) = sums(suites.iter().flat_map(|suite| &suite.cases));
    let seconds: f64 = suites.iter().map(|suite| suite.seconds).sum();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    out.push_str(&format!(
        "<testsuites name=\"{}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" \
         skipped=\"{skipped}\" time=\"{seconds:.3}\">\n",
        escape(&report.target.url)
    ));
    for suite in &suites {
        suite.write(&mut out, report.started_at.as_deref());
    }
    out.push_str("</testsuites>\n");
    out
}

/// The cases of one result.
struct Suite {
    name: String,
    seconds: f64,
    properties: Vec<(&'static str, String)>,
    cases: Vec<Case>,
    notes: Vec<String>,
}

struct Case {
    name: String,
    seconds: f64,
    outcome: Outcome,
}

enum Outcome {
    Passed,
    /// With what kind of case failed, and the sentence with the figure.
    Failed(&'static str, String),
    /// The measurement cannot be relied on.
    Error(String),
    Skipped(String),
}

impl Suite {
    fn write(&self, out: &mut String, started_at: Option<&str>) {
        let (tests, failures, errors, skipped) = sums(&self.cases);
        let name = escape(&self.name);
        out.push_str(&format!(
            "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" \
             skipped=\"{skipped}\" time=\"{:.3}\"",
            self.seconds
        ));
        if let Some(at) = started_at {
            // The schema of JUnit knows no time zone: it is UTC.
            out.push_str(&format!(
                " timestamp=\"{}\"",
                escape(at.trim_end_matches('Z'))
            ));
        }
        out.push_str(">\n");
        if !self.properties.is_empty() {
            out.push_str("    <properties>\n");
            for (name, value) in &self.properties {
                let value = escape(value);
                out.push_str(&format!(
                    "      <property name=\"{name}\" value=\"{value}\"/>\n"
                ));
            }
            out.push_str("    </properties>\n");
        }
        for case in &self.cases {
            case.write(out, &name);
        }
        if !self.notes.is_empty() {
            let notes = escape_lines(&self.notes);
            out.push_str(&format!("    <system-out>{notes}</system-out>\n"));
        }
        out.push_str("  </testsuite>\n");
    }
}

impl Case {
    fn of(name: &str, outcome: Outcome) -> Self {
        Self {
            name: name.to_owned(),
            seconds: 0.0,
            outcome,
        }
    }

    fn write(&self, out: &mut String, class: &str) {
        out.push_str(&format!(
            "    <testcase classname=\"{class}\" name=\"{}\" time=\"{:.3}\"",
            escape(&self.name),
            self.seconds
        ));
        let inner = match &self.outcome {
            Outcome::Passed => {
                out.push_str("/>\n");
                return;
            }
            Outcome::Failed(kind, why) => {
                let why = escape(why);
                format!("<failure type=\"{kind}\" message=\"{why}\">{why}</failure>")
            }
            Outcome::Error(why) => {
                let why = escape(why);
                format!("<error type=\"measurement\" message=\"{why}\">{why}</error>")
            }
            Outcome::Skipped(why) => format!("<skipped message=\"{}\"/>", escape(why)),
        };
        out.push_str(&format!(">\n      {inner}\n    </testcase>\n"));
    }
}

fn suite(report: &Report, result: &TestResult) -> Suite {
    let mut cases = judgement(result);
    if let Some(first) = cases.first_mut() {
        first.seconds = result.duration_s.unwrap_or(0.0);
    }
    cases.extend(result.load.expectations.iter().map(of_expectation));
    let gate = report.baseline.as_ref().filter(|gate| gate.fail_if_slower);
    if let Some(gate) = gate {
        let figures = result.load.baseline.iter();
        cases.extend(figures.map(|figure| of_baseline(figure, &gate.file)));
    }
    Suite {
        name: format!("{}, {}", result.test, table::label(result)),
        seconds: result.duration_s.unwrap_or(0.0),
        properties: properties(report, result),
        cases,
        notes: result.notes.clone(),
    }
}

/// The cases of the whole run: it must be complete and have a result.
fn suite_of_run(report: &Report) -> Option<Suite> {
    let why = match &report.partial_reason {
        Some(reason) => reason.clone(),
        None => "the run ended before its plan was complete".to_owned(),
    };
    let mut cases = Vec::new();
    if report.partial {
        cases.push(Case::of("the run is complete", Outcome::Error(why)));
    }
    if report.results.is_empty() {
        let why = "the run has no result".to_owned();
        cases.push(Case::of("the run has a result", Outcome::Error(why)));
    }
    (!cases.is_empty()).then(|| Suite {
        name: "run".to_owned(),
        seconds: 0.0,
        properties: Vec::new(),
        cases,
        notes: Vec::new(),
    })
}

/// The verdict: of a load what the service did, and apart from that whether the measurement is reliable.
fn judgement(result: &TestResult) -> Vec<Case> {
    let failure = || Outcome::Failed("verdict", reason(result));
    let doubted = |verdict: Verdict| match verdict {
        Verdict::Valid => Outcome::Passed,
        other => Outcome::Error(format!(
            "{}: {}",
            table::verdict_word(other),
            reason(result)
        )),
    };
    let Some(measurement) = result.load.measurement else {
        return vec![Case::of(
            "verdict",
            match result.verdict {
                Verdict::Failed => failure(),
                other => doubted(other),
            },
        )];
    };
    let (service, measurement) = match result.verdict {
        Verdict::Failed => (failure(), measurement),
        // The search for a rate may doubt more than its last step.
        other => (Outcome::Passed, other),
    };
    vec![
        Case::of("service", service),
        Case::of("measurement", doubted(measurement)),
    ]
}

/// The reason for the verdict.
fn reason(result: &TestResult) -> String {
    let sentences = match result.verdict {
        Verdict::Failed if !result.load.service.is_empty() => &result.load.service,
        _ => &result.notes,
    };
    match sentences.is_empty() {
        true => result.doubts.join(", "),
        false => sentences.join(" "),
    }
}

fn of_expectation(expectation: &ExpectationResult) -> Case {
    let outcome = match (expectation.kept, &expectation.seen) {
        (true, _) => Outcome::Passed,
        (false, Some(seen)) => {
            let why = expectation.reason.as_ref();
            let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
            Outcome::Failed(
                "expectation",
                format!("`{}` was {seen}{why}", expectation.text),
            )
        }
        (false, None) => {
            let why = expectation.reason.as_deref().unwrap_or("not known");
            Outcome::Failed("expectation", format!("`{}` is {why}", expectation.text))
        }
    };
    Case::of(&expectation.text, outcome)
}

fn of_baseline(figure: &BaselineFigure, file: &str) -> Case {
    let shown = |value: f64| match figure.figure.as_str() {
        "rate" => format!("{}/s", number::si(value)),
        _ => number::us(value),
    };
    let change = format!(
        "{} was {} and is {} ({:+.1} %)",
        figure.figure,
        shown(figure.before),
        shown(figure.after),
        figure.change * 100.0
    );
    let outcome = match figure.finding {
        BaselineFinding::Faster => Outcome::Passed,
        BaselineFinding::Slower => Outcome::Failed("slower", change),
        BaselineFinding::CannotTell => {
            let why = figure.reason.as_ref();
            let why = why.map(|why| format!(", {why}")).unwrap_or_default();
            Outcome::Skipped(format!("cannot tell: {change}{why}"))
        }
    };
    Case::of(
        &format!("{} is not slower than in {file}", figure.figure),
        outcome,
    )
}

fn properties(report: &Report, result: &TestResult) -> Vec<(&'static str, String)> {
    let tool = &report.tool;
    let mut all = vec![
        ("url", report.target.url.clone()),
        ("tool", format!("{} {}", tool.name, tool.version)),
        ("verdict", result.verdict.as_str().to_owned()),
    ];
    all.extend(
        report
            .target
            .server
            .clone()
            .map(|server| ("server", server)),
    );
    all.extend(
        result
            .rate_per_s
            .map(|rate| ("rate_per_s", format!("{rate:.3}"))),
    );
    if let Some(latency) = &result.latency_us {
        all.push(("p50_us", latency.p50.to_string()));
        all.push(("p99_us", latency.p99.to_string()));
    }
    all
}

/// Tests, failures, errors and skipped.
fn sums<'a>(cases: impl IntoIterator<Item = &'a Case>) -> (usize, usize, usize, usize) {
    let mut sums = (0, 0, 0, 0);
    for case in cases {
        sums.0 += 1;
        match case.outcome {
            Outcome::Passed => {}
            Outcome::Failed(..) => sums.1 += 1,
            Outcome::Error(_) => sums.2 += 1,
            Outcome::Skipped(_) => sums.3 += 1,
        }
    }
    sums
}

/// One line for each text. Each is escaped alone, because escaping replaces line feeds.
fn escape_lines(texts: &[String]) -> String {
    let lines: Vec<String> = texts.iter().map(|text| escape(text)).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{BaselineSource, Machine, Target};

    fn report() -> Report {
        let target = Target {
            url: "http://h/?a=1&b=<2>".to_owned(),
            server: None,
            embedded: false,
        };
        let mut report = Report::new(Machine::default(), target);
        report.results.push(TestResult {
            duration_s: Some(2.0),
            ..TestResult::new("http", 10)
        });
        report.results[0].load.measurement = Some(Verdict::Valid);
        report
    }

    fn expectation(text: &str, seen: Option<&str>, kept: bool) -> ExpectationResult {
        ExpectationResult {
            text: text.to_owned(),
            seen: seen.map(str::to_owned),
            kept,
            reason: (!kept && seen.is_none()).then(|| "not known: nothing was sent".to_owned()),
        }
    }

    /// True if the document counts a failure or an error.
    fn is_red(report: &Report) -> bool {
        let xml = render(report);
        let head = xml.lines().nth(1).expect("it has a head");
        !head.contains("failures=\"0\" errors=\"0\"")
    }

    #[test]
    fn each_expectation_is_a_case_and_a_broken_one_says_its_figure() {
        let mut report = report();
        report.results[0].load.expectations = vec![
            expectation("p99<20ms", Some("35 ms"), false),
            expectation("errors<1%", Some("0 %"), true),
            expectation("GET /a&b: p99.9<1s", None, false),
        ];
        let xml = render(&report);
        for part in [
            "<testsuites name=\"http://h/?a=1&amp;b=&lt;2&gt;\" tests=\"5\" failures=\"2\" errors=\"0\" skipped=\"0\" time=\"2.000\">",
            "<testcase classname=\"http, 10 connections\" name=\"p99&lt;20ms\" time=\"0.000\">",
            "<failure type=\"expectation\" message=\"`p99&lt;20ms` was 35 ms\">",
            "name=\"errors&lt;1%\" time=\"0.000\"/>",
            "message=\"`GET /a&amp;b: p99.9&lt;1s` is not known: nothing was sent\"",
            "name=\"service\" time=\"2.000\"/>",
        ] {
            assert!(xml.contains(part), "{part} in {xml}");
        }
    }

    #[test]
    fn it_is_red_exactly_when_the_exit_code_is_not_0() {
        assert!(!is_red(&report()));
        let mut reports = vec![report(); 10];
        for (report, verdict) in
            reports
                .iter_mut()
                .zip([Verdict::Failed, Verdict::Noisy, Verdict::GeneratorBound])
        {
            report.results[0].verdict = verdict;
        }
        reports[3].results[0].load.expectations = vec![expectation("rate>1", None, false)];
        reports[4].partial = true;
        reports[5].results.clear();
        // A slower figure fails only with the gate.
        for (report, fail_if_slower) in reports[6..8].iter_mut().zip([true, false]) {
            report.baseline = Some(BaselineSource {
                fail_if_slower,
                ..BaselineSource::default()
            });
            report.results[0].load.baseline = vec![BaselineFigure {
                figure: "p99".to_owned(),
                finding: BaselineFinding::Slower,
                ..BaselineFigure::default()
            }];
        }
        // A test of `bench` has one verdict.
        reports[8].results[0].load.measurement = None;
        reports[8].results[0].verdict = Verdict::Noisy;
        reports[9].partial = true;
        reports[9].partial_reason = Some("a worker has ended".to_owned());
        assert_eq!((reports[4].exit_code(), reports[9].exit_code()), (130, 1));
        for (number, report) in reports.iter().enumerate() {
            assert_eq!(
                is_red(report),
                report.exit_code() != 0,
                "{number}: {}",
                render(report)
            );
        }
    }

    #[test]
    fn no_text_of_a_server_breaks_the_document() {
        let mut report = report();
        let hostile = "]]></system-out>\u{0}\u{1b}[31m\"'<!--\u{ffff}\u{fffe}\u{85}";
        report.target.server = Some(hostile.to_owned());
        report.results[0].notes = vec![hostile.to_owned(); 2];
        report.results[0].verdict = Verdict::Failed;
        let xml = render(&report);
        assert_eq!(xml.matches("</system-out>").count(), 1, "{xml}");
        let is_allowed =
            |c: char| c == '\n' || (!c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}'));
        assert!(xml.chars().all(is_allowed), "{xml:?}");
    }
}
