//! The flags and the defaults of each tool.

use super::flags::{
    BASELINE, CSV, EXPECT, FAIL_IF_SLOWER, Flag, JSON, JUNIT, Meaning, OUT, SERIES, Seen, flag,
    timeout,
};
use super::{autocannon, h2load, hey};
use clap::ValueEnum;

/// A tool whose command line is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tool {
    /// Apache's ab
    Ab,
    /// wrk, and wrk2 with its -R
    Wrk,
    /// The npm package loadtest
    Loadtest,
    /// The npm package autocannon
    Autocannon,
    /// hey
    Hey,
    /// h2load of nghttp2
    H2load,
}

impl Tool {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ab => "ab",
            Self::Wrk => "wrk",
            Self::Loadtest => "loadtest",
            Self::Autocannon => "autocannon",
            Self::Hey => "hey",
            Self::H2load => "h2load",
        }
    }
}

/// The flags of a tool, and the flags of `tidewire load` that it may be combined with.
pub(super) fn of(tool: Tool) -> &'static [Flag] {
    match tool {
        Tool::Ab => AB,
        Tool::Wrk => WRK,
        Tool::Loadtest => LOADTEST,
        Tool::Autocannon => autocannon::FLAGS,
        Tool::Hey => hey::FLAGS,
        Tool::H2load => h2load::FLAGS,
    }
}

/// The defaults of the tool, and what depends on several of its flags.
pub(super) fn add_defaults(tool: Tool, seen: &Seen, words: &mut Vec<String>) -> Result<(), String> {
    let has = |name: &str| seen.has(name);
    let is_websocket = words
        .iter()
        .any(|word| word.starts_with("ws://") || word.starts_with("wss://"));
    let mut add = |ours: &[&str]| words.extend(ours.iter().map(|&word| word.to_owned()));
    match tool {
        Tool::Ab => {
            // ab fails no response because of its status, accepts any certificate, and has one
            // thread.
            add(&["-t", "1", "--expect-status", "any", "--insecure"]);
            if !has("-k") {
                add(&["--no-keepalive"]);
            }
            match (has("-n"), has("-t")) {
                (true, _) => {}
                (false, true) => add(&["-n", "50000"]),
                (false, false) => add(&["-n", "1"]),
            }
            if !has("-c") {
                add(&["-c", "1"]);
            }
        }
        Tool::Wrk => {
            add(&["--expect-status", "any", "--insecure"]);
            for (name, usual) in [("-c", "10"), ("-d", "10s"), ("-t", "2")] {
                if !has(name) {
                    add(&[name, usual]);
                }
            }
        }
        Tool::Loadtest => {
            if !has("-k") && !has("--tcp") && !is_websocket {
                add(&["--no-keepalive"]);
            }
            if !has("-c") {
                add(&["-c", "10"]);
            }
        }
        Tool::Autocannon => add(&autocannon::defaults(&has)),
        Tool::Hey => add(&hey::defaults(&has)),
        Tool::H2load => words.extend(h2load::together(seen)?),
    }
    Ok(())
}

const AB: &[Flag] = &[
    flag(&["-n"], Meaning::Value("-n")),
    flag(&["-c"], Meaning::Value("-c")),
    flag(&["-t"], Meaning::Value("-d")),
    flag(&["-s"], Meaning::Made(timeout)),
    flag(&["-k"], Meaning::Nothing),
    flag(&["-i"], Meaning::Words(&["-m", "HEAD"])),
    flag(&["-m"], Meaning::Value("-m")),
    flag(&["-p"], Meaning::Made(|file| body_file("POST", file))),
    flag(&["-u"], Meaning::Made(|file| body_file("PUT", file))),
    flag(&["-T"], Meaning::Made(content_type)),
    flag(&["-C"], Meaning::Value("--cookie")),
    flag(&["-H"], Meaning::Value("-H")),
    flag(
        &["-X"],
        Meaning::Made(|proxy| Ok(vec!["--proxy".to_owned(), format!("http://{proxy}")])),
    ),
    flag(&["-B"], Meaning::Value("--source-address")),
    flag(&["-q"], Meaning::Words(&["--quiet"])),
    flag(&["-l"], Meaning::Nothing),
    flag(&["-r"], Meaning::Nothing),
    flag(&["-d"], Meaning::Nothing),
    flag(&["-S"], Meaning::Nothing),
    flag(&["-v"], Meaning::NothingWithValue),
    flag(&["-b"], Meaning::NothingWithValue),
    flag(
        &["-A", "-P"],
        Meaning::Missing("write -H 'Authorization: Basic …' or -H 'Proxy-Authorization: Basic …'"),
    ),
    flag(&["-g"], Meaning::Missing(SERIES)),
    flag(&["-e"], Meaning::Missing(SERIES)),
    flag(&["-w"], Meaning::Missing("write --out DIR for a page")),
    OUT,
    JUNIT,
    CSV,
    EXPECT,
    BASELINE,
    FAIL_IF_SLOWER,
    JSON,
];

const WRK: &[Flag] = &[
    flag(&["-c", "--connections"], Meaning::Value("-c")),
    flag(&["-d", "--duration"], Meaning::Value("-d")),
    flag(&["-t", "--threads"], Meaning::Value("-t")),
    flag(&["-H", "--header"], Meaning::Value("-H")),
    flag(&["-R", "--rate"], Meaning::Value("--rate-per-s")),
    flag(&["-T", "--timeout"], Meaning::Made(timeout)),
    flag(&["-L", "--latency"], Meaning::Words(&["--lines-latency"])),
    flag(&["-U", "--u_latency"], Meaning::Nothing),
    flag(
        &["-s", "--script"],
        Meaning::Missing("there is no Lua; write a --scenario of `tidewire load`"),
    ),
    OUT,
    JUNIT,
    CSV,
    EXPECT,
    BASELINE,
    FAIL_IF_SLOWER,
    JSON,
];

const LOADTEST: &[Flag] = &[
    flag(&["-n", "--maxRequests"], Meaning::Value("-n")),
    flag(&["-t", "--maxSeconds"], Meaning::Value("-d")),
    flag(&["-c", "--concurrency"], Meaning::Value("-c")),
    flag(&["-d", "--timeout"], Meaning::Value("--timeout-ms")),
    flag(&["-k", "--keepalive"], Meaning::Nothing),
    flag(&["--tcp"], Meaning::Nothing),
    flag(&["-C", "--cookies", "--cookie"], Meaning::Value("--cookie")),
    flag(&["-H", "--headers", "--header"], Meaning::Value("-H")),
    flag(&["-T", "--contentType"], Meaning::Made(content_type)),
    flag(
        &["-P", "--postBody"],
        Meaning::Made(|body| inline("POST", body)),
    ),
    flag(
        &["-A", "--patchBody"],
        Meaning::Made(|body| inline("PATCH", body)),
    ),
    flag(
        &["-p", "--postFile"],
        Meaning::Made(|file| body_file_of_loadtest("POST", file)),
    ),
    flag(
        &["-u", "--putFile"],
        Meaning::Made(|file| body_file_of_loadtest("PUT", file)),
    ),
    flag(
        &["-a", "--patchFile"],
        Meaning::Made(|file| body_file_of_loadtest("PATCH", file)),
    ),
    flag(&["--data"], Meaning::Value("--body")),
    flag(&["-m", "--method"], Meaning::Value("-m")),
    flag(
        &["--rps", "--requestsPerSecond"],
        Meaning::Value("--rate-per-s"),
    ),
    flag(&["--cores"], Meaning::Value("-t")),
    flag(&["--insecure"], Meaning::Words(&["--insecure"])),
    flag(&["--cert"], Meaning::Value("--cert")),
    flag(&["--key"], Meaning::Value("--key")),
    flag(&["--proxy"], Meaning::Value("--proxy")),
    flag(&["--quiet"], Meaning::Words(&["--quiet"])),
    flag(&["-r", "--recover"], Meaning::Nothing),
    flag(&["--agent"], Meaning::Nothing),
    flag(&["--debug"], Meaning::Nothing),
    flag(&["-s", "--secureProtocol"], Meaning::Made(secure_protocol)),
    flag(
        &["-R", "--requestGenerator"],
        Meaning::Missing(
            "it is a module of JavaScript, which `tidewire-loadtest` of the npm package tidewire runs; or write a \
             --scenario of `tidewire load`",
        ),
    ),
    flag(&["--index"], Meaning::Value("--index-text")),
    flag(&["-V", "--version"], Meaning::Version),
    OUT,
    JUNIT,
    CSV,
    EXPECT,
    BASELINE,
    FAIL_IF_SLOWER,
    JSON,
];

fn content_type(value: &str) -> Result<Vec<String>, String> {
    Ok(vec!["-H".to_owned(), format!("content-type: {value}")])
}

fn body_file(method: &str, file: &str) -> Result<Vec<String>, String> {
    Ok(["--body-file", file, "-m", method]
        .map(str::to_owned)
        .to_vec())
}

/// loadtest uses the return value of a module as the body, if the file has this ending.
fn body_file_of_loadtest(method: &str, file: &str) -> Result<Vec<String>, String> {
    if file.ends_with(".js") {
        return Err(format!(
            "`{file}` is a module of JavaScript, which `tidewire-loadtest` of the npm package tidewire runs; or write a \
             --scenario of `tidewire load`"
        ));
    }
    body_file(method, file)
}

/// The names of Node for any version of TLS.
fn secure_protocol(method: &str) -> Result<Vec<String>, String> {
    match method {
        "TLS_method" | "TLS_client_method" | "SSLv23_method" | "SSLv23_client_method" => {
            Ok(Vec::new())
        }
        other => Err(format!(
            "`{other}` is not possible: TLS 1.2 and 1.3 are offered, and the server chooses; leave -s out, or write \
             TLS_method"
        )),
    }
}

fn inline(method: &str, body: &str) -> Result<Vec<String>, String> {
    Ok(["--body", body, "-m", method].map(str::to_owned).to_vec())
}
