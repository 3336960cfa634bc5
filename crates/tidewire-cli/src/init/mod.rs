//! `tidewire init`: a configuration file with every option in it, and a secret for tokens.

use crate::failure::Failure;
use crate::output::print;
use clap::Args;
use rand::rngs::StdRng;
use rand::{RngCore as _, SeedableRng as _};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// The options of `tidewire init`.
#[derive(Debug, Clone, Args)]
pub(crate) struct InitFlags {
    /// The file to write; it must not exist. The secret is written beside it
    #[arg(value_name = "FILE", default_value = "tidewire.toml")]
    file: PathBuf,
}

/// Writes the files and prints the next steps.
pub(crate) fn run(flags: &InitFlags) -> Result<u8, Failure> {
    let file = &flags.file;
    let secret = secret_path(file)?;
    let quoted = serde_json::Value::from(secret.display().to_string()).to_string();
    let text = TEMPLATE.replace(&format!("\"{SECRET_FILE}\""), &quoted);
    write_new(file, text.as_bytes(), false).map_err(|error| explain(file, &error))?;
    let written = match write_new(&secret, new_secret().as_bytes(), true) {
        Ok(()) => format!("{} and {}", file.display(), secret.display()),
        // A secret that is there may be in use.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            format!("{} (kept: {})", file.display(), secret.display())
        }
        Err(error) => return Err(explain(&secret, &error)),
    };
    let (file, secret) = (file.display(), secret.display());
    print(&format!(
        "written: {written}\n\
         next:\n\
         \x20 tidewire serve --config {file} --check\n\
         \x20 tidewire serve --config {file}\n\
         \x20 tidewire token --jwt-secret-file {secret} --subject user-1\n"
    ))?;
    Ok(0)
}

/// The secret beside the file: a plain name in the working directory, else a full path, so that the server finds it from
/// wherever it is started.
fn secret_path(file: &Path) -> Result<PathBuf, Failure> {
    let folder = file.parent().filter(|folder| *folder != Path::new(""));
    let Some(folder) = folder else {
        return Ok(SECRET_FILE.into());
    };
    let folder = std::path::absolute(folder).map_err(|error| explain(folder, &error))?;
    Ok(folder.join(SECRET_FILE))
}

/// Writes a file that must not exist; a private one is readable by its owner alone.
fn write_new(path: &Path, bytes: &[u8], is_private: bool) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if is_private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    let mut file: File = options.open(path)?;
    file.write_all(bytes)
}

/// 32 random bytes in hexadecimal digits, and a line feed.
fn new_secret() -> String {
    let mut bytes = [0_u8; 32];
    StdRng::from_os_rng().fill_bytes(&mut bytes);
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits + "\n"
}

fn explain(path: &Path, error: &std::io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::AlreadyExists => ": it exists, and nothing is overwritten; give another name",
        ErrorKind::NotFound => ": make its folder first",
        _ => "",
    };
    let reason = match error.kind() {
        ErrorKind::AlreadyExists => String::new(),
        _ => format!(": {error}"),
    };
    Failure::usage(format!("cannot write {}{reason}{advice}", path.display()))
}

/// Generated from `options/*.toml` by `cargo xtask options`.
const TEMPLATE: &str = include_str!("tidewire.toml");

/// The path of the secret in the template.
const SECRET_FILE: &str = "tidewire-secret.txt";
