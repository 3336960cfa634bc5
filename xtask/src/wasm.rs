//! Builds the protocol crate as a WebAssembly module and reads what it imports.
//!
//! The target has no operating system, so whatever a crate wants of its environment (a clock, a random
//! source, a host's functions) shows up as an import. All code is kept, also code that nothing calls:
//! else an empty module would prove nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::workspace;

/// The checked facts of a WebAssembly module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// Each import as `module.name`.
    pub(crate) imports: Vec<String>,
    /// How many functions of the protocol crate are in it.
    pub(crate) functions: usize,
}

/// Builds and reads the module. Fails if the build does, or if the module has no code.
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
    let path = target_folder(root)?
        .join(TARGET)
        .join("debug/tidewire_wire.wasm");
    let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
    let module = parse(&bytes).with_context(|| format!("{}: no valid module", path.display()))?;
    anyhow::ensure!(
        module.functions > 0,
        "{} has no code of the crate",
        path.display()
    );
    Ok(module)
}

fn target_folder(root: &Path) -> anyhow::Result<PathBuf> {
    let metadata = workspace::metadata(root)?;
    metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .context("cargo metadata: no target folder")
}

/// Reads the imports and the names of the functions (WebAssembly core specification, section 5.5 and
/// appendix "Name Section"); `None` if the bytes are not a module of version 1.
fn parse(bytes: &[u8]) -> Option<Module> {
    let mut input = Input(bytes.strip_prefix(b"\0asm\x01\0\0\0")?);
    let mut module = Module {
        imports: Vec::new(),
        functions: 0,
    };
    while !input.0.is_empty() {
        let section = input.byte()?;
        let mut content = Input(input.vector()?);
        match section {
            SECTION_IMPORT => {
                for _ in 0..content.number()? {
                    module.imports.push(content.import()?);
                }
            }
            SECTION_CUSTOM if content.vector()? == b"name" => {
                module.functions = mentions(content.0);
            }
            _ => {}
        }
    }
    Some(module)
}

/// How many symbols carry the crate's name, which stands in each with its length before it.
fn mentions(names: &[u8]) -> usize {
    names
        .windows(MANGLED_CRATE.len())
        .filter(|window| *window == MANGLED_CRATE)
        .count()
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// An unsigned number in LEB128, of at most 32 bits.
    fn number(&mut self) -> Option<u32> {
        let mut value = 0_u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).ok();
            }
        }
        None
    }

    /// Bytes with their length before them.
    fn vector(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (vector, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(vector)
    }

    fn import(&mut self) -> Option<String> {
        let module = String::from_utf8_lossy(self.vector()?);
        let name = String::from_utf8_lossy(self.vector()?);
        match self.byte()? {
            IMPORT_FUNCTION => {
                self.number()?;
            }
            IMPORT_TABLE => {
                self.byte()?;
                self.limits()?;
            }
            IMPORT_MEMORY => self.limits()?,
            IMPORT_GLOBAL => {
                self.byte()?;
                self.byte()?;
            }
            _ => return None,
        }
        Some(format!("{module}.{name}"))
    }

    fn limits(&mut self) -> Option<()> {
        let has_maximum = self.byte()? & 1 == 1;
        self.number()?;
        if has_maximum {
            self.number()?;
        }
        Some(())
    }
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

const MANGLED_CRATE: &[u8] = b"13tidewire_wire";

const SECTION_CUSTOM: u8 = 0;
const SECTION_IMPORT: u8 = 2;

const IMPORT_FUNCTION: u8 = 0;
const IMPORT_TABLE: u8 = 1;
const IMPORT_MEMORY: u8 = 2;
const IMPORT_GLOBAL: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[u8] = b"\0asm\x01\0\0\0";

    #[test]
    fn imports_of_every_kind_are_named() {
        let entries =
            b"\x04\x03env\x03now\x00\x85\x01\x01a\x01t\x01\x70\x00\x01\x01a\x01m\x02\x01\x01\x02\
            \x01a\x01g\x03\x7f\x00";
        let length = [u8::try_from(entries.len()).unwrap()];
        let bytes = [HEADER, b"\x00\x02\x01x", b"\x02", &length, entries].concat();

        let module = parse(&bytes).unwrap();

        assert_eq!(module.imports, ["env.now", "a.t", "a.m", "a.g"]);
    }

    #[test]
    fn only_functions_of_the_crate_are_counted() {
        let names = b"\x04name_ZN13tidewire_wire5frame_ZN4core3fmt_RNv13tidewire_wire4mask";
        let length = [u8::try_from(names.len()).unwrap()];
        let other = b"\x00\x15\x05debug13tidewire_wire";
        let module = parse(&[HEADER, other, b"\x00", &length, names].concat()).unwrap();
        assert_eq!(
            module,
            Module {
                imports: vec![],
                functions: 2
            }
        );
    }

    #[test]
    fn cut_or_foreign_bytes_are_no_module() {
        let whole = [HEADER, b"\x02\x08\x01\x01e\x01n\x00\x00"].concat();
        assert!(
            parse(&whole).is_none(),
            "the section says one byte too many"
        );
        assert!(parse(b"\x7fELF").is_none());
        assert!(parse(&[HEADER, b"\x02\xff\xff\xff\xff\xff\x01"].concat()).is_none());
    }
}
