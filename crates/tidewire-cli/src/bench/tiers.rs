//! Numbers of connections that suit this machine.

use tidewire_load::fleet::preflight;

/// Connections that this process may open under its limit of open files; raises that limit first.
pub(crate) fn room() -> usize {
    preflight::connections_room()
}

/// The tiers of a run: the requested ones, or the defaults as far as open files allow.
pub(crate) fn tiers(asked: &[usize], quick: bool, room: usize) -> Vec<usize> {
    if !asked.is_empty() {
        return asked.to_vec();
    }
    let defaults: &[usize] = if quick { &QUICK_TIERS } else { &DEFAULT_TIERS };
    let mut tiers: Vec<usize> = defaults.iter().map(|&tier| tier.min(room)).collect();
    tiers.dedup();
    tiers
}

const DEFAULT_TIERS: [usize; 3] = [100, 1_000, 10_000];
const QUICK_TIERS: [usize; 1] = [10];

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_load::OPEN_FILES_MARGIN;

    #[test]
    fn tiers_end_where_open_files_end() {
        let in_files = |files| tiers(&[], false, preflight::connections_in(files));
        assert_eq!(in_files(None), DEFAULT_TIERS);
        assert_eq!(in_files(Some(1_048_576)), DEFAULT_TIERS);
        let margin = usize::try_from(OPEN_FILES_MARGIN).unwrap();
        assert_eq!(in_files(Some(4_096)), [100, 1_000, 4_096 - margin]);
        // If there are few files, half of them stay free.
        assert_eq!(in_files(Some(100)), [50]);
        assert_eq!(in_files(Some(1)), [1]);
        assert_eq!(tiers(&[7], true, 1), [7]);
    }
}
