//! Cover: the few globs that a node subscribes to for all its patterns.
//!
//! Redis sends a publication once for each glob of a connection that matches, and compares each publication with the
//! globs of all nodes. So no two globs of a node may match the same topic, and there are few of them. A glob is that of
//! one pattern, or everything that begins with the same text; the patterns below one text share the glob of this text.

use std::collections::BTreeMap;
use std::ops::Bound;

/// What a node subscribes to, by the text with which the topics of a glob begin. No text begins another one.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Cover(BTreeMap<Box<str>, Reach>);

/// Which topics that begin with a text belong to its glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reach {
    /// Those of this pattern.
    Pattern(Box<str>),
    /// All.
    All,
}

/// The text of a pattern up to its first wildcard segment: all its topics begin with it.
pub(super) fn beginning(pattern: &str) -> &str {
    let mut end = 0;
    for segment in pattern.split_inclusive('.') {
        if matches!(segment.trim_end_matches('.'), "*" | ">") {
            break;
        }
        end += segment.len();
    }
    &pattern[..end]
}

/// Whether two patterns have one glob, such as `a.*` and `a.>`.
fn have_one_glob(one: &str, other: &str) -> bool {
    let same = |(one, other): (&str, &str)| one == other || (is_wild(one) && is_wild(other));
    let (one, other) = (one.split('.'), other.split('.'));
    one.clone().count() == other.clone().count() && one.zip(other).all(same)
}

fn is_wild(segment: &str) -> bool {
    matches!(segment, "*" | ">")
}

impl Cover {
    /// The cover of these patterns.
    pub(super) fn of<'a>(patterns: impl Iterator<Item = &'a str>) -> Self {
        let mut cover = Self::default();
        for pattern in patterns {
            cover.add(pattern);
        }
        cover
    }

    /// With more than `most` globs cuts the texts to half as many, so that the next patterns have room.
    pub(super) fn keep_within(&mut self, most: usize) {
        if self.len() > most {
            self.shorten(most / 2);
        }
    }

    /// The text that this beginning of a topic or pattern begins with, if there is one.
    pub(super) fn covering(&self, beginning: &str) -> Option<(&str, &Reach)> {
        let up_to = (Bound::Unbounded, Bound::Included(beginning));
        let (text, reach) = self.0.range::<str, _>(up_to).next_back()?;
        beginning.starts_with(&**text).then_some((&**text, reach))
    }

    /// Adds a pattern; whether the globs are others now.
    pub(super) fn add(&mut self, pattern: &str) -> bool {
        self.insert(beginning(pattern), Reach::Pattern(pattern.into()))
    }

    fn insert(&mut self, text: &str, reach: Reach) -> bool {
        if let Some((known, present)) = self.covering(text) {
            let is_in = match (present, &reach) {
                (Reach::All, _) => true,
                (Reach::Pattern(one), Reach::Pattern(other)) => have_one_glob(one, other),
                (Reach::Pattern(_), Reach::All) => false,
            };
            if !is_in {
                let known = Box::<str>::from(known);
                self.0.insert(known, Reach::All);
            }
            return !is_in;
        }
        let below: Vec<Box<str>> = self.below(text).map(Box::from).collect();
        let reach = if below.is_empty() { reach } else { Reach::All };
        for text in &below {
            self.0.remove(text);
        }
        self.0.insert(text.into(), reach);
        true
    }

    fn below(&self, text: &str) -> impl Iterator<Item = &str> {
        let from = (Bound::Included(text), Bound::Unbounded);
        let texts = self.0.range::<str, _>(from).map(|(text, _)| &**text);
        texts.take_while(move |other| other.starts_with(text))
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// Cuts the texts until there are at most `most` of them.
    fn shorten(&mut self, most: usize) {
        if self.len() <= most {
            return;
        }
        // The longest length that is short enough.
        let (mut least, mut too_long) =
            (0, self.0.keys().map(|text| text.len()).max().unwrap_or(0));
        while least + 1 < too_long {
            let middle = least.midpoint(too_long);
            match self.cut_to(middle).len() <= most {
                true => least = middle,
                false => too_long = middle,
            }
        }
        *self = self.cut_to(least);
    }

    fn cut_to(&self, length: usize) -> Self {
        let mut cut = Self::default();
        for (text, reach) in &self.0 {
            if text.len() <= length {
                cut.insert(text, reach.clone());
            } else {
                let end = (0..=length).rev().find(|end| text.is_char_boundary(*end));
                cut.insert(&text[..end.unwrap_or(0)], Reach::All);
            }
        }
        cut
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Reach)> {
        self.0.iter().map(|(text, reach)| (&**text, reach))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(cover: &Cover) -> Vec<(&str, bool)> {
        let all = cover.iter();
        all.map(|(text, reach)| (text, *reach == Reach::All))
            .collect()
    }

    #[test]
    fn a_pattern_begins_with_what_comes_before_its_first_wildcard() {
        for (pattern, text) in [
            ("a.b.*.c", "a.b."),
            ("a.>", "a."),
            ("*.a", ""),
            (">", ""),
            ("a.b*.>", "a.b*."),
            ("a.b", "a.b"),
        ] {
            assert_eq!(beginning(pattern), text, "{pattern}");
        }
    }

    #[test]
    fn a_lonely_pattern_keeps_its_glob_and_others_share_one() {
        let cover = |patterns: &[&str]| Cover::of(patterns.iter().copied());
        let both = cover(&["a.*.x", "b.*.x"]);
        assert_eq!(texts(&both), [("a.", false), ("b.", false)]);
        assert_eq!(texts(&cover(&["a.*.x", "a.*.y"])), [("a.", true)]);
        assert_eq!(texts(&cover(&["a.*", "a.>"])), [("a.", false)]);
        assert_eq!(texts(&cover(&["a.b.>", "a.c.>", "a.*"])), [("a.", true)]);
        assert_eq!(texts(&cover(&["*.x", "a.b.>"])), [("", true)]);
    }

    #[test]
    fn many_beginnings_are_shortened() {
        let patterns: Vec<_> = (0..1_000).map(|n| format!("room{n:03}.*")).collect();
        let mut cover = Cover::of(patterns.iter().map(String::as_str));
        assert_eq!(cover.len(), 1_000);
        cover.keep_within(1_000);
        assert_eq!(cover.len(), 1_000);
        cover.keep_within(200);
        assert_eq!(cover.len(), 100);
        assert_eq!(
            cover.covering("room123.").map(|(text, _)| text),
            Some("room12")
        );
        let letters: Vec<_> = ('а'..='я').map(|letter| format!("{letter}.*")).collect();
        let mut cover = Cover::of(letters.iter().map(String::as_str));
        cover.shorten(5);
        assert_eq!(texts(&cover), [("", true)]);
    }

    fn pattern() -> impl Strategy<Value = String> {
        let segment = prop_oneof!["[ab]{1,2}", Just("*".to_owned())];
        (prop::collection::vec(segment, 0..4), any::<bool>()).prop_map(|(mut segments, is_deep)| {
            segments.push(if is_deep { ">" } else { "*" }.to_owned());
            segments.join(".")
        })
    }

    proptest! {
        #[test]
        fn all_patterns_are_covered_by_texts_that_do_not_begin_each_other(patterns in prop::collection::vec(pattern(), 0..20), most in 1_usize..6) {
            let mut cover = Cover::of(patterns.iter().map(String::as_str));
            cover.shorten(most);
            prop_assert!(cover.len() <= most);
            for pattern in &patterns {
                let covering = cover.covering(beginning(pattern));
                let is_in = covering.is_some_and(|(_, reach)| match reach {
                    Reach::All => true,
                    Reach::Pattern(own) => have_one_glob(own, pattern),
                });
                prop_assert!(is_in, "{pattern} {cover:?}");
            }
            for (text, _) in cover.iter() {
                prop_assert_eq!(cover.below(text).count(), 1);
            }
        }
    }
}
