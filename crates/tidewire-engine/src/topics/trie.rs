//! Patterns in a tree by segment, so that those which match a topic are found without looking at the
//! others.

use super::name::segments;
use std::collections::HashMap;

/// A value per pattern (or exact name).
///
/// Finding the patterns that match a topic visits, for each segment of the topic, the child of that name
/// and the `*` child. What is visited is thus bounded by the patterns that agree with the topic's first
/// segments, whatever the number of the others; and with at most 8 `*` per pattern
/// ([`STARS_MAX`](super::name::STARS_MAX)) by the ways to put 8 stars on the topic's segments (255 for
/// a topic of 8 segments). A node without pattern below it is removed.
#[derive(Debug)]
pub(crate) struct PatternTrie<V> {
    root: Node<V>,
    len: usize,
}

#[derive(Debug)]
struct Node<V> {
    /// The pattern that ends here.
    here: Option<V>,
    /// The pattern that ends with a `>` after this node.
    rest: Option<V>,
    star: Option<Box<Node<V>>>,
    children: HashMap<Box<str>, Node<V>>,
}

impl<V> PatternTrie<V> {
    /// A tree without patterns.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// How many patterns there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of this pattern, the default one if it was not there.
    pub(crate) fn insert(&mut self, pattern: &str) -> &mut V
    where
        V: Default,
    {
        let (path, has_rest) = split_rest(pattern);
        let mut node = &mut self.root;
        for segment in path.into_iter().flat_map(segments) {
            node = match segment {
                "*" => node.star.get_or_insert_default(),
                _ => node.children.entry(segment.into()).or_default(),
            };
        }
        let place = if has_rest {
            &mut node.rest
        } else {
            &mut node.here
        };
        self.len += usize::from(place.is_none());
        place.get_or_insert_default()
    }

    /// The value of this pattern, if it is there.
    pub(crate) fn get_mut(&mut self, pattern: &str) -> Option<&mut V> {
        let (path, has_rest) = split_rest(pattern);
        let mut node = &mut self.root;
        for segment in path.into_iter().flat_map(segments) {
            node = match segment {
                "*" => node.star.as_deref_mut()?,
                _ => node.children.get_mut(segment)?,
            };
        }
        if has_rest {
            node.rest.as_mut()
        } else {
            node.here.as_mut()
        }
    }

    /// Removes this pattern and gives its value back, if it was there.
    pub(crate) fn remove(&mut self, pattern: &str) -> Option<V> {
        let (path, has_rest) = split_rest(pattern);
        let removed = self.root.remove(path, has_rest)?;
        self.len -= 1;
        Some(removed)
    }

    /// Calls `visit` with the value of each pattern that matches this topic, once each, in no particular
    /// order.
    pub(crate) fn for_each_match<'a>(&'a self, topic: &str, mut visit: impl FnMut(&'a V)) {
        self.root.visit(Some(topic), &mut visit);
    }
}

impl<V> Default for PatternTrie<V> {
    fn default() -> Self {
        Self {
            root: Node::default(),
            len: 0,
        }
    }
}

impl<V> Node<V> {
    /// `path` is what is left of the topic below this node. The recursion is as deep as the tree, which
    /// is as deep as the segments of a pattern may be many.
    fn visit<'a>(&'a self, path: Option<&str>, visit: &mut impl FnMut(&'a V)) {
        let Some(path) = path else {
            if let Some(value) = &self.here {
                visit(value);
            }
            return;
        };
        if let Some(value) = &self.rest {
            visit(value);
        }
        let (segment, below) = split_first(path);
        if let Some(star) = &self.star {
            star.visit(below, visit);
        }
        if let Some(child) = self.children.get(segment) {
            child.visit(below, visit);
        }
    }

    fn remove(&mut self, path: Option<&str>, has_rest: bool) -> Option<V> {
        let Some(path) = path else {
            return if has_rest {
                self.rest.take()
            } else {
                self.here.take()
            };
        };
        let (segment, below) = split_first(path);
        if segment == "*" {
            let star = self.star.as_deref_mut()?;
            let removed = star.remove(below, has_rest)?;
            if star.is_empty() {
                self.star = None;
            }
            return Some(removed);
        }
        let child = self.children.get_mut(segment)?;
        let removed = child.remove(below, has_rest)?;
        if child.is_empty() {
            self.children.remove(segment);
            if self.children.is_empty() {
                // What a wave of subscriptions has made it grow to is given back.
                self.children = HashMap::new();
            }
        }
        Some(removed)
    }

    fn is_empty(&self) -> bool {
        self.here.is_none()
            && self.rest.is_none()
            && self.star.is_none()
            && self.children.is_empty()
    }
}

impl<V> Default for Node<V> {
    fn default() -> Self {
        Self {
            here: None,
            rest: None,
            star: None,
            children: HashMap::new(),
        }
    }
}

/// The pattern without a final `>`, nothing if that is all there is, and whether there was one.
fn split_rest(pattern: &str) -> (Option<&str>, bool) {
    if pattern == ">" {
        return (None, true);
    }
    match pattern.strip_suffix(".>") {
        Some(path) => (Some(path), true),
        None => (Some(pattern), false),
    }
}

fn split_first(path: &str) -> (&str, Option<&str>) {
    match path.split_once('.') {
        Some((segment, below)) => (segment, Some(below)),
        None => (path, None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::name::{check_topic_or_pattern, matches};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn found(trie: &PatternTrie<String>, topic: &str) -> Vec<String> {
        let mut all = Vec::new();
        trie.for_each_match(topic, |value| all.push(value.clone()));
        all.sort();
        all
    }

    #[test]
    fn each_match_is_visited_once() {
        let mut trie = PatternTrie::new();
        let patterns = [
            "a.b", "a.*", "*.b", "*.*", "a.>", ">", "*.>", "a.b.>", "a.b.c", "x.*",
        ];
        for pattern in patterns {
            *trie.insert(pattern) = pattern.to_owned();
        }
        assert_eq!(trie.len(), patterns.len());
        assert_eq!(
            found(&trie, "a.b"),
            ["*.*", "*.>", "*.b", ">", "a.*", "a.>", "a.b"]
        );
        assert_eq!(found(&trie, "a.b.c"), ["*.>", ">", "a.>", "a.b.>", "a.b.c"]);
        assert_eq!(found(&trie, "a"), [">"]);
        assert_eq!(found(&trie, "y.z.w"), ["*.>", ">"]);
    }

    #[test]
    fn a_removed_pattern_leaves_no_node() {
        let mut trie = PatternTrie::<u32>::new();
        for pattern in ["a.b.c.>", "a.b", "*.*.c", ">"] {
            *trie.insert(pattern) += 1;
        }
        *trie.insert("a.b") += 1;
        assert_eq!(trie.len(), 4);
        assert_eq!(trie.get_mut("a.b"), Some(&mut 2));
        for absent in ["a", "a.b.c", "*", "*.*", "a.>", "a.*.c", "b"] {
            assert_eq!(trie.remove(absent), None, "{absent}");
            assert_eq!(trie.get_mut(absent), None, "{absent}");
        }
        assert_eq!(trie.remove("a.b.c.>"), Some(1));
        assert_eq!(trie.root.children["a"].children["b"].children.len(), 0);
        for pattern in ["a.b", "*.*.c", ">"] {
            assert!(trie.remove(pattern).is_some(), "{pattern}");
        }
        assert!(trie.is_empty());
        assert!(trie.root.is_empty());
        assert_eq!(trie.root.children.capacity(), 0);
    }

    /// All the ways to put up to 8 stars on a topic of 8 segments: what one publication can meet at most.
    #[test]
    fn every_placement_of_stars_is_found() {
        let mut trie = PatternTrie::<u32>::new();
        for stars in 0..256_u32 {
            let segment = |bit: u32| if stars >> bit & 1 == 1 { "*" } else { "s" };
            let pattern = (0..8).map(segment).collect::<Vec<_>>().join(".");
            *trie.insert(&pattern) = stars;
        }
        let mut all = Vec::new();
        trie.for_each_match("s.s.s.s.s.s.s.s", |value| all.push(*value));
        all.sort_unstable();
        assert_eq!(all, (0..256).collect::<Vec<_>>());
    }

    fn pattern() -> impl Strategy<Value = String> {
        "(a|b|\\*)(\\.(a|b|\\*)){0,3}(\\.>)?|>"
    }

    proptest! {
        #[test]
        fn the_tree_agrees_with_a_list(
            steps in proptest::collection::vec((pattern(), any::<bool>()), 0..60),
            topic in "(a|b|c)(\\.(a|b|c)){0,4}",
        ) {
            let mut trie = PatternTrie::<String>::new();
            let mut list = BTreeMap::new();
            for (pattern, is_added) in steps {
                prop_assert!(check_topic_or_pattern(&pattern).is_ok());
                if is_added {
                    trie.insert(&pattern).clone_from(&pattern);
                    list.insert(pattern.clone(), pattern);
                } else {
                    prop_assert_eq!(trie.remove(&pattern), list.remove(&pattern));
                }
                prop_assert_eq!(trie.len(), list.len());
            }
            let expected: Vec<String> =
                list.into_keys().filter(|pattern| matches(pattern, &topic)).collect();
            prop_assert_eq!(found(&trie, &topic), expected);
        }
    }
}
