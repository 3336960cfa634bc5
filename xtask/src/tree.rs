//! The files of the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

/// A folder and the files in it that a commit would hold.
pub(crate) struct Tree {
    /// The folder, absolute.
    pub(crate) root: PathBuf,
    /// The files, relative to the folder, in order.
    pub(crate) paths: Vec<PathBuf>,
}

impl Tree {
    /// The files that git tracks, and the new ones it does not ignore. Fails where git does.
    pub(crate) fn of_repository(root: &Path) -> anyhow::Result<Self> {
        let output = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root)
            .output()
            .context("git could not be run")?;
        anyhow::ensure!(
            output.status.success(),
            "git ls-files: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let listing = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
        let mut paths: Vec<PathBuf> = listing
            .split('\0')
            .filter(|name| !name.is_empty())
            .map(PathBuf::from)
            // A deleted file is listed until its deletion is committed.
            .filter(|path| root.join(path).is_file())
            .collect();
        paths.sort();
        paths.dedup();
        Ok(Self {
            root: root.to_owned(),
            paths,
        })
    }

    /// The text of a file; `None` if it cannot be read or is not UTF-8, as images are.
    pub(crate) fn text(&self, path: &Path) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }
}

#[cfg(test)]
pub(crate) mod samples {
    //! Small repositories for the tests of the rules.

    use super::Tree;
    use std::path::PathBuf;

    /// A temporary folder with the given files. It is removed with the first value.
    pub(crate) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let paths = files.iter().map(|(path, _)| PathBuf::from(path)).collect();
        let tree = Tree {
            root: folder.path().to_owned(),
            paths,
        };
        (folder, tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_and_deleted_files_are_left_out_and_new_ones_are_in() {
        let (folder, _) = samples::tree(&[
            (".gitignore", "/made/\n"),
            ("kept.rs", ""),
            ("gone.rs", ""),
            ("made/out.rs", ""),
        ]);
        for arguments in [&["init", "-q"][..], &["add", "."][..]] {
            let status = Command::new("git")
                .args(arguments)
                .current_dir(&folder)
                .status()
                .unwrap();
            assert!(status.success());
        }
        std::fs::remove_file(folder.path().join("gone.rs")).unwrap();
        std::fs::write(folder.path().join("new.rs"), "").unwrap();

        let tree = Tree::of_repository(folder.path()).unwrap();

        assert_eq!(
            tree.paths,
            [".gitignore", "kept.rs", "new.rs"].map(PathBuf::from)
        );
    }
}
