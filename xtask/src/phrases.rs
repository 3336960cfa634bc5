//! Phrases that plain English does without: each costs a reader time, and each has a usual word.

/// The phrases in a line of prose, each with what to write instead.
pub(crate) fn find(line: &str) -> impl Iterator<Item = String> {
    let line = line.to_lowercase();
    let found = PHRASES
        .iter()
        .filter(move |(phrase, _)| has_phrase(&line, phrase));
    found.map(|(phrase, plain)| format!("\"{phrase}\", write {plain}"))
}

fn has_phrase(line: &str, phrase: &str) -> bool {
    line.match_indices(phrase).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + phrase.len()..].chars().next();
        let is_part = |mark: Option<char>| mark.is_some_and(char::is_alphanumeric);
        !is_part(before) && !is_part(after)
    })
}

/// The phrase in lower case, and what to write.
const PHRASES: &[(&str, &str)] = &[
    ("in silence", "\"without a report\""),
    ("let go of", "\"release\""),
    ("lets go of", "\"releases\""),
    ("hears of", "\"is notified of\""),
    ("may nothing", "what is not permitted"),
    (
        "newcomer",
        "\"new client\", \"new connection\" or \"new subscriber\"",
    ),
    (
        "newcomers",
        "\"new clients\", \"new connections\" or \"new subscribers\"",
    ),
    ("is none of", "what it is"),
    ("none of which", "a sentence of its own"),
    ("so many", "the name of the number"),
    ("has its say", "the verb"),
    ("takes no more", "\"accepts no more\""),
    ("there and back", "\"round trip\""),
    ("throw away", "\"discard\""),
    ("throws away", "\"discards\""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn count(line: &str) -> usize {
        find(line).count()
    }

    #[test]
    fn a_phrase_is_found_in_any_case() {
        assert_eq!(count("So many messages in silence."), 2);
        assert_eq!(count("Newcomers wait."), 1);
    }

    #[test]
    fn a_part_of_a_word_is_no_phrase() {
        assert_eq!(count("also many, so manyfold"), 0);
    }
}
