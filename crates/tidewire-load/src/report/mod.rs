//! The report of a run: its data model and its forms for readers.
//!
//! [`Report`] is the data; [`markdown`], [`html`], [`terminal`], [`junit`] and [`csv`] render one report,
//! [`side_by_side`] compares several. [`save_all`] writes the three files of a run.

pub mod baseline;
pub mod compare;
pub mod csv;
pub mod html;
pub mod junit;
pub mod markdown;
pub mod model;
pub mod number;
pub mod printable;

pub(crate) mod buckets;
mod chart;
mod escape;
mod facts;
mod grid;
mod load_plots;
mod load_tables;
mod notes;
mod plots;
mod probes;
pub mod repeats;
mod service;
pub mod side_by_side;
pub(crate) mod statistics;
mod summary;
mod svg;
mod table;
pub mod terminal;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use model::{
    Assessment, AssessmentThreshold, AssessmentWord, BaselineFigure, BaselineFinding,
    BaselineSource, Bottleneck, ByteCounts, ConfirmedBy, Connecting, ConnectionLimit, Cpu,
    EndedConnections, ErrorBounds, ExpectationResult, FanOut, Finding, FoundRate, GeneratorHealth,
    Latency, LatencyOrigin, LatencyOverTime, LatencyWindow, Lateness, LimitPhase, LimitProbe,
    LoadError, LoadFigures, LoopKind, Machine, Memory, Messages, Pace, Pings, Plan, Processes,
    Range, RateStep, Received, Repeats, ReplyFaults, Report, Requests, ResourceSample, Spread,
    StoppedBy, Survival, Target, TargetFigures, TestResult, Tool, Traffic, Verdict, Windows,
};

pub(crate) use service::{failed as failed_requests, failures as failures_of, unit as unit_of};

/// The files that [`save_all`] wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedReport {
    /// The data, `report.json`.
    pub json: PathBuf,
    /// The self-contained page, `report.html`.
    pub html: PathBuf,
    /// The text for a commit or an issue, `report.md`.
    pub markdown: PathBuf,
}

impl SavedReport {
    /// The files of a report in this directory.
    fn in_directory(directory: &Path) -> Self {
        Self {
            json: directory.join("report.json"),
            html: directory.join("report.html"),
            markdown: directory.join("report.md"),
        }
    }
}

/// Writes `report.json`, `report.html` and `report.md` into `directory`, which is created if it does
/// not exist.
///
/// Each file is written under a temporary name and renamed, so that an interrupted run never
/// replaces a complete file by a partial one.
///
/// # Errors
/// Any error of the file system, with the path in its message.
pub fn save_all(report: &Report, directory: &Path) -> io::Result<SavedReport> {
    fs::create_dir_all(directory).map_err(|error| with_path(&error, directory))?;
    let saved = SavedReport::in_directory(directory);
    replace(&saved.json, &report.to_json())?;
    replace(&saved.html, &html::render(report))?;
    replace(&saved.markdown, &markdown::render(report))?;
    Ok(saved)
}

/// Creates a directory and checks that a report can be written there, so that a run detects a
/// problem before it has its figures.
///
/// # Errors
/// Any error of the file system, with the path in its message: the directory is a file or is read-only, one
/// of the files is a directory, or there is no room for a report.
pub fn try_directory(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory).map_err(|error| with_path(&error, directory))?;
    let files = SavedReport::in_directory(directory);
    for file in [&files.json, &files.html, &files.markdown] {
        if file.is_dir() {
            let error = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(with_path(&error, file));
        }
    }
    let probe = temporary(&files.json);
    let tried = fs::write(&probe, vec![b' '; REPORT_BYTES]);
    let removed = fs::remove_file(&probe);
    tried
        .and(removed)
        .map_err(|error| with_path(&error, &probe))
}

/// Writes a text to a file as [`save_all`] does, by a temporary name. A pipe, a device or a link is written to.
///
/// # Errors
/// Any error of the file system, with the path in its message.
pub fn save_text(text: &str, file: &Path) -> io::Result<()> {
    match is_replaceable(file) {
        true => replace(file, text),
        false => fs::write(file, text).map_err(|error| with_path(&error, file)),
    }
}

/// A pipe, a device or a link keeps its place and receives the text.
fn is_replaceable(file: &Path) -> bool {
    fs::symlink_metadata(file).map_or(true, |found| found.is_file())
}

/// Checks that a file can be written, so that a run detects a problem before it has its figures.
///
/// # Errors
/// Any error of the file system, with the path in its message: its directory does not exist or is
/// read-only, or it is a directory itself.
pub fn try_file(file: &Path) -> io::Result<()> {
    if file.is_dir() {
        let error = io::Error::from(io::ErrorKind::IsADirectory);
        return Err(with_path(&error, file));
    }
    if !is_replaceable(file) {
        return Ok(());
    }
    let probe = temporary(file);
    let tried = fs::write(&probe, b"");
    let removed = fs::remove_file(&probe);
    tried.and(removed).map_err(|error| with_path(&error, file))
}

/// A directory to which no other run writes its report during the lifetime of this value.
#[derive(Debug)]
pub struct Reservation {
    /// Locked; the system unlocks it however this process ends.
    _directory: Option<fs::File>,
}

impl Reservation {
    /// Reserves a directory that exists.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another run has reserved it.
    pub fn of(directory: &Path) -> io::Result<Self> {
        // Where directories cannot be opened or locked, nothing is reserved.
        let file = fs::File::open(directory).ok();
        match file.as_ref().map(fs::File::try_lock) {
            Some(Err(fs::TryLockError::WouldBlock)) => Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                format!(
                    "another run writes its report to {}: wait until it ends, or name another directory",
                    directory.display()
                ),
            )),
            _ => Ok(Self { _directory: file }),
        }
    }
}

/// Replaces the file at `path` by `text` in one step.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let temporary = temporary(path);
    let written = fs::write(&temporary, text).map_err(|error| with_path(&error, &temporary));
    let replaced = written
        .and_then(|()| fs::rename(&temporary, path).map_err(|error| with_path(&error, path)));
    if replaced.is_err() {
        // A partial file is useless, and may be the reason why the disk is full.
        let _ = fs::remove_file(&temporary);
    }
    replaced
}

/// A name beside `path` that no other process uses.
fn temporary(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.partial", std::process::id()))
}

fn with_path(error: &io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Larger than most reports, in bytes.
const REPORT_BYTES: usize = 1024 * 1024;
