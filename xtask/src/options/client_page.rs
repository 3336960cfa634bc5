//! The reference page of the options of the clients.

use super::page::{default, links, meaning, or_dash, range};
use super::table::{Row, Table, Way};
use super::value::Value;
use crate::generated::{push, row};

/// The text of `docs/client-options.md`.
pub(crate) fn reference(table: &Table) -> String {
    let mut out = String::from(HEADER);
    push(&mut out, &links(table));
    for group in &table.groups {
        push(&mut out, &format!("\n## {}\n", group.title));
        if !group.about.is_empty() {
            push(&mut out, &format!("{}\n", group.about));
        }
        out.push_str("| Python | TypeScript | Rust | unit | default | range | meaning |\n");
        out.push_str("|---|---|---|---|---|---|---|\n");
        for option in &group.options {
            let python = option.has(Way::Keyword).then_some(option.name.as_str());
            let cells = [
                code(python.unwrap_or_default()),
                code(&option.typescript),
                code(&option.rust),
                or_dash(&option.unit),
                defaults(option),
                range(option),
                meaning(option),
            ];
            push(&mut out, &row(&cells));
        }
    }
    out
}

fn code(name: &str) -> String {
    match name {
        "" => "–".to_owned(),
        name => format!("`{name}`"),
    }
}

/// The default, and that of TypeScript where it differs.
fn defaults(option: &Row) -> String {
    let common = default(option);
    let own = option.typescript_default();
    let own = own.filter(|&own| Some(own) != option.default.as_ref());
    match own.map(Value::as_text) {
        Some(own) => format!("{common}; TypeScript: `{own}`"),
        None if is_other(&option.typescript_unset, &common) => {
            format!("{common}; TypeScript: {}", option.typescript_unset)
        }
        None => common,
    }
}

/// Whether what holds in TypeScript is there and not the same in other letters.
fn is_other(typescript: &str, common: &str) -> bool {
    !typescript.is_empty() && !typescript.eq_ignore_ascii_case(common.trim_matches('`'))
}

const HEADER: &str = "\
<!-- Generated from options/client*.toml by `cargo xtask options`. Do not edit. -->

# Options of the clients

The options of the [Python client](python-client.md), the [TypeScript client](typescript.md) and the [Rust
client](client.md). In TypeScript a point stands before a field of an object: `reconnect.maxMs` is
`{ reconnect: { maxMs } }`. In Rust the names are fields of `tidewire_client::Config`, and times are a `Duration`. An
unknown name is an error that names the nearest option. One option in the three languages:

```text
tidewire.connect(url, connect_timeout_ms=3000)                              # Python
connect(url, { connectTimeoutMs: 3000 })                                    // TypeScript
Config { connect_timeout: Duration::from_secs(3), ..Config::new(url) }        // Rust
```

";

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_sample() {
        let text = reference(&samples::client());
        for expected in [
            "| `ping_ms` | `pingMs` | `ping` | ms | what the server asks for; TypeScript: `0` | from 0 | Time |\n",
            "| – | `marks` | – | – | `false` | `true`, `false` | Marks |\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
