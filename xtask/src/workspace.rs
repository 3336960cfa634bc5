//! The packages of the workspace, as cargo sees them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

/// The packages of the workspace.
pub(crate) struct Workspace {
    /// In cargo's order.
    pub(crate) packages: Vec<Package>,
}

/// One package.
pub(crate) struct Package {
    /// The name in `Cargo.toml`.
    pub(crate) name: String,
    /// The folder, relative to the root of the workspace.
    pub(crate) folder: PathBuf,
    /// Its dependencies, of any kind, for any target.
    pub(crate) dependencies: Vec<Dependency>,
    /// The root files of its libraries, programs, tests, benches and examples, relative as `folder`.
    pub(crate) roots: Vec<PathBuf>,
}

/// One dependency of a package.
pub(crate) struct Dependency {
    /// The package's own name, even where the dependency renames it.
    pub(crate) name: String,
    /// Whether only tests, benches and examples see it.
    pub(crate) is_dev: bool,
}

impl Workspace {
    /// Asks `cargo metadata`. Fails if cargo does, or if its answer is not understood.
    pub(crate) fn load(root: &Path) -> anyhow::Result<Self> {
        let metadata = metadata(root)?;
        let packages = items(&metadata["packages"])
            .map(|package| Package::parse(package, root))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { packages })
    }
}

impl Package {
    fn parse(package: &Value, root: &Path) -> anyhow::Result<Self> {
        let manifest = relative(&package["manifest_path"], root)?;
        Ok(Self {
            name: text(&package["name"])?.to_owned(),
            folder: manifest
                .parent()
                .context("a manifest stands in no folder")?
                .to_owned(),
            dependencies: items(&package["dependencies"])
                .map(|dependency| {
                    Ok(Dependency {
                        name: text(&dependency["name"])?.to_owned(),
                        is_dev: dependency["kind"] == "dev",
                    })
                })
                .collect::<anyhow::Result<_>>()?,
            roots: items(&package["targets"])
                .map(|target| relative(&target["src_path"], root))
                .collect::<anyhow::Result<_>>()?,
        })
    }

    /// A package with these ordinary dependencies and no targets.
    #[cfg(test)]
    pub(crate) fn sample(name: &str, folder: &str, dependencies: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            folder: PathBuf::from(folder),
            dependencies: dependencies
                .iter()
                .map(|&name| Dependency {
                    name: name.to_owned(),
                    is_dev: false,
                })
                .collect(),
            roots: Vec::new(),
        }
    }
}

/// The output of `cargo metadata` about the workspace alone, without its dependencies.
pub(crate) fn metadata(root: &Path) -> anyhow::Result<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cargo could not be run")?;
    anyhow::ensure!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> anyhow::Result<&str> {
    value.as_str().context("cargo metadata: a text is missing")
}

fn relative(value: &Value, root: &Path) -> anyhow::Result<PathBuf> {
    let path = Path::new(text(value)?);
    Ok(path
        .strip_prefix(root)
        .with_context(|| format!("{} is outside", path.display()))?
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::samples;

    #[test]
    fn packages_dependencies_and_roots_are_read_from_cargo() {
        let manifest = "[package]\nname = \"a\"\nedition = \"2024\"\n[dependencies]\n\
             other = { package = \"b\", path = \"../b\" }\n[dev-dependencies]\nc = { path = \"../c\" }\n";
        let (folder, _) = samples::tree(&[
            (
                "Cargo.toml",
                "[workspace]\nresolver = \"3\"\nmembers = [\"a\", \"b\", \"c\"]\n",
            ),
            ("a/Cargo.toml", manifest),
            ("a/src/lib.rs", ""),
            ("a/tests/face.rs", ""),
            ("b/Cargo.toml", "[package]\nname = \"b\"\n"),
            ("b/src/lib.rs", ""),
            ("c/Cargo.toml", "[package]\nname = \"c\"\n"),
            ("c/src/main.rs", ""),
        ]);
        let root = folder.path().canonicalize().unwrap();

        let workspace = Workspace::load(&root).unwrap();

        let a = workspace
            .packages
            .iter()
            .find(|package| package.name == "a")
            .unwrap();
        assert_eq!(a.folder, Path::new("a"));
        let arrows: Vec<_> = a
            .dependencies
            .iter()
            .map(|arrow| (arrow.name.as_str(), arrow.is_dev))
            .collect();
        assert_eq!(arrows, [("b", false), ("c", true)]);
        assert_eq!(
            a.roots,
            ["a/src/lib.rs", "a/tests/face.rs"].map(PathBuf::from)
        );
    }
}
