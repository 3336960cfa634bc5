//! `tidewire report`.

use crate::program::{assert_refused, run};
use std::fs;
use std::path::Path;

#[test]
fn one_report_is_shown_and_rendered() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "only.json", 2_000_000);
    let out = folder.path().join("out");
    let said = run(&["report", &file, "--out", out.to_str().unwrap()]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    assert!(
        said.stdout.contains("throughput") && said.stdout.contains("2 M"),
        "{}",
        said.stdout
    );
    for name in ["report.html", "report.md", "report.json"] {
        assert!(
            fs::read_to_string(out.join(name))
                .unwrap()
                .contains("throughput"),
            "{name}"
        );
    }
}

#[test]
fn what_a_file_says_changes_nothing_of_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["first.json", "second.json"].map(|name| {
        let path = write(folder.path(), name, 1_000_000);
        let text = fs::read_to_string(&path).unwrap();
        let mut report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let evil = "\u{1b}]0;a\u{7}\u{9b}2J\u{202e}b\r\n\u{8}";
        for place in ["/tool/name", "/tool/version", "/tool/language", "/target/url", "/results/0/test"] {
            *report.pointer_mut(place).unwrap() = evil.into();
        }
        report["partial"] = true.into();
        report["partial_reason"] = evil.into();
        report["results"][0]["notes"] = serde_json::json!([evil]);
        report["preflight"] = serde_json::json!([{"name": evil, "value": evil, "wanted": evil, "ok": false, "hint": evil}]);
        fs::write(&path, report.to_string()).unwrap();
        path
    });
    let not_json = folder.path().join("a\u{1b}b.json");
    fs::write(&not_json, "{").unwrap();
    for arguments in [
        &["report", &files[0]][..],
        &["report", &files[0], &files[1]],
        &["report", not_json.to_str().unwrap()],
    ] {
        let said = run(arguments);
        let text = format!("{}{}", said.stdout, said.stderr);
        let is_bad = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
        assert!(!text.is_empty() && !text.contains(is_bad), "{text:?}");
    }
}

#[test]
fn two_reports_stand_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let before = write(folder.path(), "before.json", 1_000_000);
    let after = write(folder.path(), "after.json", 3_000_000);
    let out = folder.path().join("out");
    let said = run(&["report", &before, &after, "--out", out.to_str().unwrap()]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    for word in ["before", "after", "1 M", "3 M (3.00×)"] {
        assert!(said.stdout.contains(word), "{word} in {}", said.stdout);
    }
    assert!(out.join("comparison.html").is_file() && out.join("comparison.md").is_file());
}

#[test]
fn a_report_is_compared_with_its_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let before = write(folder.path(), "before.json", 1_000_000);
    let slower = write(folder.path(), "slower.json", 800_000);
    let out = folder.path().join("out");
    let with = |report: &str, flags: &[&str]| {
        run(&[&["report", report, "--baseline", &before], flags].concat())
    };
    let said = with(&slower, &["--out", out.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{said:?}");
    for word in ["rate", "slower", "-20.0 %", "slower than the baseline"] {
        assert!(said.stdout.contains(word), "{word} in {}", said.stdout);
    }
    let saved = fs::read_to_string(out.join("report.json")).unwrap();
    assert!(saved.contains("\"finding\": \"slower\""), "{saved}");
    assert_eq!(with(&slower, &["--fail-if-slower"]).code, 5);
    assert_eq!(with(&before, &["--fail-if-slower"]).code, 0);
    assert_refused(&with(&slower, &[&before]), &["--baseline", "one report"]);
    assert_refused(
        &run(&["report", &slower, "--fail-if-slower"]),
        &["--baseline"],
    );
    let missing = run(&["report", &slower, "--baseline", "/nonexistent.json"]);
    assert_refused(&missing, &["/nonexistent.json"]);
}

#[test]
fn what_is_no_report_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.json");
    let path = file.to_str().unwrap();
    for text in ["{}", "nothing", "{\"schema\":\"tidewire-report/99\"}"] {
        fs::write(&file, text).unwrap();
        assert_refused(&run(&["report", path]), &[path]);
    }
    assert_refused(
        &run(&["report", "/nonexistent.json"]),
        &["/nonexistent.json"],
    );
    assert_refused(&run(&["report"]), &["REPORT.json"]);
}

/// Writes a report with one result at this rate.
fn write(folder: &Path, name: &str, rate_per_s: u64) -> String {
    let report = serde_json::json!({
        "schema": "tidewire-report/1",
        "tool": {"name": "tidewire", "version": "0.1.0", "language": "rust"},
        "machine": {"cores": 2},
        "target": {"url": "ws://127.0.0.1:5006/ws", "embedded": true},
        "results": [{
            "test": "throughput", "connections": 100, "rate_per_s": rate_per_s, "verdict": "valid",
            "bottleneck": "server",
            "rate_series": vec![rate_per_s; 12],
            "messages": {"offered": 10, "confirmed": 10, "lost": 0}
        }]
    });
    let path = folder.join(name);
    fs::write(&path, report.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}
