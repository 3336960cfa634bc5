//! Numbers of connections that suit this machine.

use tidewire_load::preflight::{self, OPEN_FILES_MARGIN};

/// Connections that this process may open, as its limit of open files is; raises that limit first.
pub(crate) fn room() -> usize {
    room_in(preflight::raise_open_files().and_then(|limit| limit.soft))
}

/// The tiers of a run: what was asked for, or the defaults as far as there is room.
pub(crate) fn tiers(asked: &[usize], quick: bool, room: usize) -> Vec<usize> {
    if !asked.is_empty() {
        return asked.to_vec();
    }
    let defaults: &[usize] = if quick { &QUICK } else { &DEFAULT };
    let mut tiers: Vec<usize> = defaults.iter().map(|&tier| tier.min(room)).collect();
    tiers.dedup();
    tiers
}

fn room_in(files: Option<u64>) -> usize {
    let room = files.map_or(u64::MAX, |files| files.saturating_sub(OPEN_FILES_MARGIN));
    usize::try_from(room).unwrap_or(usize::MAX).max(1)
}

const DEFAULT: [usize; 3] = [100, 1_000, 10_000];
const QUICK: [usize; 1] = [10];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_end_where_open_files_end() {
        let in_files = |files| tiers(&[], false, room_in(files));
        assert_eq!(in_files(None), DEFAULT);
        assert_eq!(in_files(Some(1_048_576)), DEFAULT);
        let margin = usize::try_from(OPEN_FILES_MARGIN).unwrap();
        assert_eq!(in_files(Some(4_096)), [100, 1_000, 4_096 - margin]);
        assert_eq!(in_files(Some(OPEN_FILES_MARGIN + 22)), [22]);
        assert_eq!(in_files(Some(10)), [1]);
        assert_eq!(tiers(&[7], true, 1), [7]);
    }
}
