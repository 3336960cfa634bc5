//! Each option of a server with a value that is not its default, from `options/server.json`.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// An option of the table, as far as tests need it.
#[derive(Debug, Clone, Deserialize)]
pub struct TableOption {
    /// The name, such as `message_bytes_max`.
    pub name: String,
    /// The flag of `tidewire serve`, if there is one.
    #[serde(default)]
    pub flag: Option<String>,
    /// The variable of the environment, if there is one.
    #[serde(default)]
    pub variable: Option<String>,
    /// Whether the configuration file may have it.
    pub file: bool,
    /// Whether bindings have it.
    pub keyword: bool,
    /// Such as `integer`.
    pub kind: String,
    /// The default, if it is fixed.
    #[serde(default)]
    pub default: Option<Value>,
    /// Options without which it has no effect.
    #[serde(default)]
    pub needs: Vec<String>,
    /// A value that is not the default.
    pub example: Value,
}

/// An option with its example and with what has to stand beside it.
#[derive(Debug, Clone)]
pub struct Example {
    /// The option.
    pub option: TableOption,
    /// Its example; files exist.
    pub value: Value,
    /// Further options, by name.
    pub beside: Map<String, Value>,
}

/// All options.
///
/// # Panics
/// The table cannot be read.
pub fn all() -> Vec<TableOption> {
    let table: Table = serde_json::from_str(TABLE).expect("options/server.json");
    let options = table.groups.into_iter().flat_map(|group| group.options);
    options.collect()
}

/// An example for each option, with files in `folder`. The same examples are made by
/// `bindings/python/tests/option_examples.py`.
///
/// # Panics
/// A file cannot be written.
pub fn examples(folder: &Path) -> Vec<Example> {
    let options: BTreeMap<_, _> = all()
        .into_iter()
        .map(|option| (option.name.clone(), option))
        .collect();
    let example = |option: &TableOption| {
        let mut beside: Map<String, Value> = option
            .needs
            .iter()
            .map(|name| (name.clone(), value(&options[name], folder)))
            .collect();
        let gives_key = |name: &str| KEYS.contains(&name);
        if !gives_key(&option.name) && !option.needs.iter().any(|name| gives_key(name)) {
            match option.name.starts_with("jwt") || OF_TOKENS.contains(&option.name.as_str()) {
                true => beside.insert(
                    "jwt_secret".to_owned(),
                    options["jwt_secret"].example.clone(),
                ),
                false => beside.insert("no_auth".to_owned(), json!(true)),
            };
        }
        // The keys of a login service without an audience are warned of.
        if option.name.starts_with("jwt_jwks") {
            let audience = options["jwt_audience"].example.clone();
            beside.insert("jwt_audience".to_owned(), audience);
        }
        Example {
            option: option.clone(),
            value: value(option, folder),
            beside,
        }
    };
    options.values().map(example).collect()
}

/// The option's example; a file is written.
fn value(option: &TableOption, folder: &Path) -> Value {
    if option.kind != "file" {
        return option.example.clone();
    }
    let name = option.example.as_str().expect("the name of a file");
    let path = folder.join(name);
    let content = match option.name.as_str() {
        "signature_public_key" => PUBLIC_KEY,
        "jwt_jwks_file" => KEY_SET,
        "api_keys_file" => "backend read,publish 0123456789abcdef\n",
        _ => "0123456789abcdef0123456789abcdef\n",
    };
    fs::write(&path, content).expect("a file for an example");
    json!(path.to_str().expect("a path in UTF-8"))
}

#[derive(Deserialize)]
struct Table {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    options: Vec<TableOption>,
}

/// Options one of which has to be given.
const KEYS: &[&str] = &[
    "no_auth",
    "jwt_secret",
    "jwt_secret_file",
    "jwt_public_key",
    "jwt_jwks_file",
    "jwt_jwks_url",
];

/// Options that have an effect only where tokens are checked, besides those that begin with `jwt`.
const OF_TOKENS: &[&str] = &[
    "token_grace_s",
    "token_warning_s",
    "keep_expired_sessions",
    "cookie_name",
    "token_query_parameter",
    "token_subprotocol_prefix",
];

/// As `openssl pkey -pubout` writes it.
const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
    MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEczs0MHjtsk9OPcN2J8jB211HGMqb\n\
    uVw9gwgSili0IDjlEvP2Hawvh0qo6TR+bd68/lSqRfmZxl5vd5Gviu0GvQ==\n\
    -----END PUBLIC KEY-----\n";

/// The key of RFC 8037, appendix A.2.
const KEY_SET: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"2025-01","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}
"#;

const TABLE: &str = include_str!("../../../options/server.json");
