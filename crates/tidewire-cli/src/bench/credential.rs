//! The credentials of the connections: a token, or a secret that signs tokens.

use super::flags::{ProfileFlag, TargetFlags};
use crate::failure::Failure;
use crate::sources::Ranks;
use crate::token;
use serde_json::Map;
use std::fmt;
use std::sync::Arc;
use tidewire_engine::auth::KeyMaterial;
use tidewire_engine::token::SigningKey;
use tidewire_load::worker::target::TokenSource;

/// A token, or the secret that signs tokens.
pub(crate) enum Credential {
    /// The token of every connection.
    Token(String),
    /// The HS256 secret with which the server verifies tokens.
    Secret(String),
}

impl Credential {
    /// The credential for the server of a URL; `is_loopback` is true for a server on this machine.
    ///
    /// A secret that was exported for one server must not be sent to another. Therefore a credential that
    /// only the environment contains is for servers on this machine, for other servers only with the protocol
    /// that has tokens, and never for plain WebSocket.
    ///
    /// # Errors
    /// A token and a secret have the same source.
    pub(crate) fn choose(
        flags: &TargetFlags,
        ranks: &Ranks,
        is_loopback: bool,
    ) -> Result<Option<Self>, Failure> {
        let is_for_it = match flags.profile {
            Some(ProfileFlag::V1) => true,
            Some(ProfileFlag::Raw) => false,
            None => is_loopback,
        };
        let given = |id: &str, value: &Option<String>| {
            value.clone().filter(|_| is_for_it || ranks.is_typed(id))
        };
        let token = given("token", &flags.token);
        let secret = given("jwt_secret", &flags.jwt_secret);
        ranks.strongest(vec![
            ("token", token.map(Self::Token)),
            ("jwt_secret", secret.map(Self::Secret)),
        ])
    }

    /// The tokens of the connections.
    ///
    /// # Errors
    /// The secret is too short.
    pub(crate) fn tokens(&self) -> Result<TokenSource, Failure> {
        let secret = match self {
            Self::Token(token) => return Ok(TokenSource::Fixed(token.clone())),
            Self::Secret(secret) => secret,
        };
        let key = KeyMaterial::Hs256(secret.clone().into_bytes());
        let key = SigningKey::new(&key).map_err(Failure::usage)?;
        Ok(TokenSource::PerConnection(Arc::new(move |number| {
            let subject = format!("bench-user-{number}");
            // Without a token the server refuses the connection.
            token::sign(&key, Map::new(), &subject, EXPIRES_IN_S, None).ok()
        })))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Both are secret; a log must not contain them.
        f.write_str(match self {
            Self::Token(_) => "Token(…)",
            Self::Secret(_) => "Secret(…)",
        })
    }
}

/// Longer than any run.
const EXPIRES_IN_S: i64 = 24 * 3600;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Args, Command, FromArgMatches};

    /// The credentials for a server on this machine and for another one. Default values replace
    /// those of the environment, which a test cannot set: the command line contains neither.
    fn chosen(words: &[&str], token: bool, secret: bool) -> [String; 2] {
        let mut command = TargetFlags::augment_args(Command::new("bench").arg(Arg::new("url")));
        for (id, is_set) in [("token", token), ("jwt_secret", secret)] {
            command = command.mut_arg(id, |arg| {
                let arg = arg.env(clap::builder::Resettable::Reset);
                if is_set {
                    arg.default_value("ambient")
                } else {
                    arg
                }
            });
        }
        let words = ["bench"].iter().chain(words);
        let matches = command.try_get_matches_from(words).unwrap();
        let flags = TargetFlags::from_arg_matches(&matches).unwrap();
        let ranks = Ranks::new(&matches);
        [true, false].map(
            |is_loopback| match Credential::choose(&flags, &ranks, is_loopback) {
                Ok(Some(Credential::Token(token))) => format!("token {token}"),
                Ok(Some(Credential::Secret(secret))) => format!("secret {secret}"),
                Ok(None) => "nothing".to_owned(),
                Err(failure) => failure.to_string(),
            },
        )
    }

    #[test]
    fn what_was_not_typed_stays_on_this_machine() {
        let ambient = |words: &[&str]| chosen(words, false, true);
        assert_eq!(ambient(&[]), ["secret ambient", "nothing"]);
        assert_eq!(ambient(&["--profile", "raw"]), ["nothing", "nothing"]);
        assert_eq!(
            ambient(&["--profile", "v1"]),
            ["secret ambient", "secret ambient"]
        );
        assert_eq!(chosen(&[], true, false), ["token ambient", "nothing"]);
    }

    #[test]
    fn what_was_typed_counts_before_what_was_not() {
        let both = |words: &[&str]| chosen(words, true, true);
        assert_eq!(both(&["--token", "typed"]), ["token typed", "token typed"]);
        assert_eq!(
            both(&["--profile", "raw", "--jwt-secret", "typed"]),
            ["secret typed", "secret typed"]
        );
        let [here, elsewhere] = both(&[]);
        assert!(here.contains("--token and --jwt-secret exclude each other"));
        assert_eq!(elsewhere, "nothing");
    }
}
