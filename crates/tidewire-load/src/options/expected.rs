//! Checks of the expectations of a load: each has a figure that the load measures, of a request that it
//! sends.

use super::OptionError;
use crate::verdict::expectation::{ConnectPart, Expectation};
use crate::worker::script::Script;
use crate::worker::service::order::{DialogueKind, ServiceTarget};

/// Checks that the load has the figure of each expectation.
///
/// # Errors
/// The first expectation without one, with what to write instead.
pub(super) fn check_expectations(
    expectations: &[Expectation],
    script: &Script,
    targets: &[ServiceTarget],
) -> Result<(), OptionError> {
    for expectation in expectations {
        let mistake = match expectation.scope() {
            Some(name) => of_request(expectation, name, script),
            None => of_connections(expectation, targets),
        };
        if let Some(mistake) = mistake {
            return Err(OptionError::new(format_args!("`{expectation}`: {mistake}")));
        }
    }
    Ok(())
}

/// Why no request has the figure.
fn of_request(expectation: &Expectation, name: &str, script: &Script) -> Option<String> {
    let mut names: Vec<&str> = script.steps.iter().map(|step| &*step.name).collect();
    names.dedup();
    if !names.contains(&name) {
        let shown: Vec<String> = names
            .iter()
            .take(NAMES_MAX)
            .map(|one| format!("`{one}`"))
            .collect();
        let more = match names.len().saturating_sub(NAMES_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return Some(format!(
            "there is no request `{name}`: the load has {}{more}",
            shown.join(", ")
        ));
    }
    let of_teardown = script.kinds.iter().flat_map(|kind| kind.teardown.clone());
    let mut of_teardown = of_teardown.map(|step| &*script.steps[step].name);
    if of_teardown.any(|one| one == name) {
        return Some(format!(
            "`{name}` is a request of the teardown, which comes after the measurement"
        ));
    }
    (!expectation.is_of_requests()).then(|| {
        format!(
            "a request has p99 and the other latencies, succeeded.p99, rate, errors and status:503; write the figure \
             without `{name}:` for the whole load"
        )
    })
}

/// Why no connection has the part of connecting.
fn of_connections(expectation: &Expectation, targets: &[ServiceTarget]) -> Option<String> {
    let any = |has: &dyn Fn(&ServiceTarget) -> bool| targets.iter().any(has);
    let (is_there, needs) = match expectation.connect_part()? {
        ConnectPart::Tcp => (true, ""),
        ConnectPart::Dns => (
            targets[0].endpoint.resolver_time.is_some(),
            "a name in the URL, without --resolve and --unix-socket",
        ),
        ConnectPart::Proxy => (
            any(&|target| target.endpoint.tunnel.is_some()),
            "--proxy, and a URL of https://, ws:// or wss://, for which a proxy opens a tunnel",
        ),
        ConnectPart::Tls => (
            any(&|target| target.endpoint.tls.is_some()),
            "https:// or wss://",
        ),
        ConnectPart::Upgrade => (
            any(&|target| matches!(target.dialogue, DialogueKind::Messages(_))),
            "ws:// or wss://",
        ),
    };
    (!is_there).then(|| format!("no connection of this load has this part: it needs {needs}"))
}

/// As many names fit into a line.
const NAMES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use crate::options::load::LoadOptions;

    fn error(url: &str, expectation: &str) -> Option<String> {
        let json = serde_json::json!({ "expect": [expectation] }).to_string();
        let options = LoadOptions::from_json(url, &json).expect("the text is an expectation");
        options.plan().err().map(|error| error.to_string())
    }

    #[test]
    fn an_expectation_without_a_figure_in_this_load_says_what_it_needs() {
        let http = "http://127.0.0.1:9/a?b=c:d";
        for (url, text, expected) in [
            (http, "tls.p99<5ms", "it needs https:// or wss://"),
            (http, "upgrade.p50<5ms", "it needs ws:// or wss://"),
            (http, "proxy.max<5ms", "it needs --proxy"),
            (http, "dns<5ms", "it needs a name in the URL"),
            (
                http,
                "GET /b: p99<5ms",
                "there is no request `GET /b`: the load has `GET /a?b=c:d`",
            ),
            (http, "GET /a?b=c:d: connect.p99<5ms", "a request has p99"),
            (http, "GET /a?b=c:d: service.p99<5ms", "a request has p99"),
            (
                http,
                "GET /a?b=c:d: bytes>5MB",
                "without `GET /a?b=c:d:` for the whole load",
            ),
        ] {
            let error = error(url, text).unwrap_or_default();
            assert!(error.starts_with(&format!("`{text}`: ")), "{error}");
            assert!(error.contains(expected), "{error}");
        }
        for (url, text) in [
            (http, "tcp.p99<5ms"),
            (http, "GET /a?b=c:d: p99<5ms"),
            (http, "GET /a?b=c:d: status:5xx<1%"),
            ("https://127.0.0.1:9/", "tls.p99<5ms"),
            ("wss://127.0.0.1:9/", "upgrade.p99<5ms"),
            ("http://localhost:9/", "dns<5s"),
        ] {
            assert_eq!(error(url, text), None, "{text}");
        }
    }

    #[test]
    fn an_early_end_needs_a_figure_that_is_known_before_the_end() {
        for (text, is_right) in [
            ("p99<1s", true),
            ("GET /: p99<1s", true),
            ("GET /: status:503<1%", false),
            ("tcp.p99<1s", false),
        ] {
            let json = serde_json::json!({ "expect": [text], "abort_after_s": 2 }).to_string();
            let options =
                LoadOptions::from_json("http://127.0.0.1:9/", &json).expect("it is right");
            assert_eq!(options.plan().is_ok(), is_right, "{text}");
        }
    }
}
