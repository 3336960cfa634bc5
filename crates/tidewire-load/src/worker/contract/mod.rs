//! The worker contract: the orders of a controller and the words of a worker, one JSON object per line.
//!
//! `docs/worker-contract.md` describes it for people who write a worker in another language. The
//! controller's side is [`crate::fleet::remote`], the worker's side is [`crate::fleet::serve`].

pub mod figures;
pub mod load;
pub mod orders;
pub mod words;

/// The version of the contract. A worker and a controller of different versions refuse each other.
pub const CONTRACT: u32 = 1;

#[cfg(test)]
mod tests {
    use super::figures::LiveFigures;
    use super::load::Counted;
    use super::orders::Order;
    use super::words::{COUNT_MAX, Word};
    use crate::accounting::failure::{Failure, NAMED};
    use crate::accounting::tally::Tally;
    use serde_json::Value;

    const PAGE: &str = include_str!("../../../../../docs/worker-contract.md");

    /// Each line of the page is read and written again with the same fields: none of it is unknown here.
    #[test]
    fn the_lines_of_the_page_are_lines_of_the_contract() {
        let lines: Vec<&str> = PAGE.lines().filter(|line| line.starts_with('{')).collect();
        assert!(lines.len() > 5, "{lines:?}");
        for line in lines {
            let shown: Value = serde_json::from_str(line).unwrap();
            let written = if shown.get("do").is_some() {
                serde_json::to_value(serde_json::from_str::<Order>(line).unwrap())
            } else {
                serde_json::to_value(Word::of(&shown).unwrap())
            };
            let written = written.unwrap();
            for name in shown.as_object().unwrap().keys() {
                assert!(written.get(name).is_some(), "{name} of {line}");
            }
        }
    }

    #[test]
    fn a_worker_counts_to_two_to_the_53_and_has_any_clock() {
        let word = |text: &str| Word::of(&serde_json::from_str(text).unwrap());
        let most = COUNT_MAX;
        assert!(word(&format!(r#"{{"say":"live","offered":{most}}}"#)).is_ok());
        assert!(word(r#"{"say":"clock","id":1,"clock_ns":9223372036854775807}"#).is_ok());
        // A machine may have no limit, and what many requests have waited in an overload is a large sum.
        let no_limit = r#"{"say":"hello","contract":1,"language":"rust","version":"1","pid":1,
            "connections_max":18446744073709551615,"profiles":[],"encodings":[],"layers":[]}"#;
        assert!(word(no_limit).is_ok());
        let mut tally = Tally::new(0, 1);
        tally.leave_unsent(0, 3_600_000_000_000, 10_000_000);
        let counted = Word::Counted(Box::new(Counted {
            tally: Box::new(tally),
            live: LiveFigures::default(),
        }));
        assert!(Word::of(&serde_json::to_value(counted).unwrap()).is_ok());
        for text in [
            format!(r#"{{"say":"live","offered":{}}}"#, most + 1),
            r#"{"say":"opened","latency":[[1,18446744073709551615]]}"#.to_owned(),
        ] {
            let fault = word(&text).unwrap_err();
            assert!(fault.ends_with("is more than 2^53"), "{fault}");
        }
        assert!(word(r#"{"say":"nothing"}"#).is_err());
    }

    #[test]
    fn the_page_has_every_kind_of_failure() {
        let all = NAMED
            .into_iter()
            .chain([Failure::Status(503), Failure::Other]);
        // Only the controller reports that a worker has ended.
        for kind in all.filter(|kind| *kind != Failure::WorkerEnded) {
            let name = format!("`{}`", kind.name());
            assert!(PAGE.contains(&name), "{name}");
        }
    }
}
