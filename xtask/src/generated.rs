//! Files that are made from a table and checked in.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::finding::Finding;
use crate::tree::Tree;

/// A generated file: its path from the root of the repository, and its text.
pub(crate) type Made = (&'static str, String);

/// A row of a table of Markdown; a bar in a cell does not end it.
pub(crate) fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |", cells.join(" | "))
}

/// Adds a line.
pub(crate) fn push(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("a String takes every write");
}

/// Writes the files that are not current and returns their paths.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write(root: &Path, made: Vec<Made>) -> anyhow::Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (target, content) in made {
        let path = root.join(target);
        if std::fs::read_to_string(&path).ok().as_deref() != Some(&content) {
            let folder = path.parent().context(target)?;
            std::fs::create_dir_all(folder).context(target)?;
            std::fs::write(&path, content).context(target)?;
            written.push(PathBuf::from(target));
        }
    }
    Ok(written)
}

/// One finding for each file that is not current. `source` is the table, and `command` writes the files.
pub(crate) fn check(tree: &Tree, made: Vec<Made>, source: &str, command: &str) -> Vec<Finding> {
    let is_stale =
        |(target, content): &Made| tree.text(Path::new(target)).as_deref() != Some(content);
    let finding = |(target, _): Made| {
        let message = format!("not what {source} says, run `{command}`");
        Finding::new(Path::new(target), 1, message)
    };
    made.into_iter().filter(is_stale).map(finding).collect()
}

/// The lines of a comment, broken at spaces alone.
pub(crate) fn wrapped(text: &str, line_letters_max: usize) -> Vec<Cow<'_, str>> {
    let options = textwrap::Options::new(line_letters_max)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::wrap(text, options)
}
