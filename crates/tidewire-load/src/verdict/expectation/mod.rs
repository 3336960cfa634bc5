//! Expectations: the required value of a figure, in the form of a command line: `p99<20ms`,
//! `errors<0.1%`, `rate>10k`.
//!
//! ```text
//! expectation = [scope ":"] figure comparison value
//! scope       = the name of a request, such as "GET /items"; for `bench` the name of a test
//! figure      = [span "."] latency | "rate" | "bytes" | "errors" | "status:" class | "connected" | "failed" | "late"
//!             | "dns"
//! span        = "succeeded" | "service" | "connect" | part | "first_byte" | "late"
//! part        = "dns" | "tcp" | "proxy" | "tls" | "upgrade"
//! latency     = "p" number | "min" | "mean" | "median" | "max"
//! class       = three digits, of which the last ones may be "x"
//! comparison  = "<" | "<=" | ">" | ">=" | "=="
//! value       = number [unit]
//! ```
//!
//! Spaces may separate all parts. A latency has the unit `ns`, `us`, `ms` or `s`; a rate may have
//! `k` or `M` and `/s`; `bytes` (received per second) has `B`, `KB`, `MB` or `GB` and may have
//! `/s`; the others are a number, or a share with `%`: of all requests, of all responses, of the
//! requested connections. `late` is the delay of the generator, its 99th percentile unless another
//! figure follows; `dns` is one time. The spellings of k6 work too, and its numbers without a unit are
//! milliseconds: `p(99)<20`, `avg<5`, `med<3`. The scope ends at the last colon before the figure, so that
//! it may contain colons itself.

mod parse;
mod patience;

pub use parse::ExpectationError;
pub use patience::{Patience, Piece};

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use crate::report::{ExpectationResult, number};

/// One expectation; made from text by [`str::parse`], and shown as it was given.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    text: String,
    /// The name of the request or of the test that has the figure; `None` for the whole load.
    scope: Option<String>,
    figure: Figure,
    comparison: Comparison,
    value: f64,
    /// Whether `value` is a part of 100 and not a count.
    is_share: bool,
}

/// The compared figure.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
    Latency(Span, Statistic),
    Rate,
    Bytes,
    Errors,
    Status(StatusClass),
    Connected,
    Failed,
}

/// The kind of a figure, by which a plan decides whether it has the figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureKind {
    /// `p99`, `max`, `service.p99` and so on.
    Latency,
    /// `connect.p99` and so on.
    Connect,
    /// `tls.p99` and the same of the other parts of connecting.
    ConnectPart,
    /// `first_byte.p99` and so on.
    FirstByte,
    /// `late` and so on.
    Late,
    /// `rate`.
    Rate,
    /// `bytes`.
    Bytes,
    /// `errors`.
    Errors,
    /// `status:503` and so on.
    Status,
    /// `connected` and `failed`.
    Connections,
}

impl FigureKind {
    /// An example of its spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Latency => "p99",
            Self::Connect => "connect.p99",
            Self::ConnectPart => "tls.p99",
            Self::FirstByte => "first_byte.p99",
            Self::Late => "late",
            Self::Rate => "rate",
            Self::Bytes => "bytes",
            Self::Errors => "errors",
            Self::Status => "status:503",
            Self::Connections => "connected",
        }
    }
}

/// The measured time span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Span {
    Response,
    Succeeded,
    Service,
    Connect,
    Part(ConnectPart),
    FirstByte,
    Late,
}

/// A part of the time until a connection is ready, in the order in which they follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectPart {
    /// The answer of the resolver, once for a load.
    Dns,
    /// Until TCP, or the Unix socket, was established.
    Tcp,
    /// From then until the proxy had opened a tunnel.
    Proxy,
    /// The handshake of TLS.
    Tls,
    /// The opening handshake of a WebSocket and of its protocol.
    Upgrade,
}

impl ConnectPart {
    /// All parts, in their order.
    pub const ALL: [Self; 5] = [Self::Dns, Self::Tcp, Self::Proxy, Self::Tls, Self::Upgrade];

    /// Its spelling before the point of an expectation.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Tcp => "tcp",
            Self::Proxy => "proxy",
            Self::Tls => "tls",
            Self::Upgrade => "upgrade",
        }
    }

    /// What a load without it lacks.
    fn missing(self) -> &'static str {
        match self {
            Self::Dns => "DNS time",
            Self::Tcp => "TCP time",
            Self::Proxy => "proxy time: only a tunnel through --proxy has one",
            Self::Tls => "TLS time: only https:// and wss:// have one",
            Self::Upgrade => "upgrade time: only ws:// and wss:// have one",
        }
    }
}

/// A figure of a distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Statistic {
    Percentile(f64),
    Min,
    Mean,
    Max,
}

/// Statuses between two, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StatusClass {
    first: u16,
    last: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
}

/// A distribution of times, in whatever type.
pub trait Distribution {
    /// Number of values.
    fn count(&self) -> u64;
    /// The time in microseconds that `percentile` (0 to 100) of the values do not exceed.
    fn percentile_us(&self, percentile: f64) -> Option<f64>;
    /// The smallest time in microseconds.
    fn min_us(&self) -> Option<f64>;
    /// The mean time in microseconds.
    fn mean_us(&self) -> Option<f64>;
    /// The largest time in microseconds.
    fn max_us(&self) -> Option<f64>;
}

/// The figures that expectations can name; those that are not known are `None`.
#[derive(Clone, Copy, Default)]
pub struct Figures<'a> {
    /// Latency of every request that was due, from the origin that the plan defines.
    pub latency: Option<&'a dyn Distribution>,
    /// The same of the requests that succeeded; `None` if all did.
    pub succeeded: Option<&'a dyn Distribution>,
    /// Latency from the actual send.
    pub service: Option<&'a dyn Distribution>,
    /// From the start of a connection until it was ready.
    pub connect: Option<&'a dyn Distribution>,
    /// The parts of that time, in the order of [`ConnectPart::ALL`].
    pub connect_parts: [Option<&'a dyn Distribution>; 5],
    /// From the first byte of a request to the first byte of its response.
    pub first_byte: Option<&'a dyn Distribution>,
    /// The delay of the generator.
    pub late: Option<&'a dyn Distribution>,
    /// Successful requests per second.
    pub rate_per_s: Option<f64>,
    /// Received bytes per second.
    pub bytes_per_s: Option<f64>,
    /// Failed requests, and all that have ended.
    pub errors: Option<Part>,
    /// Complete responses by status.
    pub statuses: Option<&'a BTreeMap<u16, u64>>,
    /// Connections that became ready, of those requested.
    pub connected: Option<Part>,
    /// Connections that failed, of those requested.
    pub failed: Option<Part>,
    /// The figures of single requests, by their names.
    pub scopes: Option<&'a BTreeMap<String, Figures<'a>>>,
}

/// A part of a total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// The part.
    pub count: u64,
    /// The total.
    pub of: u64,
}

/// The result of one expectation.
#[derive(Debug, Clone, PartialEq)]
pub enum ExpectationOutcome {
    /// The figure is as expected.
    Kept(f64),
    /// It is not.
    Broken(f64),
    /// There are too few values, or none, for this reason.
    Unknown(String),
}

impl Expectation {
    /// The name before the colon: that of the request, or of the test, whose figure it is.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// The name before the colon, and the expectation without it.
    #[must_use]
    pub fn into_parts(self) -> (Option<String>, Self) {
        let text = match &self.scope {
            // The parser has found the scope at the start of the text.
            Some(scope) => self.text[scope.len()..].trim_start()[1..].trim_start(),
            None => &self.text,
        };
        let alone = Self {
            text: text.to_owned(),
            scope: None,
            ..self
        };
        (self.scope, alone)
    }

    /// The part of connecting whose time it limits.
    #[must_use]
    pub fn connect_part(&self) -> Option<ConnectPart> {
        match self.figure {
            Figure::Latency(Span::Part(part), _) => Some(part),
            _ => None,
        }
    }

    /// Whether the figure exists for one request of a scenario.
    #[must_use]
    pub fn is_of_requests(&self) -> bool {
        match self.figure {
            Figure::Latency(span, _) => matches!(span, Span::Response | Span::Succeeded),
            Figure::Rate | Figure::Errors | Figure::Status(_) => true,
            Figure::Bytes | Figure::Connected | Figure::Failed => false,
        }
    }

    /// Whether it can end a load early: its figure is known second by second.
    #[must_use]
    pub fn may_end_early(&self) -> bool {
        let kinds = [
            FigureKind::Latency,
            FigureKind::Rate,
            FigureKind::Bytes,
            FigureKind::Errors,
        ];
        kinds.contains(&self.kind())
    }

    /// The kind of its figure.
    #[must_use]
    pub fn kind(&self) -> FigureKind {
        match self.figure {
            Figure::Latency(Span::Response | Span::Succeeded | Span::Service, _) => {
                FigureKind::Latency
            }
            Figure::Latency(Span::Connect, _) => FigureKind::Connect,
            Figure::Latency(Span::Part(_), _) => FigureKind::ConnectPart,
            Figure::Latency(Span::FirstByte, _) => FigureKind::FirstByte,
            Figure::Latency(Span::Late, _) => FigureKind::Late,
            Figure::Rate => FigureKind::Rate,
            Figure::Bytes => FigureKind::Bytes,
            Figure::Errors => FigureKind::Errors,
            Figure::Status(_) => FigureKind::Status,
            Figure::Connected | Figure::Failed => FigureKind::Connections,
        }
    }

    /// Whether it limits the number of failed requests, those of its scope.
    #[must_use]
    pub fn allows_errors(&self) -> bool {
        self.figure == Figure::Errors
    }

    /// The percentile of the latency of all requests that it limits, 100 for the longest, and the limit in microseconds.
    pub(crate) fn latency_at_most_us(&self) -> Option<(f64, f64)> {
        let percentile = match self.figure {
            Figure::Latency(Span::Response, Statistic::Percentile(percentile)) => percentile,
            Figure::Latency(Span::Response, Statistic::Max) => 100.0,
            _ => return None,
        };
        self.is_upper().then_some((percentile, self.value))
    }

    /// The part of the responses, from 0 to 1, that counts against an expectation about their status: those that it limits,
    /// or all others if it asks for a least number.
    pub(crate) fn statuses_against(&self, statuses: &BTreeMap<u16, u64>) -> Option<f64> {
        let Figure::Status(class) = self.figure else {
            return None;
        };
        let part = class.part(statuses);
        let share = part.count as f64 / part.of.max(1) as f64;
        Some(if self.is_upper() { share } else { 1.0 - share })
    }

    /// Whether it limits a figure from above.
    fn is_upper(&self) -> bool {
        match self.comparison {
            Comparison::Less | Comparison::AtMost => true,
            Comparison::Equal => self.value == 0.0,
            Comparison::More | Comparison::AtLeast => false,
        }
    }

    /// Compares the figure with the value.
    #[must_use]
    pub fn check(&self, figures: &Figures<'_>) -> ExpectationOutcome {
        match self.seen(figures) {
            Ok(seen) if self.comparison.holds(seen, self.value) => ExpectationOutcome::Kept(seen),
            Ok(seen) => ExpectationOutcome::Broken(seen),
            Err(reason) => ExpectationOutcome::Unknown(reason),
        }
    }

    /// The same for a report. An expectation whose figure is not known is not kept.
    #[must_use]
    pub fn result(&self, figures: &Figures<'_>) -> ExpectationResult {
        let (seen, kept, reason) = match self.check(figures) {
            ExpectationOutcome::Kept(seen) => (Some(self.shown(seen)), true, None),
            ExpectationOutcome::Broken(seen) => (Some(self.shown(seen)), false, None),
            ExpectationOutcome::Unknown(reason) => match self.already_broken(figures) {
                Some(seen) => {
                    let why = format!("a lower percentile is already above it; {reason}");
                    (Some(self.shown(seen)), false, Some(why))
                }
                None => (None, false, Some(format!("not known: {reason}"))),
            },
        };
        ExpectationResult {
            text: self.text.clone(),
            seen,
            kept,
            reason,
        }
    }

    /// With too few values for a percentile: the highest percentile that is known, if an upper bound
    /// does not even hold for it.
    fn already_broken(&self, figures: &Figures<'_>) -> Option<f64> {
        let Figure::Latency(span, Statistic::Percentile(_)) = self.figure else {
            return None;
        };
        if !self.is_upper() {
            return None;
        }
        let figures = self.of_scope(figures).ok()?;
        let count = distribution(&figures, span).0?.count();
        let known = 100.0 * (1.0 - 1.0 / count.max(1) as f64);
        let seen = time(&figures, span, Statistic::Percentile(known.min(99.0))).ok()?;
        (!self.comparison.holds(seen, self.value)).then_some(seen)
    }

    /// The number of requests from which the figure is known: for a percentile or a share as many as
    /// distinguish its value from the next one.
    #[must_use]
    pub fn values_needed(&self) -> u64 {
        match self.figure {
            Figure::Latency(_, Statistic::Percentile(percentile)) => values_needed(percentile),
            Figure::Errors | Figure::Status(_) if self.is_share && self.value > 0.0 => {
                (100.0 / self.value).ceil() as u64
            }
            _ => 1,
        }
    }

    /// A value of the figure with its unit.
    #[must_use]
    pub fn shown(&self, value: f64) -> String {
        match self.figure {
            Figure::Latency(..) => number::us(value),
            Figure::Rate => format!("{}/s", number::si(value)),
            Figure::Bytes => number::byte_rate(value),
            _ if self.is_share => share(value),
            _ => number::grouped(value as u64),
        }
    }

    /// The figures of its scope.
    fn of_scope<'a>(&self, figures: &Figures<'a>) -> Result<Figures<'a>, String> {
        let Some(name) = &self.scope else {
            return Ok(*figures);
        };
        let found = figures.scopes.and_then(|scopes| scopes.get(name));
        found
            .copied()
            .ok_or_else(|| missing(&format!("figures of `{name}`")))
    }

    fn seen(&self, figures: &Figures<'_>) -> Result<f64, String> {
        let figures = self.of_scope(figures)?;
        let part = match self.figure {
            Figure::Latency(span, statistic) => return time(&figures, span, statistic),
            Figure::Rate => return figures.rate_per_s.ok_or_else(|| missing("rate")),
            Figure::Bytes => return figures.bytes_per_s.ok_or_else(|| missing("byte rate")),
            Figure::Errors => figures.errors.ok_or_else(|| missing("count of errors"))?,
            Figure::Connected => figures
                .connected
                .ok_or_else(|| missing("count of connections"))?,
            Figure::Failed => figures
                .failed
                .ok_or_else(|| missing("count of failed connections"))?,
            Figure::Status(class) => class.part(figures.statuses.ok_or_else(|| missing("status"))?),
        };
        match (self.is_share, part.of) {
            (false, _) => Ok(part.count as f64),
            (true, 0) => Err("a share needs at least one value, and there was none".to_owned()),
            (true, of) => Ok(part.count as f64 / of as f64 * 100.0),
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Comparison {
    fn holds(self, seen: f64, value: f64) -> bool {
        let order = seen.total_cmp(&value);
        match self {
            Self::Less => order == Ordering::Less,
            Self::AtMost => order != Ordering::Greater,
            Self::More => order == Ordering::Greater,
            Self::AtLeast => order != Ordering::Less,
            Self::Equal => order == Ordering::Equal,
        }
    }
}

impl StatusClass {
    fn part(self, statuses: &BTreeMap<u16, u64>) -> Part {
        Part {
            count: statuses
                .range(self.first..=self.last)
                .map(|(_, count)| count)
                .sum(),
            of: statuses.values().sum(),
        }
    }
}

/// The distribution of a span, and its name.
fn distribution<'a>(
    figures: &Figures<'a>,
    span: Span,
) -> (Option<&'a dyn Distribution>, &'static str) {
    match span {
        Span::Response => (figures.latency, "latency"),
        Span::Succeeded => (
            figures.succeeded.or(figures.latency),
            "latency of a success",
        ),
        // In a closed loop both latencies are the same.
        Span::Service => (
            figures.service.or(figures.latency),
            "latency from the actual send",
        ),
        Span::Connect => (figures.connect, "connect latency"),
        Span::Part(part) => (figures.connect_parts[part as usize], part.missing()),
        Span::FirstByte => (figures.first_byte, "latency of the first byte"),
        Span::Late => (figures.late, "lateness: only a given rate has one"),
    }
}

fn time(figures: &Figures<'_>, span: Span, statistic: Statistic) -> Result<f64, String> {
    let (distribution, name) = distribution(figures, span);
    let distribution = distribution
        .filter(|distribution| distribution.count() > 0)
        .ok_or_else(|| missing(name))?;
    let found = match statistic {
        Statistic::Min => distribution.min_us(),
        Statistic::Mean => distribution.mean_us(),
        Statistic::Max => distribution.max_us(),
        Statistic::Percentile(percentile) => {
            let (count, needed) = (distribution.count(), values_needed(percentile));
            if count < needed {
                return Err(format!(
                    "it needs at least {} values, and there are {}",
                    number::grouped(needed),
                    number::grouped(count)
                ));
            }
            distribution.percentile_us(percentile)
        }
    };
    found.ok_or_else(|| missing(name))
}

/// With fewer values a percentile is the largest of them and carries no information of its own:
/// 10,000 for 99.99.
#[must_use]
pub fn values_needed(percentile: f64) -> u64 {
    let above = 100.0 - percentile;
    if above <= 0.0 {
        return 1;
    }
    // Without the rounding, 99.9 would need 1,001.
    ((100.0 / above * 1e6).round() / 1e6).ceil() as u64
}

fn missing(name: &str) -> String {
    format!("the load has no {name}")
}

/// A part of 100 that rounding changes neither to zero nor to everything.
fn share(percent: f64) -> String {
    if percent > 0.0 && percent < 0.01 {
        return format!("{percent:.4} %");
    }
    number::percent(percent)
}

#[cfg(test)]
mod tests;
