//! Small tables for the tests of what is made from a table.

/// A small table.
pub(crate) const TABLE: &str = r#"
version = 1
[[group]]
name = "limits"
title = "Limits"
[[group.option]]
name = "wait_ms"
unit = "ms"
range = [1, 9]
default = 7
help = "Time to wait, unless `mode` is `off`"
[[group.option]]
name = "mode"
kind = "choice"
values = ["off", "on"]
default = "off"
help = "Whether to wait"
ways = ["keyword"]
[[group.option]]
name = "path"
kind = "list"
item = "path"
default = ["/ws", "/wse"]
help = "Paths"
example = ["/a"]
[[group.option]]
name = "key_file"
kind = "file"
unset = "no file"
help = "A file, or a|b"
needs = ["mode"]
variable = "TIDEWIRE_KEY"
example = "a.key"
[[rule_key]]
name = "pattern"
kind = "text"
unset = "required"
help = "A pattern"
example = "a"
"#;

/// A small table of the clients.
pub(crate) const CLIENT: &str = r#"
version = 1
[[group]]
name = "client"
title = "Client"
[[group.option]]
name = "ping_ms"
rust = "ping"
typescript = "pingMs"
typescript_default = 0
unit = "ms"
unset = "what the server asks for"
help = "Time"
ways = ["keyword"]
example = 1
[[group.option]]
name = "token"
python = "Token"
kind = "secret"
unset = "none"
help = "A token"
ways = ["keyword"]
example = "a"
[[group.option]]
name = "marks"
typescript = "marks"
kind = "boolean"
default = false
help = "Marks"
ways = []
"#;

/// A small table of a load.
pub(crate) const LOAD: &str = r#"
version = 1
[[group]]
name = "plan"
title = "Plan"
[[group.option]]
name = "users"
short = "u"
unit = "users"
range = [1, 9]
default = 5
help = "Users, unless `expect` is given"
[[group.option]]
name = "expect"
kind = "list"
item = "expectation"
unset = "none"
help = "What must hold"
excludes = ["users"]
example = ["p99<1s"]
[[group.option]]
name = "keep"
flag = "no-keep"
kind = "boolean"
default = true
help = "Keep it"
"#;

pub(crate) fn load() -> super::table::Table {
    of(LOAD)
}

pub(crate) fn table() -> super::table::Table {
    of(TABLE)
}

pub(crate) fn client() -> super::table::Table {
    of(CLIENT)
}

fn of(text: &str) -> super::table::Table {
    let mut table = super::table::Table::default();
    table.add(text).unwrap();
    table.check().unwrap();
    table
}
