//! Scripts: the requests of a load, with their constant parts encoded, and the checks of their
//! answers.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use regex_lite::Regex;
use tidewire_http::response::Expected;

use super::kinds::{Condition, Kind, Repeat, StepOrder};
use super::template::{Feed, Names, Syntax, Template, Unwritable, Values};

use crate::report::model::ByteCounts;

/// The requests of a load.
#[derive(Debug, Clone)]
pub struct Script {
    /// At least one.
    pub steps: Vec<Step>,
    /// The kinds of users, which share the steps among them. At least one.
    pub kinds: Vec<Kind>,
    /// Data files with values for requests.
    pub feeds: Vec<Feed>,
    /// Names of the variables for captured values.
    pub variables: Vec<String>,
}

/// One request, or one message.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its name in a report.
    pub name: String,
    /// The number of its server, see [`ServiceSetup::targets`].
    ///
    /// [`ServiceSetup::targets`]: super::service::order::ServiceSetup::targets
    pub target: u16,
    /// Its bytes.
    pub request: Encoded,
    /// The meaning of its method for the response.
    pub expected: Expected,
    /// Whether it may be sent again when its connection ended before the first byte of the response
    /// (RFC 9110, section 9.2.2).
    pub is_idempotent: bool,
    /// The checks of the response.
    pub checks: Checks,
    /// The values to capture from it for later requests of the same user.
    pub captures: Vec<Capture>,
    /// How long the user waits after the response.
    pub think: Option<RangeInclusive<Duration>>,
    /// In a journey: the condition on which it is sent.
    pub when: Option<Condition>,
    /// In a journey: how often it is sent in a row.
    pub repeat: Option<Repeat>,
}

/// The bytes of a request.
#[derive(Debug, Clone)]
pub enum Encoded {
    /// Constant bytes.
    Fixed {
        /// All of it.
        bytes: Vec<u8>,
        /// The length of the head.
        head_bytes: usize,
    },
    /// A message, which has no head.
    Message(Template),
    /// With values.
    Patched {
        /// The head without its end, and without the length of the body.
        head: Template,
        /// The body.
        body: Template,
        /// Whether the head contains the length of the body.
        says_length: bool,
    },
}

/// The checks of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checks {
    /// The statuses that count as a success. Default up to 399.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// Bytes that the body must contain, after content decoding.
    pub body_contains: Option<Vec<u8>>,
    /// The required length of the body, before content decoding.
    pub body_bytes: Option<u64>,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            statuses: vec![100..=399],
            body_contains: None,
            body_bytes: None,
        }
    }
}

impl Checks {
    /// Whether the status is a success.
    #[must_use]
    #[inline]
    pub fn accepts(&self, status: u16) -> bool {
        self.statuses.iter().any(|range| range.contains(&status))
    }
}

/// A value that is captured from a response.
#[derive(Debug, Clone)]
pub struct Capture {
    /// The index of the variable.
    pub variable: usize,
    /// The place of the value.
    pub from: CaptureFrom,
    /// The value if there is none at this place. Without it the request has failed.
    pub default: Option<Vec<u8>>,
}

/// The place of a captured value.
#[derive(Debug, Clone)]
pub enum CaptureFrom {
    /// The header with this name.
    Header(String),
    /// The cookie with this name, of this response or an earlier one.
    Cookie(String),
    /// The JSON body at this pointer (RFC 6901).
    Json(String),
    /// The field with this name in a form of the HTML body.
    Form(String),
    /// The first match of this expression in the body: its first group, or all of it.
    Regex(Regex),
}

impl CaptureFrom {
    /// Whether the value is in the body of the response.
    fn is_in_body(&self) -> bool {
        !matches!(self, Self::Header(_) | Self::Cookie(_))
    }
}

impl Step {
    /// A step without checks, captures and conditions.
    #[must_use]
    pub fn of(name: &str, request: Encoded) -> Self {
        Self {
            name: name.to_owned(),
            target: 0,
            request,
            expected: Expected::Ordinary,
            is_idempotent: false,
            checks: Checks::default(),
            captures: Vec::new(),
            think: None,
            when: None,
            repeat: None,
        }
    }

    /// Whether the body of the response must be kept until it is complete.
    #[must_use]
    pub fn needs_body(&self) -> bool {
        let mut captures = self.captures.iter();
        self.checks.body_contains.is_some() || captures.any(|one| one.from.is_in_body())
    }

    /// Whether headers of the response are needed.
    #[must_use]
    pub fn needs_headers(&self) -> bool {
        self.needs_body() || !self.captures.is_empty()
    }

    /// A time to wait after the response, drawn between the bounds.
    pub(crate) fn think_ns(&self, random: &mut SmallRng) -> u64 {
        let Some(think) = &self.think else { return 0 };
        let (from, to) = (think.start().as_nanos(), think.end().as_nanos());
        random.random_range(from as u64..=(to as u64).max(from as u64))
    }
}

impl Script {
    /// One request, repeated.
    #[must_use]
    pub fn of(step: Step) -> Self {
        Self {
            steps: vec![step],
            kinds: vec![Kind {
                weight: 1,
                setup: 0..0,
                steps: 0..1,
                order: StepOrder::InOrder,
                teardown: 1..1,
            }],
            feeds: Vec::new(),
            variables: Vec::new(),
        }
    }

    /// The values that texts of its users may have.
    #[must_use]
    pub fn names(&self, syntax: &Syntax) -> Names {
        Names {
            captured: self.variables.clone(),
            columns: self.feeds.iter().map(|feed| feed.columns.clone()).collect(),
            syntax: syntax.clone(),
            ..Names::default()
        }
    }

    /// Whether all requests are the same step, without a condition.
    #[inline]
    pub(super) fn is_single(&self) -> bool {
        match &self.steps[..] {
            [step] => step.when.is_none() && step.repeat.is_none() && self.feeds.is_empty(),
            _ => false,
        }
    }

    /// Whether what a user sends depends on what it has sent before.
    #[must_use]
    pub fn is_journey(&self) -> bool {
        self.kinds.iter().any(|kind| {
            let is_conditional = |step: &Step| step.when.is_some() || step.repeat.is_some();
            let steps = &self.steps[kind.steps.clone()];
            let is_ordered = kind.order == StepOrder::InOrder && steps.len() > 1;
            let is_long = !kind.setup.is_empty() || !kind.teardown.is_empty();
            is_ordered || is_long || steps.iter().any(is_conditional)
        })
    }

    /// Whether requests go to several servers.
    #[must_use]
    pub fn has_hosts(&self) -> bool {
        self.steps.iter().any(|step| step.target > 0)
    }

    /// Whether users send something when the load is over.
    #[must_use]
    pub fn has_teardown(&self) -> bool {
        self.kinds.iter().any(|kind| !kind.teardown.is_empty())
    }

    /// The share of all requests that those of this name are, if all succeed, each condition holds, nothing is
    /// repeated and each kind of user sends as many requests as the others. What is sent once counts as nothing.
    #[must_use]
    pub fn share_of(&self, name: &str) -> f64 {
        let all: u64 = self.kinds.iter().map(|kind| kind.weight).sum();
        let shares = self.kinds.iter().map(|kind| {
            let named = kind.steps.clone();
            let named = named.filter(|step| self.steps[*step].name == name);
            let share: f64 = named.map(|step| kind.share_of(step)).sum();
            share * kind.weight as f64
        });
        shares.sum::<f64>() / all.max(1) as f64
    }

    /// Appends the bytes of a step.
    ///
    /// # Errors
    /// A value does not fit into a message. What was appended is not usable.
    pub(crate) fn write(
        &self,
        step: usize,
        values: &mut Values<'_>,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<ByteCounts, Unwritable> {
        let start = out.len();
        let head_bytes = match &self.steps[step].request {
            Encoded::Fixed { bytes, head_bytes } => {
                out.extend_from_slice(bytes);
                *head_bytes
            }
            Encoded::Message(message) => {
                message.write(values, out)?;
                0
            }
            Encoded::Patched {
                head,
                body,
                says_length,
            } => {
                head.write(values, out)?;
                scratch.clear();
                body.write(values, scratch)?;
                if *says_length {
                    out.extend_from_slice(b"Content-Length: ");
                    let length = scratch.len().to_string();
                    out.extend_from_slice(length.as_bytes());
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(b"\r\n");
                let head_bytes = out.len() - start;
                out.extend_from_slice(scratch);
                head_bytes
            }
        };
        let wire = (out.len() - start) as u64;
        Ok(ByteCounts {
            wire,
            head: head_bytes as u64,
            body: wire - head_bytes as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_patched_body_has_its_length() {
        let mut body = Template::default();
        let names = super::super::template::Names::default();
        body.push(b"n={{seq}}", &names, Default::default()).unwrap();
        let script = Script::of(Step {
            request: Encoded::Patched {
                head: Template::fixed(b"POST / HTTP/1.1\r\nHost: a\r\n"),
                body,
                says_length: true,
            },
            ..Step::of("a", Encoded::Message(Template::default()))
        });
        let mut random = SmallRng::seed_from_u64(1);
        let mut values = Values {
            sequence: 1234,
            user: 0,
            unix_us: 0,
            random: &mut random,
            captured: &[],
            feeds: &[],
            rows: &[],
        };
        let (mut scratch, mut out) = (Vec::new(), Vec::new());
        let written = script.write(0, &mut values, &mut scratch, &mut out);
        let bytes = written.unwrap();
        let text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nn=1234";
        assert_eq!(String::from_utf8(out).unwrap(), text);
        assert_eq!((bytes.body, bytes.wire), (6, text.len() as u64));
    }
}
