//! Subscriptions of the application, so that a new connection can subscribe again.

use crate::request::SubscribeOptions;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    topics: BTreeMap<String, Arc<SubscribeOptions>>,
    /// Patterns among them that have a filter or may lag.
    loose_patterns: usize,
    /// Topics whose missed publications have been asked for on this connection.
    recovering: HashSet<String>,
}

impl Subscriptions {
    pub(crate) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    pub(crate) fn topics(&self) -> Vec<String> {
        self.topics.keys().cloned().collect()
    }

    pub(crate) fn options(&self, topic: &str) -> Option<&Arc<SubscribeOptions>> {
        self.topics.get(topic)
    }

    /// The server has given the topic.
    pub(crate) fn insert(&mut self, topic: &str, options: &Arc<SubscribeOptions>) {
        if let Some(old) = self.topics.insert(topic.to_owned(), options.clone()) {
            self.loose_patterns -= usize::from(is_loose_pattern(topic, &old));
        }
        self.loose_patterns += usize::from(is_loose_pattern(topic, options));
        self.recovering.remove(topic);
    }

    /// The topic is not subscribed any more.
    pub(crate) fn remove(&mut self, topic: &str) {
        if let Some(old) = self.topics.remove(topic) {
            self.loose_patterns -= usize::from(is_loose_pattern(topic, &old));
        }
        self.recovering.remove(topic);
    }

    /// Whether the offsets of the topic's publications follow one another, so that one that is missing is a gap.
    pub(crate) fn is_gapless(&self, topic: &str) -> bool {
        match self.topics.get(topic) {
            Some(options) => options.is_gapless(),
            None => self.loose_patterns == 0,
        }
    }

    /// Whether missed publications of the topic can be asked for now; they count as asked for.
    pub(crate) fn start_recovery(&mut self, topic: &str) -> bool {
        let wanted = self
            .topics
            .get(topic)
            .is_some_and(|options| options.recover && options.is_gapless());
        wanted && self.recovering.insert(topic.to_owned())
    }

    /// Everything, in requests of topics that have the same options.
    pub(crate) fn requests(&mut self) -> Vec<(Arc<SubscribeOptions>, Vec<String>)> {
        self.recovering.clear();
        let mut groups: HashMap<*const SubscribeOptions, usize> = HashMap::new();
        let mut requests: Vec<(Arc<SubscribeOptions>, Vec<String>)> = Vec::new();
        for (topic, options) in &self.topics {
            let last = groups.entry(Arc::as_ptr(options)).or_insert(usize::MAX);
            match requests.get_mut(*last) {
                Some((_, topics)) if topics.len() < options.topics_per_request() => {
                    topics.push(topic.clone());
                }
                _ => {
                    *last = requests.len();
                    requests.push((options.clone(), vec![topic.clone()]));
                }
            }
        }
        requests
    }
}

/// Whether a name has wildcards (section 19.1 of the protocol).
pub(crate) fn is_pattern(topic: &str) -> bool {
    topic.contains(['*', '>'])
}

fn is_loose_pattern(topic: &str, options: &SubscribeOptions) -> bool {
    is_pattern(topic) && !options.is_gapless()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_one_set_of_options_and_a_thousand_topics_at_most() {
        let mut subscriptions = Subscriptions::default();
        let plain = Arc::new(SubscribeOptions::default());
        let other = Arc::new(SubscribeOptions {
            recover: false,
            ..SubscribeOptions::default()
        });
        for index in 0..2_500 {
            subscriptions.insert(&format!("a{index}"), &plain);
        }
        subscriptions.insert("b", &other);
        let mut sizes: Vec<_> = subscriptions
            .requests()
            .iter()
            .map(|(options, topics)| (options.recover, topics.len()))
            .collect();
        sizes.sort_unstable();
        assert_eq!(
            sizes,
            [(false, 1), (true, 500), (true, 1_000), (true, 1_000)]
        );
    }

    #[test]
    fn a_filtered_pattern_makes_gaps_of_unknown_topics_meaningless() {
        let mut subscriptions = Subscriptions::default();
        let plain = Arc::new(SubscribeOptions::default());
        let filtered = Arc::new(SubscribeOptions {
            filter: Some(serde_json::json!({"a": 1})),
            ..SubscribeOptions::default()
        });
        subscriptions.insert("a", &plain);
        subscriptions.insert("b", &filtered);
        assert!(subscriptions.is_gapless("a") && subscriptions.is_gapless("x"));
        assert!(!subscriptions.is_gapless("b"));
        subscriptions.insert("x.*", &filtered);
        assert!(subscriptions.is_gapless("a") && !subscriptions.is_gapless("x.y"));
        subscriptions.insert("x.*", &plain);
        assert!(subscriptions.is_gapless("x.y"));
        subscriptions.remove("x.*");
        assert!(subscriptions.is_gapless("x.y"));
    }

    #[test]
    fn recovery_is_asked_for_once_until_it_is_answered() {
        let mut subscriptions = Subscriptions::default();
        let plain = Arc::new(SubscribeOptions::default());
        subscriptions.insert("a", &plain);
        assert!(subscriptions.start_recovery("a") && !subscriptions.start_recovery("a"));
        subscriptions.insert("a", &plain);
        assert!(subscriptions.start_recovery("a"));
        assert!(!subscriptions.start_recovery("unknown"));
    }
}
