//! Each option means the same as a flag, a variable, a key of the file and a keyword of a binding.

use crate::program::{assert_refused, run, tidewire};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use tidewire_engine::settings::{OPTIONS, Settings};
use tidewire_testkit::options::{Example, TableOption, all, examples};

/// The configuration that the program prints.
fn printed(mut command: Command) -> String {
    let said: crate::program::Said = command.arg("--print-config").output().unwrap().into();
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    said.stdout
}

/// A value as the text of a flag or a variable.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        Value::Object(fields) => {
            let pairs = fields
                .iter()
                .map(|(name, value)| format!("{name}={}", text(value)));
            pairs.collect::<Vec<_>>().join(",")
        }
        value => value.to_string(),
    }
}

fn by_flags(options: &Map<String, Value>) -> String {
    let mut command = tidewire(&["serve"]);
    for (name, value) in options {
        command.arg(format!("--{}={}", name.replace('_', "-"), text(value)));
    }
    printed(command)
}

fn by_variables(options: &Map<String, Value>, table: &[TableOption]) -> String {
    let mut command = tidewire(&["serve"]);
    for (name, value) in options {
        let option = table.iter().find(|option| option.name == *name).unwrap();
        command.env(option.variable.as_ref().unwrap(), text(value));
    }
    printed(command)
}

fn by_file(options: &Map<String, Value>, folder: &Path) -> String {
    let mut options = options.clone();
    if let Some(rules) = options.remove("topic_rules") {
        options.insert("topics".to_owned(), json!({ "rule": rules }));
    }
    let path = folder.join("options.toml");
    fs::write(&path, toml::to_string(&options).unwrap()).unwrap();
    printed(tidewire(&["serve", "--config", path.to_str().unwrap()]))
}

#[test]
fn every_option_means_the_same_in_every_way() {
    let folder = tempfile::tempdir().unwrap();
    let table = all();
    let plain = by_flags(&Map::from_iter([("no_auth".to_owned(), json!(true))]));
    let secret = json!("0123456789abcdef0123456789abcdef");
    let checked = by_flags(&Map::from_iter([("jwt_secret".to_owned(), secret)]));
    for example in examples(folder.path()) {
        let Example {
            option,
            value,
            mut beside,
        } = example;
        let name = option.name.as_str();
        beside.insert(name.to_owned(), value);
        let options = beside;
        let mut ways = Vec::new();
        if option.flag.is_some() && name != "config" {
            ways.push(by_flags(&options));
        }
        if option.variable.is_some() && name != "config" {
            ways.push(by_variables(&options, &table));
        }
        if option.file {
            ways.push(by_file(&options, folder.path()));
        }
        for other in &ways {
            assert_eq!(*other, ways[0], "{name}");
        }
        let Some(config) = ways.pop() else { continue };
        if option.keyword {
            let mut keywords = Settings::from_keywords(&options).unwrap().config().unwrap();
            // The advice in its log lines names options as keywords.
            keywords.option_spelling = tidewire_engine::OptionSpelling::Flag;
            assert!(
                config.starts_with(&format!("{keywords:#?}\n")),
                "{name}: {config}"
            );
        }
        assert!(config != plain || name == "no_auth", "{name} has no effect");
        assert!(
            config != checked || name.starts_with("jwt_secret"),
            "{name} has no effect"
        );
    }
}

#[test]
fn the_help_has_every_flag() {
    let said = run(&["serve", "--help"]);
    let words: Vec<&str> = said.stdout.split_whitespace().collect();
    for spec in OPTIONS.iter().filter(|spec| spec.flag) {
        let flag = format!("--{}", spec.name.replace('_', "-"));
        let is_flag = |word: &str| word.split(['[', '=']).next() == Some(&flag);
        assert!(words.iter().copied().any(is_flag), "{flag}");
    }
    assert!(!said.stdout.contains("--print-config"), "{}", said.stdout);
}

#[test]
fn unknown_names_are_refused_with_the_nearest() {
    assert_refused(
        &run(&["serve", "--mesage-bytes-max", "1"]),
        &["unknown option --mesage-bytes-max: did you mean --message-bytes-max?"],
    );
    let said = run(&["serve", "--zzz"]);
    assert_refused(&said, &["unknown option --zzz\n"]);
    assert_refused(
        &run(&["bench", "--conections", "1"]),
        &["unknown option --conections: did you mean --connections?"],
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidewire.toml");
    fs::write(&file, "no_auth = true\n\n[limits]\nmesage_bytes_max = 1\n").unwrap();
    let said = run(&["serve", "--config", file.to_str().unwrap()]);
    let words = "tidewire.toml:4: unknown option mesage_bytes_max: did you mean message_bytes_max?";
    assert_refused(&said, &[words]);
}

#[test]
fn unknown_variables_are_warned_of() {
    let mut command = tidewire(&["serve", "--no-auth", "--print-config"]);
    command.env("TIDEWIRE_SERVICE_HOST", "10.0.0.1");
    command.env("TIDEWIRE_MESAGE_BYTES_MAX", "1");
    let said: crate::program::Said = command.output().unwrap().into();
    assert_eq!(said.code, 0, "{said:?}");
    for words in [
        "TIDEWIRE_SERVICE_HOST",
        "did you mean TIDEWIRE_MESSAGE_BYTES_MAX?",
    ] {
        assert!(said.stderr.contains(words), "{said:?}");
    }
}

#[test]
fn wrong_values_name_option_value_range_and_source() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidewire.toml");
    let path = file.to_str().unwrap();
    for (name, value, expected) in [
        (
            "shards",
            "two",
            "\"two\": expected a whole number from 1 to 64 (event loops)",
        ),
        (
            "message_bytes_max",
            "1 MB",
            "\"1 MB\": expected a whole number from 125 on (bytes)",
        ),
        (
            "compression_level",
            "10",
            "\"10\": expected a whole number from 1 to 9 (level)",
        ),
        ("no_auth", "yes", "\"yes\": expected true or false"),
        (
            "deflate",
            "on",
            "\"on\": expected one of off, shared, per-connection",
        ),
        ("listen", "here", "\"here\": expected an address and a port"),
        (
            "trusted_proxy",
            "a.example",
            "\"a.example\": expected an address",
        ),
        ("allow_host", "http://a", "\"http://a\": expected a host"),
        (
            "history",
            "orders",
            "\"orders\": expected patterns and whole numbers",
        ),
    ] {
        let flag = format!("--{}", name.replace('_', "-"));
        let said = run(&["serve", &format!("{flag}={value}")]);
        assert_refused(&said, &[&format!("{flag}: {expected}")]);
        let mut command = tidewire(&["serve"]);
        let variable = format!("TIDEWIRE_{}", name.to_uppercase());
        command.env(&variable, value);
        let said = command.output().unwrap().into();
        assert_refused(&said, &[&format!("{variable}: {expected}")]);
        fs::write(&file, format!("\n{name} = {value:?}\n")).unwrap();
        let said = run(&["serve", "--config", path]);
        assert_refused(&said, &[&format!("tidewire.toml:2: {name}: {expected}")]);
    }
    fs::write(&file, "shards = -1\n").unwrap();
    let said = run(&["serve", "--config", path]);
    assert_refused(
        &said,
        &["tidewire.toml:1: shards: -1: expected a whole number"],
    );
}
