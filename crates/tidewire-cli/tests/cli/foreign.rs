//! `tidewire load --as TOOL` beside the tool itself: the same flags, the same server, the same lines.
//!
//! Figures differ from run to run. What is compared is the rest: the names, their order within a
//! line, and the units. A tool that is not installed is left out with a message.

use crate::program::{Running, run, tidewire};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A tool, its flags, and the lines of it that ours leaves out, as docs/load-foreign.md says.
struct Case {
    tool: &'static str,
    flags: &'static [&'static str],
    path: &'static str,
    left_out: &'static [&'static str],
}

/// The lines of ab before the load and while it runs.
const AB: &[&str] = &[
    "This is ApacheBench",
    "Copyright",
    "Licensed to",
    "Benchmarking",
    "Completed",
    "Finished",
    // It depends on how evenly this machine answered.
    "WARNING: The median and mean",
    "ERROR: The median and mean",
    "These results are",
    "deviation apart.",
];
const HEY: &[&str] = &["DNS-lookup:", "req write:", "resp read:"];

/// The lines of h2load before the load and while it runs, those that ours cuts, and those that count for each connection.
const H2LOAD: &[&str] = &[
    "starting benchmark",
    "spawning thread",
    "progress:",
    "Warm-up",
    "Main benchmark",
    "Stopped all clients",
    "traffic:",
    "time for connect:",
    "time to #st byte:",
    "req/s :",
];

#[test]
fn the_lines_of_ab_are_those_of_ab() {
    compare(&Case {
        tool: "ab",
        flags: &["-k", "-n", "300", "-c", "3"],
        path: "/a",
        left_out: AB,
    });
    compare(&Case {
        tool: "ab",
        flags: &["-n", "50", "-c", "2"],
        path: "/a",
        left_out: AB,
    });
}

#[test]
fn the_lines_of_wrk_are_those_of_wrk() {
    compare(&Case {
        tool: "wrk",
        flags: &["-t1", "-c2", "-d1s", "--latency"],
        path: "/a",
        left_out: &[],
    });
    let ours = compare(&Case {
        tool: "wrk",
        flags: &["-t1", "-c2", "-d1s"],
        path: "/a",
        left_out: &[],
    });
    assert!(!ours.contains("Latency Distribution"), "{ours}");
}

#[test]
fn the_lines_of_hey_are_those_of_hey() {
    compare(&Case {
        tool: "hey",
        flags: &["-n", "300", "-c", "3"],
        path: "/a",
        left_out: HEY,
    });
}

#[test]
fn the_lines_of_loadtest_are_those_of_loadtest() {
    for flags in [
        &["-n", "50", "-c", "2", "--cores", "1"][..],
        &["-t", "1", "-c", "2", "-k", "--cores", "1"],
    ] {
        compare(&Case {
            tool: "loadtest",
            flags,
            path: "/a",
            left_out: &[],
        });
    }
}

#[test]
fn the_lines_of_autocannon_are_those_of_autocannon() {
    compare(&Case {
        tool: "autocannon",
        flags: &["-c", "2", "-d", "1"],
        path: "/a",
        left_out: &[],
    });
}

#[test]
fn the_lines_of_h2load_are_those_of_h2load() {
    for (flags, protocol) in [
        (&["-n", "300", "-c", "3", "-m", "10"][..], "h2c"),
        (
            &["-D", "1", "-c", "2", "-m", "4", "--warm-up-time", "500ms"],
            "h2c",
        ),
        (&["--h1", "-n", "100", "-c", "2", "-m", "2"], "http/1.1"),
    ] {
        let ours = compare(&Case {
            tool: "h2load",
            flags,
            path: "/a",
            left_out: H2LOAD,
        });
        let first = format!("Application protocol: {protocol}\n");
        assert!(ours.starts_with(&first), "{ours}");
        let lines = shapes(&ours);
        for line in [
            "traffic: # (#) total, # (#) headers, # (#) data",
            "time for connect: # # # #",
        ] {
            assert!(lines.contains(line), "no {line:?} in\n{ours}");
        }
    }
}

#[track_caller]
fn compare(case: &Case) -> String {
    let tool = case.tool;
    let program = find(tool).unwrap_or_else(|| {
        panic!("{tool} is missing; scripts/test installs it, or leaves this test out")
    });
    let server = Running::start(tidewire(&["test-server", "--port", "0", "--shards", "1"]));
    let url = format!("http://{}{}", server.address(), case.path);
    let theirs = Command::new(&program)
        .args(case.flags)
        .arg(&url)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [&theirs.stdout[..], &theirs.stderr[..]].concat();
    let theirs = String::from_utf8_lossy(&text).into_owned();
    let ours = run(&[&["load", "--as", case.tool], case.flags, &[&url]].concat());
    assert!([0, 3, 4].contains(&ours.code), "{ours:?}");

    let is_left_out = |line: &String| case.left_out.iter().any(|start| line.starts_with(start));
    let (expected, found) = (shapes(&theirs), shapes(&ours.stdout));
    let missing: Vec<&String> = expected
        .difference(&found)
        .filter(|line| !is_left_out(line))
        .collect();
    assert!(
        !expected.is_empty() && missing.is_empty(),
        "{} has {missing:#?}\n{theirs}\nand ours has not:\n{}",
        case.tool,
        ours.stdout
    );
    ours.stdout
}

/// The program, in the path or among the packages of the comparison.
fn find(tool: &str) -> Option<PathBuf> {
    let packages = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../bench/peers/http/node_modules/.bin"
    );
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from(packages)])
        .map(|folder| folder.join(tool))
        .find(|program| program.is_file())
}

/// The lines without their figures, their bars and their frames.
fn shapes(text: &str) -> BTreeSet<String> {
    let lines = text.lines().map(shape);
    lines
        .filter(|line| line.chars().any(char::is_alphabetic))
        .collect()
}

/// One line: `  99%    9.00ms` becomes `99% #`, and `Requests/sec:   5000.00` becomes `Requests/sec: #`.
fn shape(line: &str) -> String {
    let line: String = line
        .chars()
        .map(|c| {
            if ('\u{2500}'..='\u{25ff}').contains(&c) {
                ' '
            } else {
                c
            }
        })
        .collect();
    let is_url = |word: &str| word.starts_with("http://");
    let words = line.split_whitespace().enumerate().map(|(at, word)| {
        if (at == 0 && word.ends_with('%')) || is_url(word) {
            return word.to_owned();
        }
        without_figures(word)
    });
    let text = words.collect::<Vec<_>>().join(" ");
    // Units that follow the size of a figure.
    let mut text = text;
    for unit in ["B", "kB", "MB", "GB"] {
        text = text.replace(&format!("# {unit}"), "# bytes");
    }
    text
}

/// A word whose figures, each with the unit that is attached to it, are `#`.
fn without_figures(word: &str) -> String {
    let mut shape = String::new();
    let mut rest = word;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        // A sign belongs to the figure, a digit in a name does not make it one.
        if rest[..start].ends_with(char::is_alphabetic) {
            break;
        }
        let before = &rest[..start];
        let signed = before
            .strip_suffix('-')
            .filter(|name| !name.ends_with(char::is_alphabetic));
        shape.push_str(signed.unwrap_or(before));
        let tail =
            rest[start..].trim_start_matches(|c: char| c.is_ascii_digit() || ".,".contains(c));
        let units = [
            "us", "ms", "s", "m", "h", "k", "M", "B", "KB", "MB", "GB", "%",
        ];
        let unit = units
            .into_iter()
            .filter(|unit| {
                tail.starts_with(unit) && !tail[unit.len()..].starts_with(char::is_alphabetic)
            })
            .max_by_key(|unit| unit.len());
        shape.push('#');
        rest = &tail[unit.map_or(0, str::len)..];
    }
    shape.push_str(rest);
    shape
}

#[test]
fn shapes_of_lines() {
    for (line, expected) in [
        (
            "  50261 requests in 1.10s, 7.14MB read",
            "# requests in #, # read",
        ),
        ("     99%    3.55ms", "99% #"),
        (
            "    Latency   375.96us  771.99us   5.21ms   87.37%",
            "Latency # # # #",
        ),
        ("│ Latency │ 0 ms │ 1 ms │", "Latency # ms # ms"),
        ("  0.001 [485]\t|■■■", "# [#] |"),
        (
            "Server Software:        nginx/1.22.1",
            "Server Software: nginx/#",
        ),
        ("Non-2xx responses: 5", "Non-#xx responses: #"),
    ] {
        assert_eq!(shape(line), expected);
    }
}
