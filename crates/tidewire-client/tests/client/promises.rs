//! The lists of promises in `docs/client.md` and `docs/http-api.md`: each names tests that exist.

use crate::scenarios::{FILES, folder, names};
use std::path::{Path, PathBuf};

/// A row of the list: what is promised, and what shows it.
struct Promise {
    words: String,
    /// Files and names in them.
    tests: Vec<(String, String)>,
}

#[test]
fn every_promise_is_shown_by_tests_that_exist() {
    let promises = promises();
    assert!(promises.len() >= 20, "the list is somewhere else");
    let mut missing = Vec::new();
    for promise in &promises {
        assert!(
            !promise.tests.is_empty(),
            "nothing shows: {}",
            promise.words
        );
        for (file, name) in &promise.tests {
            if !exists(file, name) {
                missing.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
}

#[test]
fn what_is_not_there_is_found_missing() {
    assert!(!exists("life.json", "a client that sings"));
    assert!(!exists("test_scenarios.py", "test_scenari"));
    assert!(!exists("tests/client/promises.rs", "what_is_not_there"));
    assert!(!exists("closing.test.ts", "a close that sings"));
    assert!(exists(
        "tests/client/promises.rs",
        "what_is_not_there_is_found_missing"
    ));
}

fn promises() -> Vec<Promise> {
    [("client.md", 2), ("http-api.md", 3)]
        .into_iter()
        .flat_map(|(page, columns)| promises_of(page, columns))
        .collect()
}

/// The rows of all tables of a page whose last column is "shown by".
fn promises_of(page: &str, columns: usize) -> Vec<Promise> {
    let text = std::fs::read_to_string(root().join("docs").join(page)).expect("the docs are there");
    let mut is_list = false;
    let rows = text.lines().filter(|line| {
        if !line.starts_with("| ") {
            is_list &= line.starts_with("|--");
            return false;
        }
        let is_head = line.ends_with("| shown by |");
        is_list |= is_head;
        is_list && !is_head
    });
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        assert_eq!(cells.len(), columns, "{row}");
        // Names stand between backquotes.
        let tests = cells[columns - 1]
            .split('`')
            .skip(1)
            .step_by(2)
            .map(|test| {
                let (file, name) = test.split_once(": ").expect("a file and a name");
                (file.to_owned(), name.to_owned())
            });
        Promise {
            words: cells[0].trim().to_owned(),
            tests: tests.collect(),
        }
    })
    .collect()
}

fn exists(file: &str, name: &str) -> bool {
    if FILES.contains(&file) {
        return names(file).iter().any(|known| known == name);
    }
    let (path, definition) = match Path::new(file).extension().and_then(|end| end.to_str()) {
        Some("py") => (
            root().join("bindings/python/tests").join(file),
            format!("def {name}("),
        ),
        Some("ts") => (
            root().join("packages/client/test").join(file),
            format!("\"{name}\","),
        ),
        _ if file.starts_with("engine/") => (
            root().join("crates/tidewire-engine/tests").join(&file[7..]),
            format!("fn {name}("),
        ),
        _ => (
            Path::new(env!("CARGO_MANIFEST_DIR")).join(file),
            format!("fn {name}("),
        ),
    };
    std::fs::read_to_string(path).is_ok_and(|text| text.contains(&definition))
}

fn root() -> PathBuf {
    folder().join("../..")
}
