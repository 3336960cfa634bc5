//! The rooms inside a crate, and which way their imports run.

use std::path::Path;

use crate::finding::Finding;
use crate::layers::{House, Layers};
use crate::modules::{Sources, module_path};

/// One finding for each import that runs up, and for each file that is in no room.
pub(crate) fn check(sources: &Sources, layers: &Layers) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in sources {
        let house = layers
            .houses
            .iter()
            .find(|house| path.starts_with(&house.sources));
        let module = module_path(path);
        let (Some(house), Some(own)) = (house, module.first()) else {
            continue;
        };
        if floor(house, own).is_none() {
            let message = format!(
                "no room of the crate, move it into one of {}",
                house.rooms.join(", ")
            );
            findings.push(Finding::new(path, 1, message));
            continue;
        }
        for used in &source.uses {
            if let [root, room, ..] = &used.path[..]
                && root == "crate"
                && let Some(message) = objection(house, own, room)
            {
                findings.push(Finding::new(path, used.line, message));
            }
        }
    }
    findings
}

/// Why a room may not use another; `None` if it may.
fn objection(house: &House, own: &str, used: &str) -> Option<String> {
    if own == used {
        return None;
    }
    let Some(below) = floor(house, used) else {
        return Some(format!(
            "crate::{used} names no room, import it from the room that has it"
        ));
    };
    // Nothing is above or below a room apart.
    let is_down = floor(house, own)
        .flatten()
        .zip(below)
        .is_some_and(|(own, below)| own < below);
    let order = house.rooms.join(" -> ");
    (!is_down).then(|| {
        format!("{own} uses {used}, move what it needs into a room below: the order is {order}")
    })
}

/// The place of a room, counted from the top; `Some(None)` for one that stands apart.
fn floor(house: &House, room: &str) -> Option<Option<usize>> {
    let place = house.rooms.iter().position(|other| other == room);
    let is_apart = house.apart.iter().any(|other| other == room);
    place.map(Some).or(is_apart.then_some(None))
}

/// One finding for each use of the environment by a crate that takes bytes, time and randomness as arguments.
pub(crate) fn check_protocol(sources: &Sources, layers: &Layers) -> Vec<Finding> {
    let rules = &layers.protocol;
    let mut findings = Vec::new();
    for (path, source) in sources {
        if !rules
            .crates
            .iter()
            .any(|name| path.starts_with(Path::new("crates").join(name).join("src")))
        {
            continue;
        }
        for used in source.uses.iter().filter(|used| !used.is_test) {
            let is_module = used.path[0] == "std" && rules.modules.contains(&used.path[1]);
            if is_module || used.path.iter().any(|name| rules.types.contains(name)) {
                let message = "a protocol crate reaches for its environment, \
                     pass the bytes, the time or the randomness in as arguments";
                findings.push(Finding::new(path, used.line, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules;
    use crate::tree::samples;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let (_folder, tree) = samples::tree(&[(path, text)]);
        let (sources, _) = modules::read(&tree, &[Path::new("crates")]);
        let mut findings = check(&sources, &Layers::own());
        findings.extend(check_protocol(&sources, &Layers::own()));
        findings
            .iter()
            .map(|finding| format!("{}: {}", finding.line, finding.message))
            .collect()
    }

    fn load(path: &str, text: &str) -> Vec<String> {
        messages(&format!("crates/tidewire-load/src/{path}"), text)
    }

    #[test]
    fn imports_run_down() {
        let text = "use crate::report::Report;\nuse crate::worker::order;\n// crate::plan\n";
        assert!(load("fleet/mod.rs", text).is_empty());
        let up = load("accounting/outcome.rs", text);
        assert_eq!(up.len(), 1);
        assert!(up[0].starts_with("2: accounting uses worker"), "{up:?}");
        // From the file of a room `super` is the root of the crate.
        assert_eq!(load("report/mod.rs", "use super::plan::X;").len(), 1);
        assert_eq!(
            load("report/a.rs", "use super::super::{plan::X, worker::Y};").len(),
            2
        );
        assert_eq!(load("turn.rs", "").len(), 1, "a file that is no room");
        let root = load("plan/mod.rs", "use crate::Outgoing;");
        assert!(
            root[0].starts_with("1: crate::Outgoing names no room"),
            "{root:?}"
        );
        assert!(messages("crates/tidewire-other/src/io.rs", text).is_empty());
    }

    #[test]
    fn a_room_apart_uses_no_other_and_nobody_uses_it() {
        let own = "use crate::test_server::Counts;\n";
        assert!(load("test_server/mod.rs", own).is_empty());
        assert_eq!(load("plan/run.rs", own).len(), 1);
        assert_eq!(load("test_server/mod.rs", "use crate::report::X;").len(), 1);
    }

    #[test]
    fn the_protocol_crates_read_no_clock_and_no_file_outside_their_tests() {
        let text = "use std::{fmt, fs::{self, File}, io::{Read, env}};\nuse std::time::{Duration, Instant};\n\
             fn f(a: std::net::IpAddr) { Instant::now(); std::thread::sleep(d); }\n\
             #[cfg(test)]\nmod tests { use std::fs; }\n";
        let found = messages("crates/tidewire-wire/src/frame.rs", text);
        let lines: Vec<_> = found.iter().map(|message| &message[..2]).collect();
        assert_eq!(lines, ["1:", "1:", "2:", "3:", "3:", "3:"]);
        assert!(messages("crates/tidewire-net/src/timer.rs", text).is_empty());
    }
}
