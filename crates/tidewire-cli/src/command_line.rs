//! The command line as a report shows it: without secrets.

use tidewire_load::worker::target::redacted;

/// The command line for the report, without secrets.
pub(crate) fn shown() -> String {
    let words = std::env::args_os().skip(1);
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    format!("tidewire {}", without_secrets(&words))
}

fn without_secrets(words: &[String]) -> String {
    let mut shown = Vec::new();
    let mut is_secret = false;
    for word in words {
        let (flag, value) = split_flag(word);
        let names_secret = SECRET_FLAGS.contains(&flag.trim_end_matches('='));
        shown.push(match value {
            _ if is_secret => HIDDEN.to_owned(),
            Some(_) if names_secret => format!("{flag}{HIDDEN}"),
            Some(value) => format!("{flag}{}", without_credentials(value)),
            None => without_credentials(word),
        });
        is_secret = names_secret && value.is_none();
    }
    shown.join(" ")
}

/// A flag with the value that is attached to it, as in `--token=…`, `-uname:password` and `-HAccept: a`; a word that is none
/// has no value.
fn split_flag(word: &str) -> (&str, Option<&str>) {
    let end = match word.strip_prefix("--") {
        Some(_) => word.find('=').map(|at| at + 1),
        None if word.starts_with('-') && word.len() > SHORT_BYTES => Some(SHORT_BYTES),
        None => None,
    };
    match end.and_then(|end| word.split_at_checked(end)) {
        Some((flag, value)) => (flag, Some(value)),
        None => (word, None),
    }
}

/// A header without its value, if that is a secret, and a URL without its secrets.
fn without_credentials(word: &str) -> String {
    match word.split_once(':') {
        Some((name, _)) if SECRET_HEADERS.contains(&&*name.trim().to_ascii_lowercase()) => {
            format!("{name}: {HIDDEN}")
        }
        _ if is_url(word) => redacted(word),
        _ => word.to_owned(),
    }
}

fn is_url(word: &str) -> bool {
    word.contains("://")
}

/// Those of other tools among them, see `tidewire load --as`.
const SECRET_FLAGS: [&str; 10] = [
    "--token",
    // A value of a profile may be a password.
    "--set",
    "--jwt-secret",
    "--user",
    "-u",
    "--cookie",
    "-A",
    "-P",
    "-C",
    "--cookies",
];
const SECRET_HEADERS: [&str; 4] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
];
const HIDDEN: &str = "…";
/// The length of a short flag.
const SHORT_BYTES: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_a_command_line_is_shown() {
        for (words, expected) in [
            (
                "load|-u|a:b|-H|Authorization: x|-c|5",
                "load -u … -H Authorization: … -c 5",
            ),
            (
                "load|-ua:b|-HCookie: c=d|-n100",
                "load -u… -HCookie: … -n100",
            ),
            (
                "load|--user=a:b|--header=X-Api-Key: k|--cookie=s=t",
                "load --user=… --header=X-Api-Key: … --cookie=…",
            ),
            ("load|-H|Cookie: back=https://h/?a=b", "load -H Cookie: …"),
            ("load|-H|Accept: text/html", "load -H Accept: text/html"),
            ("load|http://h/?token=t&a=b", "load http://h/?token=…&a=…"),
            (
                "bench|--token|t|--jwt-secret=s",
                "bench --token … --jwt-secret=…",
            ),
            ("load|--as|ab|-A|a:b", "load --as ab -A …"),
            (
                "load|--set|password=p|--set=token=t|--profile|mqtt",
                "load --set … --set=… --profile mqtt",
            ),
        ] {
            let words: Vec<String> = words.split('|').map(str::to_owned).collect();
            assert_eq!(without_secrets(&words), expected);
        }
    }
}
