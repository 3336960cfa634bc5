//! Secrets of the broker: certificates and passwords that are read again before each connection, because they end.

use crate::config::broker::{BrokerConfig, PasswordSource};
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tidewire_net::tls::{self, ClientConfig, ClientIdentity, TlsError, Trust};

/// The credentials of this server at the broker.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Login({:?})", self.user)
    }
}

/// Where they are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Secrets {
    authorities: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    username: Option<String>,
    password: Option<PasswordSource>,
}

impl Secrets {
    pub(crate) fn of(config: &BrokerConfig) -> Self {
        Self {
            authorities: config.authorities.clone(),
            certificate: config.certificate.clone(),
            username: config.username.clone(),
            password: config.password.clone(),
        }
    }

    /// Whether they may be others before the next connection.
    pub(crate) fn change(&self) -> bool {
        self.authorities.is_some() || self.certificate.is_some() || self.password.is_some()
    }

    /// The certificates that this server trusts, and its own.
    pub(crate) fn tls(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let certificate = self.certificate.as_ref();
        tls::client_config_for(&ClientIdentity {
            trust: match &self.authorities {
                Some(file) => Trust::File(file),
                None => Trust::WebRoots,
            },
            certificate: certificate.map(|(chain, key)| (chain.as_path(), key.as_path())),
        })
    }

    /// The user and the password; `None` if they are those of the address.
    pub(crate) fn login(&self) -> io::Result<Option<Login>> {
        let text = match &self.password {
            None => return Ok(None),
            Some(PasswordSource::File(path)) => fs::read_to_string(path).map_err(|error| {
                let words = format!("the password file {}: {error}", path.display());
                io::Error::new(error.kind(), words)
            })?,
            Some(PasswordSource::Command(command)) => output_of(command)?,
        };
        let password = text.lines().next().unwrap_or_default().to_owned();
        if password.is_empty() {
            return Err(io::Error::other("the password of the broker is empty"));
        }
        Ok(Some(Login {
            user: self.username.clone(),
            password: Some(password),
        }))
    }
}

/// What a command prints, if it ends well and in time.
fn output_of(command: &str) -> io::Result<String> {
    let failed = |words: &str| io::Error::other(format!("the password command: {words}"));
    let mut words = command.split_whitespace();
    let program = words.next().ok_or_else(|| failed("it is empty"))?;
    let child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| failed(&error.to_string()))?;
    let Some(mut stdout) = child.stdout.take() else {
        return Err(failed("it has no output"));
    };
    // It may print more than a pipe holds, and end only then.
    let reader = thread::spawn(move || {
        let mut text = String::new();
        stdout
            .by_ref()
            .take(OUTPUT_BYTES_MAX)
            .read_to_string(&mut text)?;
        Ok::<_, io::Error>(text)
    });
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Err(failed("it did not end within 10 s"));
        }
        thread::sleep(POLL);
    };
    if !status.success() {
        return Err(failed(&format!("it ended with {status}")));
    }
    reader.join().map_err(|_| failed("it cannot be read"))?
}

/// How long a command has.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether the command has ended.
const POLL: Duration = Duration::from_millis(5);

/// The most that is read of what it prints.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn password_of(source: PasswordSource) -> io::Result<Option<String>> {
        let secrets = Secrets {
            username: Some("ada".to_owned()),
            password: Some(source),
            ..Secrets::default()
        };
        let login = secrets.login()?.expect("a login");
        assert_eq!(login.user.as_deref(), Some("ada"));
        Ok(login.password)
    }

    #[test]
    fn a_password_is_the_first_line_of_a_file_or_of_what_a_command_prints() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("password");
        for text in ["one", "two\n", "three\nand more\n"] {
            fs::write(&file, text).expect("written");
            let command = format!("cat {}", file.display());
            let word = text.split('\n').next().map(str::to_owned);
            let sources = [
                PasswordSource::File(file.clone()),
                PasswordSource::Command(command),
            ];
            for source in sources {
                assert_eq!(password_of(source).expect("a password"), word);
            }
        }
        fs::write(&file, "").expect("written");
        for (source, words) in [
            (PasswordSource::File(file), "is empty"),
            (PasswordSource::File(folder.path().join("none")), "none"),
            (PasswordSource::Command("false".to_owned()), "it ended with"),
            (
                PasswordSource::Command("/no/such/program".to_owned()),
                "the password command",
            ),
            (PasswordSource::Command("  ".to_owned()), "it is empty"),
        ] {
            let error = password_of(source).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
