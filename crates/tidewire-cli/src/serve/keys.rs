//! Which key tokens are checked with.

use crate::failure::Failure;
use crate::sources::Ranks;
use clap::{Args, ValueEnum};
use std::fs;
use std::path::{Path, PathBuf};
use tidewire_engine::Protocol;
use tidewire_engine::auth::{AuthConfig, AuthKey, KeyMaterial};

/// The options about tokens.
#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication (a key, or --no-auth)")]
pub(crate) struct KeyFlags {
    /// The secret of HS256 tokens, 32 bytes or more; other users of the machine can see it in the list
    /// of processes, so prefer the environment or a file
    #[arg(long, value_name = "SECRET")]
    jwt_secret: Option<String>,
    /// A file with that secret
    #[arg(long, value_name = "FILE")]
    jwt_secret_file: Option<PathBuf>,
    /// The public key of tokens, PEM; with --jwt-algorithm
    #[arg(long, value_name = "FILE")]
    jwt_public_key: Option<PathBuf>,
    /// What the public key is for
    #[arg(long, value_enum)]
    jwt_algorithm: Option<Algorithm>,
    /// Accept only tokens that name this key (`kid`)
    #[arg(long, value_name = "ID")]
    jwt_key_id: Option<String>,
    /// During rotation: the secret before, still accepted
    #[arg(long, value_name = "SECRET")]
    jwt_previous_secret: Option<String>,
    /// A file with that secret
    #[arg(long, value_name = "FILE")]
    jwt_previous_secret_file: Option<PathBuf>,
    /// During rotation: the public key before, still accepted
    #[arg(long, value_name = "FILE")]
    jwt_previous_public_key: Option<PathBuf>,
    /// What that public key is for [default: that of --jwt-algorithm]
    #[arg(long, value_enum)]
    jwt_previous_algorithm: Option<Algorithm>,
    /// The `kid` of the previous key
    #[arg(long, value_name = "ID")]
    jwt_previous_key_id: Option<String>,
    /// What the claim `iss` has to be [default: not checked]
    #[arg(long, value_name = "NAME")]
    jwt_issuer: Option<String>,
    /// What the claim `aud` has to be or contain [default: not checked]
    #[arg(long, value_name = "NAME")]
    jwt_audience: Option<String>,
    /// How far the clocks of signer and server may be apart
    #[arg(long, value_name = "S", default_value_t = 5)]
    jwt_leeway_s: u64,
    /// How long a session goes on after its token has expired, so that a new token that is late can still come; at
    /// least --jwt-leeway-s. Then it ends with the error TOKEN_EXPIRED and close code 4401
    #[arg(long, value_name = "S", default_value_t = 10)]
    token_grace_s: u64,
    /// How long before that a client is told that its token expires; of a token that is good for less than twice as
    /// long, half of that. 0 for never
    #[arg(long, value_name = "S", default_value_t = 60)]
    token_warning_s: u64,
    /// Let sessions go on when their token has expired
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    keep_expired_sessions: bool,
    /// The cookie that may hold the token
    #[arg(long, value_name = "NAME", default_value = "access_token")]
    cookie_name: String,
    /// The query parameter that may hold the token [default: none]
    #[arg(long, value_name = "NAME")]
    token_query_parameter: Option<String>,
    /// A subprotocol with this prefix may hold the token in its rest [default: none]
    #[arg(long, value_name = "PREFIX")]
    token_subprotocol_prefix: Option<String>,
    /// Let everyone in
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    no_auth: bool,
    /// Tell a bad token by an error message and close code 4401 after the upgrade, where a browser can
    /// read it, instead of HTTP 401
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) auth_failure_after_upgrade: bool,
}

/// What a public key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Algorithm {
    Rs256,
    Es256,
    Eddsa,
}

/// The one way to a key that counts.
#[derive(Clone, Copy)]
enum Way<'a> {
    NoAuth,
    Secret(&'a str),
    SecretFile(&'a Path),
    PublicKey(&'a Path),
}

impl KeyFlags {
    /// How tokens are checked; `None` to let everyone in.
    ///
    /// # Errors
    /// There is no way to a key and none is needed only with `raw`, two ways exclude each other, or a
    /// file cannot be read.
    pub(crate) fn auth_config(
        &self,
        protocol: Protocol,
        ranks: &Ranks,
    ) -> Result<Option<AuthConfig>, Failure> {
        let current = vec![
            ("no_auth", self.no_auth.then_some(Way::NoAuth)),
            ("jwt_secret", self.jwt_secret.as_deref().map(Way::Secret)),
            (
                "jwt_secret_file",
                self.jwt_secret_file.as_deref().map(Way::SecretFile),
            ),
            (
                "jwt_public_key",
                self.jwt_public_key.as_deref().map(Way::PublicKey),
            ),
        ];
        let previous = vec![
            (
                "jwt_previous_secret",
                self.jwt_previous_secret.as_deref().map(Way::Secret),
            ),
            (
                "jwt_previous_secret_file",
                self.jwt_previous_secret_file
                    .as_deref()
                    .map(Way::SecretFile),
            ),
            (
                "jwt_previous_public_key",
                self.jwt_previous_public_key.as_deref().map(Way::PublicKey),
            ),
        ];
        let material = match ranks.strongest(current)? {
            None if protocol == Protocol::V1 => return Err(Failure::usage(NO_KEY)),
            None | Some(Way::NoAuth) => return Ok(None),
            Some(way) => way.material(self.jwt_algorithm)?,
        };
        let mut config = AuthConfig::new(material);
        config.key.kid = self.jwt_key_id.clone();
        config.previous_key = match ranks.strongest(previous)? {
            Some(way) => Some(AuthKey {
                material: way.material(self.jwt_previous_algorithm.or(self.jwt_algorithm))?,
                kid: self.jwt_previous_key_id.clone(),
            }),
            None => None,
        };
        Ok(Some(AuthConfig {
            issuer: self.jwt_issuer.clone(),
            audience: self.jwt_audience.clone(),
            leeway_s: self.jwt_leeway_s,
            ends_sessions: !self.keep_expired_sessions,
            grace_s: self.token_grace_s,
            warning_s: self.token_warning_s,
            cookie_name: self.cookie_name.clone(),
            query_parameter: self.token_query_parameter.clone(),
            subprotocol_prefix: self.token_subprotocol_prefix.clone(),
            ..config
        }))
    }
}

impl Way<'_> {
    fn material(self, algorithm: Option<Algorithm>) -> Result<KeyMaterial, Failure> {
        match self {
            Way::Secret(secret) => Ok(KeyMaterial::Hs256(secret.as_bytes().to_vec())),
            Way::SecretFile(path) => secret_of(path).map(KeyMaterial::Hs256),
            Way::PublicKey(path) => {
                let algorithm = algorithm.ok_or_else(|| Failure::usage(NO_ALGORITHM))?;
                Ok(algorithm.material(read("a key", path)?))
            }
            Way::NoAuth => Err(Failure::usage(NO_KEY)),
        }
    }
}

impl Algorithm {
    /// A key in PEM for this algorithm.
    pub(crate) fn material(self, pem: Vec<u8>) -> KeyMaterial {
        match self {
            Self::Rs256 => KeyMaterial::Rs256Pem(pem),
            Self::Es256 => KeyMaterial::Es256Pem(pem),
            Self::Eddsa => KeyMaterial::EdDsaPem(pem),
        }
    }
}

/// The secret in a file, without the line feed at its end.
pub(crate) fn secret_of(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut secret = read("a secret", path)?;
    while secret
        .last()
        .is_some_and(|&byte| byte == b'\n' || byte == b'\r')
    {
        secret.pop();
    }
    Ok(secret)
}

/// What a file holds.
pub(crate) fn read(what: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| {
        Failure::usage(format!(
            "cannot read {what} from {}: {error}",
            path.display()
        ))
    })
}

const NO_KEY: &str = "there is no key to check tokens with: give --jwt-secret, --jwt-secret-file or \
    --jwt-public-key (`tidewire token` makes tokens to try), or let everyone in with --no-auth";

const NO_ALGORITHM: &str =
    "a public key needs its algorithm: give --jwt-algorithm rs256, es256 or eddsa";
