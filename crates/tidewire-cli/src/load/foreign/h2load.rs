//! h2load of nghttp2: its flags, and its report lines.

use std::fmt::Write;
use std::net::IpAddr;

use tidewire_load::options::quantity;
use tidewire_load::report::Latency;

use super::figures::Figures;
use super::flags::{
    BASELINE, CSV, EXPECT, FAIL_IF_SLOWER, Flag, JSON, JUNIT, Meaning, OUT, SERIES, Seen, flag,
    timeout,
};

pub(super) const FLAGS: &[Flag] = &[
    flag(&["-n", "--requests"], Meaning::Kept),
    flag(&["-c", "--clients"], Meaning::Value("-c")),
    flag(&["-t", "--threads"], Meaning::Value("-t")),
    flag(&["-m", "--max-concurrent-streams"], Meaning::Kept),
    flag(&["-D", "--duration"], Meaning::Value("-d")),
    flag(&["--warm-up-time"], Meaning::Kept),
    flag(&["-r", "--rate"], Meaning::Kept),
    flag(&["--rate-period"], Meaning::Kept),
    // Per client, which is a connection here.
    flag(&["--rps"], Meaning::Made(rps)),
    flag(&["-H", "--header"], Meaning::Kept),
    flag(&["-d", "--data"], Meaning::Value("--body-file")),
    flag(&["--h1"], Meaning::Nothing),
    flag(&["-p", "--no-tls-proto"], Meaning::Kept),
    flag(&["--npn-list", "--alpn-list"], Meaning::Kept),
    flag(
        &["-N", "--connection-inactivity-timeout"],
        Meaning::Made(inactivity),
    ),
    flag(&["-B", "--base-uri"], Meaning::Kept),
    flag(&["--connect-to"], Meaning::Kept),
    flag(&["--sni"], Meaning::Value("--sni")),
    flag(&["-w", "--window-bits"], Meaning::Made(stream_window)),
    flag(
        &["-W", "--connection-window-bits"],
        Meaning::Made(connection_window),
    ),
    flag(&["-f", "--max-frame-size"], Meaning::Made(frame_size)),
    flag(&["--header-table-size"], Meaning::Made(table_size)),
    flag(&["--encoder-header-table-size"], Meaning::Made(table_size)),
    flag(&["-v", "--verbose"], Meaning::Nothing),
    flag(&["--version"], Meaning::Version),
    flag(
        &["-T", "--connection-active-timeout"],
        Meaning::Missing(
            "no connection ends by its age; write -D for the time of the load, or --requests-per-connection of \
             `tidewire load`",
        ),
    ),
    flag(
        &["-i", "--input-file"],
        Meaning::Missing("write a --scenario of `tidewire load` with a request for each URL"),
    ),
    flag(
        &["--timing-script-file"],
        Meaning::Missing(
            "write a --scenario of `tidewire load`, and --rate-per-s or --stages for its pace",
        ),
    ),
    flag(&["--ciphers"], Meaning::Missing(CIPHERS)),
    flag(&["--tls13-ciphers"], Meaning::Missing(CIPHERS)),
    flag(&["--groups"], Meaning::Missing(CIPHERS)),
    flag(
        &["--ktls"],
        Meaning::Missing("TLS runs in this program, not in the kernel; leave it out"),
    ),
    flag(&["--log-file"], Meaning::Missing(SERIES)),
    flag(&["--h3"], Meaning::Missing(HTTP3)),
    flag(&["--qlog-file-base"], Meaning::Missing(HTTP3)),
    flag(&["--no-udp-gso"], Meaning::Missing(HTTP3)),
    flag(&["--max-udp-payload-size"], Meaning::Missing(HTTP3)),
    OUT,
    JUNIT,
    CSV,
    EXPECT,
    BASELINE,
    FAIL_IF_SLOWER,
    JSON,
];

const CIPHERS: &str =
    "the server chooses among the suites and groups of this program; set them there";
const HTTP3: &str = "there is no HTTP/3; leave it out";

/// The words for the URL, for the defaults (one request, client and thread, any certificate), and for what depends on
/// several flags.
pub(super) fn together(seen: &Seen) -> Result<Vec<String>, String> {
    let mut words = vec!["--insecure".to_owned()];
    let mut add = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
    for name in ["-c", "-t"] {
        if !seen.has(name) {
            add(name, "1");
        }
    }
    if seen.has("-D") {
        // h2load ignores -n with -D, and --warm-up-time without it.
        if let Some(time) = seen.value("--warm-up-time") {
            add("--warm-up-s", time);
        }
    } else {
        add("-n", seen.value("-n").unwrap_or("1"));
    }
    if let Some(rate) = seen.value("-r") {
        add("--ramp-per-s", &ramp_per_s(rate, seen)?);
    }
    for header in seen.values_of("-H") {
        let (name, value) = parsed(header)?;
        add(name, value);
    }
    if let Some(path) = seen.value("-B").and_then(|base| base.strip_prefix("unix:")) {
        add("--unix-socket", path);
    }
    let url = url(seen)?;
    words.extend(protocol(url.as_deref(), seen)?);
    match (url, seen.value("--connect-to")) {
        (Some(url), Some(to)) => words.extend(connected_to(&url, to, seen)),
        (url, _) => words.extend(url),
    }
    Ok(words)
}

/// The version of HTTP, and the requests in flight.
fn protocol(url: Option<&str>, seen: &Seen) -> Result<Vec<String>, String> {
    let without_tls = match seen.value("-p") {
        None | Some("h2c") => false,
        Some("http/1.1") => true,
        Some(other) => return Err(format!("-p {other}: write h2c or http/1.1")),
    };
    let over_tls = match seen.value("--npn-list") {
        None => false,
        Some("http/1.1") => true,
        Some(list) if list.split(',').next() == Some("h2") => false,
        Some(other) => {
            return Err(format!(
                "--npn-list {other}: write a list that begins with h2, or http/1.1 alone"
            ));
        }
    };
    let is_http1 = match url {
        _ if seen.has("--h1") => true,
        Some(url) if url.starts_with("https://") => over_tls,
        _ => without_tls,
    };
    let streams = seen.value("-m");
    let words: Vec<&str> = match (is_http1, streams) {
        // h2load does not pipeline requests with a body.
        (true, _) if seen.has("-d") => Vec::new(),
        (true, Some(number)) => vec!["--in-flight", number],
        (true, None) => Vec::new(),
        (false, Some(number)) => vec!["--http2", "--streams", number],
        (false, None) => vec!["--http2"],
    };
    Ok(words.into_iter().map(str::to_owned).collect())
}

/// New connections per second.
fn ramp_per_s(rate: &str, seen: &Seen) -> Result<String, String> {
    if !seen.has("-D") {
        return Err(
            "-r needs -D here: all connections share the requests of -n, and the first ones would send them all; or \
             write --no-keepalive, --rate-per-s and -n of `tidewire load` for a request on each new connection"
                .to_owned(),
        );
    }
    let number = quantity::number(rate).map_err(|error| format!("-r: {error}"))?;
    let period = seen.value("--rate-period").unwrap_or("1s");
    let time = quantity::duration(period).map_err(|error| format!("--rate-period: {error}"))?;
    if time.is_zero() {
        return Err(format!(
            "--rate-period {period}: write a time above 0, such as 1s"
        ));
    }
    Ok((number / time.as_secs_f64()).to_string())
}

/// The flag and the value of a header.
fn parsed(header: &str) -> Result<(&'static str, &str), String> {
    // A pseudo header begins with a colon.
    let colon = header.char_indices().skip(1).find(|(_, c)| *c == ':');
    let (name, value) = colon
        .map(|(at, _)| (&header[..at], header[at + 1..].trim()))
        .ok_or_else(|| format!("-H {header}: write 'NAME: VALUE'"))?;
    match name {
        ":method" => Ok(("-m", value)),
        ":authority" | ":host" => Err(format!("-H {header}: write 'Host: {value}'")),
        ":path" | ":scheme" => Err(format!("-H {header}: write it in the URL")),
        name if name.starts_with(':') => Err(format!(
            "-H {header}: {name} is not among the pseudo headers of a request"
        )),
        _ => Ok(("-H", header)),
    }
}

/// The URL, with the scheme, host and port of -B.
fn url(seen: &Seen) -> Result<Option<String>, String> {
    let [word] = &seen.urls[..] else {
        return match seen.urls.is_empty() {
            true => Ok(None),
            false => Err(
                "only one URL is possible: write a --scenario of `tidewire load` with a request for each"
                    .to_owned(),
            ),
        };
    };
    let base = seen.value("-B").filter(|base| !base.starts_with("unix:"));
    if let Some(base) = base {
        let (scheme, host, _) = parts(base);
        let target = match word.starts_with('/') {
            true => word,
            false => parts(word).2,
        };
        return Ok(Some(format!("{scheme}://{host}{target}")));
    }
    let (scheme, host, target) = parts(word);
    Ok(Some(format!("{scheme}://{host}{target}")))
}

/// The scheme, the host with its port, and the rest of a URL.
fn parts(url: &str) -> (&str, &str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, target) = rest.split_at(end);
    (scheme, host, target)
}

/// The words of `--connect-to`: the URL gets the other host and port, and the given ones go into `Host` and `--sni`.
fn connected_to(url: &str, to: &str, seen: &Seen) -> Vec<String> {
    let (scheme, authority, target) = parts(url);
    let (host, port) = host_and_port(authority);
    let (other_host, other_port) = host_and_port(to);
    let port = other_port.or(port);
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    let mut words = Vec::new();
    let mut headers = seen.values_of("-H");
    let is_host = |header: &str| {
        let name = header.split(':').next().unwrap_or_default();
        name.eq_ignore_ascii_case("host")
    };
    if !headers.any(is_host) {
        words.extend(["-H".to_owned(), format!("Host: {authority}")]);
    }
    if scheme == "https" && !seen.has("--sni") && host.parse::<IpAddr>().is_err() {
        words.extend(["--sni".to_owned(), host.to_owned()]);
    }
    let other_host = match other_host.contains(':') {
        true => format!("[{other_host}]"),
        false => other_host.to_owned(),
    };
    words.push(format!("{scheme}://{other_host}{port}{target}"));
    words
}

/// A host without the brackets of an IPv6 address, and its port if it has one.
fn host_and_port(text: &str) -> (&str, Option<&str>) {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    match (bracketed, text.split_once(':')) {
        (Some((host, rest)), _) => (host, rest.strip_prefix(':')),
        // More than one colon: an address without brackets.
        (None, Some((host, port))) if !port.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}

/// Nothing for 0, which h2load takes for no rate.
fn rps(text: &str) -> Result<Vec<String>, String> {
    let number = quantity::number(text).map_err(|error| error.to_string())?;
    Ok(match number {
        0.0 => Vec::new(),
        _ => vec!["--messages-per-s".to_owned(), text.to_owned()],
    })
}

/// Nothing for 0, which is no timeout.
fn inactivity(text: &str) -> Result<Vec<String>, String> {
    let time = quantity::duration(text).map_err(|error| error.to_string())?;
    match time.is_zero() {
        true => Ok(Vec::new()),
        false => timeout(text),
    }
}

fn stream_window(bits: &str) -> Result<Vec<String>, String> {
    window(
        bits,
        STREAM_WINDOW_BITS,
        "-w: a stream has a window of 1 MiB",
    )
}

fn connection_window(bits: &str) -> Result<Vec<String>, String> {
    window(
        bits,
        CONNECTION_WINDOW_BITS,
        "-W: a connection has a window of 16 MiB",
    )
}

/// A window that is at least as large as ours changes nothing that ours does not.
fn window(bits: &str, least: u32, ours: &str) -> Result<Vec<String>, String> {
    let given = bits.parse::<u32>();
    match given.is_ok_and(|bits| (least..=30).contains(&bits)) {
        true => Ok(Vec::new()),
        false => Err(format!(
            "{ours} here, and `{bits}` is not possible; write {least} to 30, or leave it out"
        )),
    }
}

fn frame_size(text: &str) -> Result<Vec<String>, String> {
    match text {
        "16K" | "16k" | "16384" => Ok(Vec::new()),
        _ => Err(format!(
            "-f: frames have up to 16 KiB here, and `{text}` is not possible; write 16K, or leave it out"
        )),
    }
}

fn table_size(text: &str) -> Result<Vec<String>, String> {
    match text {
        "4K" | "4k" | "4096" => Ok(Vec::new()),
        _ => Err(format!(
            "the tables of headers have 4 KiB here, and `{text}` is not possible; write 4K, or leave the flag out"
        )),
    }
}

/// The report in the form of h2load's own, without the rows of its table that count for each connection.
pub(super) fn lines(out: &mut String, of: &Figures<'_>) -> std::fmt::Result {
    let load = &of.result.load;
    let answered: u64 = load.statuses.values().sum();
    let per_s = |number: u64| number as f64 / of.seconds.max(f64::MIN_POSITIVE);
    let protocol = match (of.result.test.as_str(), of.url.starts_with("https://")) {
        ("http2", true) => "h2",
        ("http2", false) => "h2c",
        _ => "http/1.1",
    };
    writeln!(out, "Application protocol: {protocol}\n")?;
    writeln!(
        out,
        "finished in {}, {:.2} req/s, {}B/s",
        time(of.seconds * 1e6),
        per_s(answered),
        size(per_s(of.wire) as u64)
    )?;
    requests(out, of, answered)?;
    let class = |digit: u16| -> u64 {
        let statuses = load.statuses.iter();
        let of_class = statuses.filter(|(status, _)| **status / 100 == digit);
        of_class.map(|(_, count)| count).sum()
    };
    writeln!(
        out,
        "status codes: {} 2xx, {} 3xx, {} 4xx, {} 5xx",
        class(2),
        class(3),
        class(4),
        class(5)
    )?;
    let head = load.bytes.unwrap_or_default().received.head;
    let [(wire, wire_bytes), (head, head_bytes), (body, body_bytes)] =
        [of.wire, head, of.body].map(|bytes| (size(bytes), bytes));
    writeln!(
        out,
        "traffic: {wire}B ({wire_bytes}) total, {head}B ({head_bytes}) headers, {body}B ({body_bytes}) data"
    )?;
    table(out, of)
}

fn requests(out: &mut String, of: &Figures<'_>, answered: u64) -> std::fmt::Result {
    let requests = &of.requests;
    // Streams that the server has reset are done as well.
    let resets = (of.result.load.errors.iter()).filter(|(name, _)| name.starts_with("reset-"));
    let done = answered + resets.map(|(_, count)| count).sum::<u64>();
    let asked = of.asked.requests.filter(|_| !of.is_partial);
    // Requests that no connection has sent have failed, too.
    let (total, failed) = match asked {
        Some(asked) => (asked, asked.saturating_sub(requests.succeeded)),
        None => (done, requests.failed),
    };
    writeln!(
        out,
        "requests: {total} total, {} started, {done} done, {} succeeded, {failed} failed, {} errored, {} timeout",
        requests.sent,
        requests.succeeded,
        failed.saturating_sub(of.refused),
        requests.timeouts
    )
}

fn table(out: &mut String, of: &Figures<'_>) -> std::fmt::Result {
    let answers = answers(of);
    let connecting = of.result.load.connecting.clone().unwrap_or_default();
    // Without TLS h2load does not wait for the settings of the server.
    let connect = match connecting.tls_us {
        None => connecting.tcp_us.or(connecting.latency_us),
        Some(_) => connecting.latency_us,
    };
    let near = format!("{:.2}%", of.near_the_mean_of(&answers));
    writeln!(
        out,
        "                     min         max         mean         sd        +/- sd"
    )?;
    for (name, latency, near) in [
        ("time for request", &answers, near.as_str()),
        ("time for connect", &connect.unwrap_or_default(), ""),
    ] {
        let [min, max, mean, sd] =
            [latency.min, latency.max, latency.mean, latency.stdev].map(time);
        let row = format!("{name}: {min:>10}  {max:>10}  {mean:>10}  {sd:>10}{near:>10}");
        writeln!(out, "{}", row.trim_end())?;
    }
    Ok(())
}

/// The latency of all complete responses, whatever their status.
fn answers(of: &Figures<'_>) -> Latency {
    let load = &of.result.load;
    match (&load.succeeded_latency_us, &load.failed_latency_us) {
        (Some(a), Some(b)) => both(a, b),
        (None, Some(failed)) => failed.clone(),
        _ if load.statuses.is_empty() => Latency::default(),
        (_, None) => of.latency.clone(),
    }
}

/// The figures of the table over both.
fn both(a: &Latency, b: &Latency) -> Latency {
    let count = a.count + b.count;
    let share = |of: &Latency| of.count as f64 / count.max(1) as f64;
    let mean = a.mean * share(a) + b.mean * share(b);
    let variance = |of: &Latency| share(of) * (of.stdev.powi(2) + (of.mean - mean).powi(2));
    Latency {
        min: a.min.min(b.min),
        max: a.max.max(b.max),
        mean,
        stdev: (variance(a) + variance(b)).sqrt(),
        count,
        ..a.clone()
    }
}

/// Whole microseconds, or two decimals of a larger unit.
fn time(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{us:.0}us"),
        us if us < 1e6 => format!("{:.2}ms", us / 1e3),
        us => format!("{:.2}s", us / 1e6),
    }
}

/// Bytes with a prefix, such as `10.40K`.
fn size(bytes: u64) -> String {
    let count = bytes as f64;
    match bytes {
        0..0x400 => bytes.to_string(),
        0x400..0x10_0000 => format!("{:.2}K", count / 1_024.0),
        0x10_0000..0x4000_0000 => format!("{:.2}M", count / 1_048_576.0),
        _ => format!("{:.2}G", count / 1_073_741_824.0),
    }
}

/// The windows of a load, as h2load counts them.
const STREAM_WINDOW_BITS: u32 = 20;
const CONNECTION_WINDOW_BITS: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_windows_are_those_of_a_load() {
        let limits = tidewire_http::http2::Limits::default();
        assert_eq!(limits.stream_window, 1 << STREAM_WINDOW_BITS);
        assert_eq!(limits.connection_window, 1 << CONNECTION_WINDOW_BITS);
    }
}
