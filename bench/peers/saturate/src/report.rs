//! Measurements, and where they are read.

use std::time::Duration;

/// The result of a run.
pub struct Report {
    /// Messages that the server is known to have read (sink) or sent back (echo).
    pub confirmed: u64,
    /// From the first write until the last confirmation, in seconds.
    pub elapsed_s: f64,
    /// CPU time of this process while it sent, in seconds.
    pub client_cpu_s: f64,
    /// Its share of the time while it sent: 1 is a core that never waits.
    pub client_busy: f64,
    /// CPU time of the server from the first write until the last confirmation, in seconds.
    pub server_cpu_s: Option<f64>,
    /// The memory of all TCP sockets of this machine when sending ended, in bytes.
    pub kernel_bytes: Option<u64>,
}

impl Report {
    pub fn to_json(&self) -> String {
        let known =
            |value: Option<f64>| value.map_or("null".to_owned(), |value| format!("{value:.6}"));
        let rate = self.confirmed as f64 / self.elapsed_s;
        let per_message = self
            .server_cpu_s
            .map(|seconds| seconds / self.confirmed as f64 * 1e9);
        format!(
            r#"{{"confirmed":{},"elapsed_s":{:.6},"rate_per_s":{rate:.0},"client_cpu_s":{:.6},"client_busy":{:.3},"server_cpu_s":{},"server_cpu_ns_per_message":{},"kernel_bytes":{}}}"#,
            self.confirmed,
            self.elapsed_s,
            self.client_cpu_s,
            self.client_busy,
            known(self.server_cpu_s),
            known(per_message),
            self.kernel_bytes
                .map_or("null".to_owned(), |bytes| bytes.to_string()),
        )
    }
}

/// CPU time of this process.
pub fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of all threads of a process, if the system tells it.
pub fn cpu_of(pid: u32) -> Option<Duration> {
    let mut total_ns = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        total_ns += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(total_ns))
}

/// The memory of all TCP sockets of this machine.
pub fn kernel_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/net/sockstat").ok()?;
    let line = text.lines().find(|line| line.starts_with("TCP:"))?;
    let (_, pages) = line.rsplit_once("mem ")?;
    Some(pages.trim().parse::<u64>().ok()? * rustix::param::page_size() as u64)
}
