//! The statistics of several servers, added up.

use crate::handle::cluster_queries::ServersStats;
use crate::handle::inspect::BUSIEST_TOPICS;
use crate::model::queries::TopicInfo;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Adds up the statistics of the servers that answered, number by number, and names those that did not answer.
pub(crate) fn sum_of_servers(answers: ServersStats) -> Value {
    let (mut nodes, mut silent) = (Vec::new(), Vec::new());
    let mut sum = Map::new();
    let mut topics: BTreeMap<String, TopicInfo> = BTreeMap::new();
    let mut bounds_s = Value::Null;
    let mut is_ready = true;
    for (names, stats) in answers {
        let Some(mut stats) = stats else {
            silent.extend(names);
            continue;
        };
        is_ready &= stats["ready"] == true;
        // They are those of the histograms, which have a number for each.
        if let Some(timings) = stats["timings"].as_object_mut() {
            bounds_s = timings.remove("bounds_s").unwrap_or_default();
        }
        for part in PARTS {
            add(sum.entry(part).or_insert(Value::Null), &stats[part]);
        }
        let busiest = serde_json::from_value(stats["topics"].take());
        let busiest: Vec<TopicInfo> = busiest.unwrap_or_default();
        for topic in busiest {
            match topics.get_mut(&topic.topic) {
                None => drop(topics.insert(topic.topic.clone(), topic)),
                Some(known) => known.add(&topic),
            }
        }
        nodes.extend(names);
    }
    if let Some(timings) = sum.get_mut("timings") {
        timings["bounds_s"] = bounds_s;
    }
    sum.insert("topics".to_owned(), json!(busiest(topics)));
    sum.insert("ready".to_owned(), json!(is_ready));
    sum.insert("nodes".to_owned(), json!(nodes));
    sum.insert("silent".to_owned(), json!(silent));
    Value::Object(sum)
}

fn busiest(topics: BTreeMap<String, TopicInfo>) -> Vec<TopicInfo> {
    let mut topics: Vec<TopicInfo> = topics.into_values().collect();
    topics.sort_by(|left, right| right.per_s.total_cmp(&left.per_s));
    topics.truncate(BUSIEST_TOPICS);
    topics
}

/// Adds the numbers of a value to those of another one with the same form. A field that only one of them has
/// is kept.
fn add(sum: &mut Value, more: &Value) {
    match (sum, more) {
        (Value::Object(sum), Value::Object(more)) => {
            for (name, value) in more {
                add(sum.entry(name.as_str()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(sum), Value::Array(more)) => {
            for (sum, more) in sum.iter_mut().zip(more) {
                add(sum, more);
            }
        }
        (Value::Number(sum), Value::Number(more)) => {
            let whole = sum.as_u64().zip(more.as_u64());
            let added = match whole.and_then(|(sum, more)| sum.checked_add(more)) {
                Some(added) => Some(added.into()),
                None => {
                    let both = sum.as_f64().zip(more.as_f64());
                    both.and_then(|(sum, more)| serde_json::Number::from_f64(sum + more))
                }
            };
            if let Some(added) = added {
                *sum = added;
            }
        }
        (sum @ Value::Null, more) => *sum = more.clone(),
        _ => {}
    }
}

/// The parts of the statistics whose numbers have a sum.
const PARTS: [&str; 5] = ["total", "usage", "timings", "resident_bytes", "cpu_seconds"];

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(open: u64, topic: &str, per_s: f64) -> Value {
        json!({
            "ready": true,
            "total": { "connections_open": open },
            "usage": { "history_bytes": 10 },
            "timings": { "bounds_s": [0.1, 1.0], "turn": { "counts": [1, 0, open], "sum_s": 0.5 } },
            "resident_bytes": 1000,
            "cpu_seconds": null,
            "shards": [{}],
            "topics": [{ "topic": topic, "pattern": false, "subscribers": 2, "publications": 5, "per_s": per_s }],
        })
    }

    #[test]
    fn numbers_are_added_up_and_silent_servers_are_named() {
        let answers = vec![
            (vec!["a".to_owned()], Some(stats(3, "x", 1.0))),
            (vec!["b".to_owned()], None),
            (vec!["c".to_owned()], Some(stats(4, "x", 2.5))),
            (vec!["d".to_owned()], Some(stats(0, "y", 9.0))),
        ];
        let expected = json!({
            "nodes": ["a", "c", "d"],
            "silent": ["b"],
            "ready": true,
            "total": { "connections_open": 7 },
            "usage": { "history_bytes": 30 },
            "timings": { "bounds_s": [0.1, 1.0], "turn": { "counts": [3, 0, 7], "sum_s": 1.5 } },
            "resident_bytes": 3000,
            "cpu_seconds": null,
            "topics": [
                { "topic": "y", "pattern": false, "subscribers": 2, "publications": 5, "per_s": 9.0 },
                // Both count the same publications.
                { "topic": "x", "pattern": false, "subscribers": 4, "publications": 5, "per_s": 2.5 },
            ],
        });
        assert_eq!(sum_of_servers(answers), expected);
    }

    #[test]
    fn a_server_without_a_broker_has_no_name() {
        let sum = sum_of_servers(vec![(Vec::new(), Some(stats(3, "x", 1.0)))]);
        assert_eq!(sum["total"]["connections_open"], 3);
        assert_eq!((&sum["nodes"], &sum["silent"]), (&json!([]), &json!([])));
    }

    #[test]
    fn a_sum_that_no_whole_number_holds_is_a_near_one() {
        let mut sum = json!(u64::MAX);
        add(&mut sum, &json!(u64::MAX));
        assert_eq!(sum.as_f64(), Some(2.0 * u64::MAX as f64));
    }
}
