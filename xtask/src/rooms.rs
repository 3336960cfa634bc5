//! The rooms inside a crate, and which way their imports run.

use std::path::Path;

use crate::circles::module_path;
use crate::finding::Finding;
use crate::imports::{InlineTests, imports};
use crate::lexer::{Kind, Token, tokens};
use crate::tree::has_extension;

/// The findings in one file; none if its crate has no rooms.
pub(crate) fn check(path: &Path, text: &str) -> Vec<Finding> {
    if !has_extension(path, &["rs"]) {
        return Vec::new();
    }
    HOUSES
        .iter()
        .filter_map(|house| Some((house, path.strip_prefix(house.sources).ok()?)))
        .flat_map(|(house, inside)| house.check(path, inside, text))
        .collect()
}

/// A crate whose modules are rooms on top of each other.
struct House {
    /// The folder of its sources.
    sources: &'static str,
    /// The rooms from the top to the bottom: each may use those below it.
    rooms: &'static [&'static str],
    /// Rooms beside them, which no other room uses and which use none.
    apart: &'static [&'static str],
    /// Whether a room may be a single file beside `lib.rs`, in place of a folder.
    has_root_files: bool,
}

impl House {
    fn check(&self, path: &Path, inside: &Path, text: &str) -> Vec<Finding> {
        let Some(own) = inside.iter().next().and_then(|part| part.to_str()) else {
            return Vec::new();
        };
        if own == "lib.rs" || own == "main.rs" {
            return Vec::new();
        }
        let room = own.strip_suffix(".rs").unwrap_or(own);
        let has_place = self.has_root_files || inside.iter().count() > 1;
        let Some(level) = self.level(room).filter(|_| has_place) else {
            let message = format!(
                "no room of the crate, move it into one of {}",
                self.rooms.join(", ")
            );
            return vec![Finding::new(path, 1, message)];
        };
        let tokens = tokens(text);
        if let Some(window) = tokens.windows(4).find(|window| is_group(window)) {
            let message = "use crate::{…} hides which rooms are used, write one `use` for each";
            return vec![Finding::new(path, window[0].line, message)];
        }
        let module = module_path(inside).unwrap_or_else(|| vec![room.to_owned()]);
        imports(text, &module, InlineTests::Read)
            .iter()
            .filter_map(|import| Some((import.path.first()?, import.line)))
            .filter(|(used, _)| *used != room)
            .filter_map(|(used, line)| Some((self.objection(room, level, used)?, line)))
            .map(|(message, line)| Finding::new(path, line, message))
            .collect()
    }

    /// Why a room may not use another; `None` if it may.
    fn objection(&self, own: &str, level: Level, used: &str) -> Option<String> {
        let Some(below) = self.level(used) else {
            return Some(format!(
                "crate::{used} names no room, import it from the room that has it"
            ));
        };
        let message = || {
            format!(
                "{own} uses {used}, move what it needs into a room below: the order is {}",
                self.rooms.join(" -> ")
            )
        };
        (!level.may_use(below)).then(message)
    }

    fn level(&self, room: &str) -> Option<Level> {
        let place = self.rooms.iter().position(|other| *other == room);
        let apart = self.apart.contains(&room).then_some(Level::Apart);
        place.map(Level::Floor).or(apart)
    }
}

/// Whether the tokens are `crate::{`.
fn is_group(window: &[Token<'_>]) -> bool {
    let kinds = [
        Kind::Word("crate"),
        Kind::Mark(b':'),
        Kind::Mark(b':'),
        Kind::Mark(b'{'),
    ];
    window.iter().map(|token| token.kind).eq(kinds)
}

/// Where a room is.
#[derive(Debug, Clone, Copy)]
enum Level {
    /// Counted from the top.
    Floor(usize),
    Apart,
}

impl Level {
    fn may_use(self, used: Self) -> bool {
        matches!((self, used), (Self::Floor(own), Self::Floor(used)) if used > own)
    }
}

const HOUSES: &[House] = &[
    House {
        sources: "crates/tidewire-engine/src",
        rooms: &[
            "simulation",
            "server",
            "ops",
            "settings",
            "apps",
            "queue",
            "handle",
            "shard",
            "session",
            "state",
            "cluster",
            "keys",
            "backend",
            "config",
            "topics",
            "auth",
            "limits",
            "trace",
            "counters",
            "model",
            "live",
            "log",
            "clock",
        ],
        apart: &[],
        has_root_files: true,
    },
    House {
        sources: "crates/tidewire-load/src",
        rooms: &[
            "options",
            "plan",
            "fleet",
            "worker",
            "accounting",
            "verdict",
            "report",
        ],
        apart: &["test_server"],
        has_root_files: false,
    },
    House {
        sources: "crates/tidewire-redis/src",
        rooms: &[
            "model",
            "link",
            "script",
            "connection",
            "record",
            "resp",
            "layout",
        ],
        apart: &[],
        has_root_files: true,
    },
    House {
        sources: "crates/tidewire-wire/src",
        rooms: &[
            "secure",
            "session",
            "envelope",
            "format",
            "json",
            "connection",
            "message",
            "proxy",
            "forwarded",
            "handshake",
            "deflate",
            "frame",
            "close",
            "codes",
            "header",
            "mask",
            "utf8",
            "timestamp",
            "uuid",
        ],
        apart: &[],
        has_root_files: true,
    },
    House {
        sources: "crates/tidewire-client/src",
        rooms: &[
            "client",
            "driver",
            "shared",
            "session",
            "queue",
            "event",
            "responder",
            "outbox",
            "command",
            "request",
            "message",
            "options",
            "config",
            "check",
            "payload",
            "clock",
            "url",
            "error",
            // The parts that can be used by themselves.
            "endpoints",
            "backoff",
            "breaker",
            "quality",
            "rate",
            "sequencer",
            "priority_queue",
        ],
        apart: &[],
        has_root_files: true,
    },
    House {
        sources: "crates/tidewire-net/src",
        rooms: &[
            "simulation",
            "shard",
            "heartbeat",
            "mailbox",
            "alarm",
            "handler",
            "io",
            "socket",
            "receiving",
            "outbox",
            "ledger",
            "stream",
            "simulated",
            "readiness",
            "listener",
            "tls",
            "timer",
            "closed",
            "config",
            "id",
        ],
        apart: &[],
        has_root_files: true,
    },
    House {
        sources: "crates/tidewire-http/src",
        rooms: &[
            "server", "response", "request", "heads", "chunked", "fields",
        ],
        apart: &[],
        has_root_files: true,
    },
    House {
        sources: "crates/tidewire-otlp/src",
        rooms: &["worker", "post", "encode", "queue", "config"],
        apart: &[],
        has_root_files: true,
    },
    House {
        sources: "crates/tidewire-cli/src",
        rooms: &[
            "arguments",
            "load",
            "bench",
            "serve",
            "init",
            "top",
            "token",
            "report",
            "test_server",
            "live",
            "config_file",
            "baseline",
            "sources",
            "keys",
            "stop",
            "output",
            "numbers",
            "failure",
        ],
        apart: &[],
        has_root_files: true,
    },
    House {
        sources: "crates/tidewire-testkit/src",
        rooms: &[
            "vectors",
            "websocket",
            "search",
            "topics",
            "options",
            "redis",
            "shard",
            "seeds",
            "schema",
        ],
        apart: &[],
        has_root_files: true,
    },
    House {
        sources: "bindings/common/src",
        rooms: &["server", "utilities", "log", "failure"],
        apart: &[],
        has_root_files: true,
    },
    House {
        sources: "bindings/node/src",
        rooms: &[
            "server",
            "options",
            "lab",
            "log",
            "utilities",
            "content",
            "errors",
        ],
        apart: &[],
        has_root_files: true,
    },
    House {
        sources: "xtask/src",
        rooms: &[
            "tidy",
            "arrows",
            "rooms",
            "circles",
            "dead_files",
            "imports",
            "sources",
            "markdown",
            "comments",
            "phrases",
            "text",
            "locks",
            "versions",
            "codes",
            "options",
            "generated",
            "wasm",
            "lexer",
            "workspace",
            "tree",
            "finding",
        ],
        apart: &[],
        has_root_files: true,
    },
    House {
        sources: "bindings/python/src",
        rooms: &[
            "server",
            "client",
            "relay",
            "lab",
            "log",
            "utilities",
            "signal",
            "json",
            "arguments",
            "decoded",
            "errors",
        ],
        apart: &[],
        has_root_files: true,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let path = format!("crates/tidewire-load/src/{path}");
        let findings = check(Path::new(&path), text);
        findings
            .into_iter()
            .map(|finding| format!("{}: {}", finding.line, finding.message))
            .collect()
    }

    #[test]
    fn imports_run_down() {
        let text = "use crate::report::Report;\nuse crate::worker::order;\n// crate::plan\n";
        assert!(messages("fleet/mod.rs", text).is_empty());
        assert!(messages("fleet.rs", text).len() == 1, "a file at the root");
        let up = messages("accounting/outcome.rs", text);
        assert_eq!(up.len(), 1);
        assert!(up[0].starts_with("2: accounting uses worker"), "{up:?}");
    }

    #[test]
    fn a_room_apart_uses_no_other_and_nobody_uses_it() {
        let own = "use crate::test_server::Counts;\n";
        assert!(messages("test_server/mod.rs", own).is_empty());
        assert_eq!(messages("plan/run.rs", own).len(), 1);
        assert_eq!(
            messages("test_server/mod.rs", "use crate::report::X;").len(),
            1
        );
    }

    #[test]
    fn a_group_of_rooms_is_written_out() {
        let group = "\nuse crate::{fleet, report};";
        assert!(messages("worker/order.rs", group)[0].starts_with("2: use crate::{"));
    }

    #[test]
    fn a_room_may_be_a_file_where_the_table_says_so() {
        let found = |path: &str, text: &str| {
            let path = format!("crates/tidewire-engine/src/{path}");
            let findings = check(Path::new(&path), text);
            let messages = findings.into_iter().map(|finding| finding.message);
            messages.collect::<Vec<_>>()
        };
        assert!(found("config.rs", "use crate::topics::config::Topics;").is_empty());
        let up = found("topics/hub.rs", "use crate::session::Session;");
        assert!(up[0].starts_with("topics uses session"), "{up:?}");
        // From the file of a room `super` is the root of the crate.
        assert_eq!(
            found("limits/mod.rs", "use super::state::core::Core;").len(),
            1
        );
        assert_eq!(
            found("limits/rate.rs", "use super::super::state::X;").len(),
            1
        );
        let root = found("shard/mod.rs", "use crate::Outgoing;");
        assert!(
            root[0].starts_with("crate::Outgoing names no room"),
            "{root:?}"
        );
        assert!(found("session/tests.rs", "use super::Session;").is_empty());
        assert_eq!(found("turn.rs", "").len(), 1, "a file that is no room");
    }

    #[test]
    fn other_crates_are_left_alone() {
        let text = "use crate::worker::order;";
        assert!(check(Path::new("crates/tidewire-other/src/io.rs"), text).is_empty());
    }
}
