//! Figures of the operating system about this process. Only Linux has them.

use std::fs;

/// Memory in RAM now, in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    resident_bytes_in(&status)
}

/// Time of the processors since the start, of all threads, in seconds.
pub(crate) fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    cpu_seconds_in(&stat)
}

fn resident_bytes_in(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Fields 14 and 15 of `/proc/PID/stat`. The second field may have spaces and parentheses.
fn cpu_seconds_in(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS_PER_S)
}

/// The unit of times in `/proc`, on every architecture that Rust's standard library supports.
const TICKS_PER_S: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_time_are_read() {
        let status = "Name:\ttidewire\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(resident_bytes_in(status), Some(1024 * 1024));
        assert_eq!(resident_bytes_in("Name:\tx\n"), None);
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 3 0 1";
        assert_eq!(cpu_seconds_in(stat), Some(3.0));
        assert_eq!(cpu_seconds_in("7 (a"), None);
    }
}
