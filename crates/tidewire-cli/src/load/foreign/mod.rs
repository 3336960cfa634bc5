//! `tidewire load --as TOOL`: the command line of another load generator, and its report lines.
//!
//! The tool's flags are translated word by word into flags of `tidewire load`, so that all its checks
//! apply. A flag without a counterpart is refused, and never ignored unless it does not affect the
//! measurement.

mod autocannon;
mod figures;
mod flags;
mod h2load;
mod hey;
mod lines;
mod tools;

use crate::failure::Failure;
use clap::ValueEnum;
use flags::{Flag, Meaning, Seen};
use std::ffi::OsString;

pub(crate) use figures::Asked;
pub(crate) use lines::report;
pub(crate) use tools::Tool;

/// The command line with a tool's flags translated; any other command line unchanged.
///
/// # Errors
/// The tool is unknown, or one of its flags has no counterpart.
pub(crate) fn translate(words: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let is_load = words.get(1).is_some_and(|word| word == "load");
    let second = words.get(2).and_then(|word| word.to_str());
    let (tool, rest) = match second {
        Some("--as") if is_load => (words.get(3).and_then(|word| word.to_str()), 4),
        Some(word) if is_load && word.starts_with("--as=") => (word.strip_prefix("--as="), 3),
        _ => return Ok(words),
    };
    let tool = tool
        .and_then(|name| Tool::from_str(name, false).ok())
        .ok_or_else(|| {
            Failure::usage(
                "--as: expected ab, wrk, loadtest, autocannon, hey or h2load, followed by the flags of that tool",
            )
        })?;
    let rest: Option<Vec<String>> = words
        .iter()
        .skip(rest)
        .map(|word| word.to_str().map(str::to_owned))
        .collect();
    let rest = rest
        .ok_or_else(|| Failure::usage("--as: the arguments are not UTF-8: write them in UTF-8"))?;
    let translated = Translation::of(tool, &rest)
        .map_err(|words| Failure::usage(format!("--as {}: {words}", tool.name())))?;
    if translated.is_version {
        let version = OsString::from("--version");
        return Ok(words.into_iter().take(1).chain([version]).collect());
    }
    let ours = [
        "load".to_owned(),
        "--lines-of".to_owned(),
        tool.name().to_owned(),
    ];
    let ours = ours.into_iter().chain(translated.words).map(OsString::from);
    Ok(words.into_iter().take(1).chain(ours).collect())
}

/// The words of `tidewire load` for those of a tool.
struct Translation {
    words: Vec<String>,
    /// The tool would print its version, and so does this program.
    is_version: bool,
}

impl Translation {
    fn of(tool: Tool, theirs: &[String]) -> Result<Self, String> {
        let known = tools::of(tool);
        let mut words = Vec::new();
        let mut seen = Seen::default();
        let mut rest = theirs.iter();
        while let Some(word) = rest.next() {
            if !word.starts_with('-') || word == "-" {
                match tool {
                    // Its flags may change the URL.
                    Tool::H2load => seen.urls.push(word.clone()),
                    _ => words.push(url(tool, word)),
                }
                continue;
            }
            let (flag, attached) = find(known, word).ok_or_else(|| {
                format!("{word} is not among the supported flags: {}", names(known))
            })?;
            seen.flags.push(flag.names[0]);
            let mut value = || {
                let next = attached.map(str::to_owned).or_else(|| rest.next().cloned());
                next.ok_or_else(|| format!("{word} needs a value"))
            };
            match flag.meaning {
                Meaning::Nothing => {}
                Meaning::NothingWithValue => drop(value()?),
                Meaning::Words(ours) => words.extend(ours.iter().map(|&word| word.to_owned())),
                Meaning::Value(ours) => words.extend([ours.to_owned(), value()?]),
                Meaning::Made(make) => words.extend(make(&value()?)?),
                Meaning::Kept => seen.values.push((flag.names[0], value()?)),
                Meaning::Version => {
                    return Ok(Self {
                        words,
                        is_version: true,
                    });
                }
                Meaning::Missing(instead) => {
                    return Err(format!("{word} is not supported: {instead}"));
                }
            }
        }
        tools::add_defaults(tool, &seen, &mut words)?;
        Ok(Self {
            words,
            is_version: false,
        })
    }
}

/// The flag of a word, and a value attached to it as in `-n100`, `-n=100` or `--requests=100`.
fn find<'w>(known: &'static [Flag], word: &'w str) -> Option<(&'static Flag, Option<&'w str>)> {
    let exact = |name: &str| known.iter().find(|flag| flag.names.contains(&name));
    if let Some(flag) = exact(word) {
        return Some((flag, None));
    }
    let (name, value) = word.split_once('=').unwrap_or_default();
    if let Some(flag) = exact(name) {
        return Some((flag, Some(value)));
    }
    let (name, value) = word.split_at_checked(2)?;
    exact(name)
        .filter(|flag| flag.takes_value())
        .map(|flag| (flag, Some(value)))
}

/// All tools except loadtest accept a host without `http://`.
fn url(tool: Tool, word: &str) -> String {
    match word.contains("://") || tool == Tool::Loadtest {
        true => word.to_owned(),
        false => format!("http://{word}"),
    }
}

fn names(known: &[Flag]) -> String {
    let understood = known
        .iter()
        .filter(|flag| !matches!(flag.meaning, Meaning::Missing(_)));
    understood
        .map(|flag| flag.names[0])
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(words: &str) -> String {
        let words = words.split(' ').map(OsString::from).collect();
        let translated = translate(words).unwrap();
        let text: Vec<String> = translated
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        text.join(" ")
    }

    fn refused(words: &str) -> String {
        let words = words.split(' ').map(OsString::from).collect();
        translate(words).unwrap_err().to_string()
    }

    #[test]
    fn other_command_lines_stay_as_they_are() {
        for words in [
            "tidewire",
            "tidewire load http://h/ -n 5",
            "tidewire bench --as ab",
        ] {
            assert_eq!(ours(words), words);
        }
    }

    #[test]
    fn the_flags_of_ab() {
        assert_eq!(
            ours("tidewire load --as ab -n100 -c 10 -k -H Accept:a h:80/"),
            "tidewire load --lines-of ab -n 100 -c 10 -H Accept:a http://h:80/ -t 1 --expect-status any \
             --insecure"
        );
        assert_eq!(
            ours("tidewire load --as=ab http://h/"),
            "tidewire load --lines-of ab http://h/ -t 1 --expect-status any --insecure --no-keepalive -n 1 -c 1"
        );
        let timed = ours("tidewire load --as ab -t 5 -s 2 -k -c 3 http://h/");
        assert!(timed.contains("-d 5 --timeout-ms 2000"), "{timed}");
        assert!(timed.ends_with("-n 50000"), "{timed}");
        let posted =
            ours("tidewire load --as ab -p body.json -T application/json -C a=b http://h/");
        assert!(posted.contains(
            "--body-file body.json -m POST -H content-type: application/json --cookie a=b"
        ));
    }

    #[test]
    fn the_flags_of_wrk_and_wrk2() {
        assert_eq!(
            ours("tidewire load --as wrk -t2 -c100 -d30s --latency http://h/"),
            "tidewire load --lines-of wrk -t 2 -c 100 -d 30s --lines-latency http://h/ --expect-status any --insecure"
        );
        assert_eq!(
            ours("tidewire load --as wrk -R 2k --timeout 500ms http://h/"),
            "tidewire load --lines-of wrk --rate-per-s 2k --timeout-ms 500 http://h/ --expect-status any --insecure \
             -c 10 -d 10s -t 2"
        );
    }

    #[test]
    fn the_flags_of_loadtest() {
        assert_eq!(
            ours("tidewire load --as loadtest -n 200 -c 20 -k --rps 50 http://h/"),
            "tidewire load --lines-of loadtest -n 200 -c 20 --rate-per-s 50 http://h/"
        );
        assert_eq!(
            ours("tidewire load --as loadtest -P {} -T application/json --expect p99<1s http://h/"),
            "tidewire load --lines-of loadtest --body {} -m POST -H content-type: application/json --expect p99<1s \
             http://h/ --no-keepalive -c 10"
        );
        assert_eq!(
            ours(
                "tidewire load --as loadtest -k -c 1 --index ID -s TLS_method -p body.txt https://h/ID"
            ),
            "tidewire load --lines-of loadtest -c 1 --index-text ID --body-file body.txt -m POST https://h/ID"
        );
        for version in ["-V", "--version", "-n 5 --version http://h/"] {
            let words = format!("tidewire load --as loadtest {version}");
            assert_eq!(ours(&words), "tidewire --version");
        }
    }

    #[test]
    fn the_flags_of_autocannon() {
        assert_eq!(
            ours("tidewire load --as autocannon -c 100 -d 5 -p 4 -w 2 -H a=b:c h:80/"),
            "tidewire load --lines-of autocannon -c 100 -d 5 -p 4 -t 2 -H a: b:c http://h:80/ --expect-status any \
             --insecure --timeout-ms 10000"
        );
        assert_eq!(
            ours(
                "tidewire load --as autocannon -a 500 -R 50 -m PUT -b x -t 2 --ca ca.pem https://h/"
            ),
            "tidewire load --lines-of autocannon -n 500 --rate-per-s 50 -m PUT --body x --timeout-ms 2000 \
             --ca ca.pem https://h/ --expect-status any -c 10 -t 1"
        );
    }

    #[test]
    fn the_flags_of_hey() {
        assert_eq!(
            ours("tidewire load --as hey http://h/"),
            "tidewire load --lines-of hey http://h/ --expect-status any --insecure -c 50 --timeout-ms 20000 \
             --compressed --redirects 10 -n 200"
        );
        let words = "tidewire load --as hey -z 10s -c 5 -q 20 -t 3 -disable-keepalive -disable-compression \
                     -disable-redirects -m POST -d {} -T application/json http://h/";
        assert_eq!(
            ours(words),
            "tidewire load --lines-of hey -d 10s -c 5 --messages-per-s 20 --timeout-ms 3000 --no-keepalive -m POST \
             --body {} -H Content-Type: application/json http://h/ --expect-status any --insecure"
        );
    }

    #[test]
    fn the_flags_of_h2load() {
        for (theirs, expected) in [
            ("http://h/", "--insecure -c 1 -t 1 -n 1 --http2 http://h/"),
            (
                "-n300 -c 3 -t2 -m 10 -H accept:a -v https://h/a?b",
                "-c 3 -t 2 --insecure -n 300 -H accept:a --http2 --streams 10 https://h/a?b",
            ),
            (
                "-D 10 --warm-up-time=500ms -n 5 -c 8 -r 2 --rate-period 500ms --rps 5 -N 2 h",
                "-d 10 -c 8 --messages-per-s 5 --timeout-ms 2000 --insecure -t 1 --warm-up-s 500ms --ramp-per-s 4 \
                 --http2 http://h",
            ),
            (
                "-d f -H:method:PUT -w 30 -W24 -f 16K --header-table-size=4K --rps 0 -N 0 http://h/",
                "--body-file f --insecure -c 1 -t 1 -n 1 -m PUT --http2 http://h/",
            ),
            // Without -D, h2load does not warm up.
            (
                "--warm-up-time 1s -B unix:/s http://h/",
                "--insecure -c 1 -t 1 -n 1 --unix-socket /s --http2 http://h/",
            ),
            (
                "-B https://h:81/b /a",
                "--insecure -c 1 -t 1 -n 1 --http2 https://h:81/a",
            ),
        ] {
            assert_eq!(
                ours(&format!("tidewire load --as h2load {theirs}")),
                format!("tidewire load --lines-of h2load {expected}")
            );
        }
        let version = ours("tidewire load --as h2load --version");
        assert_eq!(version, "tidewire --version");
    }

    #[test]
    fn h2load_speaks_http1_when_it_is_told_to() {
        for (theirs, expected) in [
            ("--h1 https://h/", "https://h/"),
            ("--h1 -m 4 http://h/", "--in-flight 4 http://h/"),
            ("--h1 -m 4 -d f http://h/", "-n 1 http://h/"),
            ("-p http/1.1 -m 4 http://h/", "--in-flight 4 http://h/"),
            (
                "-p http/1.1 -m 4 https://h/",
                "--http2 --streams 4 https://h/",
            ),
            ("-p h2c http://h/", "--http2 http://h/"),
            ("--npn-list http/1.1 https://h/", "-n 1 https://h/"),
            ("--alpn-list=h2,http/1.1 https://h/", "--http2 https://h/"),
        ] {
            let words = ours(&format!("tidewire load --as h2load {theirs}"));
            assert!(words.ends_with(&format!(" {expected}")), "{words}");
            let is_http2 = expected.contains("--http2");
            assert_eq!(words.contains("--http2"), is_http2, "{words}");
        }
    }

    #[test]
    fn h2load_connects_to_another_host_or_port() {
        for (theirs, expected) in [
            (
                "127.0.0.1 http://h:81/a",
                "-H Host: h:81 http://127.0.0.1:81/a",
            ),
            ("g:82 http://h:81/a", "-H Host: h:81 http://g:82/a"),
            ("g:82 https://h/a", "-H Host: h --sni h https://g:82/a"),
            (
                "[::1]:82 https://127.0.0.1/",
                "-H Host: 127.0.0.1 https://[::1]:82/",
            ),
            ("::1 http://[::2]:81", "-H Host: [::2]:81 http://[::1]:81"),
            ("g -H host:i http://h/", "-n 1 -H host:i --http2 http://g/"),
            ("g --sni i https://h/", "--http2 -H Host: h https://g/"),
        ] {
            let words = ours(&format!("tidewire load --as h2load --connect-to {theirs}"));
            assert!(words.ends_with(&format!(" {expected}")), "{words}");
        }
    }

    #[test]
    fn a_value_may_be_attached_and_contain_an_equals_sign() {
        let words = ours("tidewire load --as ab -k -n 1 -c 1 -HCookie:a=b http://h/");
        assert!(words.contains(" -H Cookie:a=b "), "{words}");
    }

    #[test]
    fn the_flags_of_h2load_without_a_counterpart_are_refused_in_one_line() {
        for (theirs, expected) in [
            ("-i urls.txt", "--scenario"),
            ("--timing-script-file f", "--scenario"),
            ("http://h/a http://h/b", "only one URL is possible"),
            ("-r 10 -c 20 -n 20 http://h/", "-r needs -D here"),
            ("-D 1 -r x http://h/", "-r: `x` is not a number"),
            ("-D 1 -r 2 --rate-period 0 http://h/", "a time above 0"),
            ("-T 5 http://h/", "-T is not supported: no connection ends"),
            ("-N x http://h/", "`x` is not a time"),
            ("--rps x http://h/", "`x` is not a number"),
            ("-H :path:/a http://h/", "write it in the URL"),
            ("-H :authority:a http://h/", "write 'Host: a'"),
            ("-H :protocol:a http://h/", ":protocol is not among"),
            ("-H accept http://h/", "write 'NAME: VALUE'"),
            ("-w 16 http://h/", "write 20 to 30"),
            ("-W 16 http://h/", "write 24 to 30"),
            ("-W 31 http://h/", "write 24 to 30"),
            ("-f 32K http://h/", "write 16K"),
            ("--header-table-size 8K http://h/", "write 4K"),
            ("-p h3 http://h/", "write h2c or http/1.1"),
            ("--npn-list http/1.1,h2 https://h/", "begins with h2"),
            ("--ciphers A https://h/", "the server chooses"),
            ("--ktls https://h/", "not in the kernel"),
            ("--log-file f http://h/", "report.json"),
            ("--no-udp-gso http://h/", "there is no HTTP/3"),
        ] {
            let said = refused(&format!("tidewire load --as h2load {theirs}"));
            assert!(said.contains(expected) && !said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn what_has_no_counterpart_is_refused_in_one_line() {
        for (words, expected) in [
            (
                "tidewire load --as ab -g out.tsv http://h/",
                "-g is not supported",
            ),
            (
                "tidewire load --as wrk -s script.lua http://h/",
                "--scenario",
            ),
            (
                "tidewire load --as loadtest -R module.js http://h/",
                "-R is not supported: it is a module of JavaScript, which `tidewire-loadtest`",
            ),
            (
                "tidewire load --as loadtest -p body.js http://h/",
                "`body.js` is a module of JavaScript, which `tidewire-loadtest`",
            ),
            (
                "tidewire load --as loadtest -s TLSv1_method http://h/",
                "`TLSv1_method` is not possible: TLS 1.2 and 1.3 are offered",
            ),
            (
                "tidewire load --as hey -h2 https://h/",
                "write -c 1 --http2 --streams N",
            ),
            ("tidewire load --as ab -n", "-n needs a value"),
            (
                "tidewire load --as ab --bogus http://h/",
                "--bogus is not among the supported flags",
            ),
            (
                "tidewire load --as k6 http://h/",
                "expected ab, wrk, loadtest, autocannon, hey or h2load",
            ),
            (
                "tidewire load --as wrk --timeout x http://h/",
                "`x` is not a time",
            ),
        ] {
            let said = refused(words);
            assert!(said.contains(expected) && !said.contains('\n'), "{said}");
        }
    }
}
