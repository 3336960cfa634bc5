//! Lock files must work for everybody: they name the public registries and nothing else.

use std::path::Path;

use crate::finding::Finding;

/// One finding for each package of a lock file that comes from elsewhere.
pub(crate) fn check(path: &Path, text: &str) -> Vec<Finding> {
    let (key, registry) = match path.file_name().and_then(|name| name.to_str()) {
        Some("Cargo.lock") => (
            "source = \"",
            "registry+https://github.com/rust-lang/crates.io-index",
        ),
        Some("package-lock.json") => ("\"resolved\": \"", "https://registry.npmjs.org/"),
        _ => return Vec::new(),
    };
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(source) = line.trim_start().strip_prefix(key) else {
            continue;
        };
        // npm records a package of the same repository by its path.
        let is_elsewhere = source.contains("://") && !source.starts_with(registry);
        if is_elsewhere {
            let message = "a package locked to another source than the public registry, \
                 lock it again with the ordinary client";
            findings.push(Finding::new(path, index + 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(Path::new(path), text)
            .into_iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn a_mirror_or_a_git_source_in_a_cargo_lock_is_found() {
        let text = "[[package]]\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\n\
             source = \"registry+https://mirror.example/index\"\nsource = \"git+https://host.example/x#1\"\n\
             source = \"sparse+https://mirror.example/\"\n";
        assert_eq!(lines("fuzz/Cargo.lock", text), [3, 4, 5]);
        assert_eq!(lines("notes.txt", text), [0; 0]);
    }

    #[test]
    fn a_mirror_in_an_npm_lock_is_found() {
        let text = "{\n  \"resolved\": \"https://registry.npmjs.org/ws/-/ws-8.0.0.tgz\",\n  \
             \"resolved\": \"packages/client\",\n  \"resolved\": \"http://mirror.example/ws.tgz\"\n}\n";
        assert_eq!(lines("bench/package-lock.json", text), [4]);
    }
}
