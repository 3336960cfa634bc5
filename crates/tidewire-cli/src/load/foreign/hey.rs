//! hey: its flags, and its report lines.

use std::fmt::Write;

use super::figures::Figures;
use super::flags::{
    BASELINE, CSV, EXPECT, FAIL_IF_SLOWER, Flag, JSON, JUNIT, Meaning, OUT, flag, timeout,
};

pub(super) const FLAGS: &[Flag] = &[
    flag(&["-n"], Meaning::Value("-n")),
    flag(&["-c"], Meaning::Value("-c")),
    flag(&["-z"], Meaning::Value("-d")),
    // Per worker, which is a connection here.
    flag(&["-q"], Meaning::Value("--messages-per-s")),
    flag(&["-m"], Meaning::Value("-m")),
    flag(&["-H"], Meaning::Value("-H")),
    flag(&["-t"], Meaning::Made(timeout)),
    flag(&["-A"], Meaning::Made(|value| header("Accept", value))),
    flag(
        &["-T"],
        Meaning::Made(|value| header("Content-Type", value)),
    ),
    flag(&["-U"], Meaning::Made(|value| header("User-Agent", value))),
    flag(&["-host"], Meaning::Made(|value| header("Host", value))),
    flag(&["-d"], Meaning::Value("--body")),
    flag(&["-D"], Meaning::Value("--body-file")),
    flag(
        &["-x"],
        Meaning::Made(|proxy| Ok(vec!["--proxy".to_owned(), format!("http://{proxy}")])),
    ),
    flag(&["-disable-keepalive"], Meaning::Words(&["--no-keepalive"])),
    flag(&["-disable-compression"], Meaning::Nothing),
    flag(&["-disable-redirects"], Meaning::Nothing),
    flag(&["-cpus"], Meaning::Value("-t")),
    flag(
        &["-a"],
        Meaning::Missing("write -H 'Authorization: Basic …'"),
    ),
    flag(&["-o"], Meaning::Missing("write --json, or --out DIR")),
    flag(
        &["-h2"],
        Meaning::Missing(
            "hey puts all workers on one connection then; write -c 1 --http2 --streams N of `tidewire load`",
        ),
    ),
    OUT,
    JUNIT,
    CSV,
    EXPECT,
    BASELINE,
    FAIL_IF_SLOWER,
    JSON,
];

/// The defaults of hey: 200 requests, 50 workers, any certificate, and those of Go's HTTP client.
pub(super) fn defaults(has: &dyn Fn(&str) -> bool) -> Vec<&'static str> {
    let mut words = vec!["--expect-status", "any", "--insecure"];
    let given: [(&str, &[&'static str]); 4] = [
        ("-c", &["-c", "50"]),
        ("-t", &["--timeout-ms", "20000"]),
        ("-disable-compression", &["--compressed"]),
        ("-disable-redirects", &["--redirects", "10"]),
    ];
    for (name, usual) in given {
        if !has(name) {
            words.extend(usual);
        }
    }
    if !has("-n") && !has("-z") {
        words.extend(["-n", "200"]);
    }
    words
}

fn header(name: &str, value: &str) -> Result<Vec<String>, String> {
    Ok(vec!["-H".to_owned(), format!("{name}: {value}")])
}

/// The report in the form of hey's own.
pub(super) fn lines(out: &mut String, of: &Figures<'_>) -> std::fmt::Result {
    let latency = &of.latency;
    let s = |us: f64| us / 1e6;
    writeln!(out, "\nSummary:")?;
    for (name, seconds) in [
        ("Total:", of.seconds),
        ("Slowest:", s(latency.max)),
        ("Fastest:", s(latency.min)),
        ("Average:", s(latency.mean)),
    ] {
        writeln!(out, "  {name}\t{seconds:.4} secs")?;
    }
    writeln!(out, "  Requests/sec:\t{:.4}", of.rate_per_s)?;
    if of.body > 0 {
        let each = of.body / of.requests.succeeded.max(1);
        writeln!(out, "\n  Total data:\t{} bytes", of.body)?;
        writeln!(out, "  Size/request:\t{each} bytes")?;
    }
    histogram(out, of)?;
    writeln!(out, "\n\nLatency distribution:")?;
    for percentile in [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0] {
        let seconds = of.ms(percentile) / 1e3;
        writeln!(out, "  {percentile}% in {seconds:.4} secs")?;
    }
    let load = &of.result.load;
    let connect = load
        .connecting
        .as_ref()
        .and_then(|connecting| connecting.latency_us.clone());
    writeln!(out, "\nDetails (average, fastest, slowest):")?;
    for (name, latency) in [
        ("DNS+dialup:", connect.unwrap_or_default()),
        ("resp wait:", load.first_byte_us.clone().unwrap_or_default()),
    ] {
        let [mean, min, max] = [latency.mean, latency.min, latency.max].map(s);
        writeln!(
            out,
            "  {name}\t{mean:.4} secs, {min:.4} secs, {max:.4} secs"
        )?;
    }
    writeln!(out, "\nStatus code distribution:")?;
    for (status, count) in &load.statuses {
        writeln!(out, "  [{status}]\t{count} responses")?;
    }
    if !load.errors.is_empty() {
        writeln!(out, "\nError distribution:")?;
    }
    for (name, count) in &load.errors {
        writeln!(out, "  [{count}]\t{name}")?;
    }
    Ok(())
}

/// Eleven marks from the fastest to the slowest, each with the responses since the previous one.
fn histogram(out: &mut String, of: &Figures<'_>) -> std::fmt::Result {
    writeln!(out, "\nResponse time histogram:")?;
    let (min, max) = (of.latency.min, of.latency.max);
    let mark = |number: usize| min + (max - min) * number as f64 / 10.0;
    let mut counts = [0u64; 11];
    for (upper_us, count) in &of.result.load.histogram {
        let at = (0..10).find(|number| upper_us.min(max) <= mark(*number));
        counts[at.unwrap_or(10)] += count;
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    for (number, count) in counts.into_iter().enumerate() {
        let bar = "■".repeat((count * 40 / most) as usize);
        writeln!(out, "  {:.3} [{count}]\t|{bar}", mark(number) / 1e6)?;
    }
    Ok(())
}
