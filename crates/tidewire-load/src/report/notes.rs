//! The notes of a test, for readers: notes that differ in their numbers only are one note, with the ranges of the numbers
//! and the names of its results.

use std::cmp::Ordering;

use super::model::TestResult;
use super::number;
use super::table;

/// The notes of all results of a test: each once, after the names of its results unless there is only one result.
pub(super) fn told(results: &[&TestResult]) -> Vec<String> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (index, result) in results.iter().enumerate() {
        for note in &result.notes {
            let words = words(note);
            match groups.iter_mut().find(|group| group.takes(&words)) {
                Some(group) => group.add(words, index),
                None => groups.push(Group::new(words, index)),
            }
        }
    }
    let tell = |group: Group<'_>| {
        let text = group.text();
        match results.len() {
            1 => text,
            all if group.of.len() == all => format!("All: {text}"),
            _ => {
                let of: Vec<_> = group.of.iter().map(|&index| results[index]).collect();
                format!("{}: {text}", names(&of))
            }
        }
    };
    groups.into_iter().map(tell).collect()
}

/// Notes with the same words.
struct Group<'a> {
    /// The words and numbers of each note.
    notes: Vec<Vec<Word<'a>>>,
    /// The results that have such a note, as indexes.
    of: Vec<usize>,
}

impl<'a> Group<'a> {
    fn new(note: Vec<Word<'a>>, result: usize) -> Self {
        Self {
            notes: vec![note],
            of: vec![result],
        }
    }

    fn takes(&self, note: &[Word<'_>]) -> bool {
        let own = &self.notes[0];
        own.len() == note.len() && own.iter().zip(note).all(|(own, other)| own.is_like(other))
    }

    fn add(&mut self, note: Vec<Word<'a>>, result: usize) {
        self.notes.push(note);
        if self.of.last() != Some(&result) {
            self.of.push(result);
        }
    }

    fn text(&self) -> String {
        let at = |place: usize| {
            let all = self.notes.iter().map(|note| &note[place]);
            let order = |one: &&Word<'_>, other: &&Word<'_>| {
                let values = (one.value(), other.value());
                values.0.partial_cmp(&values.1).unwrap_or(Ordering::Equal)
            };
            match (all.clone().min_by(order), all.max_by(order)) {
                (Some(least), Some(most)) => range(least, most),
                _ => String::new(),
            }
        };
        (0..self.notes[0].len()).map(at).collect()
    }
}

/// `5 %`, `5 to 6 %`, `980 µs to 1.25 ms`.
fn range(least: &Word<'_>, most: &Word<'_>) -> String {
    match (least, most) {
        (Word::Number { digits, unit, .. }, Word::Number { unit: other, .. })
            if least.value() < most.value() =>
        {
            let unit = if unit == other { "" } else { unit };
            format!("{digits}{unit} to {}", most.text())
        }
        _ => least.text(),
    }
}

/// A part of a note.
enum Word<'a> {
    Text(&'a str),
    Number {
        digits: &'a str,
        /// With the space before it.
        unit: &'static str,
        value: f64,
    },
}

impl Word<'_> {
    fn is_like(&self, other: &Word<'_>) -> bool {
        match (self, other) {
            (Self::Text(own), Word::Text(other)) => own == other,
            (Self::Number { unit, .. }, Word::Number { unit: other, .. }) => {
                kind(unit) == kind(other)
            }
            _ => false,
        }
    }

    fn value(&self) -> f64 {
        match self {
            Self::Text(_) => 0.0,
            Self::Number { value, .. } => *value,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) => (*text).to_owned(),
            Self::Number { digits, unit, .. } => format!("{digits}{unit}"),
        }
    }
}

/// The units of numbers in notes: what they measure, and their value in the first unit of that kind.
const UNITS: [(&str, &str, f64); 13] = [
    (" ns", "time", 1.0),
    (" µs", "time", 1e3),
    (" ms", "time", 1e6),
    (" s", "time", 1e9),
    (" %", "share", 1.0),
    (" B", "bytes", 1.0),
    (" KiB", "bytes", 1024.0),
    (" MiB", "bytes", 1_048_576.0),
    (" GiB", "bytes", 1_073_741_824.0),
    ("", "count", 1.0),
    (" k", "count", 1e3),
    (" M", "count", 1e6),
    (" G", "count", 1e9),
];

fn kind(unit: &str) -> Option<&'static str> {
    UNITS
        .iter()
        .find(|(name, ..)| *name == unit)
        .map(|unit| unit.1)
}

/// A number after one of these is a name, and no quantity.
const NAMED_BY_NUMBERS: [&str; 6] = ["HTTP ", "code ", "process ", "worker ", "status ", "port "];

/// A note without its numbers. Notes with the same words have the same shape.
pub(super) fn shape(note: &str) -> String {
    let part = |word: Word<'_>| match word {
        Word::Text(text) => text.to_owned(),
        Word::Number { unit, .. } => format!("<{}>", kind(unit).unwrap_or_default()),
    };
    words(note).into_iter().map(part).collect()
}

/// The numbers of a note and the texts between them. Digits that belong to a word, a name or an address are text.
fn words(note: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let (mut text_from, mut at) = (0, 0);
    while let Some(found) = note[at..].find(|c: char| c.is_ascii_digit()) {
        let from = at + found;
        let joined = |c: char| c.is_alphanumeric() || ".,:/-_'\"`".contains(c);
        let rest = &note[from..];
        let length = rest
            .find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.')
            .unwrap_or(rest.len());
        let digits = rest[..length].trim_end_matches(['.', ',']);
        at = from + digits.len();
        let before = &note[..from];
        let is_name = NAMED_BY_NUMBERS.iter().any(|word| before.ends_with(word));
        let is_alone = !is_name && !before.ends_with(joined);
        let Some((unit, value)) = is_alone.then(|| measured(digits, &note[at..])).flatten() else {
            at = from + length;
            continue;
        };
        words.push(Word::Text(&note[text_from..from]));
        at += unit.len();
        text_from = at;
        words.push(Word::Number {
            digits,
            unit,
            value,
        });
    }
    words.push(Word::Text(&note[text_from..]));
    words
}

/// The unit after these digits and the value, unless they are a part of a word.
fn measured(digits: &str, after: &str) -> Option<(&'static str, f64)> {
    let ends =
        |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || "-_:'\"`".contains(c));
    let fits = |(unit, ..): &&(&str, &str, f64)| after.strip_prefix(unit).is_some_and(ends);
    let (unit, _, scale) = UNITS
        .iter()
        .filter(fits)
        .max_by_key(|(unit, ..)| unit.len())?;
    let number: f64 = digits.replace(',', "").parse().ok()?;
    Some((unit, number * scale))
}

/// The names of results. Those that differ in the number of connections only share the rest of the name:
/// `100 and 1,000 connections, json, 175 B`.
fn names(results: &[&TestResult]) -> String {
    let mut shared: Vec<(String, Vec<u64>)> = Vec::new();
    for result in results {
        let rest = table::variation(result);
        match shared.iter_mut().find(|(known, _)| *known == rest) {
            Some((_, connections)) => connections.push(result.connections),
            None => shared.push((rest, vec![result.connections])),
        }
    }
    let name = |(rest, connections): (String, Vec<u64>)| match connections.as_slice() {
        [one] => number::connections(*one) + &rest,
        [some @ .., last] => {
            let some: Vec<String> = some.iter().map(|&count| number::grouped(count)).collect();
            format!(
                "{} and {}{rest}",
                some.join(", "),
                number::connections(*last)
            )
        }
        [] => rest,
    };
    shared.into_iter().map(name).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(connections: u64, notes: &[&str]) -> TestResult {
        TestResult {
            notes: notes.iter().map(|&note| note.to_owned()).collect(),
            ..TestResult::new("throughput", connections)
        }
    }

    fn told_of(results: &[TestResult]) -> Vec<String> {
        told(&results.iter().collect::<Vec<_>>())
    }

    #[test]
    fn equal_notes_are_told_once_with_those_they_are_about() {
        let results = [noted(1, &["a", "b"]), noted(1000, &["a"])];
        assert_eq!(told_of(&results), ["All: a", "1 connection: b"]);
        assert_eq!(told_of(&results[1..]), ["a"]);
    }

    #[test]
    fn notes_that_differ_in_numbers_are_one_with_their_ranges() {
        let results = [
            noted(
                10,
                &["It waited for 980 µs of 2 s (the 99th percentile), and used 5 %."],
            ),
            noted(
                20,
                &["It waited for 1.25 ms of 2 s (the 99th percentile), and used 12 %."],
            ),
            noted(3_000, &["Nothing."]),
            noted(
                4_000,
                &["It waited for 1 ms of 2 s (the 99th percentile), and used 7.5 %."],
            ),
        ];
        assert_eq!(
            told_of(&results),
            [
                "10, 20 and 4,000 connections: It waited for 980 µs to 1.25 ms of 2 s (the 99th percentile), and used 5 to 12 %.",
                "3,000 connections: Nothing."
            ]
        );
    }

    #[test]
    fn two_notes_of_one_result_are_one_if_only_their_numbers_differ() {
        let results = [
            noted(10, &["1 of 5 worked", "2 of 5 worked"]),
            noted(20, &[]),
        ];
        assert_eq!(told_of(&results), ["10 connections: 1 to 2 of 5 worked"]);
    }

    #[test]
    fn names_and_addresses_stay_as_they_are() {
        for pair in [
            [
                "closed by the server with code 1001",
                "closed by the server with code 1002",
            ],
            ["answered with HTTP 502", "answered with HTTP 503"],
            [
                "Of the server process 12 had enough",
                "Of the server process 13 had enough",
            ],
            ["at 127.0.0.1:80", "at 127.0.0.2:80"],
            ["by HTTP/1.1 and p99", "by HTTP/2.0 and p99"],
            ["3 ms", "3 MiB"],
            ["worker-1 ended", "worker-2 ended"],
            ["worker 1: exit status", "worker 2: exit status"],
        ] {
            let results = [noted(10, &pair[..1]), noted(20, &pair[1..])];
            let both = [
                format!("10 connections: {}", pair[0]),
                format!("20 connections: {}", pair[1]),
            ];
            assert_eq!(told_of(&results), both);
        }
    }

    #[test]
    fn results_with_the_same_variation_share_its_name() {
        let of = |connections, payload| TestResult {
            format: Some("json".to_owned()),
            payload_bytes: Some(payload),
            ..noted(connections, &[])
        };
        let results = [of(10, 64), of(10, 256), of(1_000, 64)];
        let all: Vec<_> = results.iter().collect();
        assert_eq!(
            names(&all),
            "10 and 1,000 connections, json, 64 B; 10 connections, json, 256 B"
        );
    }
}
