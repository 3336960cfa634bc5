//! The behaviour of a service in a load, in sentences and in the words of its protocol.

use super::model::{TestResult, ended_in_words};
use super::number::{grouped, percent};

/// The words for what a load sends.
pub(super) struct Words {
    /// `requests` or `messages`.
    pub(super) many: &'static str,
}

/// The words of a result: a WebSocket load sends messages, an HTTP load requests.
pub(super) fn words(result: &TestResult) -> Words {
    match result.test.as_str() {
        "websocket" => Words { many: "messages" },
        _ => Words { many: "requests" },
    }
}

/// `requests` or `messages`.
pub(crate) fn unit(result: &TestResult) -> &'static str {
    words(result).many
}

/// Whether the result is that of a load of a service.
pub(super) fn is_load(result: &TestResult) -> bool {
    result.load.requests.is_some() || result.load.connecting.is_some()
}

/// What the service did wrong, the most serious first; empty if nothing failed.
pub(crate) fn failures(result: &TestResult) -> Vec<String> {
    let all = [
        ended(result),
        not_opened(result),
        failed(result),
        retried(result),
        unanswered(result),
        unsent(result),
    ];
    all.into_iter().flatten().collect()
}

fn ended(result: &TestResult) -> Option<String> {
    let connecting = result.load.connecting.as_ref()?;
    let ready = connecting.ended_by.iter().filter(|one| one.was_ready);
    let ready: Vec<_> = ready.cloned().collect();
    (connecting.ended > 0).then(|| {
        format!(
            "{} of {} connections ended before the load ended them: {}.",
            grouped(connecting.ended),
            grouped(connecting.opened),
            ended_in_words(&ready)
        )
    })
}

fn not_opened(result: &TestResult) -> Option<String> {
    let connecting = result.load.connecting.as_ref()?;
    let early = connecting.ended_by.iter().filter(|one| !one.was_ready);
    let early: Vec<_> = early.cloned().collect();
    if connecting.failed == 0 {
        return None;
    }
    let why = match (early.is_empty(), connecting.opened) {
        (false, _) => format!(": {}", ended_in_words(&early)),
        // Without a connection every error is one of connecting.
        (true, 0) => format!(": {}", errors_in_words(result)),
        (true, _) => String::new(),
    };
    let all = grouped(connecting.failed + connecting.opened);
    let failed = grouped(connecting.failed);
    Some(format!(
        "{failed} of {all} connections could not be opened{why}."
    ))
}

/// The failed requests with their errors, if any failed.
pub(crate) fn failed(result: &TestResult) -> Option<String> {
    let requests = result.load.requests?;
    let ended = requests.failed + requests.succeeded;
    (requests.failed > 0).then(|| {
        format!(
            "{} of {} {} failed ({}): {}.",
            grouped(requests.failed),
            grouped(ended),
            words(result).many,
            percent(requests.failed as f64 / ended as f64 * 100.0),
            errors_in_words(result)
        )
    })
}

fn retried(result: &TestResult) -> Option<String> {
    let requests = result.load.requests?;
    (requests.retried > 0).then(|| {
        format!(
            "{} of {} {} were closed unanswered and sent again.",
            grouped(requests.retried),
            grouped(requests.sent),
            words(result).many
        )
    })
}

fn unanswered(result: &TestResult) -> Option<String> {
    let requests = result.load.requests?;
    (requests.unfinished > 0).then(|| {
        format!(
            "{} of {} {} had no answer when the load ended.",
            grouped(requests.unfinished),
            grouped(requests.sent),
            words(result).many
        )
    })
}

fn unsent(result: &TestResult) -> Option<String> {
    let requests = result.load.requests?;
    (requests.unsent > 0).then(|| {
        format!(
            "{} of {} {} were due and never sent.",
            grouped(requests.unsent),
            grouped(requests.due()),
            words(result).many
        )
    })
}

/// `12 with status 503, 3 timeout`: the most frequent errors first.
fn errors_in_words(result: &TestResult) -> String {
    let load = &result.load;
    let mut errors: Vec<(&str, u64)> = load
        .errors
        .iter()
        .map(|(name, count)| (name.as_str(), *count))
        .collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shown = errors.iter().take(ERRORS_SHOWN);
    let mut parts: Vec<String> = shown
        .map(|(name, count)| match *name {
            "unexpected-status" => with_status(result, *count),
            name => format!("{} {name}", grouped(*count)),
        })
        .collect();
    if errors.len() > ERRORS_SHOWN {
        let more = errors.len() - ERRORS_SHOWN;
        parts.push(format!("and {more} other errors"));
    }
    parts.join(", ")
}

/// The statuses of unexpected responses, if they can be separated from the others.
fn with_status(result: &TestResult, count: u64) -> String {
    let high = result.load.statuses.range(400..);
    let high: Vec<(u16, u64)> = high.map(|(status, count)| (*status, *count)).collect();
    let all: u64 = high.iter().map(|(_, count)| count).sum();
    if all != count || high.len() > ERRORS_SHOWN {
        return format!("{} unexpected-status", grouped(count));
    }
    let parts: Vec<String> = high
        .iter()
        .map(|(status, count)| format!("{} with status {status}", grouped(*count)))
        .collect();
    parts.join(", ")
}

const ERRORS_SHOWN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{Connecting, EndedConnections, Requests};

    fn ended(code: Option<u16>, was_ready: bool, count: u64) -> EndedConnections {
        EndedConnections {
            how: "closed-by-server".to_owned(),
            code,
            reason: code.map(|code| format!("why {code}")),
            was_ready,
            count,
        }
    }

    #[test]
    fn connections_that_end_come_first_with_their_code() {
        let mut result = TestResult::new("websocket", 10);
        result.load.connecting = Some(Connecting {
            opened: 10,
            ended: 10,
            ended_by: vec![ended(Some(4000), true, 9), ended(None, true, 1)],
            ..Connecting::default()
        });
        result.load.requests = Some(Requests {
            sent: 10,
            succeeded: 9,
            failed: 1,
            ..Requests::default()
        });
        result.load.errors.insert("closed-by-server".to_owned(), 1);
        let said = [
            "10 of 10 connections ended before the load ended them: 9 closed by the server with code 4000 \
             (\"why 4000\"), 1 closed by the server without a code.",
            "1 of 10 messages failed (10 %): 1 closed-by-server.",
        ];
        assert_eq!(failures(&result), said);
    }

    #[test]
    fn a_503_is_a_response_and_not_a_lost_message() {
        let mut result = TestResult::new("http", 10);
        result.load.requests = Some(Requests {
            sent: 100,
            succeeded: 90,
            failed: 10,
            ..Requests::default()
        });
        result.load.statuses = [(200, 90), (503, 8)].into();
        result.load.errors = [("unexpected-status".into(), 8), ("timeout".into(), 2)].into();
        let said = "10 of 100 requests failed (10 %): 8 with status 503, 2 timeout.";
        assert_eq!(failures(&result), [said]);
        // A check of the scenario refuses a status that others have, too.
        result.load.errors = [("unexpected-status".into(), 10)].into();
        let said = "10 of 100 requests failed (10 %): 10 unexpected-status.";
        assert_eq!(failures(&result), [said]);
    }

    #[test]
    fn nobody_connected_says_why() {
        let mut result = TestResult::new("websocket", 2);
        result.load.connecting = Some(Connecting {
            failed: 2,
            ended_by: vec![ended(Some(1008), false, 2)],
            ..Connecting::default()
        });
        let said = "2 of 2 connections could not be opened: 2 closed by the server with code 1008 (\"why 1008\") \
                    before it was ready.";
        assert_eq!(failures(&result), [said]);
        if let Some(connecting) = &mut result.load.connecting {
            connecting.ended_by.clear();
        }
        result.load.errors = [("refused".into(), 2)].into();
        let said = "2 of 2 connections could not be opened: 2 refused.";
        assert_eq!(failures(&result), [said]);
        assert!(failures(&TestResult::new("http", 1)).is_empty());
    }
}
