//! The dependency arrows between the crates, and what only some crates may depend on.

use crate::finding::Finding;
use crate::layers::{Layers, SOURCE};
use crate::tree::Tree;
use crate::workspace::{Dependency, Package, Workspace};

/// One finding for each arrow that the design does not have, at its line in `Cargo.toml`.
pub(crate) fn check(tree: &Tree, workspace: &Workspace, layers: &Layers) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let is_language = package.folder().starts_with("bindings") && package.name != BINDINGS;
        let name = if is_language {
            "bindings"
        } else {
            &package.name
        };
        let Some(allowed) = layers.arrows.get(name) else {
            let message =
                format!("{name} has no place in the table of arrows, give it one in {SOURCE}");
            findings.push(Finding::new(&package.manifest_path, 1, message));
            continue;
        };
        let text = tree.text(&package.manifest_path).unwrap_or_default();
        for dependency in &package.dependencies {
            let objection = objection(package, dependency, allowed, is_language, workspace, layers);
            if let Some(message) = objection {
                let line = line_of(&text, &dependency.name);
                findings.push(Finding::new(&package.manifest_path, line, message));
            }
        }
    }
    findings
}

fn objection(
    package: &Package,
    dependency: &Dependency,
    allowed: &[String],
    is_language: bool,
    workspace: &Workspace,
    layers: &Layers,
) -> Option<String> {
    let (from, to) = (&package.name, &dependency.name);
    let is_ours =
        to.starts_with("tidewire-") || workspace.packages.iter().any(|other| other.name == *to);
    let advice = if !is_language
        && layers
            .binding_libraries
            .iter()
            .any(|library| belongs_to(to, library))
    {
        "move what needs it to the binding of its language".to_owned()
    } else if dependency.kind.as_deref() == Some("dev") {
        return None;
    } else if to == TESTKIT {
        "make it a dev-dependency".to_owned()
    } else if layers.protocol.crates.contains(from) && layers.protocol.libraries.contains(to) {
        "pass its bytes, time or randomness in as arguments".to_owned()
    } else if is_ours && !allowed.contains(to) {
        format!(
            "remove the arrow: of ours the design allows [{}]",
            allowed.join(", ")
        )
    } else {
        return None;
    };
    Some(format!("{from} depends on {to}, {advice}"))
}

/// Whether a crate is the library itself or one of its parts, such as `napi-derive`.
fn belongs_to(name: &str, library: &str) -> bool {
    let rest = name.strip_prefix(library);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn line_of(manifest: &str, dependency: &str) -> usize {
    let names_it = |line: &str| {
        let rest = line.trim_start().strip_prefix(dependency);
        rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
            || line.contains(&format!("package = \"{dependency}\""))
            || line.ends_with(&format!("dependencies.{dependency}]"))
    };
    manifest
        .lines()
        .position(names_it)
        .map_or(1, |index| index + 1)
}

const TESTKIT: &str = "tidewire-testkit";
/// The dependencies that the packages for other languages share.
const BINDINGS: &str = "tidewire-bindings";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::samples;
    use std::path::PathBuf;

    fn messages(package: Package) -> Vec<String> {
        let manifest =
            "[dependencies]\nrandom = \"1\"\nrand.workspace = true\n[dependencies.napi]\n";
        let (_folder, tree) = samples::tree(&[("crates/tidewire-wire/Cargo.toml", manifest)]);
        let workspace = Workspace {
            packages: vec![package],
            target_directory: PathBuf::new(),
        };
        let findings = check(&tree, &workspace, &Layers::own());
        findings.iter().map(ToString::to_string).collect()
    }

    fn package(name: &str, dependencies: &[&str]) -> Package {
        Package::sample(name, &format!("crates/{name}"), dependencies)
    }

    #[test]
    fn the_arrows_of_the_design_pass() {
        for (from, to) in [
            ("tidewire-wire", &["httparse"][..]),
            ("tidewire-net", &["tidewire-wire", "mio", "rand"]),
            ("tidewire-cli", &["tidewire-engine", "tidewire-load"]),
            ("tidewire-engine", &["napier"]),
        ] {
            assert_eq!(messages(package(from, to)), [""; 0], "{from}");
        }
        let python = Package::sample(
            "tidewire-python",
            "bindings/python",
            &["tidewire-bindings", "pyo3"],
        );
        assert_eq!(messages(python), [""; 0]);
    }

    #[test]
    fn an_arrow_that_the_design_lacks_is_found() {
        for (from, to) in [
            ("tidewire-load", "tidewire-engine"),
            ("tidewire-wire", "tidewire-net"),
            ("tidewire-cli", "tidewire-net"),
            ("xtask", "tidewire-wire"),
            ("tidewire-bindings", "tidewire-load"),
            ("tidewire-load", "tidewire-testkit"),
            ("tidewire-http", "tokio"),
            ("tidewire-engine", "pyo3-ffi"),
        ] {
            let found = messages(package(from, &[to]));
            assert_eq!(found.len(), 1, "{from} -> {to}");
            assert!(
                found[0].contains(&format!(": {from} depends on {to}, ")),
                "{found:?}"
            );
        }
        assert_eq!(
            messages(Package::sample(
                "tidewire-bindings",
                "bindings/common",
                &["napi"]
            ))
            .len(),
            1
        );
        assert_eq!(
            messages(package("tidewire-extra", &[])).len(),
            1,
            "it has no place"
        );
    }

    #[test]
    fn tests_may_depend_on_any_crate_of_ours() {
        let mut load = package("tidewire-load", &["tidewire-engine", "tidewire-testkit"]);
        for dependency in &mut load.dependencies {
            dependency.kind = Some("dev".to_owned());
        }
        assert_eq!(messages(load), [""; 0]);
    }

    #[test]
    fn the_line_of_a_dependency_is_named() {
        for (library, line) in [("rand", 3), ("napi", 4), ("mio", 1)] {
            let found = messages(package("tidewire-wire", &[library]));
            assert!(
                found[0].starts_with(&format!("crates/tidewire-wire/Cargo.toml:{line}: ")),
                "{found:?}"
            );
        }
    }
}
