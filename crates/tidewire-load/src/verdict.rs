//! Who was the bottleneck, and whether a figure can be believed. Pure functions.

use crate::accounting::Accounting;
use crate::report::model::{Bottleneck, Verdict};

/// Share of its available processor time from which a side counts as saturated.
pub const SATURATED_SHARE: f64 = 0.90;

/// Coefficient of variation of the confirmed messages in quarters of a second above which a figure is
/// noisy. Between quarters of an undisturbed second some per cent are usual; other work that takes half of
/// a core for half of the time makes about a third.
pub const NOISE_MAX: f64 = 0.25;

/// Fewer windows of a quarter of a second, without the first, tell no variation: a test of 1.5 s has five.
const WINDOWS_MIN: usize = 4;

/// Processor time as a share of what was available: so many cores, or threads that have one each, for
/// `wall_s` seconds. 1.0 is all of it; 0.0 when no time has passed.
pub fn cpu_share(cpu_s: f64, wall_s: f64, cores: u32) -> f64 {
    let available_s = wall_s * f64::from(cores.max(1));
    if available_s > 0.0 {
        cpu_s / available_s
    } else {
        0.0
    }
}

/// Which side was saturated.
///
/// `client_cpu_share` and `server_cpu_share` are shares as [`cpu_share`] gives them, of each side's busiest
/// thread, because others that idle do not help it; the server's is `None` when it runs elsewhere. A side is saturated from [`SATURATED_SHARE`] on: the last tenth is
/// left for what the kernel does elsewhere and for the ramps at both ends of a test.
pub fn bottleneck(client_cpu_share: f64, server_cpu_share: Option<f64>) -> Bottleneck {
    let client = client_cpu_share >= SATURATED_SHARE;
    let server = server_cpu_share.is_some_and(|share| share >= SATURATED_SHARE);
    match (client, server) {
        (true, true) => Bottleneck::Both,
        (true, false) => Bottleneck::Client,
        (false, true) => Bottleneck::Server,
        (false, false) => Bottleneck::None,
    }
}

/// Standard deviation of what was counted in windows of equal length, divided by the mean.
///
/// Pass whole windows only. The first one is left out: it holds the start of the test. `None` for fewer
/// than five windows or when nothing was counted.
pub fn coefficient_of_variation(windows: &[u64]) -> Option<f64> {
    let counts = windows.get(1..).unwrap_or_default();
    if counts.len() < WINDOWS_MIN {
        return None;
    }
    let n = counts.len() as f64;
    let mean = counts.iter().sum::<u64>() as f64 / n;
    let squares = counts.iter().map(|&count| (count as f64 - mean).powi(2));
    let variance = squares.sum::<f64>() / (n - 1.0);
    (mean > 0.0).then(|| variance.sqrt() / mean)
}

/// Whether the figures of a test can be believed, and why not, in sentences for the report.
///
/// The worst that applies, in this order: `failed` when the account does not balance (see
/// [`Accounting::discrepancies`]); `noisy` when `noise`, a [`coefficient_of_variation`], is above
/// [`NOISE_MAX`]; `generator_bound` when the test was meant to saturate the server (`saturating`) but
/// the client alone was the limit.
pub fn verdict(
    account: &Accounting,
    bottleneck: Bottleneck,
    saturating: bool,
    noise: Option<f64>,
) -> (Verdict, Vec<String>) {
    let discrepancies = account.discrepancies();
    let mut verdict = if discrepancies.is_empty() {
        Verdict::Valid
    } else {
        Verdict::Failed
    };
    let mut notes: Vec<String> = discrepancies.iter().map(ToString::to_string).collect();
    if let Some(refused) = account.refused.filter(|&refused| refused > 0) {
        notes.push(format!(
            "{refused} of {} offered messages were refused by the server with a reason and are not \
             in the rate. Raise its rate limit to measure without it.",
            account.offered
        ));
    }
    if let Some(noise) = noise.filter(|&noise| noise > NOISE_MAX) {
        verdict = verdict.max(Verdict::Noisy);
        notes.push(format!(
            "The rate varied by {:.0} % between quarters of a second (at most {:.0} % is accepted). \
             Stop other work on the machine or measure for longer.",
            noise * 100.0,
            NOISE_MAX * 100.0
        ));
    }
    if saturating {
        verdict = verdict.max(saturation(bottleneck, &mut notes));
    }
    (verdict, notes)
}

/// What the bottleneck of a saturating test means for its figure.
fn saturation(bottleneck: Bottleneck, notes: &mut Vec<String>) -> Verdict {
    let percent = SATURATED_SHARE * 100.0;
    match bottleneck {
        Bottleneck::Server => Verdict::Valid,
        Bottleneck::Client => {
            notes.push(format!(
                "The generator used {percent:.0} % or more of its processor time and the server \
                 did not: the figure is a lower bound. Give the generator more threads or a \
                 machine of its own."
            ));
            Verdict::GeneratorBound
        }
        Bottleneck::Both => {
            notes.push(format!(
                "Generator and server both used {percent:.0} % or more of their processor time. \
                 With more cores for the generator the server may do slightly better."
            ));
            Verdict::Valid
        }
        Bottleneck::None => {
            notes.push(format!(
                "Neither side was seen to use {percent:.0} % of its processor time: the network, \
                 waiting, or work outside both processes was the limit. Try more connections."
            ));
            Verdict::Valid
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balanced() -> Accounting {
        Accounting {
            offered: 100,
            confirmed: 100,
            ..Accounting::default()
        }
    }

    #[test]
    fn a_side_is_saturated_from_nine_tenths_on() {
        assert_eq!(bottleneck(0.5, Some(0.90)), Bottleneck::Server);
        assert_eq!(bottleneck(0.90, Some(0.89)), Bottleneck::Client);
        assert_eq!(bottleneck(0.95, Some(0.99)), Bottleneck::Both);
        assert_eq!(bottleneck(0.89, Some(0.89)), Bottleneck::None);
        assert_eq!(bottleneck(0.97, None), Bottleneck::Client);
        assert_eq!(bottleneck(0.2, None), Bottleneck::None);
    }

    #[test]
    fn a_share_is_of_what_was_available() {
        assert_eq!(cpu_share(1.0, 2.0, 1), 0.5);
        assert_eq!(cpu_share(4.0, 2.0, 2), 1.0);
        assert_eq!(cpu_share(1.0, 0.0, 1), 0.0);
    }

    #[test]
    fn a_balanced_saturated_server_is_valid_without_notes() {
        let judged = verdict(&balanced(), Bottleneck::Server, true, Some(0.05));
        assert_eq!(judged, (Verdict::Valid, vec![]));
    }

    #[test]
    fn a_server_that_drops_or_lies_fails() {
        let drops = Accounting {
            confirmed: 93,
            ..balanced()
        };
        let (judged, notes) = verdict(&drops, Bottleneck::Server, true, None);
        assert_eq!(judged, Verdict::Failed);
        assert!(notes[0].contains("7 of 100"), "{notes:?}");

        let lies = Accounting {
            delivered: Some(120),
            ..balanced()
        };
        let (judged, notes) = verdict(&lies, Bottleneck::Server, true, None);
        assert_eq!(judged, Verdict::Failed);
        assert!(notes[0].contains("claim 120"), "{notes:?}");
    }

    #[test]
    fn the_client_as_limit_matters_only_when_saturating() {
        let (judged, notes) = verdict(&balanced(), Bottleneck::Client, true, None);
        assert_eq!((judged, notes.len()), (Verdict::GeneratorBound, 1));
        let (judged, notes) = verdict(&balanced(), Bottleneck::Client, false, None);
        assert_eq!((judged, notes.len()), (Verdict::Valid, 0));
    }

    #[test]
    fn the_worst_verdict_wins_and_every_reason_is_kept() {
        let (judged, notes) = verdict(&balanced(), Bottleneck::Client, true, Some(0.4));
        assert_eq!((judged, notes.len()), (Verdict::Noisy, 2));
        assert!(notes[0].contains("40 %"), "{notes:?}");
        let drops = Accounting {
            confirmed: 1,
            pings_sent: 5,
            pongs_lost: 1,
            ..balanced()
        };
        let (judged, notes) = verdict(&drops, Bottleneck::Client, true, Some(0.4));
        assert_eq!((judged, notes.len()), (Verdict::Failed, 4));
    }

    #[test]
    fn noise_at_the_limit_is_accepted() {
        let (judged, _) = verdict(&balanced(), Bottleneck::Server, true, Some(NOISE_MAX));
        assert_eq!(judged, Verdict::Valid);
    }

    #[test]
    fn refused_messages_are_told_and_do_not_fail_a_balanced_account() {
        let account = Accounting {
            confirmed: 60,
            delivered: Some(60),
            refused: Some(40),
            ..balanced()
        };
        let (judged, notes) = verdict(&account, Bottleneck::Server, true, None);
        assert_eq!(judged, Verdict::Valid);
        assert!(notes[0].contains("40 of 100"), "{notes:?}");
    }

    #[test]
    fn variation_needs_some_windows_after_the_first_and_a_rate() {
        assert_eq!(coefficient_of_variation(&[]), None);
        assert_eq!(coefficient_of_variation(&[1, 2, 3, 4]), None);
        assert_eq!(coefficient_of_variation(&[9, 0, 0, 0, 0]), None);
        assert_eq!(coefficient_of_variation(&[1, 5, 5, 5, 5]), Some(0.0));
        let varied = coefficient_of_variation(&[9, 1, 2, 3, 2]).unwrap();
        assert!((varied - (2.0f64 / 3.0).sqrt() / 2.0).abs() < 1e-12);
    }
}
