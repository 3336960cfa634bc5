//! Parser of expectations: from text to parts, or to one line that names the correct form.

use std::str::FromStr;

use super::{Comparison, ConnectPart, Expectation, Figure, Span, Statistic, StatusClass};

/// Why a text is not an expectation, and what to write instead; always the caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: {advice}")]
pub struct ExpectationError {
    text: String,
    advice: String,
}

impl FromStr for Expectation {
    type Err = ExpectationError;

    fn from_str(text: &str) -> Result<Self, ExpectationError> {
        let text = text.trim();
        parse(text).map_err(|advice| ExpectationError {
            text: text.to_owned(),
            advice,
        })
    }
}

fn parse(text: &str) -> Result<Expectation, String> {
    let (scope, rest) = scope(text)?;
    let (name, comparison, value) = split(rest)?;
    let (figure, is_foreign) = figure(name)?;
    let (value, is_share) = match figure {
        Figure::Latency(..) => (time_us(name, value, is_foreign)?, false),
        Figure::Rate => (rate(value)?, false),
        Figure::Bytes => (bytes(value)?, false),
        _ => counted(name, value)?,
    };
    Ok(Expectation {
        text: text.to_owned(),
        scope: scope.map(str::to_owned),
        figure,
        comparison,
        value,
        is_share,
    })
}

/// The name before the last colon, and the text after it. The colon of a status belongs to the figure,
/// unless a figure follows it: then a request is called `status`.
fn scope(text: &str) -> Result<(Option<&str>, &str), String> {
    let colons = text.rmatch_indices(':').map(|(at, _)| at);
    for at in colons {
        let (before, after) = (text[..at].trim(), text[at + 1..].trim_start());
        let word = before.rsplit([':', ' ']).next().unwrap_or_default();
        let of_status =
            word == STATUS && !split(after).is_ok_and(|(name, ..)| figure(name).is_ok());
        if !of_status {
            return match before.is_empty() {
                false => Ok((Some(before), after)),
                true => Err("the name of a request is missing before the colon".to_owned()),
            };
        }
    }
    Ok((None, text))
}

/// The figure's name, the comparison and the value.
fn split(text: &str) -> Result<(&str, Comparison, &str), String> {
    const SIGNS: [(&str, Comparison); 6] = [
        ("<=", Comparison::AtMost),
        (">=", Comparison::AtLeast),
        ("===", Comparison::Equal),
        ("==", Comparison::Equal),
        ("<", Comparison::Less),
        (">", Comparison::More),
    ];
    let at = text
        .find(['<', '>', '=', '!'])
        .ok_or_else(|| format!("a comparison is missing: {EXAMPLES}"))?;
    let (name, rest) = text.split_at(at);
    let found = SIGNS
        .iter()
        .find_map(|(sign, comparison)| Some((*comparison, rest.strip_prefix(sign)?)));
    let (comparison, value) = found.ok_or("the comparisons are <, <=, >, >= and ==")?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() || value.is_empty() {
        let side = if name.is_empty() {
            "a figure before"
        } else {
            "a value after"
        };
        return Err(format!("{side} the comparison is missing: {EXAMPLES}"));
    }
    if value.contains(['<', '>', '=', '!', ',', '&']) {
        return Err("one expectation has one comparison: give --expect several times".to_owned());
    }
    Ok((name, comparison, value))
}

/// The figure of a name, and whether the name is k6's, whose numbers are milliseconds.
fn figure(name: &str) -> Result<(Figure, bool), String> {
    let simple = match name {
        "rate" => Some(Figure::Rate),
        "bytes" => Some(Figure::Bytes),
        "errors" => Some(Figure::Errors),
        "connected" => Some(Figure::Connected),
        "failed" => Some(Figure::Failed),
        "late" | "lag" => Some(Figure::Latency(Span::Late, Statistic::Percentile(99.0))),
        // It is one time.
        "dns" => Some(Figure::Latency(
            Span::Part(ConnectPart::Dns),
            Statistic::Max,
        )),
        _ => None,
    };
    if let Some(figure) = simple {
        return Ok((figure, false));
    }
    if let Some(class) = name.strip_prefix(STATUS)
        && let Some(class) = class.strip_prefix([':', ' '])
    {
        return Ok((Figure::Status(status_class(class.trim())?), false));
    }
    let (span, latency) = match name.split_once('.') {
        // The point of a percentile, as in p99.9.
        Some((head, _)) if is_percentile(head) => (Span::Response, name),
        Some((head, latency)) => (span(head.trim())?, latency.trim()),
        None => (Span::Response, name),
    };
    let (statistic, is_foreign) = statistic(latency)?;
    Ok((Figure::Latency(span, statistic), is_foreign))
}

/// Whether a figure begins as `p99` or `p(99)`.
fn is_percentile(head: &str) -> bool {
    let rest = head.strip_prefix('p').map(str::trim_start);
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '('))
}

fn span(name: &str) -> Result<Span, String> {
    let mut parts = ConnectPart::ALL.into_iter();
    if let Some(part) = parts.find(|part| part.as_str() == name) {
        return Ok(Span::Part(part));
    }
    match name {
        "succeeded" => Ok(Span::Succeeded),
        "service" => Ok(Span::Service),
        "connect" => Ok(Span::Connect),
        "first_byte" => Ok(Span::FirstByte),
        "late" | "lag" => Ok(Span::Late),
        _ => Err(format!(
            "`{name}` is unknown before the point: write succeeded, service, connect, first_byte or late, or dns, tcp, \
             proxy, tls or upgrade for a part of connecting, as in service.p99<20ms"
        )),
    }
}

fn statistic(name: &str) -> Result<(Statistic, bool), String> {
    let simple = match name {
        "min" => Some((Statistic::Min, false)),
        "mean" => Some((Statistic::Mean, false)),
        "avg" => Some((Statistic::Mean, true)),
        "max" => Some((Statistic::Max, false)),
        "median" => Some((Statistic::Percentile(50.0), false)),
        "med" => Some((Statistic::Percentile(50.0), true)),
        _ => None,
    };
    if let Some(simple) = simple {
        return Ok(simple);
    }
    let unknown = || format!("there is no figure `{name}`; there are {FIGURES}");
    let digits = name.strip_prefix('p').ok_or_else(unknown)?.trim();
    let in_brackets = digits
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'));
    let percentile: f64 = in_brackets
        .unwrap_or(digits)
        .trim()
        .parse()
        .map_err(|_| unknown())?;
    if !(percentile > 0.0 && percentile <= 100.0) {
        return Err("a percentile is above 0 and at most 100: write p99<20ms".to_owned());
    }
    Ok((Statistic::Percentile(percentile), in_brackets.is_some()))
}

/// Three digits, or one or two of them and `x` for any: `503`, `50x`, `5xx`.
fn status_class(text: &str) -> Result<StatusClass, String> {
    let digits = text.trim_end_matches(['x', 'X']);
    let is_class = text.len() == 3
        && (1..=3).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    let advice = || format!("`{text}` is not a status: write status:5xx<1% or status:503==0");
    let known: u16 = digits
        .parse()
        .ok()
        .filter(|_| is_class)
        .ok_or_else(advice)?;
    let width = 10u16.pow(3 - digits.len() as u32);
    let first = known * width;
    let last = first + width - 1;
    if last < 100 || first > 599 {
        return Err(advice());
    }
    Ok(StatusClass { first, last })
}

fn time_us(name: &str, text: &str, is_foreign: bool) -> Result<f64, String> {
    let (value, unit) = value(text, "a time, such as 20ms")?;
    let factor = match unit {
        "ns" => 1e-3,
        "us" | "µs" | "μs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "" if is_foreign => 1e3,
        "" => {
            return Err(format!(
                "a time needs a unit, ns, us, ms or s: write {name}<{value}ms"
            ));
        }
        _ => {
            return Err(format!(
                "`{unit}` is not a unit of time: write ns, us, ms or s, as in {name}<20ms"
            ));
        }
    };
    Ok(value * factor)
}

fn rate(text: &str) -> Result<f64, String> {
    let (value, unit) = value(text, "a rate, such as 10k")?;
    let factor = match unit.strip_suffix("/s").unwrap_or(unit).trim_end() {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        _ => {
            return Err(format!(
                "`{unit}` is not a unit of a rate: write a number of requests per second, as in rate>500, rate>10k or rate>1.5M"
            ));
        }
    };
    Ok(value * factor)
}

fn bytes(text: &str) -> Result<f64, String> {
    let (value, unit) = value(text, "bytes per second, such as 10MB/s")?;
    let factor = match unit.strip_suffix("/s").unwrap_or(unit).trim_end() {
        "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => {
            return Err("bytes need a unit, B, KB, MB or GB: write bytes>10MB/s".to_owned());
        }
    };
    Ok(value * factor)
}

/// A number, or a share; and whether it is a share.
fn counted(name: &str, text: &str) -> Result<(f64, bool), String> {
    let (value, unit) = value(text, "a number or a share")?;
    match unit {
        "%" if value > 100.0 => Err(format!("a share is at most 100%: write {name}<1%")),
        "%" => Ok((value, true)),
        "" if value.fract() == 0.0 => Ok((value, false)),
        "" => Err(format!(
            "{value} is neither a whole number nor a share: write {name}<{value}% for a share, or {name}<10 for a number"
        )),
        "k" => Ok((value * 1e3, false)),
        "M" => Ok((value * 1e6, false)),
        _ => Err(format!(
            "`{unit}` is not a unit of a count: write {name}<1% for a share, or {name}<10 for a number"
        )),
    }
}

/// A number that is not negative, and the text after it.
fn value<'a>(text: &'a str, wanted: &str) -> Result<(f64, &'a str), String> {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_')))
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number = digits.replace('_', "").parse();
    let number: f64 = number
        .map_err(|_| format!("`{text}` is not {wanted}: a value begins with a number from 0 on"))?;
    Ok((number, unit.trim()))
}

const STATUS: &str = "status";
const EXAMPLES: &str = "write it as in p99<20ms, errors<0.1% or rate>10k";
const FIGURES: &str = "p50, p99.9 and every other percentile, min, mean, max, rate, bytes, errors, status:5xx, \
     connected, failed, late and dns";
