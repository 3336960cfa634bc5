//! Checks of the options of a load: bounds, options that exclude each other, and options that would have no
//! effect. Each mistake is an error that names the correction.

use std::time::Duration;

use super::OptionError;
use super::body::BodyOptions;
use super::load::{LoadOptions, Retry};
use super::scenario::Host;
use crate::worker::messages::Matching;
use crate::worker::pace::RATE_PER_S;
use crate::worker::target::Parts;
use crate::worker::template::Syntax;

impl LoadOptions {
    /// Checks that every option is within its bounds and has an effect on this load.
    ///
    /// # Errors
    /// The first option that is not.
    pub(super) fn check(&self, hosts: &[Host<'_>]) -> Result<(), OptionError> {
        self.check_rates()?;
        let own = &hosts[0].parts;
        let is_websocket = |host: &Host<'_>| host.parts.is_websocket;
        if hosts.iter().all(is_websocket) {
            self.check_websocket()?;
        } else {
            self.check_http2(hosts)?;
        }
        if hosts.len() > 1 {
            refuse(
                "is for loads of one server: with several hosts each connection that ended is opened again",
                [self.reconnect.then_some("--reconnect")],
            )?;
        }
        if !hosts.iter().any(is_websocket) {
            self.check_http()?;
        }
        if !own.is_websocket {
            self.check_own_http()?;
        }
        self.check_messages()?;
        self.check_search()?;
        self.check_connections(hosts)
    }

    fn check_rates(&self) -> Result<(), OptionError> {
        let rates = [
            self.rate_per_s.map(|_| "--rate-per-s"),
            self.each_per_s.map(|_| "--messages-per-s"),
            self.stages.as_ref().map(|_| "--stages"),
            self.find_limit.as_ref().map(|_| "--find-limit"),
        ];
        let given: Vec<&str> = rates.into_iter().flatten().collect();
        if given.len() > 1 {
            return Err(OptionError::new(format_args!(
                "{} exclude each other: each defines the rate",
                given.join(" and ")
            )));
        }
        let has_times = given.iter().any(|name| *name != "--messages-per-s");
        if self.poisson && !has_times {
            return Err(OptionError::new(
                "--poisson needs a rate whose times it can draw: give --rate-per-s, --stages or --find-limit",
            ));
        }
        // Connections that only listen send nothing.
        let each_per_s = self.each_per_s.filter(|rate| *rate != 0.0);
        let search = self.find_limit.as_ref();
        for (name, rate) in [
            ("--rate-per-s", self.rate_per_s),
            ("--messages-per-s", each_per_s),
            ("--ramp-per-s", self.ramp_per_s),
            ("--from-per-s", search.map(|search| search.from_per_s)),
            ("--to-per-s", search.map(|search| search.to_per_s)),
        ] {
            rate.map_or(Ok(()), |rate| check_rate(name, rate))?;
        }
        if let Some(stages) = &self.stages {
            check_times("--stages", stages)?;
            let pauses = |rate: &f64| *rate == 0.0;
            let mut rates = stages.iter().map(|stage| stage.1).filter(|r| !pauses(r));
            rates.try_for_each(|rate| check_rate("--stages: a rate", rate))?;
        }
        let growth = self.connection_stages.as_ref();
        growth.map_or(Ok(()), |stages| check_times("--connection-stages", stages))
    }

    fn check_http2(&self, hosts: &[Host<'_>]) -> Result<(), OptionError> {
        if !self.http2 {
            return Ok(());
        }
        refuse(
            "and --http2 exclude each other: --streams gives the requests in flight of HTTP/2",
            [(self.in_flight > 1).then_some("--in-flight")],
        )?;
        let is_plain = |host: &Host<'_>| !host.parts.is_secure && !host.parts.is_websocket;
        let proxy = self.proxy.as_ref().filter(|_| hosts.iter().any(is_plain));
        refuse(
            "and --http2 without TLS exclude each other: a proxy forwards HTTP/1.1; use https://",
            [proxy.map(|_| "--proxy")],
        )?;
        let method = self.request.method.as_deref();
        refuse(
            "is not possible over HTTP/2: a tunnel is no request; give another --method",
            [method
                .filter(|method| *method == "CONNECT")
                .map(|_| "CONNECT")],
        )
    }

    /// Options of HTTP requests in a load of messages.
    fn check_websocket(&self) -> Result<(), OptionError> {
        refuse(
            "is for http:// and https://: WebSocket connections begin with HTTP/1.1",
            [self.http2.then_some("--http2")],
        )?;
        let request = &self.request;
        let body = request.body.as_ref().map(body_flag);
        refuse(
            "is for http:// and https://: a WebSocket load sends --message, --message-file or the messages of a --scenario",
            [
                request.method.as_ref().map(|_| "--method"),
                body,
                self.compressed.then_some("--compressed"),
                (self.redirects > 0).then_some("--redirects"),
                (self.retry != Retry::Never).then_some("--retry"),
            ],
        )?;
        refuse(
            "is for http:// and https://: --reply says how a WebSocket message is confirmed",
            [
                request.statuses.as_ref().map(|_| "--expect-status"),
                request.body_contains.as_ref().map(|_| "--expect-body"),
                request.body_bytes.map(|_| "--expect-length"),
            ],
        )?;
        Ok(())
    }

    fn check_messages(&self) -> Result<(), OptionError> {
        let messages = &self.messages;
        if messages.message.is_some() && messages.file.is_some() {
            return Err(OptionError::new(
                "--message and --message-file exclude each other: give one of them",
            ));
        }
        Ok(())
    }

    /// Options of messages in a load of HTTP requests. Those of their coding have errors of their
    /// own.
    fn check_http(&self) -> Result<(), OptionError> {
        let messages = &self.messages;
        // A profile also sets some of the others.
        refuse(
            "is for ws:// and wss://: it is the protocol of a WebSocket session",
            [
                messages.profile.map(|_| "--profile"),
                messages.conversation.as_ref().map(|_| "--profile"),
            ],
        )?;
        refuse(
            "is for ws:// and wss://: an HTTP load sends --body, --body-file, --json-body, --form or a --scenario",
            [
                messages.message.as_ref().map(|_| "--message"),
                messages.file.as_ref().map(|_| "--message-file"),
                (!messages.subscribe.is_empty()).then_some("--subscribe"),
                messages.is_binary.then_some("--binary"),
            ],
        )?;
        refuse(
            "is for ws:// and wss://: --deflate compresses messages; use --compressed for compressed responses",
            [messages.deflate.then_some("--deflate")],
        )?;
        refuse(
            "is for ws:// and wss://: it is the encryption of Tidewire's sessions",
            [messages.encrypt.then_some("--encrypt")],
        )?;
        refuse(
            "is for ws:// and wss://: --expect-status and --expect-body check the responses of an HTTP load",
            [
                (messages.matching != Matching::None).then_some("--reply"),
                messages.stamp.as_ref().map(|_| "--timestamp-field"),
            ],
        )
    }

    /// Options of sessions with the server of the URL, which speaks HTTP.
    fn check_own_http(&self) -> Result<(), OptionError> {
        let messages = &self.messages;
        refuse(
            "is for ws:// and wss://: the connections of an HTTP load are replaced when they end",
            [self.reconnect.then_some("--reconnect")],
        )?;
        refuse(
            "is for ws:// and wss://: write --header 'Authorization: Bearer …' for HTTP",
            [messages.token.as_ref().map(|_| "--token")],
        )
    }

    /// The search keeps each rate for a time of its own.
    fn check_search(&self) -> Result<(), OptionError> {
        let Some(search) = &self.find_limit else {
            return Ok(());
        };
        refuse(
            "and --find-limit exclude each other: the search keeps each rate for --step-s, and ends by itself",
            [
                self.requests.map(|_| "--requests"),
                self.duration.map(|_| "--duration-s"),
                self.abort_after.map(|_| "--abort-after-s"),
                self.precision.as_ref().map(|_| "--confidence"),
            ],
        )?;
        if search.from_per_s > search.to_per_s {
            return Err(OptionError::new(format_args!(
                "--from-per-s of {} is above --to-per-s of {}: give a first rate of at most the highest",
                search.from_per_s, search.to_per_s
            )));
        }
        if search.step.is_zero() || search.step > TIME_MAX {
            return Err(OptionError::new(format_args!(
                "--step-s of {:?} is out of bounds: above 0 and at most {TIME_MAX:?}",
                search.step
            )));
        }
        Ok(())
    }

    /// A scenario names its requests itself. The headers are those of all of them.
    ///
    /// # Errors
    /// An option that belongs into the scenario.
    pub(super) fn check_scenario(&self, parts: &Parts<'_>) -> Result<(), OptionError> {
        if self.scenario.is_none() {
            return Ok(());
        }
        if self.syntax != Syntax::Braces {
            return Err(OptionError::new(
                "--literal and --scenario exclude each other: a scenario is written for its values; for two braces write \
                 {{'{{'}}",
            ));
        }
        let (request, messages) = (&self.request, &self.messages);
        let cookies = !request.cookies.is_empty() && !parts.is_websocket;
        refuse(
            "and --scenario exclude each other: write it in the requests of the scenario",
            [
                request.method.as_ref().map(|_| "--method"),
                request.body.as_ref().map(body_flag),
                cookies.then_some("--cookie"),
                request.statuses.as_ref().map(|_| "--expect-status"),
                request.body_contains.as_ref().map(|_| "--expect-body"),
                request.body_bytes.map(|_| "--expect-length"),
                messages.message.as_ref().map(|_| "--message"),
                messages.file.as_ref().map(|_| "--message-file"),
            ],
        )
    }

    fn check_connections(&self, hosts: &[Host<'_>]) -> Result<(), OptionError> {
        let is_secure = hosts.iter().any(|host| host.parts.is_secure);
        let tls = Some(&self.tls).filter(|_| !is_secure);
        refuse(
            "is for https:// and wss://: remove it, or correct the URL",
            [
                tls.and_then(|tls| tls.ca.as_ref()).map(|_| "--ca"),
                tls.and_then(|tls| tls.cert.as_ref()).map(|_| "--cert"),
                tls.and_then(|tls| tls.key.as_ref()).map(|_| "--key"),
            ],
        )?;
        let sni = self.tls.sni.as_ref().filter(|_| !hosts[0].parts.is_secure);
        refuse(
            "is for https:// and wss://: it names the server of the URL; remove it, or correct the URL",
            [sni.map(|_| "--sni")],
        )?;
        let cookies = self.request.headers.iter();
        let mut cookies = cookies.filter(|(name, _)| name.eq_ignore_ascii_case("cookie"));
        if !self.request.cookies.is_empty() && cookies.next().is_some() {
            return Err(OptionError::new(
                "--cookie and a header Cookie exclude each other: give all cookies in one way",
            ));
        }
        if self.unix_socket.is_none() || hosts.len() > 1 {
            return Ok(());
        }
        refuse(
            "and --unix-socket exclude each other: a Unix socket has no address",
            [
                (!self.resolve.is_empty()).then_some("--resolve"),
                (!self.source_addresses.is_empty()).then_some("--source-address"),
            ],
        )
    }
}

/// The first of these options that is given is a mistake, for this reason.
fn refuse<const N: usize>(reason: &str, given: [Option<&str>; N]) -> Result<(), OptionError> {
    match given.into_iter().flatten().next() {
        Some(name) => Err(OptionError::new(format_args!("{name} {reason}"))),
        None => Ok(()),
    }
}

fn body_flag(body: &BodyOptions) -> &'static str {
    match body {
        BodyOptions::Bytes(_) => "--body",
        BodyOptions::File(_) => "--body-file",
        BodyOptions::Json(_) => "--json-body",
        BodyOptions::Form(_) => "--form",
        BodyOptions::Multipart(_) => "multipart",
    }
}

fn check_rate(name: &str, rate: f64) -> Result<(), OptionError> {
    if RATE_PER_S.contains(&rate) {
        return Ok(());
    }
    let (least, most) = (RATE_PER_S.start(), RATE_PER_S.end());
    Err(OptionError::new(format_args!(
        "{name} of {rate} is out of bounds: from {least} to {most}"
    )))
}

fn check_times(name: &str, stages: &[(Duration, f64)]) -> Result<(), OptionError> {
    let mut times = stages.iter().map(|stage| stage.0);
    let whole = times.try_fold(Duration::ZERO, |sum, time| sum.checked_add(time));
    match whole {
        Some(whole) if whole <= TIME_MAX => Ok(()),
        _ => Err(OptionError::new(format_args!(
            "{name} together last at most {TIME_MAX:?}"
        ))),
    }
}

/// 30 days.
const TIME_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::load::FindLimit;

    const HTTP: &str = "http://127.0.0.1:9/";
    const WS: &str = "ws://127.0.0.1:9/";

    fn error(url: &str, json: &str) -> String {
        let options = LoadOptions::from_json(url, json).unwrap();
        options.plan().unwrap_err().to_string()
    }

    #[test]
    fn what_http2_excludes_is_refused_with_advice() {
        let cases = [
            (WS, r#"{"http2":true}"#, "--http2 is for http://"),
            (
                WS,
                r#"{"http2":true,"streams":2}"#,
                "--http2 is for http://",
            ),
            (
                HTTP,
                r#"{"http2":true,"in_flight":2}"#,
                "--streams gives the requests",
            ),
            (
                HTTP,
                r#"{"http2":true,"proxy":"http://127.0.0.1:9"}"#,
                "use https://",
            ),
            (
                HTTP,
                r#"{"http2":true,"method":"CONNECT"}"#,
                "CONNECT is not possible",
            ),
            (
                HTTP,
                r#"{"http2":true,"streams":2,"redirects":1}"#,
                "remove --streams",
            ),
            (
                HTTP,
                r#"{"http2":true,"streams":20000}"#,
                "--streams is at most",
            ),
        ];
        for (url, json, expected) in cases {
            let error = error(url, json);
            assert!(error.contains(expected), "{json}: {error}");
        }
    }

    #[test]
    fn an_option_without_effect_is_refused_with_advice() {
        let cases = [
            (WS, r#"{"method":"POST"}"#, "--method is for http://"),
            (WS, r#"{"body":"a"}"#, "--body is for http://"),
            (WS, r#"{"json_body":{}}"#, "--json-body is for http://"),
            (WS, r#"{"form":{"a":"b"}}"#, "--form is for http://"),
            (WS, r#"{"compressed":true}"#, "--compressed is for http://"),
            (WS, r#"{"redirects":2}"#, "--redirects is for http://"),
            (WS, r#"{"expect_status":"any"}"#, "--expect-status is for"),
            (WS, r#"{"expect_body":"a"}"#, "--expect-body is for http://"),
            (WS, r#"{"expect_length":3}"#, "--expect-length is for"),
            (WS, r#"{"message":"a","message_file":"b"}"#, "give one"),
            (HTTP, r#"{"body_file":"/no/such"}"#, "cannot read /no/such"),
            (WS, r#"{"body_file":"/no/such"}"#, "--body-file is for"),
            (
                HTTP,
                r#"{"in_flight":2,"redirects":1}"#,
                "remove --in-flight",
            ),
            (HTTP, r#"{"message":"a"}"#, "--message is for ws://"),
            (HTTP, r#"{"message_file":"a"}"#, "--message-file is for"),
            (HTTP, r#"{"subscribe":["a"]}"#, "--subscribe is for ws://"),
            (HTTP, r#"{"binary":true}"#, "--binary is for ws://"),
            (HTTP, r#"{"reply":"order"}"#, "--reply is for ws://"),
            (HTTP, r#"{"timestamp_field":"a"}"#, "--timestamp-field is"),
            (HTTP, r#"{"token":"a"}"#, "Authorization: Bearer"),
            (HTTP, r#"{"profile":"raw"}"#, "--profile is for ws://"),
            (HTTP, r#"{"profile":"socket.io"}"#, "--profile is for ws://"),
            (HTTP, r#"{"poisson":true}"#, "--poisson needs a rate"),
            (
                HTTP,
                r#"{"poisson":true,"messages_per_s":5}"#,
                "--poisson needs a rate",
            ),
            (
                HTTP,
                r#"{"cookies":{"a":"b"},"headers":{"cookie":"c=d"}}"#,
                "in one way",
            ),
            (HTTP, r#"{"ca":"f"}"#, "--ca is for https://"),
            (WS, r#"{"cert":"f","key":"f"}"#, "--cert is for https://"),
            (WS, r#"{"sni":"a"}"#, "--sni is for https://"),
            (
                HTTP,
                r#"{"unix_socket":"/s","resolve":["h:1:127.0.0.1"]}"#,
                "--resolve and --unix-socket",
            ),
            (
                HTTP,
                r#"{"unix_socket":"/s","source_address":["127.0.0.2"]}"#,
                "--source-address and",
            ),
        ];
        for (url, json, expected) in cases {
            let error = error(url, json);
            assert!(error.contains(expected), "{json}: {error}");
        }
    }

    #[test]
    fn a_scenario_says_itself_what_its_requests_are() {
        for (json, flag) in [
            (r#"{"scenario":"s","method":"PUT"}"#, "--method"),
            (r#"{"scenario":"s","body":"a"}"#, "--body"),
            (r#"{"scenario":"s","cookies":{"a":"b"}}"#, "--cookie"),
            (
                r#"{"scenario":"s","expect_status":"2xx"}"#,
                "--expect-status",
            ),
            (r#"{"scenario":"s","expect_body":"a"}"#, "--expect-body"),
            (r#"{"scenario":"s","expect_length":1}"#, "--expect-length"),
        ] {
            let error = error(HTTP, json);
            let expected = format!("{flag} and --scenario exclude each other");
            assert!(error.starts_with(&expected), "{json}: {error}");
        }
        let message = error(WS, r#"{"scenario":"s","message":"a"}"#);
        assert!(message.starts_with("--message and --scenario"), "{message}");
    }

    #[test]
    fn a_search_and_its_rates_have_bounds() {
        for (json, expected) in [
            (r#"{"find_limit":true,"requests":5}"#, "--requests and"),
            (r#"{"find_limit":true,"duration_s":5}"#, "--duration-s and"),
            (
                r#"{"find_limit":true,"expect":["p99<1s"],"abort_after_s":5}"#,
                "--abort-after-s and",
            ),
            (
                r#"{"find_limit":true,"confidence":"p99:5%"}"#,
                "--confidence and",
            ),
            (r#"{"find_limit":true,"from_per_s":0}"#, "--from-per-s of 0"),
            (r#"{"find_limit":true,"to_per_s":1e10}"#, "--to-per-s of"),
            (
                r#"{"find_limit":true,"from_per_s":50,"to_per_s":5}"#,
                "--from-per-s of 50 is above --to-per-s of 5",
            ),
            (r#"{"find_limit":true,"step_s":0}"#, "--step-s of 0ns"),
            (
                r#"{"stages":"1s:1G,1s:9G"}"#,
                "--stages: a rate of 9000000000",
            ),
            (r#"{"stages":"999999999999999s:5"}"#, "--stages together"),
            (
                r#"{"stages":"10000000000000000000s:5,10000000000000000000s:5"}"#,
                "--stages together",
            ),
            (
                r#"{"connection_stages":"999999999999999s:5"}"#,
                "--connection-stages together",
            ),
            (r#"{"ramp_per_s":0}"#, "--ramp-per-s of 0"),
        ] {
            let error = error(HTTP, json);
            assert!(error.contains(expected), "{json}: {error}");
        }
        let usual = LoadOptions {
            find_limit: Some(FindLimit::default()),
            memory: true,
            poisson: true,
            ..LoadOptions::new(HTTP)
        };
        assert!(usual.plan().is_ok());
        let pause = LoadOptions::from_json(HTTP, r#"{"stages":"1s:5,1s:0"}"#).unwrap();
        assert!(pause.plan().is_ok());
    }
}
