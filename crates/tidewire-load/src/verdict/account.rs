//! Two-sided accounting: offered messages against those for which the other end has accounted.

use serde::Deserialize;

use crate::report::model::Messages;

/// Counts of one test, summed over its connections.
///
/// A test that sends no messages leaves those counts at zero; at least one of `offered`,
/// `connections_attempted` and `pings_sent` is positive in a test that measured anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Accounting {
    /// Whether the test sends messages, so that it has failed without any.
    pub sends: bool,
    /// Messages written by the generator.
    pub offered: u64,
    /// Messages that the server has read, as a pong or an answer proves, without the refused ones.
    pub confirmed: u64,
    /// Messages passed to the application, by the server's own counter; `None` when not known.
    pub delivered: Option<u64>,
    /// Messages refused with a reason, by the server's own counter or otherwise by its reports to
    /// the connections; `None` when not known.
    pub refused: Option<u64>,
    /// Connections the test tried to open.
    pub connections_attempted: u64,
    /// Connections that could not be opened, or broke before the test closed them.
    pub connections_failed: u64,
    /// Pings written, of the application or of WebSocket.
    pub pings_sent: u64,
    /// Pings that were never answered.
    pub pongs_lost: u64,
}

impl Accounting {
    /// Messages offered and neither confirmed nor refused.
    pub fn lost(&self) -> u64 {
        self.offered.saturating_sub(self.read())
    }

    /// Messages that the server has read.
    fn read(&self) -> u64 {
        self.confirmed.saturating_add(self.refused.unwrap_or(0))
    }

    /// Messages from which a rate may be computed: those confirmed and, where the server's counter
    /// is known, also delivered to the application. A refused message does not count.
    pub fn counted(&self) -> u64 {
        self.confirmed.min(self.delivered.unwrap_or(u64::MAX))
    }

    /// Counted messages per second; `None` when nothing was counted or no time has passed.
    pub fn rate_per_s(&self, duration_s: f64) -> Option<f64> {
        (self.counted() > 0 && duration_s > 0.0).then(|| self.counted() as f64 / duration_s)
    }

    /// True when the test attempted nothing of its purpose, so that no figure has a meaning.
    pub fn is_empty(&self) -> bool {
        self.offered == 0
            && (self.sends || (self.connections_attempted == 0 && self.pings_sent == 0))
    }

    /// Every way in which the two sides disagree or a message is missing; empty when the account
    /// balances.
    pub fn discrepancies(&self) -> Vec<Discrepancy> {
        let mut found = Vec::new();
        let (offered, read) = (self.offered, self.read());
        if self.is_empty() {
            found.push(Discrepancy::Nothing);
        }
        if offered > 0 && self.counted() == 0 && read >= offered {
            found.push(Discrepancy::NothingConfirmed { offered });
        }
        if read < offered {
            found.push(Discrepancy::Lost {
                lost: self.lost(),
                offered,
            });
        }
        if read > offered {
            found.push(Discrepancy::Overconfirmed { read, offered });
        }
        if let Some(delivered) = self.delivered {
            let accounted = delivered.saturating_add(self.refused.unwrap_or(0));
            if accounted < offered {
                found.push(Discrepancy::Undelivered { accounted, offered });
            }
            if accounted > offered {
                found.push(Discrepancy::Overclaimed { accounted, offered });
            }
        }
        if self.connections_failed > 0 {
            found.push(Discrepancy::ConnectionsFailed {
                failed: self.connections_failed,
                attempted: self.connections_attempted,
            });
        }
        if self.pongs_lost > 0 {
            found.push(Discrepancy::PongsLost {
                lost: self.pongs_lost,
                sent: self.pings_sent,
            });
        }
        found
    }

    /// The counts in the form of a report; `None` when the test sent no messages.
    pub fn messages(&self) -> Option<Messages> {
        (self.offered > 0 || self.confirmed > 0).then(|| Messages {
            offered: self.offered,
            confirmed: self.confirmed,
            delivered: self.delivered,
            refused: self.refused,
            lost: self.lost(),
        })
    }
}

/// One way in which an account does not balance. Its text states what happened and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Discrepancy {
    /// The test attempted nothing of its purpose.
    #[error(
        "Nothing was sent, or nothing was opened: there is no figure to believe. \
         Check the target, the connections and the duration."
    )]
    Nothing,
    /// Every message was refused.
    #[error(
        "Not one of {offered} offered messages was accepted: there is no figure to believe. \
         Look for the reason of the refusals."
    )]
    NothingConfirmed {
        /// Written.
        offered: u64,
    },
    /// Messages were written and never confirmed.
    #[error(
        "{lost} of {offered} offered messages were never confirmed by the server. \
         Look for closed connections or dropped messages in the server's log."
    )]
    Lost {
        /// Not confirmed.
        lost: u64,
        /// Written.
        offered: u64,
    },
    /// More messages were confirmed than written.
    #[error(
        "The server confirmed or refused {read} messages but only {offered} were offered. \
         It answers more than it was asked: do not trust its figures."
    )]
    Overconfirmed {
        /// Confirmed and refused.
        read: u64,
        /// Written.
        offered: u64,
    },
    /// The server's counters miss messages.
    #[error(
        "The server's counters account for {accounted} of {offered} offered messages \
         (delivered and refused together). Look for messages dropped before the application."
    )]
    Undelivered {
        /// Delivered and refused.
        accounted: u64,
        /// Written.
        offered: u64,
    },
    /// The server's counters claim messages that were never written.
    #[error(
        "The server's counters claim {accounted} messages (delivered and refused together) but \
         only {offered} were offered. Make sure that nothing else uses this server; \
         otherwise do not trust its counters."
    )]
    Overclaimed {
        /// Delivered and refused.
        accounted: u64,
        /// Written.
        offered: u64,
    },
    /// Connections could not be opened or broke.
    #[error(
        "{failed} of {attempted} connections failed. \
         Check the server's connection limit, both sides' open files and the preflight findings."
    )]
    ConnectionsFailed {
        /// Failed.
        failed: u64,
        /// Attempted.
        attempted: u64,
    },
    /// Pings were not answered.
    #[error(
        "{lost} of {sent} pings were never answered. \
         Look for stalls or closed connections in the server's log."
    )]
    PongsLost {
        /// Not answered.
        lost: u64,
        /// Written.
        sent: u64,
    },
}

impl Discrepancy {
    /// The name in a report.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing_sent",
            Self::NothingConfirmed { .. } => "nothing_confirmed",
            Self::Lost { .. } => "messages_lost",
            Self::Overconfirmed { .. } => "messages_overconfirmed",
            Self::Undelivered { .. } => "counters_short",
            Self::Overclaimed { .. } => "counters_over",
            Self::ConnectionsFailed { .. } => "connections_failed",
            Self::PongsLost { .. } => "pongs_lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balanced() -> Accounting {
        Accounting {
            sends: true,
            offered: 1000,
            confirmed: 990,
            delivered: Some(990),
            refused: Some(10),
            connections_attempted: 10,
            pings_sent: 10,
            ..Accounting::default()
        }
    }

    #[test]
    fn a_balanced_account_has_no_discrepancy() {
        assert_eq!(balanced().discrepancies(), []);
        let foreign_server = Accounting {
            confirmed: 1000,
            delivered: None,
            refused: None,
            ..balanced()
        };
        assert_eq!(foreign_server.discrepancies(), []);
    }

    #[test]
    fn each_imbalance_is_named() {
        let cases = [
            (
                Accounting {
                    confirmed: 999,
                    delivered: None,
                    refused: None,
                    ..balanced()
                },
                Discrepancy::Lost {
                    lost: 1,
                    offered: 1000,
                },
            ),
            (
                Accounting {
                    confirmed: 991,
                    ..balanced()
                },
                Discrepancy::Overconfirmed {
                    read: 1001,
                    offered: 1000,
                },
            ),
            (
                Accounting {
                    delivered: Some(980),
                    ..balanced()
                },
                Discrepancy::Undelivered {
                    accounted: 990,
                    offered: 1000,
                },
            ),
            (
                Accounting {
                    delivered: Some(1000),
                    ..balanced()
                },
                Discrepancy::Overclaimed {
                    accounted: 1010,
                    offered: 1000,
                },
            ),
            (
                Accounting {
                    connections_failed: 2,
                    ..balanced()
                },
                Discrepancy::ConnectionsFailed {
                    failed: 2,
                    attempted: 10,
                },
            ),
            (
                Accounting {
                    pongs_lost: 3,
                    ..balanced()
                },
                Discrepancy::PongsLost { lost: 3, sent: 10 },
            ),
        ];
        for (account, expected) in cases {
            assert_eq!(account.discrepancies(), [expected], "{account:?}");
        }
    }

    #[test]
    fn nothing_attempted_and_nothing_sent_are_no_figures() {
        let silent = Accounting {
            sends: true,
            connections_attempted: 10,
            ..Accounting::default()
        };
        for account in [Accounting::default(), silent] {
            assert_eq!(account.discrepancies(), [Discrepancy::Nothing]);
        }
    }

    #[test]
    fn refused_messages_do_not_count_as_rate() {
        assert_eq!(balanced().counted(), 990);
        assert_eq!(balanced().rate_per_s(2.0), Some(495.0));
        assert_eq!(balanced().rate_per_s(0.0), None);
        let lying = Accounting {
            delivered: Some(u64::MAX),
            ..balanced()
        };
        assert_eq!(lying.counted(), 990);
        assert_eq!(lying.discrepancies().len(), 1);
    }

    #[test]
    fn a_test_without_messages_reports_none() {
        let storm = Accounting {
            connections_attempted: 5,
            ..Accounting::default()
        };
        assert_eq!(storm.messages(), None);
        assert_eq!(
            balanced().messages().map(|m| (m.lost, m.refused)),
            Some((0, Some(10)))
        );
    }
}
