//! Before and while a server starts: `init`, `serve --check`, warnings, and what a terminal shows.

use crate::program::{Running, Said, assert_refused, run, tidewire};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

/// Runs the program in a folder.
fn run_in(folder: &Path, arguments: &[&str]) -> Said {
    let mut command = tidewire(arguments);
    command.current_dir(folder).output().unwrap().into()
}

#[test]
fn a_new_configuration_starts_a_server_and_makes_a_token_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let written = run_in(folder.path(), &["init"]);
    assert_eq!((written.code, written.stderr.as_str()), (0, ""));
    let text = &written.stdout;
    assert!(
        text.starts_with("written: tidewire.toml and tidewire-secret.txt\n"),
        "{text}"
    );
    let checked = run_in(
        folder.path(),
        &["serve", "--config", "tidewire.toml", "--check"],
    );
    assert_eq!((checked.code, checked.stderr.as_str()), (0, ""));
    for expected in [
        "ws://127.0.0.1:5006/ws, also /wse\n",
        "users       those with a token (HS256) in the cookie access_token or Authorization: Bearer\n",
        "http://127.0.0.1:5007 (",
        "  tidewire.toml:",
        ": jwt_secret_file = tidewire-secret.txt\n",
    ] {
        let text = &checked.stdout;
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
    assert!(!checked.stdout.contains("warning"), "{checked:?}");

    let free = "127.0.0.1:0";
    let arguments = ["serve", "--config", "tidewire.toml", "--listen", free];
    let mut command = tidewire(&arguments);
    command.args(["--ops-listen", free]);
    command.current_dir(folder.path());
    let server = Running::start(command);
    let key = ["--jwt-secret-file", "tidewire-secret.txt"];
    let token = run_in(
        folder.path(),
        &[&["token", "--subject", "user-1"], &key[..]].concat(),
    );
    let bearer = format!("Bearer {}", token.stdout.trim());
    let mut session = server.opening().header("Authorization", bearer).open();
    assert!(session.next_text().contains("\"user-1\""));
}

#[test]
fn nothing_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("tidewire-secret.txt");
    fs::write(&secret, "mine").unwrap();
    let file = folder.path().join("other.toml");
    let path = file.to_str().unwrap();
    let written = run(&["init", path]);
    assert_eq!(written.code, 0, "{written:?}");
    assert!(written.stdout.contains("(kept: "), "{written:?}");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "mine");
    let text = fs::read_to_string(&file).unwrap();
    let line = format!("jwt_secret_file = \"{}\"", secret.display());
    assert!(text.lines().any(|found| found == line), "{text}");

    assert_refused(
        &run(&["init", path]),
        &["other.toml", "nothing is overwritten"],
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let nowhere = folder.path().join("no/such/tidewire.toml");
    assert_refused(
        &run(&["init", nowhere.to_str().unwrap()]),
        &["make its folder"],
    );
}

#[cfg(unix)]
#[test]
fn others_cannot_read_the_secret() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    run_in(folder.path(), &["init"]);
    let secret = folder.path().join("tidewire-secret.txt");
    let mode = fs::metadata(&secret).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_to_string(&secret).unwrap().trim_end().len(), 64);
}

#[test]
fn every_option_of_a_new_configuration_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    run_in(folder.path(), &["init"]);
    let text = fs::read_to_string(folder.path().join("tidewire.toml")).unwrap();
    let (top, rules) = text.split_once("#[[topics.rule]]\n").unwrap();
    let mut options = 0;
    let mut previous = "";
    for line in top.lines() {
        let option = line.strip_prefix('#');
        let option =
            option.filter(|rest| rest.starts_with(|first: char| first.is_ascii_lowercase()));
        if let Some(option) = option {
            options += 1;
            let file = folder.path().join("one.toml");
            fs::write(&file, format!("no_auth = true\n{option}\n")).unwrap();
            let said = run_in(folder.path(), &["serve", "--config", "one.toml", "--check"]);
            let has_default = previous.contains("default ") && !option.starts_with("no_auth");
            assert!(said.code == 0 || !has_default, "{option}: {said:?}");
            for mistake in ["unknown option", "expected"] {
                let is_known = option.starts_with("no_auth");
                assert!(
                    is_known || !said.stderr.contains(mistake),
                    "{option}: {said:?}"
                );
            }
        }
        previous = line;
    }
    assert!(options > 80, "{options} options");
    let keys: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|rest| rest.starts_with(|first: char| first.is_ascii_lowercase()))
        .collect();
    let rule = format!("no_auth = true\n[[topics.rule]]\n{}\n", keys.join("\n"));
    fs::write(folder.path().join("rule.toml"), rule).unwrap();
    let said = run_in(
        folder.path(),
        &["serve", "--config", "rule.toml", "--check"],
    );
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
}

#[test]
fn a_check_starts_nothing_and_finds_what_a_start_would() {
    let said = run(&["serve", "--check", "--jwt-secret", "short"]);
    assert_refused(&said, &["at least 32 bytes"]);
    let said = run(&["serve", "--check", "--no-auth", "--log-level", "a=b=c"]);
    assert_refused(&said, &["--log-level", "warn,tidewire_engine=debug"]);
    // An address that another program has is no mistake of the configuration.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = run(&["serve", "--check", "--no-auth", "--listen", &address]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(
        said.stdout.contains("everybody, without a token"),
        "{said:?}"
    );
    assert!(!said.stdout.contains("listening on"), "{said:?}");
}

#[test]
fn secrets_are_not_shown() {
    let secret = crate::program::SECRET;
    let said = run(&["serve", "--check", "--jwt-secret", secret]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.stdout.contains("--jwt-secret: jwt_secret = (secret)"),
        "{said:?}"
    );
    assert!(!said.stdout.contains(secret), "{said:?}");
}

#[test]
fn everybody_beyond_this_machine_is_warned_of() {
    let arguments = ["--no-auth", "--listen", "0.0.0.0:0"];
    let said = run(&[&["serve", "--check"], &arguments[..]].concat());
    let warning = "--no-auth: everybody who can reach 0.0.0.0:0 may connect without a token";
    assert!(
        said.stdout.contains(&format!("warning: {warning}")),
        "{said:?}"
    );

    let mut command = tidewire(&[&["serve"], &arguments[..]].concat());
    command.args(["--shards", "1"]);
    let server = Running::start(command);
    let log = server.end();
    let line = log.lines().find(|line| line.contains(warning));
    assert!(line.is_some_and(|line| line.contains(" WARN ")), "{log}");
}

#[test]
fn a_key_of_a_file_that_cannot_be_used_spoils_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jwks.json");
    let arguments = [
        "serve",
        "--jwt-jwks-file",
        file.to_str().unwrap(),
        "--jwt-audience",
        "a",
    ];
    let short = r#"{"kty":"oct","k":"AAAA","kid":"old"}"#;
    let good = r#"{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"}"#;
    fs::write(&file, format!("{{\"keys\":[{short},{{}},7]}}")).unwrap();
    let said = run(&[&arguments[..], &["--check"]].concat());
    let problem = "no key that checks tokens: key 1 (\"old\") is a secret of less than 32 bytes";
    assert!(said.code != 0 && said.stderr.contains(problem), "{said:?}");

    fs::write(&file, format!("{{\"keys\":[{short},{{}},{good}]}}")).unwrap();
    let mut command = tidewire(&arguments);
    command.args(["--listen", "127.0.0.1:0", "--shards", "1"]);
    let log = Running::start(command).end();
    let words = "a key of the set in a file is left out: key ";
    let lines: Vec<_> = log.lines().filter(|line| line.contains(words)).collect();
    assert!(lines.len() == 2 && lines[0].contains("(\"old\")"), "{log}");
}

#[test]
fn keys_of_a_login_service_without_an_audience_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jwks.json");
    let key = r#"{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"}"#;
    fs::write(&file, format!("{{\"keys\":[{key}]}}")).unwrap();
    let arguments = ["serve", "--jwt-jwks-file", file.to_str().unwrap()];
    let warning = "--jwt-jwks-file: tokens that the same login service signs for other services are \
                   accepted too; give --jwt-audience,";
    let said = run(&[&arguments[..], &["--check"]].concat());
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.stdout.matches(warning).count(), 1, "{said:?}");
    let audience = ["--check", "--jwt-audience", "tidewire"];
    let said = run(&[&arguments[..], &audience].concat());
    assert!(
        said.code == 0 && !said.stdout.contains("warning"),
        "{said:?}"
    );

    let mut command = tidewire(&arguments);
    command.args(["--listen", "127.0.0.1:0", "--shards", "1"]);
    let log = Running::start(command).end();
    let lines: Vec<_> = log.lines().filter(|line| line.contains(warning)).collect();
    assert!(lines.len() == 1 && lines[0].contains(" WARN "), "{log}");
}

#[test]
fn rules_that_contradict_each_other_are_named_with_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        run_in(
            folder.path(),
            &["serve", "--no-auth", "--config", "rules.toml", "--check"],
        )
    };
    let two =
        "[[topics.rule]]\npattern = \"a.>\"\n[[topics.rule]]\npattern = \"a.>\"\npresence = true\n";
    assert_refused(
        &check(two),
        &["rules.toml:3: the rule a.>", "rules.toml:1: the rule a.>"],
    );
    let wide = two.replacen("a.>", ">", 1);
    let said = check(&wide);
    let expected =
        "warning: rules.toml:3: the rule a.> never applies: rules.toml:1: the rule > covers";
    assert!(said.code == 0 && said.stdout.contains(expected), "{said:?}");
    let deny = "client_subscribe_allow = [\"b\"]\nclient_subscribe_deny = [\">\"]\n";
    let said = check(deny);
    let expected =
        "warning: rules.toml:1: client_subscribe_allow: b has no effect, because rules.toml:2";
    assert!(said.code == 0 && said.stdout.contains(expected), "{said:?}");
}

#[test]
fn a_terminal_shows_what_the_server_does_and_what_comes_next() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let other_end = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let mut command = tidewire(&["serve", "--no-auth", "--listen", "127.0.0.1:0"]);
    command.args(["--ops-listen", "127.0.0.1:0", "--log-level", "off"]);
    command.stdout(Stdio::piped()).stderr(other_end);
    let mut child = command.spawn().unwrap();
    // The last word is there before the first line on standard output.
    let mut reader = fs::File::from(terminal);
    let mut shown = String::new();
    let mut buffer = [0; 1024];
    while !shown.contains("Ctrl-C ends it") {
        let count = reader.read(&mut buffer).unwrap();
        shown.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for expected in [
        concat!("tidewire ", env!("CARGO_PKG_VERSION"), ": application echo"),
        "everybody, without a token",
        "1,000,000 connections; each: messages up to 1 MiB",
        "`tidewire top http://127.0.0.1:",
    ] {
        assert!(shown.contains(expected), "no {expected:?} in {shown}");
    }
}

#[test]
fn numbers_of_flags_are_refused_in_our_words() {
    let cases: [(&[&str], &str); 7] = [
        (&["bench", "--seed", "x"], "from 0 to 18446744073709551615"),
        (&["bench", "--in-flight", "0"], "from 1 to 4294967295"),
        (&["bench", "--server-pid=-1"], "from 0 to 4294967295"),
        (&["bench", "--threads", "many"], "from 1"),
        (
            &["load", "http://a/", "--redirects", "1.5"],
            "from 0 to 4294967295",
        ),
        (&["test-server", "--port", "70000"], "from 0 to 65535"),
        (
            &["test-server", "--error-percent", "all"],
            "such as 5 or 0.5",
        ),
    ];
    for (arguments, range) in cases {
        let said = run(arguments);
        assert_refused(&said, &["expected a", range]);
        for word in ["digit", "literal", "target type", "..="] {
            assert!(!said.stderr.contains(word), "{said:?}");
        }
    }
}
