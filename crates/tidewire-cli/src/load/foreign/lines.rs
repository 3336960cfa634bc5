//! A report in the lines of other load generators.

use super::figures::{Asked, Figures};
use super::{Tool, autocannon, h2load, hey};
use std::fmt::Write;
use tidewire_load::Report;
use tidewire_load::report::Latency;

/// The report in the form of the tool's own.
pub(crate) fn report(tool: Tool, report: &Report, asked: Asked) -> String {
    let mut out = String::new();
    let Some(result) = report.results.last() else {
        return out;
    };
    let figures = Figures::of(report, result, asked);
    match tool {
        Tool::Ab => ab(&mut out, &figures),
        Tool::Wrk => wrk(&mut out, &figures),
        Tool::Loadtest => loadtest(&mut out, &figures),
        Tool::Autocannon => autocannon::lines(&mut out, &figures),
        Tool::Hey => hey::lines(&mut out, &figures),
        Tool::H2load => h2load::lines(&mut out, &figures),
    }
    .expect("writing to a string does not fail");
    out
}

fn ab(out: &mut String, of: &Figures<'_>) -> std::fmt::Result {
    let rest = of.url.split_once("://").map_or(of.url, |(_, rest)| rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let usual = if of.url.starts_with("https") {
        "443"
    } else {
        "80"
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, usual),
    };
    let (done, requests) = (of.requests.succeeded + of.requests.failed, &of.requests);
    let mut line = |name: &str, value: String| writeln!(out, "{name:<24}{value}");
    line("\nServer Software:", format!(" {}", of.server))?;
    line("Server Hostname:", host.to_owned())?;
    line("Server Port:", port.to_owned())?;
    line("\nDocument Path:", format!(" /{path}"))?;
    line(
        "Document Length:",
        format!("{} bytes", of.body / requests.succeeded.max(1)),
    )?;
    line(
        "\nConcurrency Level:",
        format!(" {}", of.result.connections),
    )?;
    line(
        "Time taken for tests:",
        format!("{:.3} seconds", of.seconds),
    )?;
    line("Complete requests:", done.to_string())?;
    line("Failed requests:", requests.failed.to_string())?;
    if requests.failed > 0 {
        let connect = of.result.failed.unwrap_or(0).min(requests.failed);
        let receive = requests.failed - connect;
        line(
            "",
            format!("(Connect: {connect}, Receive: {receive}, Length: 0, Exceptions: 0)"),
        )?;
    }
    if of.refused > 0 {
        line("Non-2xx responses:", of.refused.to_string())?;
    }
    if of.asked.keeps_alive {
        line("Keep-Alive requests:", of.kept_alive().to_string())?;
    }
    line("Total transferred:", format!("{} bytes", of.wire))?;
    line("HTML transferred:", format!("{} bytes", of.body))?;
    line(
        "Requests per second:",
        format!("{:.2} [#/sec] (mean)", of.rate_per_s),
    )?;
    let each_ms = of.seconds * 1e3 / done.max(1) as f64;
    let users = of.result.connections as f64;
    line(
        "Time per request:",
        format!("{:.3} [ms] (mean)", each_ms * users),
    )?;
    line(
        "Time per request:",
        format!("{each_ms:.3} [ms] (mean, across all concurrent requests)"),
    )?;
    let kib_per_s = of.wire as f64 / 1024.0 / of.seconds.max(f64::MIN_POSITIVE);
    line(
        "Transfer rate:",
        format!("{kib_per_s:.2} [Kbytes/sec] received"),
    )?;
    connection_times(out, of)?;
    served_within(out, of)
}

fn served_within(out: &mut String, of: &Figures<'_>) -> std::fmt::Result {
    writeln!(
        out,
        "\nPercentage of the requests served within a certain time (ms)"
    )?;
    for percentile in [50.0, 66.0, 75.0, 80.0, 90.0, 95.0, 98.0, 99.0, 100.0] {
        let end = if percentile == 100.0 {
            " (longest request)"
        } else {
            ""
        };
        writeln!(out, " {percentile:>3}% {:>6.0}{end}", of.ms(percentile))?;
    }
    Ok(())
}

fn connection_times(out: &mut String, of: &Figures<'_>) -> std::fmt::Result {
    let load = &of.result.load;
    let connect = load
        .connecting
        .as_ref()
        .and_then(|connecting| connecting.latency_us.clone());
    let first_byte = load.first_byte_us.clone().unwrap_or_default();
    writeln!(out, "\nConnection Times (ms)")?;
    writeln!(out, "              min  mean[+/-sd] median   max")?;
    let connect = connect.unwrap_or_default();
    let sane = [
        ("the initial connection time", connect.clone()),
        ("the processing time", of.latency.clone()),
        ("the waiting time", first_byte.clone()),
        ("the total time", of.latency.clone()),
    ];
    let rows = [
        ("Connect:", connect),
        ("Processing:", of.latency.clone()),
        ("Waiting:", first_byte),
        ("Total:", of.latency.clone()),
    ];
    for (name, latency) in rows {
        let [min, mean, stdev, median, max] = [
            latency.min,
            latency.mean,
            latency.stdev,
            latency.p50,
            latency.max,
        ]
        .map(|us| us / 1e3);
        writeln!(
            out,
            "{name:<12}{min:>5.0} {mean:>4.0} {stdev:>5.1} {median:>6.0} {max:>7.0}"
        )?;
    }
    for (name, latency) in sane {
        median_and_mean(out, name, &latency)?;
    }
    Ok(())
}

/// The warning of ab about times whose mean and median differ by more than their standard deviation.
fn median_and_mean(out: &mut String, name: &str, latency: &Latency) -> std::fmt::Result {
    let apart = (latency.mean - latency.p50).abs();
    if apart > 2.0 * latency.stdev {
        writeln!(
            out,
            "ERROR: The median and mean for {name} are more than twice the standard\n       \
             deviation apart. These results are NOT reliable."
        )
    } else if apart > latency.stdev {
        writeln!(
            out,
            "WARNING: The median and mean for {name} are not within a normal deviation\n        \
             These results are probably not that reliable."
        )
    } else {
        Ok(())
    }
}

fn wrk(out: &mut String, of: &Figures<'_>) -> std::fmt::Result {
    let latency = &of.latency;
    writeln!(out, "Running {:.0}s test @ {}", of.seconds, of.url)?;
    writeln!(
        out,
        "  {} threads and {} connections",
        of.threads, of.result.connections
    )?;
    writeln!(out, "  Thread Stats   Avg      Stdev     Max   +/- Stdev")?;
    let (mean, stdev, max) = (
        wrk_time(latency.mean),
        wrk_time(latency.stdev),
        wrk_time(latency.max),
    );
    writeln!(
        out,
        "    Latency   {mean:>8} {stdev:>9} {max:>8} {:>7.2}%",
        of.near_the_mean()
    )?;
    let each = f64::from(of.threads.max(1));
    if let Some(rates) = of.result.load.windows.map(|windows| windows.requests_per_s) {
        let near = of.seconds_near_the_mean(rates.mean, rates.stdev);
        let [mean, stdev, max] =
            [rates.mean, rates.stdev, rates.max].map(|rate| wrk_count(rate / each));
        writeln!(
            out,
            "    Req/Sec   {mean:>8} {stdev:>9} {max:>8} {near:>7.2}%"
        )?;
    }
    if of.asked.latency {
        writeln!(out, "  Latency Distribution")?;
        for percentile in [50.0, 75.0, 90.0, 99.0] {
            writeln!(
                out,
                "     {percentile}% {:>8}",
                wrk_time(of.ms(percentile) * 1e3)
            )?;
        }
    }
    let done = of.requests.succeeded;
    writeln!(
        out,
        "  {done} requests in {:.2}s, {} read",
        of.seconds,
        wrk_bytes(of.wire as f64)
    )?;
    socket_errors(out, of)?;
    if of.refused > 0 {
        writeln!(out, "  Non-2xx or 3xx responses: {}", of.refused)?;
    }
    writeln!(out, "Requests/sec: {:>10.2}", of.rate_per_s)?;
    let per_s = of.wire as f64 / of.seconds.max(f64::MIN_POSITIVE);
    writeln!(out, "Transfer/sec: {:>10}", wrk_bytes(per_s))
}

fn socket_errors(out: &mut String, of: &Figures<'_>) -> std::fmt::Result {
    let connect = of.result.failed.unwrap_or(0);
    let timeouts = of.requests.timeouts;
    let read = of.requests.failed.saturating_sub(timeouts);
    if connect + read + timeouts == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "  Socket errors: connect {connect}, read {read}, write 0, timeout {timeouts}"
    )
}

fn wrk_time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.2}us"),
        us if us < 1e6 => format!("{:.2}ms", us / 1e3),
        us => format!("{:.2}s", us / 1e6),
    }
}

fn wrk_count(count: f64) -> String {
    match count {
        count if count < 1e3 => format!("{count:.2}"),
        count if count < 1e6 => format!("{:.2}k", count / 1e3),
        count => format!("{:.2}M", count / 1e6),
    }
}

fn wrk_bytes(bytes: f64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2}{}", units[unit])
}

fn loadtest(out: &mut String, of: &Figures<'_>) -> std::fmt::Result {
    let requests = &of.requests;
    let mut line = |name: &str, value: String| writeln!(out, "{name:<21}{value}");
    line("\nTarget URL:", format!(" {}", of.url))?;
    if let Some(requests) = of.asked.requests {
        line("Max requests:", requests.to_string())?;
    } else if let Some(duration) = of.asked.duration {
        line("Max time (s):", duration.as_secs_f64().to_string())?;
    }
    line("Concurrent clients:", of.result.connections.to_string())?;
    let agent = match of.asked.keeps_alive {
        true => "keepalive",
        false => "none",
    };
    line("Agent:", agent.to_owned())?;
    line(
        "\nCompleted requests:",
        format!(" {}", requests.succeeded + requests.failed),
    )?;
    line("Total errors:", requests.failed.to_string())?;
    line("Total time:", format!("{:.3} s", of.seconds))?;
    line("Mean latency:", format!("{:.3} ms", of.latency.mean / 1e3))?;
    line("Effective rps:", format!("{:.0}", of.rate_per_s))?;
    writeln!(out, "\nPercentage of requests served within a certain time")?;
    for percentile in [50.0, 90.0, 95.0, 99.0] {
        writeln!(out, "  {percentile}%      {:.3} ms", of.ms(percentile))?;
    }
    writeln!(out, " 100%      {:.3} ms (longest request)", of.ms(100.0))?;
    let errors = &of.result.load.errors;
    if !errors.is_empty() {
        writeln!(out)?;
    }
    for (name, count) in errors {
        writeln!(out, " {name:>4}:   {count} errors")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_load::report::{
        Connecting, Latency, LoadFigures, Machine, Requests, Spread, Target, TestResult, Traffic,
        Windows,
    };

    fn sample() -> Report {
        let target = Target {
            url: "http://127.0.0.1:8080/a/b".into(),
            server: Some("test/1".into()),
            embedded: false,
        };
        let mut report = Report::new(Machine::default(), target);
        let mut traffic = Traffic::default();
        (traffic.received.wire, traffic.received.body) = (2_097_152, 20_000);
        report.results.push(TestResult {
            duration_s: Some(2.0),
            rate_per_s: Some(5_000.0),
            rate_series: vec![5_000.0, 6_000.0],
            latency_us: Some(Latency {
                p50: 1_500.0,
                p90: 2_000.0,
                p95: 2_500.0,
                p99: 9_000.0,
                max: 20_000.0,
                mean: 1_600.0,
                stdev: 500.0,
                count: 10_000,
                ..Latency::default()
            }),
            load: LoadFigures {
                requests: Some(Requests {
                    sent: 10_000,
                    succeeded: 9_990,
                    failed: 10,
                    timeouts: 4,
                    ..Requests::default()
                }),
                statuses: [(200, 9_980), (503, 10)].into(),
                errors: [("timeout".to_owned(), 4)].into(),
                bytes: Some(traffic),
                histogram: vec![
                    (1_500.0, 7_400),
                    (1_800.0, 1_600),
                    (9_000.0, 990),
                    (20_000.0, 10),
                ],
                windows: Some(Windows {
                    window_s: 1.0,
                    requests_per_s: Spread {
                        mean: 5_000.0,
                        max: 6_000.0,
                        ..Spread::default()
                    },
                    ..Windows::default()
                }),
                ..LoadFigures::default()
            },
            ..TestResult::new("http", 10)
        });
        report
    }

    fn asked() -> Asked {
        Asked {
            requests: Some(10_000),
            duration: None,
            keeps_alive: true,
            latency: true,
        }
    }

    #[track_caller]
    fn assert_lines(tool: Tool, lines: &[&str]) {
        let text = report(tool, &sample(), asked());
        for line in lines {
            assert!(
                text.lines().any(|found| found == *line),
                "no {line:?} in\n{text}"
            );
        }
    }

    #[test]
    fn the_lines_of_ab() {
        assert_lines(
            Tool::Ab,
            &[
                "Server Software:        test/1",
                "Server Hostname:        127.0.0.1",
                "Server Port:            8080",
                "Document Path:          /a/b",
                "Document Length:        2 bytes",
                "Concurrency Level:      10",
                "Time taken for tests:   2.000 seconds",
                "Complete requests:      10000",
                "Failed requests:        10",
                "                        (Connect: 0, Receive: 10, Length: 0, Exceptions: 0)",
                "Keep-Alive requests:    9990",
                "Non-2xx responses:      10",
                "Requests per second:    5000.00 [#/sec] (mean)",
                "Time per request:       2.000 [ms] (mean)",
                "Transfer rate:          1024.00 [Kbytes/sec] received",
                "  80%      2",
                " 100%     20 (longest request)",
            ],
        );
    }

    #[test]
    fn wrk_prints_the_distribution_only_if_asked_for() {
        let asked = Asked {
            latency: false,
            ..asked()
        };
        let text = report(Tool::Wrk, &sample(), asked);
        assert!(
            !text.contains("Latency Distribution") && !text.contains("99%"),
            "{text}"
        );
        assert!(text.contains("Thread Stats"), "{text}");
    }

    #[test]
    fn the_lines_of_wrk() {
        assert_lines(
            Tool::Wrk,
            &[
                "Running 2s test @ http://127.0.0.1:8080/a/b",
                "  1 threads and 10 connections",
                "    Latency     1.60ms  500.00us  20.00ms   90.00%",
                "    Req/Sec      5.00k      0.00    6.00k   50.00%",
                "     75%   1.80ms",
                "     99%   9.00ms",
                "  9990 requests in 2.00s, 2.00MB read",
                "  Socket errors: connect 0, read 6, write 0, timeout 4",
                "  Non-2xx or 3xx responses: 10",
                "Requests/sec:    5000.00",
                "Transfer/sec:     1.00MB",
            ],
        );
    }

    #[test]
    fn the_lines_of_loadtest() {
        assert_lines(
            Tool::Loadtest,
            &[
                "Target URL:          http://127.0.0.1:8080/a/b",
                "Max requests:        10000",
                "Concurrent clients:  10",
                "Agent:               keepalive",
                "Completed requests:  10000",
                "Total errors:        10",
                "Total time:          2.000 s",
                "Mean latency:        1.600 ms",
                "Effective rps:       5000",
                "  99%      9.000 ms",
                " 100%      20.000 ms (longest request)",
                " timeout:   4 errors",
            ],
        );
    }

    #[test]
    fn the_lines_of_autocannon() {
        assert_lines(
            Tool::Autocannon,
            &[
                "Running 2s test @ http://127.0.0.1:8080/a/b",
                "10 connections",
                "Stat              2.5%         50%       97.5%         99%         Avg       Stdev         Max",
                "Latency        1.50 ms     1.50 ms     9.00 ms     9.00 ms     1.60 ms     0.50 ms    20.00 ms",
                "Req/Sec              0           0           0           0       5,000           0           0",
                "9980 2xx responses, 10 non 2xx responses",
                "10000 requests in 2.00s, 2.10 MB read",
                "10 errors (4 timeouts)",
            ],
        );
    }

    #[test]
    fn the_lines_of_hey() {
        assert_lines(
            Tool::Hey,
            &[
                "Summary:",
                "  Total:\t2.0000 secs",
                "  Slowest:\t0.0200 secs",
                "  Requests/sec:\t5000.0000",
                "  Total data:\t20000 bytes",
                "  Size/request:\t2 bytes",
                "  10% in 0.0015 secs",
                "  90% in 0.0020 secs",
                "  99% in 0.0090 secs",
                "  [200]\t9980 responses",
                "  [503]\t10 responses",
                "  [4]\ttimeout",
            ],
        );
        let text = report(Tool::Hey, &sample(), asked());
        let bars = text
            .lines()
            .filter_map(|line| line.split_once("[")?.1.split_once("]\t|"));
        let counts: Vec<u64> = bars.map(|(count, _)| count.parse().unwrap()).collect();
        assert_eq!(counts, [0, 9_000, 0, 0, 0, 990, 0, 0, 0, 0, 10]);
    }

    /// 9,980 successes, 10 other statuses, 6 reset streams and 4 timeouts.
    fn sample_of_h2load() -> Report {
        let mut report = sample();
        let result = &mut report.results[0];
        result.test = "http2".into();
        let latency = |us: f64, count| Latency {
            min: us - 100.0,
            max: us + 100.0,
            mean: us,
            count,
            ..Latency::default()
        };
        let load = &mut result.load;
        load.statuses = [(200, 9_980), (503, 10)].into();
        load.errors = [("timeout".to_owned(), 4), ("reset-cancel".to_owned(), 6)].into();
        if let Some(requests) = &mut load.requests {
            (requests.succeeded, requests.failed) = (9_980, 20);
        }
        load.succeeded_latency_us = Some(latency(1_500.0, 9_980));
        load.failed_latency_us = Some(latency(2_499.0, 10));
        load.connecting = Some(Connecting {
            latency_us: Some(latency(900.0, 10)),
            tcp_us: Some(latency(300.0, 10)),
            ..Connecting::default()
        });
        report
    }

    #[test]
    fn the_lines_of_h2load() {
        let mut report = sample_of_h2load();
        let text = super::report(Tool::H2load, &report, asked());
        assert_eq!(
            text,
            "Application protocol: h2c\n\n\
             finished in 2.00s, 4995.00 req/s, 1.00MB/s\n\
             requests: 10000 total, 10000 started, 9996 done, 9980 succeeded, 20 failed, 10 errored, 4 timeout\n\
             status codes: 9980 2xx, 0 3xx, 0 4xx, 10 5xx\n\
             traffic: 2.00MB (2097152) total, 0B (0) headers, 19.53KB (20000) data\n\
             \x20                    min         max         mean         sd        +/- sd\n\
             time for request:     1.40ms      2.60ms      1.50ms        32us    74.00%\n\
             time for connect:      200us       400us       300us         0us\n"
        );
        // Requests that an interrupted run has not sent are no failures.
        report.partial = true;
        let text = super::report(Tool::H2load, &report, asked());
        assert!(text.contains("requests: 9996 total"), "{text}");
        // Over TLS the time to connect includes its handshake, over HTTP/1.1 as well.
        report.target.url = "https://h/".into();
        report.results[0].test = "http".into();
        if let Some(connecting) = &mut report.results[0].load.connecting {
            connecting.tls_us = connecting.tcp_us.clone();
        }
        let text = super::report(Tool::H2load, &report, asked());
        assert!(
            text.starts_with("Application protocol: http/1.1\n"),
            "{text}"
        );
        assert!(
            text.contains("connect:      800us      1.00ms       900us"),
            "{text}"
        );
    }

    #[test]
    fn a_report_without_results_has_no_lines() {
        let mut empty = sample();
        empty.results.clear();
        assert_eq!(report(Tool::Wrk, &empty, asked()), "");
    }
}
