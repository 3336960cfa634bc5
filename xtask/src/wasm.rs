//! Builds the protocol crate as a WebAssembly module and reads what it imports.
//!
//! The target has no operating system, so whatever a crate wants of its environment (a clock, a random
//! source, a host's functions) shows up as an import. All code is kept, also code that nothing calls:
//! else an empty module would prove nothing.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use wasmparser::{KnownCustom, Name, NameSectionReader, Parser, Payload};

use crate::workspace::Workspace;

/// The checked facts of a WebAssembly module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Module {
    /// Each import as `module.name`.
    pub(crate) imports: Vec<String>,
    /// How many functions of the protocol crate are in it.
    pub(crate) functions: usize,
}

/// Builds and reads the module. Fails if the build does, or if the module has no code of the crate.
pub(crate) fn build(root: &Path) -> anyhow::Result<Module> {
    let status = Command::new(env!("CARGO"))
        .args([
            "rustc",
            "--quiet",
            "--package",
            "tidewire-wire",
            "--lib",
            "--crate-type",
            "cdylib",
        ])
        .args(["--target", TARGET, "--"])
        .args(KEEP_ALL_CODE)
        .current_dir(root)
        .status()
        .context("cargo could not be run")?;
    anyhow::ensure!(
        status.success(),
        "tidewire-wire does not build for {TARGET}; if the target is missing: rustup target add {TARGET}"
    );
    let built = format!("{TARGET}/debug/tidewire_wire.wasm");
    let path = Workspace::load(root)?.target_directory.join(built);
    let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
    let module = read(&bytes).with_context(|| path.display().to_string())?;
    anyhow::ensure!(
        module.functions > 0,
        "{} has no code of the crate",
        path.display()
    );
    Ok(module)
}

fn read(bytes: &[u8]) -> wasmparser::Result<Module> {
    let mut module = Module::default();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import?;
                    module
                        .imports
                        .push(format!("{}.{}", import.module, import.name));
                }
            }
            Payload::CustomSection(section) => {
                if let KnownCustom::Name(names) = section.as_known() {
                    module.functions += functions(names)?;
                }
            }
            _ => {}
        }
    }
    Ok(module)
}

/// How many functions carry the crate's name, which stands in each symbol with its length before it.
fn functions(names: NameSectionReader<'_>) -> wasmparser::Result<usize> {
    let mut count = 0;
    for name in names {
        if let Name::Function(functions) = name? {
            for function in functions {
                count += usize::from(function?.name.contains(MANGLED_CRATE));
            }
        }
    }
    Ok(count)
}

const TARGET: &str = "wasm32-unknown-unknown";

/// An optimised build drops every function that the module does not export, and the linker drops the rest.
const KEEP_ALL_CODE: [&str; 6] = [
    "-C",
    "opt-level=0",
    "-C",
    "link-dead-code",
    "-C",
    "link-arg=--no-gc-sections",
];

const MANGLED_CRATE: &str = "13tidewire_wire";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_and_functions_of_the_crate_are_read() {
        let section = |id: u8, content: &[u8]| {
            [&[id, u8::try_from(content.len()).unwrap()], content].concat()
        };
        let names = b"\x02\x00\x12_13tidewire_wire5f\x01\x09_ZN4core3";
        let bytes = [
            b"\0asm\x01\0\0\0".to_vec(),
            section(1, b"\x01\x60\x00\x00"),
            section(2, b"\x02\x03env\x03now\x00\x00\x01a\x01g\x03\x7f\x00"),
            section(0, &[b"\x04name", &section(1, names)[..]].concat()),
        ]
        .concat();
        let module = read(&bytes).unwrap();
        assert_eq!(module.imports, ["env.now", "a.g"]);
        assert_eq!(module.functions, 1);
        assert!(read(&bytes[..20]).is_err(), "a cut module");
    }
}
