//! Numbers of equal texts, such as the reasons for which a server refuses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How often each text came. Others choose the texts, so their number is limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Texts(BTreeMap<String, u64>);

impl Texts {
    /// Counts one.
    pub fn add(&mut self, text: &str) {
        self.add_many(text, 1);
    }

    /// Adds those of another worker.
    pub fn merge(&mut self, other: &Self) {
        for (text, count) in &other.0 {
            self.add_many(text, *count);
        }
    }

    /// All of them in words, the most frequent first; `None` if there are none.
    #[must_use]
    pub fn in_words(&self) -> Option<String> {
        let mut all: Vec<(&String, &u64)> = self.0.iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let words: Vec<String> = all
            .iter()
            .map(|(text, count)| format!("{count} × `{text}`"))
            .collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    fn add_many(&mut self, text: &str, count: u64) {
        if let Some(known) = self.0.get_mut(text) {
            *known += count;
        } else if self.0.len() < KINDS_MAX {
            self.0.insert(text.to_owned(), count);
        } else {
            *self.0.entry(OTHERS.to_owned()).or_default() += count;
        }
    }
}

/// The number of different texts; all further ones are [`OTHERS`].
const KINDS_MAX: usize = 32;
const OTHERS: &str = "others";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_comes_first_and_no_flood_of_texts_grows() {
        let mut texts = Texts::default();
        assert_eq!(texts.in_words(), None);
        texts.add("a");
        texts.add("b");
        texts.add("b");
        assert_eq!(texts.in_words().unwrap(), "2 × `b`, 1 × `a`");
        for number in 0..1_000 {
            texts.add(&number.to_string());
        }
        let mut sum = texts.clone();
        sum.merge(&texts);
        assert_eq!(sum.0.len(), KINDS_MAX + 1);
        assert_eq!(sum.0.values().sum::<u64>(), 2_006);
        assert!(
            sum.in_words()
                .unwrap()
                .starts_with("1940 × `others`, 4 × `b`")
        );
    }
}
