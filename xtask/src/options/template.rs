//! The commented configuration file that `tidewire init` writes.
//!
//! Every option that a file can have stands in it once: those of [`ACTIVE`] with a value, the others as comments. All
//! keys stand at the top level, so that a line works wherever its comment sign is removed; rules of topics come last.

use super::table::{Kind, Row, Table, Way};
use super::value::Value;
use crate::generated::push;

/// The text of the file.
pub(crate) fn file(table: &Table) -> String {
    let mut out = String::from(HEADER);
    for group in &table.groups {
        let options: Vec<&Row> = group
            .options
            .iter()
            .filter(|option| option.has(Way::File) && option.kind() != Kind::Rules)
            .collect();
        if options.is_empty() {
            continue;
        }
        push(&mut out, "");
        push(&mut out, &format!("### {}", group.title));
        comment(&mut out, &group.about);
        for option in options {
            push(&mut out, "");
            describe(&mut out, option);
            let active = ACTIVE.iter().find(|(name, _)| *name == option.name);
            match active {
                Some((name, value)) => push(&mut out, &format!("{name} = {value}")),
                None => push(&mut out, &format!("#{}", assignment(option))),
            }
        }
    }
    rules(&mut out, table);
    out
}

/// The keys of a rule, in a table that is a comment as a whole.
fn rules(out: &mut String, table: &Table) {
    if table.rule_keys.is_empty() {
        return;
    }
    out.push_str(RULES);
    push(out, "#[[topics.rule]]");
    for key in &table.rule_keys {
        describe(out, key);
        push(out, &format!("#{}", assignment(key)));
    }
}

/// The effect of an option, its range and its default.
fn describe(out: &mut String, option: &Row) {
    let mut text = option.help.replace('`', "");
    if !option.more.is_empty() {
        text = format!(
            "{text}. {}",
            option.more.trim_end_matches('.').replace('`', "")
        );
    }
    comment(out, &format!("{text}."));
    let mut facts: Vec<String> = Vec::new();
    let range = super::page::range(option).replace('`', "");
    match option.kind() {
        Kind::Integer => facts.push(format!("{range} ({})", option.unit)),
        Kind::Choice => facts.push(format!("one of {range}")),
        _ => {}
    }
    facts.push(match &option.default {
        Some(default) => match option.size() {
            Some(size) => format!("default {} ({size})", literal(default)),
            None => format!("default {}", literal(default)),
        },
        None => format!("without it: {}", option.unset.replace('`', "")),
    });
    comment(out, &format!("[{}]", facts.join("; ")));
}

/// The default, or an example where there is none.
fn assignment(option: &Row) -> String {
    let value = option.default.clone().or_else(|| option.example());
    let value = match value {
        // Nobody should use a secret that stands in every new file.
        _ if option.kind() == Kind::Secret => "\"\"".to_owned(),
        Some(Value::Text(ratio)) if option.kind() == Kind::Ratio => ratio,
        Some(value) => literal(&value),
        None => String::new(),
    };
    format!("{} = {value}", option.name)
}

/// A value in TOML.
fn literal(value: &Value) -> String {
    match value {
        Value::Boolean(yes) => yes.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => format!("{text:?}"),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, value)| format!("{name:?} = {}", literal(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Lines of at most [`WIDTH`] characters behind a number sign.
fn comment(out: &mut String, text: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
            push(out, &format!("# {line}"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        push(out, &format!("# {line}"));
    }
}

const WIDTH: usize = 98;

/// The options that a new configuration sets: a server that accepts tokens, and whose operations listener answers on this machine.
const ACTIVE: &[(&str, &str)] = &[
    ("listen", "\"127.0.0.1:5006\""),
    ("ops_listen", "\"127.0.0.1:5007\""),
    ("jwt_secret_file", "\"tidewire-secret.txt\""),
    ("auth_failure_after_upgrade", "true"),
];

const HEADER: &str = "\
# Configuration of `tidewire serve`.
#
#   tidewire serve --config tidewire.toml            starts the server
#   tidewire serve --config tidewire.toml --check    says what it would do, and starts nothing
#
# A line that begins with `#` and a letter is an option at its default, or with an example: remove the `#` and change
# the value. A flag (`--listen`) and a variable of the environment (`TIDEWIRE_LISTEN`) override a line of this file.
# SIGHUP makes a running server read the file again.
";

const RULES: &str = "
### Rules of topics
# What is kept of which topics. The first rule whose pattern matches a topic applies, so a narrow pattern stands above
# a wide one. Rules stay at the end of the file: what follows [[topics.rule]] belongs to the rule.

";

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_sample() {
        let text = file(&samples::table());
        for expected in [
            "# Time to wait, unless mode is off.\n# [1 to 9 (ms); default 7]\n#wait_ms = 7\n",
            "#path = [\"/ws\", \"/wse\"]\n",
            "#[[topics.rule]]\n# A pattern.\n# [without it: required]\n#pattern = ",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        let keys = text.lines().filter(|line| line.starts_with("#mode"));
        assert_eq!(keys.count(), 0, "an option of the bindings alone\n{text}");
    }

    #[test]
    fn every_line_is_toml_when_its_comment_sign_is_removed() {
        let text = file(&samples::table());
        let is_option = |line: &&str| {
            line.strip_prefix('#')
                .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_lowercase()))
        };
        for line in text.lines().filter(is_option) {
            toml::from_str::<toml::Table>(&line[1..]).expect(line);
        }
    }
}
