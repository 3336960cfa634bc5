//! `tidewire token`: makes a token for trying things.

use crate::failure::Failure;
use crate::keys::{self, Algorithm};
use crate::output::print;
use crate::sources::Ranks;
use clap::Args;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidewire_engine::auth::KeyMaterial;
use tidewire_engine::token::{self, SigningKey};

/// The options of `token`.
#[derive(Debug, Args)]
pub(crate) struct TokenFlags {
    #[command(flatten)]
    key: SigningFlags,
    /// Whom the token is for (`sub`)
    #[arg(long, value_name = "USER")]
    subject: String,
    /// The lifetime in seconds; negative for a token that has expired
    #[arg(
        long,
        value_name = "S",
        default_value_t = 3600,
        allow_negative_numbers = true
    )]
    expires_in_s: i64,
    /// A further claim; JSON where it is JSON, else text; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = claim)]
    claim: Vec<(String, Value)>,
    /// The issuer of the token (`iss`)
    #[arg(
        long,
        value_name = "NAME",
        env = "TIDEWIRE_JWT_ISSUER",
        hide_env_values = true
    )]
    jwt_issuer: Option<String>,
    /// The audience of the token (`aud`)
    #[arg(
        long,
        value_name = "NAME",
        env = "TIDEWIRE_JWT_AUDIENCE",
        hide_env_values = true
    )]
    jwt_audience: Option<String>,
    /// The name of the key (`kid`)
    #[arg(
        long,
        value_name = "ID",
        env = "TIDEWIRE_JWT_KEY_ID",
        hide_env_values = true
    )]
    jwt_key_id: Option<String>,
}

#[derive(Debug, Args)]
struct SigningFlags {
    /// The secret of HS256 tokens, 32 bytes or more
    #[arg(
        long,
        value_name = "SECRET",
        env = "TIDEWIRE_JWT_SECRET",
        hide_env_values = true
    )]
    jwt_secret: Option<String>,
    /// A file with that secret
    #[arg(long, value_name = "FILE")]
    jwt_secret_file: Option<PathBuf>,
    /// The algorithm and private key, PEM, as rs256=FILE, es256=FILE or eddsa=FILE
    #[arg(long, value_name = "ALGORITHM=FILE", value_parser = private_key)]
    jwt_private_key: Option<(Algorithm, PathBuf)>,
}

/// Prints a token.
pub(crate) fn run(flags: &TokenFlags, ranks: &Ranks) -> Result<u8, Failure> {
    let key = SigningKey::new(&flags.key.material(ranks)?).map_err(Failure::usage)?;
    let mut claims: Map<String, Value> = flags.claim.iter().cloned().collect();
    let named = [("iss", &flags.jwt_issuer), ("aud", &flags.jwt_audience)];
    for (name, value) in named {
        if let Some(value) = value {
            claims.insert(name.into(), value.clone().into());
        }
    }
    let token = sign(
        &key,
        claims,
        &flags.subject,
        flags.expires_in_s,
        flags.jwt_key_id.as_deref(),
    )?;
    print(&format!("{token}\n")).map(|()| 0)
}

/// A token for `subject` with these further claims.
pub(crate) fn sign(
    key: &SigningKey,
    mut claims: Map<String, Value>,
    subject: &str,
    expires_in_s: i64,
    key_id: Option<&str>,
) -> Result<String, Failure> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs();
    claims.insert("sub".into(), subject.into());
    claims.insert("iat".into(), now.into());
    claims.insert("exp".into(), now.saturating_add_signed(expires_in_s).into());
    token::sign(&Value::Object(claims), key, key_id).map_err(Failure::usage)
}

/// The one way to a key that counts.
enum Way<'a> {
    Secret(&'a str),
    SecretFile(&'a Path),
    PrivateKey(Algorithm, &'a Path),
}

impl SigningFlags {
    fn material(&self, ranks: &Ranks) -> Result<KeyMaterial, Failure> {
        let private_key = self.jwt_private_key.as_ref();
        let ways = vec![
            ("jwt_secret", self.jwt_secret.as_deref().map(Way::Secret)),
            (
                "jwt_secret_file",
                self.jwt_secret_file.as_deref().map(Way::SecretFile),
            ),
            (
                "jwt_private_key",
                private_key.map(|(algorithm, path)| Way::PrivateKey(*algorithm, path)),
            ),
        ];
        match ranks.strongest(ways)? {
            Some(Way::Secret(secret)) => Ok(KeyMaterial::Hs256(secret.as_bytes().to_vec())),
            Some(Way::SecretFile(path)) => keys::secret_of(path).map(KeyMaterial::Hs256),
            Some(Way::PrivateKey(algorithm, path)) => {
                Ok(algorithm.material(keys::read("a key", path)?))
            }
            None => Err(Failure::usage(NO_KEY)),
        }
    }
}

fn claim(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((name.to_owned(), value))
}

fn private_key(text: &str) -> Result<(Algorithm, PathBuf), String> {
    let wanted = "expected rs256=FILE, es256=FILE or eddsa=FILE";
    let (algorithm, path) = text.split_once('=').ok_or(wanted)?;
    let algorithm =
        <Algorithm as clap::ValueEnum>::from_str(algorithm, true).map_err(|_| wanted)?;
    Ok((algorithm, path.into()))
}

const NO_KEY: &str = "give a key: --jwt-secret (better as TIDEWIRE_JWT_SECRET), --jwt-secret-file or \
    --jwt-private-key";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_json_where_they_can_be() {
        assert_eq!(claim("n=3").unwrap(), ("n".into(), 3.into()));
        assert_eq!(
            claim("role=admin").unwrap(),
            ("role".into(), "admin".into())
        );
        assert_eq!(claim("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert!(claim("nothing").is_err());
    }
}
