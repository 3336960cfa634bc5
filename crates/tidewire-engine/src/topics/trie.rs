//! Patterns in a tree by segment, so that those which match a topic are found without looking at
//! the others.

use super::name::segments;
use std::collections::HashMap;

/// A value per pattern (or exact name).
///
/// Segments that no other pattern parts from share one edge, so that a tree has fewer than twice as
/// many nodes as patterns, whatever the number of their segments: a pattern needs its text and some
/// 200 bytes.
///
/// Finding the patterns that match a topic visits, for each segment of the topic, the child of that
/// name and the `*` child. The visited nodes are thus bounded by the patterns that agree with the
/// topic's first segments, whatever the number of the others; and each node is visited once at
/// most.
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
    below: Edges<V>,
}

/// The edges below a node, by their first segments, which all differ. Most nodes have few.
#[derive(Debug)]
enum Edges<V> {
    Few(Vec<Edge<V>>),
    Many(HashMap<Box<str>, Edge<V>>),
}

#[derive(Debug)]
struct Edge<V> {
    /// One segment or more, with dots between them; a segment may be `*`.
    label: Box<str>,
    node: Node<V>,
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
        let node = self.root.make(path);
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
        let mut left = path;
        while let Some(path) = left {
            let edge = node.below.get_mut(split_first(path).0)?;
            left = after(path, &edge.label)?;
            node = &mut edge.node;
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

    /// Calls `visit` with the value of each pattern that matches this topic, once each, in no
    /// particular order; gives how many edges were looked at.
    pub(crate) fn for_each_match<'a>(&'a self, topic: &str, mut visit: impl FnMut(&'a V)) -> usize {
        let mut steps = 0;
        self.root.visit(Some(topic), &mut visit, &mut steps);
        steps
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
    /// The node at this path below this one.
    fn make(&mut self, path: Option<&str>) -> &mut Self {
        let Some(path) = path else { return self };
        let first = split_first(path).0;
        if self.below.get(first).is_none() {
            let edge = Edge {
                label: path.into(),
                node: Self::default(),
            };
            return &mut self.below.insert(edge).node;
        }
        let known = self
            .below
            .get_mut(first)
            .expect("an edge with this segment was found");
        let common = common_bytes(path, &known.label);
        if common < known.label.len() {
            known.split(common);
        }
        let left = if common < path.len() {
            Some(&path[common + 1..])
        } else {
            None
        };
        known.node.make(left)
    }

    /// `path` is the rest of the topic below this node. The recursion is as deep as the tree, whose
    /// depth is at most the number of segments of a pattern.
    fn visit<'a>(&'a self, path: Option<&str>, visit: &mut impl FnMut(&'a V), steps: &mut usize) {
        let Some(path) = path else {
            if let Some(value) = &self.here {
                visit(value);
            }
            return;
        };
        if let Some(value) = &self.rest {
            visit(value);
        }
        for name in ["*", split_first(path).0] {
            if let Some(edge) = self.below.get(name) {
                *steps += 1;
                if let Some(left) = passed(path, &edge.label) {
                    edge.node.visit(left, visit, steps);
                }
            }
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
        let first = split_first(path).0;
        let edge = self.below.get_mut(first)?;
        let left = after(path, &edge.label)?;
        let removed = edge.node.remove(left, has_rest)?;
        if edge.node.is_empty() {
            self.below.remove(first);
        } else {
            edge.merge();
        }
        Some(removed)
    }

    fn is_empty(&self) -> bool {
        self.here.is_none() && self.rest.is_none() && self.below.len() == 0
    }
}

impl<V> Edge<V> {
    /// Puts a node in the middle, after N bytes of the label.
    fn split(&mut self, common: usize) {
        let lower = Self {
            label: self.label[common + 1..].into(),
            node: std::mem::take(&mut self.node),
        };
        self.label = self.label[..common].into();
        self.node.below.insert(lower);
    }

    /// Merges the node below into its only child, unless a pattern ends there or several go on from it.
    fn merge(&mut self) {
        let node = &mut self.node;
        if node.here.is_some() || node.rest.is_some() || node.below.len() != 1 {
            return;
        }
        if let Some(only) = node.below.take_only() {
            self.label = [&*self.label, ".", &*only.label].concat().into();
            self.node = only.node;
        }
    }
}

impl<V> Edges<V> {
    fn len(&self) -> usize {
        match self {
            Self::Few(edges) => edges.len(),
            Self::Many(edges) => edges.len(),
        }
    }

    fn get(&self, first: &str) -> Option<&Edge<V>> {
        match self {
            Self::Few(edges) => edges
                .iter()
                .find(|edge| split_first(&edge.label).0 == first),
            Self::Many(edges) => edges.get(first),
        }
    }

    fn get_mut(&mut self, first: &str) -> Option<&mut Edge<V>> {
        match self {
            Self::Few(edges) => edges
                .iter_mut()
                .find(|edge| split_first(&edge.label).0 == first),
            Self::Many(edges) => edges.get_mut(first),
        }
    }

    /// Adds an edge whose first segment no other has.
    fn insert(&mut self, edge: Edge<V>) -> &mut Edge<V> {
        if let Self::Few(edges) = self
            && edges.len() >= FEW_EDGES
        {
            let named = std::mem::take(edges).into_iter();
            *self = Self::Many(named.map(|edge| (edge.first(), edge)).collect());
        }
        match self {
            Self::Few(edges) => {
                edges.push(edge);
                let last = edges.len() - 1;
                &mut edges[last]
            }
            Self::Many(edges) => edges.entry(edge.first()).insert_entry(edge).into_mut(),
        }
    }

    /// Removes an edge. What a wave of subscriptions has made the table grow to is given back.
    fn remove(&mut self, first: &str) {
        match self {
            Self::Few(edges) => {
                edges.retain(|edge| split_first(&edge.label).0 != first);
                if edges.is_empty() {
                    *edges = Vec::new();
                }
            }
            Self::Many(edges) => {
                edges.remove(first);
                if edges.len() <= FEW_EDGES / 2 {
                    let few = std::mem::take(edges).into_values().collect();
                    *self = Self::Few(few);
                }
            }
        }
    }

    fn take_only(&mut self) -> Option<Edge<V>> {
        match std::mem::replace(self, Self::Few(Vec::new())) {
            Self::Few(mut edges) => edges.pop(),
            Self::Many(edges) => edges.into_values().next(),
        }
    }
}

impl<V> Edge<V> {
    fn first(&self) -> Box<str> {
        split_first(&self.label).0.into()
    }
}

impl<V> Default for Node<V> {
    fn default() -> Self {
        Self {
            here: None,
            rest: None,
            below: Edges::Few(Vec::new()),
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

/// The rest of a path after a label at its front, segment by segment the same; `None` if it is not
/// there.
fn after<'a>(path: &'a str, label: &str) -> Option<Option<&'a str>> {
    let left = path.strip_prefix(label)?;
    if left.is_empty() {
        return Some(None);
    }
    left.strip_prefix('.').map(Some)
}

/// The rest of a topic after a front that a label matches; `None` if it does not.
fn passed<'a>(topic: &'a str, label: &str) -> Option<Option<&'a str>> {
    let mut left = Some(topic);
    for segment in segments(label) {
        let (first, below) = split_first(left?);
        if segment != "*" && segment != first {
            return None;
        }
        left = below;
    }
    Some(left)
}

/// How many bytes of whole segments two paths have in common, of which the first segment is the
/// same.
fn common_bytes(a: &str, b: &str) -> usize {
    let mut common = 0;
    for (one, other) in segments(a).zip(segments(b)) {
        if one != other {
            break;
        }
        common += one.len() + 1;
    }
    common - 1
}

/// With more edges than this they are found by a table.
const FEW_EDGES: usize = 8;

#[cfg(test)]
mod tests {
    use super::super::name::{check_topic_or_pattern, matches};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn found(trie: &PatternTrie<String>, topic: &str) -> Vec<String> {
        let mut all = Vec::new();
        let _ = trie.for_each_match(topic, |value| all.push(value.clone()));
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
        for pattern in ["a.b", "*.*.c", ">"] {
            assert!(trie.remove(pattern).is_some(), "{pattern}");
        }
        assert!(trie.is_empty());
        assert!(trie.root.is_empty());
        assert!(matches!(&trie.root.below, Edges::Few(edges) if edges.capacity() == 0));
    }

    /// All the ways to put up to 8 stars on a topic of 8 segments: what one publication can meet at
    /// most.
    #[test]
    fn every_placement_of_stars_is_found() {
        let mut trie = PatternTrie::<u32>::new();
        for stars in 0..256_u32 {
            let segment = |bit: u32| if stars >> bit & 1 == 1 { "*" } else { "s" };
            let pattern = (0..8).map(segment).collect::<Vec<_>>().join(".");
            *trie.insert(&pattern) = stars;
        }
        let mut all = Vec::new();
        let _ = trie.for_each_match("s.s.s.s.s.s.s.s", |value| all.push(*value));
        all.sort_unstable();
        assert_eq!(all, (0..256).collect::<Vec<_>>());
    }

    fn nodes<V>(node: &Node<V>) -> usize {
        let below: usize = match &node.below {
            Edges::Few(edges) => edges.iter().map(|edge| nodes(&edge.node)).sum(),
            Edges::Many(edges) => edges.values().map(|edge| nodes(&edge.node)).sum(),
        };
        1 + below
    }

    /// A pattern of 32 segments needs as few nodes as one of 1, and a walk looks at no more edges
    /// than there are.
    #[test]
    fn deep_patterns_take_two_nodes_each_and_a_walk_is_bounded() {
        let mut trie = PatternTrie::<u32>::new();
        for number in 0..1_000_u32 {
            let stars = |bit: u32| if number >> bit & 1 == 1 { "*" } else { "s" };
            let mut segments: Vec<String> = (0..31).map(|bit| stars(bit % 8).to_owned()).collect();
            segments.push(number.to_string());
            trie.insert(&segments.join("."));
        }
        assert!(nodes(&trie.root) <= 2 * 1_000 + 1);
        let topic = vec!["s"; 32].join(".");
        let steps = trie.for_each_match(&topic, |_| ());
        assert!(steps <= 2 * 1_000, "{steps}");
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
            prop_assert!(nodes(&trie.root) <= 2 * trie.len() + 1);
        }
    }
}
