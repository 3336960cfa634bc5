//! The packages of the workspace, as cargo sees them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde::Deserialize;

/// The answer of `cargo metadata` about the workspace alone, without its dependencies.
#[derive(Deserialize)]
pub(crate) struct Workspace {
    /// In cargo's order.
    pub(crate) packages: Vec<Package>,
    /// The folder of what cargo builds, absolute.
    pub(crate) target_directory: PathBuf,
}

/// One package.
#[derive(Deserialize)]
pub(crate) struct Package {
    /// The name in `Cargo.toml`.
    pub(crate) name: String,
    /// Its `Cargo.toml`, relative to the root of the workspace.
    pub(crate) manifest_path: PathBuf,
    /// Its dependencies, of any kind, for any target.
    pub(crate) dependencies: Vec<Dependency>,
    /// Its libraries, programs, tests, benches and examples.
    pub(crate) targets: Vec<Target>,
}

/// One dependency of a package.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    /// The package's own name, even where the dependency renames it.
    pub(crate) name: String,
    /// `dev` if only tests, benches and examples see it.
    pub(crate) kind: Option<String>,
}

/// What cargo compiles as one crate.
#[derive(Deserialize)]
pub(crate) struct Target {
    /// Its root file, relative to the root of the workspace.
    pub(crate) src_path: PathBuf,
}

impl Workspace {
    /// Asks `cargo metadata`. Fails if cargo does, or if its answer is not understood.
    pub(crate) fn load(root: &Path) -> anyhow::Result<Self> {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(root)
            .output()
            .context("cargo could not be run")?;
        let error = || String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::ensure!(output.status.success(), "cargo metadata: {}", error());
        let mut workspace: Self = serde_json::from_slice(&output.stdout)?;
        for package in &mut workspace.packages {
            let targets = package
                .targets
                .iter_mut()
                .map(|target| &mut target.src_path);
            for path in targets.chain([&mut package.manifest_path]) {
                *path = path.strip_prefix(root)?.to_owned();
            }
        }
        Ok(workspace)
    }
}

impl Package {
    /// Its folder, relative to the root of the workspace.
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new(""))
    }

    /// A package with these ordinary dependencies and no targets.
    #[cfg(test)]
    pub(crate) fn sample(name: &str, folder: &str, dependencies: &[&str]) -> Self {
        let dependency = |&name: &&str| Dependency {
            name: name.to_owned(),
            kind: None,
        };
        Self {
            name: name.to_owned(),
            manifest_path: Path::new(folder).join("Cargo.toml"),
            dependencies: dependencies.iter().map(dependency).collect(),
            targets: Vec::new(),
        }
    }
}
