//! Topic names and patterns.
//!
//! A name is 1 to [`TOPIC_BYTES_MAX`] bytes of UTF-8: up to [`SEGMENTS_MAX`] segments with a `.`
//! between them, none of them empty, without control characters, white space, `*` or `>`. A pattern
//! is the same, except that a segment may be `*`, which stands for any one segment, and that the
//! last one may be `>`, which stands for one segment or more. A new name has no characters that change the direction of
//! writing either, unless the operator allows them: [`check_direction`].
//!
//! [`matches`], [`covers`] and [`overlaps`] expect checked text, allocate nothing and are linear.
//! With text that was not checked they give some answer, but never panic.

use std::str::Split;

/// The kind of a checked text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The name of one topic.
    Exact,
    /// A pattern with at least one wildcard.
    Pattern,
}

/// Why a text is not a topic name, or not a pattern. It is the fault of whoever wrote the name, and
/// a retry does not help. Positions are in bytes from the start of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTopic {
    /// There is nothing in it.
    #[error("a topic name must not be empty")]
    Empty,
    /// It is longer than 255 bytes.
    #[error("the topic name has {bytes} bytes, and {TOPIC_BYTES_MAX} is the most")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// It has more than 32 segments.
    #[error("the topic name has {segments} segments, and {SEGMENTS_MAX} is the most")]
    TooManySegments {
        /// How many it has.
        segments: usize,
    },
    /// There is nothing before, between or after two dots.
    #[error("the topic name has an empty segment at byte {at}")]
    EmptySegment {
        /// Where the segment would be.
        at: usize,
    },
    /// A control character or white space.
    #[error("the topic name has the character {character:?} at byte {at}, which is not allowed")]
    Character {
        /// The character.
        character: char,
        /// Where it is.
        at: usize,
    },
    /// A `*` or a `>` in the name of a topic.
    #[error("a wildcard at byte {at} is not allowed in the name of one topic")]
    Wildcard {
        /// Where it is.
        at: usize,
    },
    /// In a pattern, a `*` that is not a whole segment, or a `>` that is not the whole last
    /// segment.
    #[error("the wildcard at byte {at} must be a whole segment, and `>` must be the last")]
    MisplacedWildcard {
        /// Where it is.
        at: usize,
    },
    /// A pattern with more than 8 `*`.
    #[error("the pattern has {stars} `*`, and {STARS_MAX} is the most")]
    TooManyStars {
        /// How many it has.
        stars: usize,
    },
}

/// Checks the name of one topic.
pub(crate) fn check_topic(name: &str) -> Result<(), InvalidTopic> {
    check(name, false).map(|_| ())
}

/// Checks a text that may be the name of one topic or a pattern, and returns its kind.
pub(crate) fn check_topic_or_pattern(name: &str) -> Result<Kind, InvalidTopic> {
    check(name, true)
}

/// Checks that a name or pattern has no character that changes the direction of writing (U+202A to U+202E, U+2066 to
/// U+2069), unless the operator allows them: two names could look the same, or one as another.
pub(crate) fn check_direction(name: &str, is_allowed: bool) -> Result<(), InvalidTopic> {
    // All of them begin with this byte, and few names have it.
    if is_allowed || !name.as_bytes().contains(&0xe2) {
        return Ok(());
    }
    let is_control = |(_, character): &(usize, char)| matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    match name.char_indices().find(is_control) {
        Some((at, character)) => Err(InvalidTopic::Character { character, at }),
        None => Ok(()),
    }
}

/// Whether a segment of this name is a wildcard.
pub(crate) fn is_pattern(name: &str) -> bool {
    name.split('.')
        .any(|segment| segment == "*" || segment == ">")
}

/// Whether the topic is one that the pattern stands for. A name without wildcards stands for
/// itself.
pub(crate) fn matches(pattern: &str, topic: &str) -> bool {
    covers(pattern, topic)
}

/// Whether every topic that `inner` stands for is one that `outer` stands for.
pub(crate) fn covers(outer: &str, inner: &str) -> bool {
    let mut inner = inner.split('.');
    for segment in outer.split('.') {
        let Some(other) = inner.next() else {
            return false;
        };
        match segment {
            ">" => return true,
            "*" if other != ">" => {}
            _ if segment == other => {}
            _ => return false,
        }
    }
    inner.next().is_none()
}

/// Whether there is a topic that both stand for.
pub(crate) fn overlaps(a: &str, b: &str) -> bool {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        match (a.next(), b.next()) {
            (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (Some(one), Some(other)) if one == other || one == "*" || other == "*" => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

/// The segments of a name or a pattern, in order.
pub(crate) fn segments(name: &str) -> Split<'_, char> {
    name.split('.')
}

fn check(name: &str, wildcards_allowed: bool) -> Result<Kind, InvalidTopic> {
    if name.is_empty() {
        return Err(InvalidTopic::Empty);
    }
    if name.len() > TOPIC_BYTES_MAX {
        return Err(InvalidTopic::TooLong { bytes: name.len() });
    }
    let (mut at, mut count, mut stars, mut has_rest) = (0, 0, 0, false);
    for segment in segments(name) {
        let is_last = at + segment.len() == name.len();
        match segment {
            "" => return Err(InvalidTopic::EmptySegment { at }),
            "*" if wildcards_allowed => stars += 1,
            ">" if wildcards_allowed && is_last => has_rest = true,
            _ => check_segment(segment, at, wildcards_allowed)?,
        }
        at += segment.len() + 1;
        count += 1;
    }
    if count > SEGMENTS_MAX {
        return Err(InvalidTopic::TooManySegments { segments: count });
    }
    if stars > STARS_MAX {
        return Err(InvalidTopic::TooManyStars { stars });
    }
    Ok(if stars > 0 || has_rest {
        Kind::Pattern
    } else {
        Kind::Exact
    })
}

fn check_segment(segment: &str, start: usize, wildcards_allowed: bool) -> Result<(), InvalidTopic> {
    for (offset, character) in segment.char_indices() {
        let at = start + offset;
        match character {
            '*' | '>' if wildcards_allowed => return Err(InvalidTopic::MisplacedWildcard { at }),
            '*' | '>' => return Err(InvalidTopic::Wildcard { at }),
            _ if character.is_control() || character.is_whitespace() => {
                return Err(InvalidTopic::Character { character, at });
            }
            _ => {}
        }
    }
    Ok(())
}

/// The longest name or pattern, in bytes.
pub(crate) const TOPIC_BYTES_MAX: usize = 255;

/// The most segments of a name or a pattern.
pub(crate) const SEGMENTS_MAX: usize = 32;

/// The most `*` in a pattern: each one can double the ways in which a topic is looked for.
pub(crate) const STARS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_checked() {
        let long = "x".repeat(TOPIC_BYTES_MAX);
        let deep = vec!["s"; SEGMENTS_MAX].join(".");
        for good in [
            "a",
            "orders.eu",
            "a.b.c",
            "цены.€",
            "a-b_c/d:{x}",
            &long,
            &deep,
        ] {
            assert_eq!(check_topic(good), Ok(()), "{good}");
            assert_eq!(check_topic_or_pattern(good), Ok(Kind::Exact), "{good}");
            assert!(!is_pattern(good), "{good}");
        }
        let at = 2;
        for (bad, why) in [
            ("", InvalidTopic::Empty),
            (&format!("{long}x"), InvalidTopic::TooLong { bytes: 256 }),
            (
                &format!("{deep}.s"),
                InvalidTopic::TooManySegments { segments: 33 },
            ),
            (".a", InvalidTopic::EmptySegment { at: 0 }),
            ("a.", InvalidTopic::EmptySegment { at }),
            ("a..b", InvalidTopic::EmptySegment { at }),
            ("a. b", InvalidTopic::Character { character: ' ', at }),
            (
                "a.\u{0}",
                InvalidTopic::Character {
                    character: '\u{0}',
                    at,
                },
            ),
            (
                "a.\u{85}",
                InvalidTopic::Character {
                    character: '\u{85}',
                    at,
                },
            ),
            (
                "é\u{2003}",
                InvalidTopic::Character {
                    character: '\u{2003}',
                    at,
                },
            ),
            ("a.*", InvalidTopic::Wildcard { at }),
            ("a.>", InvalidTopic::Wildcard { at }),
            ("a.b*", InvalidTopic::Wildcard { at: 3 }),
        ] {
            assert_eq!(check_topic(bad), Err(why), "{bad:?}");
        }
    }

    #[test]
    fn characters_that_change_the_direction_of_writing() {
        for character in ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}') {
            let name = format!("a.{character}b");
            let expected = InvalidTopic::Character { character, at: 2 };
            assert_eq!(check_direction(&name, false), Err(expected));
            assert_eq!(check_topic(&name), Ok(()));
        }
        for good in ["a.b", "€", "a.‐", "a\u{2029}", "a\u{206a}", "שלום.مرحبا"] {
            assert_eq!(check_direction(good, false), Ok(()), "{good}");
        }
    }

    #[test]
    fn patterns_are_checked() {
        for good in [
            "*",
            ">",
            "a.*",
            "*.a",
            "a.*.b.>",
            "*.>",
            "*.*.*.*.*.*.*.*.>",
        ] {
            assert_eq!(check_topic_or_pattern(good), Ok(Kind::Pattern), "{good}");
            assert!(is_pattern(good), "{good}");
        }
        for (bad, why) in [
            (">.a", InvalidTopic::MisplacedWildcard { at: 0 }),
            ("a.>.>", InvalidTopic::MisplacedWildcard { at: 2 }),
            ("a.b*", InvalidTopic::MisplacedWildcard { at: 3 }),
            ("a.**", InvalidTopic::MisplacedWildcard { at: 2 }),
            ("a.>>", InvalidTopic::MisplacedWildcard { at: 2 }),
            ("*.*.*.*.*.*.*.*.*", InvalidTopic::TooManyStars { stars: 9 }),
            ("*.", InvalidTopic::EmptySegment { at: 2 }),
        ] {
            assert_eq!(check_topic_or_pattern(bad), Err(why), "{bad:?}");
        }
    }

    #[test]
    fn a_pattern_matches_its_topics() {
        for (pattern, topic, expected) in [
            ("a", "a", true),
            ("a", "b", false),
            ("a", "a.b", false),
            ("a.b", "a", false),
            ("*", "a", true),
            ("*", "a.b", false),
            ("a.*", "a.b", true),
            ("a.*", "a", false),
            ("a.*", "a.b.c", false),
            ("*.b", "a.b", true),
            ("a.*.c", "a.b.c", true),
            ("a.*.c", "a.b.d", false),
            (">", "a", true),
            (">", "a.b.c", true),
            ("a.>", "a", false),
            ("a.>", "a.b", true),
            ("a.>", "a.b.c", true),
            ("a.>", "ab.c", false),
            ("*.>", "a", false),
            ("*.>", "a.b", true),
        ] {
            assert_eq!(matches(pattern, topic), expected, "{pattern} {topic}");
        }
    }

    /// Every topic of up to four segments out of three words. They distinguish any two of the
    /// patterns below: `z` stands in no pattern, so that a wildcard is never mistaken for a list of
    /// words.
    fn topics() -> Vec<String> {
        let mut all = vec![String::new()];
        let mut from = 0;
        for _ in 0..4 {
            let to = all.len();
            for index in from..to {
                for word in ["a", "b", "z"] {
                    let prefix = &all[index];
                    let dot = if prefix.is_empty() { "" } else { "." };
                    all.push(format!("{prefix}{dot}{word}"));
                }
            }
            from = to;
        }
        all.remove(0);
        all
    }

    fn pattern() -> impl Strategy<Value = String> {
        let segment = prop_oneof![Just("a"), Just("b"), Just("*")];
        (proptest::collection::vec(segment, 0..4), any::<bool>()).prop_map(|(mut all, rest)| {
            if rest || all.is_empty() {
                all.truncate(3);
                all.push(">");
            }
            all.join(".")
        })
    }

    proptest! {
        #[test]
        fn covering_and_overlapping_are_about_topics(a in pattern(), b in pattern()) {
            let of = |pattern: &str| -> Vec<bool> {
                topics().iter().map(|topic| matches(pattern, topic)).collect()
            };
            let (of_a, of_b) = (of(&a), of(&b));
            let mut pairs = of_a.iter().zip(&of_b);
            prop_assert_eq!(covers(&a, &b), pairs.all(|(a, b)| *a || !*b), "{} {}", a, b);
            let mut pairs = of_a.iter().zip(&of_b);
            prop_assert_eq!(overlaps(&a, &b), pairs.any(|(a, b)| *a && *b), "{} {}", a, b);
            prop_assert_eq!(overlaps(&a, &b), overlaps(&b, &a));
        }

        #[test]
        fn any_text_is_safe(a in "\\PC{0,40}", b in "[a*>.]{0,20}") {
            let _ = (check_topic_or_pattern(&a), covers(&a, &b), covers(&b, &a), overlaps(&a, &b));
            if check_topic(&b).is_ok() {
                prop_assert!(!is_pattern(&b) && matches(&b, &b) && matches(">", &b));
            }
        }
    }
}
