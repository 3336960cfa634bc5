//! Expectations of tests: `p99<5ms` for each test that has the figure, `throughput: rate>100k` for
//! one test.

use std::fmt;
use std::str::FromStr;

use super::kind::TestKind;
use crate::report::ExpectationResult;
use crate::verdict::expectation::{Expectation, ExpectationError, FigureKind, Figures};

/// An expectation of one test, or of each test that has the figure.
#[derive(Debug, Clone, PartialEq)]
pub struct TestExpectation {
    test: Option<TestKind>,
    expectation: Expectation,
}

/// The reason for which a text is not an expectation of a test.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TestExpectationError {
    /// The name before the colon is not that of a test.
    #[error("`{name}` is not a test: expected one of {known}")]
    Test {
        /// The name.
        name: String,
        /// The names of all tests.
        known: String,
    },
    /// The rest is not an expectation.
    #[error(transparent)]
    Expectation(#[from] ExpectationError),
}

impl TestExpectation {
    /// The test has the figure and is not excluded by name. At a given rate (`is_paced`) a test has other figures.
    pub(crate) fn applies_to(&self, test: TestKind, is_paced: bool) -> bool {
        self.test.is_none_or(|only| only == test)
            && test.figures(is_paced).contains(&self.expectation.kind())
    }

    /// The expectation without the name of a test.
    pub(super) fn of_figure(&self) -> &Expectation {
        &self.expectation
    }

    /// Whether it can end a test: its figure is known before the test is over.
    pub(crate) fn may_end_a_test(&self) -> bool {
        matches!(
            self.expectation.kind(),
            FigureKind::Rate | FigureKind::Latency
        )
    }

    /// The result for the figures of a test.
    pub(crate) fn result(&self, figures: &Figures<'_>) -> ExpectationResult {
        self.expectation.result(figures)
    }
}

impl FromStr for TestExpectation {
    type Err = TestExpectationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (test, expectation) = text.parse::<Expectation>()?.into_parts();
        let test = test.map(|name| match TestKind::parse(&name) {
            Some(kind) => Ok(kind),
            None => Err(TestExpectationError::Test {
                name,
                known: TestKind::ALL.map(TestKind::name).join(", "),
            }),
        });
        Ok(Self {
            test: test.transpose()?,
            expectation,
        })
    }
}

impl fmt::Display for TestExpectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.test {
            Some(test) => write!(f, "{}: {}", test.name(), self.expectation),
            None => self.expectation.fmt(f),
        }
    }
}

impl TestKind {
    /// The figures of the test of which something can be expected.
    pub(crate) fn figures(self, is_paced: bool) -> &'static [FigureKind] {
        use FigureKind::{Bytes, Connect, Connections, Errors, Late, Latency, Rate};
        match self {
            Self::ConnectionStorm | Self::ConnectLatency | Self::RapidReconnect => {
                &[Latency, Connect, Rate, Connections]
            }
            Self::PingLatency | Self::SustainedHold => {
                &[Latency, Connect, Rate, Errors, Connections]
            }
            Self::Throughput
            | Self::SustainedThroughput
            | Self::SizeMatrix
            | Self::FormatComparison
                if is_paced =>
            {
                &[Connect, Late, Rate, Bytes, Errors, Connections]
            }
            Self::Throughput
            | Self::SustainedThroughput
            | Self::SizeMatrix
            | Self::FormatComparison => &[Connect, Rate, Bytes, Errors, Connections],
            Self::FanOut | Self::Echo if is_paced => {
                &[Latency, Connect, Late, Rate, Bytes, Errors, Connections]
            }
            Self::FanOut | Self::Echo => &[Latency, Connect, Rate, Bytes, Errors, Connections],
            Self::ConnectionLimit => &[Connections],
        }
    }

    /// `throughput has rate, errors; …`.
    pub(crate) fn figures_in_words(tests: &[Self], is_paced: bool) -> String {
        let words = tests.iter().map(|test| {
            let figures = test.figures(is_paced).iter();
            let names: Vec<&str> = figures.map(|figure| figure.as_str()).collect();
            format!("{} has {}", test.name(), names.join(", "))
        });
        words.collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> TestExpectation {
        text.parse().unwrap()
    }

    #[test]
    fn an_expectation_is_of_one_test_or_of_all_with_its_figure() {
        let of_all = parse("p99<5ms");
        assert!(of_all.applies_to(TestKind::PingLatency, false));
        assert!(!of_all.applies_to(TestKind::Throughput, false));
        let of_one = parse("throughput: rate>100k");
        assert!(of_one.applies_to(TestKind::Throughput, false));
        assert!(!of_one.applies_to(TestKind::SizeMatrix, false));
        assert_eq!(of_one.to_string(), "throughput: rate>100k");
    }

    #[test]
    fn lateness_needs_a_given_rate() {
        let late = parse("late<1ms");
        assert!(late.applies_to(TestKind::Throughput, true));
        assert!(!late.applies_to(TestKind::Throughput, false));
        assert!(!late.applies_to(TestKind::PingLatency, true));
    }

    #[test]
    fn an_unknown_test_is_named() {
        let error = "thruput: rate>1".parse::<TestExpectation>().unwrap_err();
        assert!(
            error.to_string().starts_with("`thruput` is not a test"),
            "{error}"
        );
        // A colon in a figure belongs to the figure.
        assert_eq!(parse("status:503<1").test, None);
        assert!(matches!(
            "echo: nothing<1".parse::<TestExpectation>(),
            Err(TestExpectationError::Expectation(_))
        ));
    }
}
