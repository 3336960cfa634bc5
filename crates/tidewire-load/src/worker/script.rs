//! Scripts: the requests of a load, with their constant parts encoded, and the checks of their
//! answers.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use tidewire_http::response::Expected;

use super::template::{Feed, Template, Values};
use crate::report::model::ByteCounts;

/// The requests of a load.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// At least one.
    pub steps: Vec<Step>,
    /// The choice of the next step.
    pub order: StepOrder,
    /// Data files with values for requests.
    pub feeds: Vec<Feed>,
    /// Names of the variables for captured values.
    pub variables: Vec<String>,
}

/// The choice of the next request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StepOrder {
    /// One after another, repeatedly.
    #[default]
    InOrder,
    /// At random, each by its weight: the sums of the weights up to each step.
    Weighted(Vec<u64>),
}

/// One request, or one message.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its name in a report.
    pub name: String,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// The index of the variable.
    pub variable: usize,
    /// The place of the value.
    pub from: CaptureFrom,
}

/// The place of a captured value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaptureFrom {
    /// The header with this name.
    Header(String),
    /// The JSON body at this pointer (RFC 6901).
    Json(String),
}

impl Step {
    /// Whether the body of the response must be kept until it is complete.
    #[must_use]
    pub fn needs_body(&self) -> bool {
        let is_json = |capture: &Capture| matches!(capture.from, CaptureFrom::Json(_));
        self.checks.body_contains.is_some() || self.captures.iter().any(is_json)
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

/// The position of a user in a script.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScriptState {
    /// The next step of a journey.
    pub(crate) at: usize,
    /// Captured variables.
    pub(crate) captured: Vec<Vec<u8>>,
    /// The row of each data file.
    pub(crate) rows: Vec<usize>,
}

impl Script {
    /// Whether users send one step after another.
    #[must_use]
    pub fn is_journey(&self) -> bool {
        self.order == StepOrder::InOrder && self.steps.len() > 1
    }

    /// The share of all requests that those of this name are, if all succeed.
    #[must_use]
    pub fn share_of(&self, name: &str) -> f64 {
        let mut before = 0;
        let weights: Vec<u64> = match &self.order {
            StepOrder::InOrder => vec![1; self.steps.len()],
            StepOrder::Weighted(sums) => {
                let each = sums
                    .iter()
                    .map(|sum| sum - std::mem::replace(&mut before, *sum));
                each.collect()
            }
        };
        let named = self.steps.iter().zip(&weights);
        let named = named.filter(|(step, _)| step.name == name);
        let sum: u64 = named.map(|(_, weight)| weight).sum();
        sum as f64 / weights.iter().sum::<u64>().max(1) as f64
    }

    /// A user at the start.
    pub(crate) fn state(&self, user: usize) -> ScriptState {
        let row = |feed: &Feed| user % feed.rows.len().max(1);
        ScriptState {
            at: 0,
            captured: vec![Vec::new(); self.variables.len()],
            rows: self.feeds.iter().map(row).collect(),
        }
    }

    /// The user's next step.
    #[inline]
    pub(crate) fn pick(&self, state: &mut ScriptState, users: usize, random: &mut SmallRng) -> u32 {
        match &self.order {
            StepOrder::InOrder if self.steps.len() == 1 && self.feeds.is_empty() => 0,
            StepOrder::InOrder => {
                let step = state.at;
                state.at = (step + 1) % self.steps.len().max(1);
                if step == 0 {
                    self.next_rows(state, users);
                }
                step as u32
            }
            StepOrder::Weighted(sums) => {
                self.next_rows(state, users);
                let drawn = random.random_range(0..sums.last().copied().unwrap_or(1).max(1));
                sums.partition_point(|sum| *sum <= drawn) as u32
            }
        }
    }

    /// Each user reads the rows of its own share, so that no two users use one row at the same time while
    /// there are enough.
    fn next_rows(&self, state: &mut ScriptState, users: usize) {
        for (row, feed) in state.rows.iter_mut().zip(&self.feeds) {
            let rows = feed.rows.len().max(1);
            *row = (*row + users) % rows;
        }
    }

    /// Appends the bytes of a step.
    pub(crate) fn write(
        &self,
        step: usize,
        values: &mut Values<'_>,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> ByteCounts {
        let start = out.len();
        let head_bytes = match &self.steps[step].request {
            Encoded::Fixed { bytes, head_bytes } => {
                out.extend_from_slice(bytes);
                *head_bytes
            }
            Encoded::Message(message) => {
                message.write(values, out);
                0
            }
            Encoded::Patched {
                head,
                body,
                says_length,
            } => {
                head.write(values, out);
                scratch.clear();
                body.write(values, scratch);
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
        ByteCounts {
            wire,
            head: head_bytes as u64,
            body: wire - head_bytes as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn step(name: &str) -> Step {
        Step {
            name: name.to_owned(),
            request: Encoded::Fixed {
                bytes: Vec::new(),
                head_bytes: 0,
            },
            expected: Expected::Ordinary,
            is_idempotent: true,
            checks: Checks::default(),
            captures: Vec::new(),
            think: None,
        }
    }

    #[test]
    fn weights_are_kept() {
        let script = Script {
            steps: vec![step("a"), step("b"), step("c")],
            order: StepOrder::Weighted(vec![7, 7, 10]),
            ..Script::default()
        };
        let mut random = SmallRng::seed_from_u64(1);
        let mut state = script.state(0);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            counts[script.pick(&mut state, 1, &mut random) as usize] += 1;
        }
        assert_eq!(counts[1], 0, "a weight of 0");
        assert!((6_700..7_300).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn a_journey_goes_round_and_users_share_the_rows() {
        let feed = Feed {
            columns: vec!["n".into()],
            rows: (0..6).map(|n: u8| vec![vec![b'0' + n]]).collect(),
        };
        let script = Script {
            steps: vec![step("a"), step("b")],
            feeds: vec![feed],
            ..Script::default()
        };
        let mut random = SmallRng::seed_from_u64(1);
        let mut walk = |user: usize| {
            let mut state = script.state(user);
            let steps: Vec<(u32, usize)> = (0..6)
                .map(|_| (script.pick(&mut state, 2, &mut random), state.rows[0]))
                .collect();
            steps
        };
        assert_eq!(walk(0), [(0, 2), (1, 2), (0, 4), (1, 4), (0, 0), (1, 0)]);
        assert_eq!(walk(1), [(0, 3), (1, 3), (0, 5), (1, 5), (0, 1), (1, 1)]);
    }

    #[test]
    fn a_patched_body_has_its_length() {
        let mut body = Template::default();
        let names = super::super::template::Names::default();
        body.push(b"n={{seq}}", &names, Default::default()).unwrap();
        let script = Script {
            steps: vec![Step {
                request: Encoded::Patched {
                    head: Template::fixed(b"POST / HTTP/1.1\r\nHost: a\r\n"),
                    body,
                    says_length: true,
                },
                ..step("a")
            }],
            ..Script::default()
        };
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
        let bytes = script.write(0, &mut values, &mut scratch, &mut out);
        let text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nn=1234";
        assert_eq!(String::from_utf8(out).unwrap(), text);
        assert_eq!((bytes.body, bytes.wire), (6, text.len() as u64));
    }
}
