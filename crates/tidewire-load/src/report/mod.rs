//! The report of a run: its data model and the forms a reader sees it in.
//!
//! [`Report`] is the data; [`markdown`], [`html`] and [`terminal`] render one report, [`compare`]
//! puts several side by side. [`save_all`] writes the three files of a run.

pub mod compare;
pub mod html;
pub mod markdown;
pub mod model;
mod number;
mod plots;
mod summary;
mod svg;
mod table;
pub mod terminal;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use model::{
    Bottleneck, ConnectionLimit, Cpu, FanOut, Finding, Latency, LatencyOrigin, LoadError, Machine,
    Memory, Messages, Plan, Report, StoppedBy, Survival, Target, TestResult, Tool, Verdict,
};

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

/// Writes `report.json`, `report.html` and `report.md` into `directory`, which is created if it does
/// not exist.
///
/// Each file is written under a temporary name and renamed, so that an interrupted run never leaves
/// half a file where a whole one was.
///
/// # Errors
/// Any error of the file system, with the path in its message.
pub fn save_all(report: &Report, directory: &Path) -> io::Result<SavedReport> {
    fs::create_dir_all(directory).map_err(|error| with_path(&error, directory))?;
    let saved = SavedReport {
        json: directory.join("report.json"),
        html: directory.join("report.html"),
        markdown: directory.join("report.md"),
    };
    replace(&saved.json, &report.to_json())?;
    replace(&saved.html, &html::render(report))?;
    replace(&saved.markdown, &markdown::render(report))?;
    Ok(saved)
}

/// Replaces the file at `path` by `text` in one step.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("partial");
    fs::write(&temporary, text).map_err(|error| with_path(&error, &temporary))?;
    fs::rename(&temporary, path).map_err(|error| with_path(&error, path))
}

fn with_path(error: &io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
