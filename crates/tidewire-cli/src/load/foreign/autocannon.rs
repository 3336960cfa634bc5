//! autocannon: its flags, and its report lines.

use std::fmt::Write;

use tidewire_load::report::number::grouped;

use super::figures::Figures;
use super::flags::{
    BASELINE, CSV, EXPECT, FAIL_IF_SLOWER, Flag, JSON, JUNIT, Meaning, OUT, flag, timeout,
};

pub(super) const FLAGS: &[Flag] = &[
    flag(&["-c", "--connections"], Meaning::Value("-c")),
    flag(&["-p", "--pipelining"], Meaning::Value("-p")),
    flag(&["-d", "--duration"], Meaning::Value("-d")),
    flag(&["-a", "--amount"], Meaning::Value("-n")),
    flag(&["-w", "--workers"], Meaning::Value("-t")),
    flag(&["-S", "--socketPath"], Meaning::Value("--unix-socket")),
    flag(&["-m", "--method"], Meaning::Value("-m")),
    flag(&["-t", "--timeout"], Meaning::Made(timeout)),
    flag(&["-b", "--body"], Meaning::Value("--body")),
    flag(&["-i", "--input"], Meaning::Value("--body-file")),
    flag(&["-H", "--headers"], Meaning::Made(header)),
    flag(
        &["-D", "--reconnectRate"],
        Meaning::Value("--requests-per-connection"),
    ),
    flag(
        &["-r", "--connectionRate"],
        Meaning::Value("--messages-per-s"),
    ),
    flag(&["-R", "--overallRate"], Meaning::Value("--rate-per-s")),
    flag(&["-s", "--servername"], Meaning::Value("--sni")),
    flag(&["--cert"], Meaning::Value("--cert")),
    flag(&["--key"], Meaning::Value("--key")),
    flag(&["--ca"], Meaning::Value("--ca")),
    flag(&["-j"], Meaning::Words(&["--json"])),
    flag(&["-n", "--no-progress"], Meaning::Words(&["--quiet"])),
    flag(&["-l", "--latency"], Meaning::Nothing),
    flag(&["--renderStatusCodes"], Meaning::Nothing),
    flag(&["-T", "--title"], Meaning::NothingWithValue),
    flag(&["-L", "--sampleInt"], Meaning::NothingWithValue),
    flag(
        &["-E", "--expectBody"],
        Meaning::Missing(
            "write --expect-body of `tidewire load`, which searches for a part of the body",
        ),
    ),
    flag(
        &["-F", "--form"],
        Meaning::Missing("multipart forms are not supported; write -i FILE with its header"),
    ),
    flag(
        &["-I", "--idReplacement"],
        Meaning::Missing("write {{uuid}} in a --body of `tidewire load`"),
    ),
    flag(
        &["-W", "--warmup"],
        Meaning::Missing("write --warm-up-s of `tidewire load`"),
    ),
    flag(
        &["-B", "--bailout"],
        Meaning::Missing("write --expect 'errors<N'"),
    ),
    flag(
        &["-C", "--ignoreCoordinatedOmission"],
        Meaning::Missing("the latency from the time of sending is `service` in report.json"),
    ),
    flag(
        &["-M", "--maxConnectionRequests"],
        Meaning::Missing("write -a for all connections together"),
    ),
    flag(
        &["-O", "--maxOverallRequests"],
        Meaning::Missing("write -a"),
    ),
    flag(
        &["--har"],
        Meaning::Missing("write a --scenario of `tidewire load`"),
    ),
    flag(&["--on-port"], Meaning::Missing("start the server first")),
    flag(&["-f", "--forever"], Meaning::Missing("write a shell loop")),
    OUT,
    JUNIT,
    CSV,
    EXPECT,
    BASELINE,
    FAIL_IF_SLOWER,
    JSON,
];

/// The defaults of autocannon: 10 connections, 10 seconds, any certificate.
pub(super) fn defaults(has: &dyn Fn(&str) -> bool) -> Vec<&'static str> {
    let mut words = vec!["--expect-status", "any"];
    if !has("--ca") {
        words.push("--insecure");
    }
    let given: [(&str, [&'static str; 2]); 3] = [
        ("-c", ["-c", "10"]),
        ("-t", ["--timeout-ms", "10000"]),
        ("-w", ["-t", "1"]),
    ];
    for (name, usual) in given {
        if !has(name) {
            words.extend(usual);
        }
    }
    if !has("-d") && !has("-a") {
        words.extend(["-d", "10"]);
    }
    words
}

/// autocannon separates name and value by `=`, and accepts `:` as well.
fn header(text: &str) -> Result<Vec<String>, String> {
    let at = text
        .find(['=', ':'])
        .ok_or_else(|| format!("-H {text}: write NAME=VALUE"))?;
    let (name, value) = (&text[..at], text[at + 1..].trim());
    Ok(vec!["-H".to_owned(), format!("{name}: {value}")])
}

/// The report in the form of autocannon's own, without the frames of the tables.
pub(super) fn lines(out: &mut String, of: &Figures<'_>) -> std::fmt::Result {
    let latency = &of.latency;
    writeln!(out, "Running {:.0}s test @ {}", of.seconds, of.url)?;
    writeln!(out, "{} connections\n", of.result.connections)?;
    row(
        out,
        ["Stat", "2.5%", "50%", "97.5%", "99%", "Avg", "Stdev", "Max"],
    )?;
    let ms = |ms: f64| format!("{ms:.2} ms");
    let cells = [
        of.ms(2.5),
        of.ms(50.0),
        of.ms(97.5),
        of.ms(99.0),
        latency.mean / 1e3,
        latency.stdev / 1e3,
        latency.max / 1e3,
    ]
    .map(ms);
    let [a, b, c, d, e, f, g] = &cells;
    row(out, ["Latency", a, b, c, d, e, f, g])?;
    if let Some(windows) = &of.result.load.windows {
        writeln!(out)?;
        row(
            out,
            ["Stat", "1%", "2.5%", "50%", "97.5%", "Avg", "Stdev", "Min"],
        )?;
        let count = |rate: f64| grouped(rate as u64);
        let rows: [(_, _, &dyn Fn(f64) -> String); 2] = [
            ("Req/Sec", &windows.requests_per_s, &count),
            ("Bytes/Sec", &windows.bytes_per_s, &bytes),
        ];
        for (name, rates, shown) in rows {
            let cells = [
                rates.p1,
                rates.p2_5,
                rates.p50,
                rates.p97_5,
                rates.mean,
                rates.stdev,
                rates.min,
            ];
            let cells = cells.map(shown);
            let [a, b, c, d, e, f, g] = &cells;
            row(out, [name, a, b, c, d, e, f, g])?;
        }
        writeln!(out, "\nReq/Bytes counts sampled once per second.")?;
        writeln!(out, "# of samples: {}", windows.requests_per_s.count)?;
    }
    let done = of.requests.succeeded - of.refused.min(of.requests.succeeded);
    if of.refused > 0 {
        writeln!(
            out,
            "\n{done} 2xx responses, {} non 2xx responses",
            of.refused
        )?;
    }
    let (sent, read) = (of.requests.sent, bytes(of.wire as f64));
    writeln!(out, "{sent} requests in {:.2}s, {read} read", of.seconds)?;
    if of.requests.failed > 0 {
        let (failed, timeouts) = (of.requests.failed, of.requests.timeouts);
        writeln!(out, "{failed} errors ({timeouts} timeouts)")?;
    }
    Ok(())
}

/// Three significant digits and a decimal unit, such as `4.08 MB`.
fn bytes(count: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1e3;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", units[unit])
}

fn row(out: &mut String, cells: [&str; 8]) -> std::fmt::Result {
    write!(out, "{:<10}", cells[0])?;
    for cell in &cells[1..] {
        write!(out, "{cell:>12}")?;
    }
    writeln!(out)
}
