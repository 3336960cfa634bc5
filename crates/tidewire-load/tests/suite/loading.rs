//! Helpers of the tests of loads: one load and its result, a scenario, and a service behind a Unix socket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use tidewire_load::options::load::LoadOptions;
use tidewire_load::plan::load;
use tidewire_load::report::{Report, TestResult};

/// Runs a load and returns its report.
pub(crate) fn report_of(options: &LoadOptions) -> Report {
    let plan = options.plan().unwrap();
    load::run(&plan, &mut (), &AtomicBool::new(false)).unwrap()
}

/// Runs a load and returns its only result.
pub(crate) fn run(options: &LoadOptions) -> TestResult {
    let mut report = report_of(options);
    assert_eq!(report.results.len(), 1);
    report.results.remove(0)
}

/// A folder with a scenario of this text, and the scenario's path.
pub(crate) fn scenario(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

/// Answers every request at a Unix socket until the test ends.
#[cfg(unix)]
pub(crate) fn serve_at(path: &std::path::Path) {
    use std::io::{Read, Write};
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while matches!(stream.read(&mut buffer), Ok(1..)) {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    stream.write_all(answer).unwrap();
                }
            });
        }
    });
}
