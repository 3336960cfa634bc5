//! The dependency arrows between the crates, and what only some crates may depend on.

use std::path::Path;

use crate::finding::Finding;
use crate::tree::Tree;
use crate::workspace::{Dependency, Package, Workspace};

/// One finding for each arrow that the design does not have, at its line in `Cargo.toml`.
pub(crate) fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let manifest = package.folder.join("Cargo.toml");
        let text = tree.text(&manifest).unwrap_or_default();
        let Some(allowed) = allowed_arrows(package) else {
            let message = format!(
                "{} has no place in the table of arrows, give it one in xtask/src/arrows.rs",
                package.name
            );
            findings.push(Finding::new(&manifest, 1, message));
            continue;
        };
        for dependency in &package.dependencies {
            if let Some(message) = objection(package, allowed, dependency, workspace) {
                findings.push(Finding::new(
                    &manifest,
                    line_of(&text, &dependency.name),
                    message,
                ));
            }
        }
    }
    findings
}

fn objection(
    package: &Package,
    allowed: &[&str],
    dependency: &Dependency,
    workspace: &Workspace,
) -> Option<String> {
    let (from, to) = (package.name.as_str(), dependency.name.as_str());
    if BINDING_LIBRARIES
        .iter()
        .any(|library| belongs_to(to, library))
        && (!is_binding(package) || from == BINDINGS)
    {
        return Some(format!(
            "{from} depends on {to}, move what needs it to the binding of its language"
        ));
    }
    if dependency.is_dev {
        return None;
    }
    if to == TESTKIT {
        return Some(format!("{from} depends on {to}, make it a dev-dependency"));
    }
    if [WIRE, HTTP, REDIS].contains(&from) && AMBIENT_LIBRARIES.contains(&to) {
        return Some(format!(
            "{from} depends on {to}, pass its bytes, time or randomness in as arguments"
        ));
    }
    let is_ours =
        to.starts_with("tidewire-") || workspace.packages.iter().any(|other| other.name == to);
    if is_ours && !allowed.contains(&to) {
        let list = if allowed.is_empty() {
            "none of ours".to_owned()
        } else {
            allowed.join(", ")
        };
        return Some(format!(
            "{from} depends on {to}, remove the arrow: the design allows {list}"
        ));
    }
    None
}

fn allowed_arrows(package: &Package) -> Option<&'static [&'static str]> {
    if is_binding(package) && package.name != BINDINGS {
        return Some(BINDING_ARROWS);
    }
    ARROWS
        .iter()
        .find(|(name, _)| *name == package.name)
        .map(|(_, allowed)| *allowed)
}

fn is_binding(package: &Package) -> bool {
    package.folder.starts_with(Path::new("bindings"))
}

/// Whether a crate is the library itself or one of its parts, such as `napi-derive`.
fn belongs_to(name: &str, library: &str) -> bool {
    name.strip_prefix(library)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn line_of(manifest: &str, dependency: &str) -> usize {
    let names_it = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix(dependency)
            .is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
            || line.contains(&format!("package = \"{dependency}\""))
            || line.ends_with(&format!("dependencies.{dependency}]"))
    };
    manifest
        .lines()
        .position(names_it)
        .map_or(1, |index| index + 1)
}

const WIRE: &str = "tidewire-wire";
const HTTP: &str = "tidewire-http";
const REDIS: &str = "tidewire-redis";
const TESTKIT: &str = "tidewire-testkit";
/// The dependencies that the packages for other languages share.
const BINDINGS: &str = "tidewire-bindings";

/// The arrows of the design, from each crate to the crates of ours it may depend on.
const ARROWS: &[(&str, &[&str])] = &[
    (WIRE, &[HTTP]),
    (HTTP, &[]),
    (REDIS, &[]),
    ("tidewire-trust", &[]),
    ("tidewire-net", &[WIRE, "tidewire-trust"]),
    ("tidewire-engine", &[WIRE, HTTP, REDIS, "tidewire-net"]),
    // The exporter of traces, which the program uses with a feature.
    ("tidewire-otlp", &["tidewire-engine"]),
    ("tidewire-client", &[WIRE, "tidewire-trust"]),
    ("tidewire-load", &[WIRE, HTTP, "tidewire-net"]),
    ("tidewire-cli", ENDS),
    (BINDINGS, &["tidewire-engine", "tidewire-client", WIRE]),
    (TESTKIT, &[WIRE, "tidewire-net"]),
    ("xtask", &[]),
];

/// The crates that programs and bindings combine.
const ENDS: &[&str] = &[
    "tidewire-engine",
    "tidewire-client",
    "tidewire-load",
    "tidewire-otlp",
];

/// The bindings also offer parts of the protocol by themselves: compression, signatures, encryption, envelopes.
const BINDING_ARROWS: &[&str] = &[
    BINDINGS,
    "tidewire-engine",
    "tidewire-client",
    "tidewire-load",
    WIRE,
];

/// Only the crates under `bindings/` may depend on these, but for the one that they share.
const BINDING_LIBRARIES: &[&str] = &["pyo3", "napi"];

/// Crates that bring a network, a clock, a random source or a logger, which the protocol crates must not see.
const AMBIENT_LIBRARIES: &[&str] = &[
    "async-std",
    "chrono",
    "env_logger",
    "fastrand",
    "futures-timer",
    "getrandom",
    "hyper",
    "instant",
    "libc",
    "log4rs",
    "mio",
    "nix",
    "polling",
    "quanta",
    "rand",
    "rustix",
    "rustls",
    "smol",
    "socket2",
    "time",
    "tokio",
    "tracing-subscriber",
    "ureq",
    "web-time",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::samples;

    fn messages(packages: Vec<Package>) -> Vec<String> {
        let (_folder, tree) = samples::tree(&[]);
        check(&tree, &Workspace { packages })
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    fn package(name: &str, dependencies: &[&str]) -> Package {
        Package::sample(name, &format!("crates/{name}"), dependencies)
    }

    #[test]
    fn the_arrows_of_the_design_pass() {
        let packages = vec![
            package("tidewire-wire", &["httparse"]),
            package("tidewire-net", &["tidewire-wire", "mio"]),
            package("tidewire-cli", &["tidewire-engine", "tidewire-load"]),
            Package::sample(
                "tidewire-python",
                "bindings/python",
                &["tidewire-engine", "tidewire-bindings", "pyo3"],
            ),
            Package::sample(
                "tidewire-bindings",
                "bindings/common",
                &["tidewire-engine", "tidewire-client", "tidewire-wire"],
            ),
        ];
        assert_eq!(messages(packages), [""; 0]);
    }

    #[test]
    fn an_arrow_that_the_design_lacks_is_found() {
        for (from, to) in [
            ("tidewire-load", "tidewire-engine"),
            ("tidewire-wire", "tidewire-net"),
            ("tidewire-http", "tidewire-wire"),
            ("tidewire-cli", "tidewire-net"),
            ("tidewire-client", "tidewire-net"),
            ("xtask", "tidewire-wire"),
            ("tidewire-bindings", "tidewire-load"),
        ] {
            let found = messages(vec![package(from, &[to])]);
            assert_eq!(found.len(), 1, "{from} -> {to}");
            assert!(found[0].starts_with(&format!("{from} depends on {to}, ")));
        }
    }

    #[test]
    fn tests_may_depend_on_any_crate_but_only_tests_on_the_testkit() {
        let mut load = package("tidewire-load", &["tidewire-engine", "tidewire-testkit"]);
        assert_eq!(
            messages(vec![package("tidewire-load", &["tidewire-testkit"])]).len(),
            1
        );
        for dependency in &mut load.dependencies {
            dependency.is_dev = true;
        }
        assert_eq!(messages(vec![load]), [""; 0]);
    }

    #[test]
    fn the_protocol_crates_take_nothing_from_their_environment() {
        for library in ["tokio", "rand", "getrandom", "tracing-subscriber", "mio"] {
            for protocol in ["tidewire-wire", "tidewire-http"] {
                assert_eq!(
                    messages(vec![package(protocol, &[library])]).len(),
                    1,
                    "{protocol} -> {library}"
                );
            }
            assert_eq!(
                messages(vec![package("tidewire-net", &[library])]).len(),
                0,
                "{library}"
            );
        }
    }

    #[test]
    fn binding_libraries_stay_in_the_bindings() {
        for library in ["pyo3", "pyo3-ffi", "napi", "napi-derive"] {
            assert_eq!(
                messages(vec![package("tidewire-engine", &[library])]).len(),
                1,
                "{library}"
            );
        }
        let shared = Package::sample("tidewire-bindings", "bindings/common", &["napi"]);
        assert_eq!(messages(vec![shared]).len(), 1);
        assert_eq!(
            messages(vec![package("tidewire-engine", &["napier"])]).len(),
            0
        );
    }

    #[test]
    fn a_crate_without_a_place_in_the_table_is_found() {
        assert_eq!(messages(vec![package("tidewire-extra", &[])]).len(), 1);
    }

    #[test]
    fn the_line_of_a_dependency_is_found_in_each_way_to_write_it() {
        let manifest = "[dependencies]\nrandom = \"1\"\nrand.workspace = true\ntokio = \"1\"\n\
             x = { package = \"mio\" }\n[dependencies.napi]\n";
        for (name, line) in [
            ("rand", 3),
            ("tokio", 4),
            ("mio", 5),
            ("napi", 6),
            ("absent", 1),
        ] {
            assert_eq!(line_of(manifest, name), line, "{name}");
        }
    }
}
