//! Reports as files: what is written can be read again, and every rendering is safe and complete.

use std::fs;

use serde_json::{Value, json};
use tidewire_load::report::compare::Comparison;
use tidewire_load::report::{
    BaselineFigure, BaselineFinding, BaselineSource, ExpectationResult, Finding, LoadFigures,
    Report, TestResult, Verdict, html, markdown, model, save_all, terminal,
};

use crate::fixture;
use crate::schema;

#[test]
fn a_saved_report_is_loaded_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let report = fixture::report();
    let saved = save_all(&report, &directory.path().join("new")).unwrap();
    assert_eq!(Report::load(&saved.json).unwrap(), report);
    assert!(
        fs::read_to_string(&saved.html)
            .unwrap()
            .starts_with("<!doctype html>")
    );
    assert!(
        fs::read_to_string(&saved.markdown)
            .unwrap()
            .starts_with("# ")
    );
    let files = fs::read_dir(directory.path().join("new")).unwrap().count();
    assert_eq!(files, 3, "nothing temporary is left");
}

#[test]
fn a_field_that_does_not_apply_is_absent_not_zero() {
    let value = serde_json::to_value(TestResult::new("throughput", 7)).unwrap();
    assert_eq!(
        value,
        json!({"test": "throughput", "connections": 7, "bottleneck": "none", "verdict": "valid",
               "notes": []})
    );
    let report = serde_json::to_value(Report::new(
        model::Machine::default(),
        model::Target {
            url: "ws://h/".into(),
            server: None,
            embedded: false,
        },
    ))
    .unwrap();
    let mut keys: Vec<_> = report
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        ["machine", "partial", "results", "schema", "target", "tool"]
    );
    assert_eq!(report["machine"], json!({}));
}

#[test]
fn unknown_fields_are_tolerated_everywhere() {
    let mut value = serde_json::to_value(fixture::report()).unwrap();
    add_unknown(&mut value);
    let report: Report = serde_json::from_value(value).unwrap();
    assert_eq!(report, fixture::report());
}

fn add_unknown(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // Their names are the server's, so that none of them is unknown.
            const COUNTED: [&str; 3] = ["refused_by", "statuses", "errors"];
            let known = fields
                .iter_mut()
                .filter(|(name, _)| !COUNTED.contains(&name.as_str()));
            known.for_each(|(_, field)| add_unknown(field));
            fields.insert("of_a_later_version".into(), json!([1]));
        }
        Value::Array(items) => items.iter_mut().for_each(add_unknown),
        _ => {}
    }
}

#[test]
fn load_errors_name_the_file_and_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r.json");
    let error = || Report::load(&path).unwrap_err().to_string();
    assert!(error().contains("cannot read"), "{}", error());
    assert!(error().contains("r.json: "), "{}", error());
    for (text, expected) in [
        ("{", "r.json is not a valid report: EOF"),
        (
            "[]",
            "expected schema `tidewire-report/1`, found no `schema` field",
        ),
        (
            r#"{"schema":"tidewire-report/2"}"#,
            "found `tidewire-report/2`",
        ),
        (
            r#"{"schema":"tidewire-report/1"}"#,
            "is not a valid report: missing field `tool`",
        ),
    ] {
        fs::write(&path, text).unwrap();
        assert!(error().contains(expected), "{}", error());
    }
}

#[test]
fn the_exit_code_is_that_of_the_worst_result() {
    let mut report = fixture::report();
    let mut with = |verdicts: &[Verdict]| {
        report.results = verdicts
            .iter()
            .map(|&verdict| TestResult {
                verdict,
                ..TestResult::new("throughput", 1)
            })
            .collect();
        report.exit_code()
    };
    use Verdict::{Failed, GeneratorBound, Noisy, Valid};
    assert_eq!(with(&[Valid, Valid]), 0);
    assert_eq!(with(&[Valid, GeneratorBound]), 3);
    assert_eq!(with(&[Noisy, Valid]), 4);
    assert_eq!(with(&[Noisy, GeneratorBound]), 3);
    assert_eq!(with(&[Failed, Noisy, Valid]), 1);
    assert_eq!(with(&[]), 1);
    report.partial = true;
    assert_eq!(report.exit_code(), 130);
}

#[test]
fn of_several_exit_codes_the_first_of_the_order_counts() {
    let mut report = fixture::report();
    report.baseline = None;
    let mut result = |verdict, doubt: Option<&str>, kept, finding| {
        let load = LoadFigures {
            expectations: vec![ExpectationResult {
                kept,
                ..ExpectationResult::default()
            }],
            baseline: vec![BaselineFigure {
                finding,
                ..BaselineFigure::default()
            }],
            ..LoadFigures::default()
        };
        report.results = vec![TestResult {
            verdict,
            doubts: doubt.map(str::to_owned).into_iter().collect(),
            load,
            ..TestResult::new("http", 1)
        }];
        let code = report.exit_code();
        report.baseline = Some(BaselineSource {
            fail_if_slower: true,
            ..BaselineSource::default()
        });
        let strict = report.exit_code();
        report.baseline = None;
        (code, strict)
    };
    use BaselineFinding::{CannotTell, Faster, Slower};
    assert_eq!(result(Verdict::Valid, None, true, Faster), (0, 0));
    assert_eq!(result(Verdict::Valid, None, true, CannotTell), (0, 0));
    assert_eq!(result(Verdict::Valid, None, true, Slower), (0, 5));
    assert_eq!(result(Verdict::Valid, None, false, Faster), (5, 5));
    assert_eq!(result(Verdict::Noisy, None, false, Slower), (5, 5));
    assert_eq!(result(Verdict::Noisy, None, true, Slower), (4, 5));
    assert_eq!(result(Verdict::GeneratorBound, None, false, Slower), (3, 3));
    assert_eq!(result(Verdict::Failed, None, false, Slower), (1, 1));
    let impossible = Some(model::IMPOSSIBLE);
    assert_eq!(result(Verdict::Failed, impossible, false, Slower), (2, 2));
}

#[test]
fn every_rendering_has_the_verdict_the_figures_and_every_test() {
    let report = fixture::report();
    for text in [
        html::render(&report),
        markdown::render(&report),
        terminal::render(&report),
    ] {
        for result in &report.results {
            assert!(text.contains(&result.test), "{} is missing", result.test);
        }
        for expected in [
            "15.2 M",
            "generator bound",
            "noisy",
            "50,816",
            "open files",
            "Example Processor",
            "Probes of the search",
            "780 open-files",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
        assert!(text.contains("Confirmed msgs/s") && !text.contains("Offered/s"));
    }
}

#[test]
fn the_size_matrix_has_a_row_for_each_number_of_connections() {
    let text = markdown::render(&fixture::report());
    let lines: Vec<&str> = text.lines().collect();
    for caption in ["Confirmed messages/s", "Confirmed bytes/s"] {
        let title = lines.iter().position(|line| line.starts_with(caption));
        let table = &lines[title.expect(caption) + 2..];
        assert!(
            table[0].starts_with("| Connections | 64 B |"),
            "{}",
            table[0]
        );
        let rows = table[2..].iter().take_while(|line| line.starts_with('|'));
        assert!(rows.count() > 1, "{caption}");
    }
}

#[test]
fn what_stands_between_backticks_is_code_on_the_page() {
    let mut report = fixture::report();
    report.results[0].notes = vec!["`a<b` is broken".into(), "one ` alone".into()];
    let page = html::render(&report);
    assert!(page.contains("<code>a&lt;b</code> is broken") && page.contains("one ` alone"));
}

#[test]
fn an_interrupted_report_says_so_in_every_rendering() {
    let mut report = fixture::report();
    report.partial = true;
    report.partial_reason = Some("stopped with Ctrl-C during throughput".into());
    for text in [
        html::render(&report),
        markdown::render(&report),
        terminal::render(&report),
    ] {
        assert!(text.contains("interrupted"));
        assert!(text.contains("stopped with Ctrl-C during throughput"));
    }
}

#[test]
fn the_page_is_self_contained_well_formed_and_made_for_every_medium() {
    let page = html::render(&fixture::report());
    balanced(&page);
    for forbidden in [
        "<script", "http://", "https://", "url(", "@import", "<link", "<img",
    ] {
        assert!(!page.contains(forbidden), "{forbidden} in the page");
    }
    for wanted in [
        "prefers-color-scheme: dark",
        "@media print",
        "color-scheme: light dark",
        "<svg viewBox",
    ] {
        assert!(page.contains(wanted), "{wanted} is missing");
    }
    assert!(page.contains("<figcaption>Latency by percentile"));
    assert!(page.contains("<figcaption>Confirmed bytes/s by connections"));
    assert!(page.contains("<figcaption>Round trips/s over time"));
    assert!(page.contains("<figcaption>Confirmed msgs/s over time"));
    assert!(page.contains("<figcaption>Deliveries/s over connections"));
    assert!(page.contains("<figcaption>Skew by percentile"));
    for load in [
        "Requests/s over time",
        "Latency over time",
        "Latency distribution over time",
        "Distribution of the latencies",
        "Latency by offered rate",
        "Processor time over time",
        "Memory over time",
    ] {
        assert!(
            page.contains(&format!("<figcaption>{load}")),
            "{load} is missing"
        );
    }
    let compared = Comparison::new(&[("a".into(), fixture::report())]);
    balanced(&compared.html());
}

#[test]
fn hostile_text_is_shown_as_text() {
    const HOSTILE: &str = "\"><script>alert(1)</script>|`x`\u{1b}[2J\n# h";
    let mut report = fixture::report();
    report.target.url = HOSTILE.into();
    report.target.server = Some(HOSTILE.into());
    report.machine.cpu = Some(HOSTILE.into());
    report.tool.name = HOSTILE.into();
    report.started_at = Some(HOSTILE.into());
    report.partial = true;
    report.partial_reason = Some(HOSTILE.into());
    report.plan.as_mut().unwrap().command = Some(HOSTILE.into());
    report.preflight.push(Finding {
        name: HOSTILE.into(),
        value: HOSTILE.into(),
        wanted: HOSTILE.into(),
        ok: false,
        hint: Some(HOSTILE.into()),
    });
    for result in &mut report.results {
        result.test.push_str(HOSTILE);
        result.format = Some(HOSTILE.into());
        result.notes.push(HOSTILE.into());
    }
    let page = html::render(&report);
    balanced(&page);
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
    let text = markdown::render(&report);
    assert!(!text.contains("<script") && !text.contains("\n# h"));
    for text in [page, text, terminal::render(&report)] {
        assert!(!text.contains('\u{1b}'));
    }
}

/// Fails unless every element that is opened is closed in order.
fn balanced(page: &str) {
    const VOID: [&str; 2] = ["meta", "!doctype"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let end = rest[start..].find('>').expect("a tag ends") + start;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        let name = tag
            .split([' ', '\n'])
            .next()
            .expect("splitting gives a first part");
        if let Some(closed) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed));
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} left open");
}

#[test]
fn every_report_satisfies_the_published_schema() {
    let report = serde_json::to_value(fixture::report()).unwrap();
    let mut seen = Vec::new();
    let checked = schema::violations;
    assert_eq!(checked(&report), Vec::<String>::new());
    collect_keys(&report, &mut seen);
    for key in schema::fields() {
        assert!(
            key == "partial_reason" || seen.contains(&key),
            "`{key}` is in the schema only"
        );
    }

    let mut broken = report;
    broken["results"][0]["verdict"] = json!("excellent");
    broken["results"][1]["latency_us"]["p50"] = json!("fast");
    broken["machine"]["cores"] = json!(-1);
    broken["tool"].as_object_mut().unwrap().remove("name");
    assert_eq!(checked(&broken).len(), 4, "{:?}", checked(&broken));
}

#[test]
fn the_format_is_described_field_by_field() {
    let text = include_str!("../../../../docs/report-format.md");
    for field in schema::fields() {
        assert!(
            text.contains(&format!("`{field}`")),
            "`{field}` is not described"
        );
    }
}

fn collect_keys(value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                keys.push(key.clone());
                collect_keys(field, keys);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_keys(item, keys)),
        _ => {}
    }
}
