//! The script of the agreement.

use crate::layout::number;
use crate::model::Redis;
use crate::resp::reply;

impl Redis {
    pub(super) fn agree(
        &mut self,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let ([key, nodes, fence], [node, joined, since, rules, limits, lease_ms, terms @ ..]) =
            (keys, arguments)
        else {
            return None;
        };
        let now_ms = self.store.unix_ms;
        let is_joined = **joined == *b"1";
        let at = self.store.field(key, "at").and_then(number);
        let mut differing = Vec::new();
        for term in terms.chunks_exact(2) {
            let known = self.store.value(key, &name(b"s", term[0]));
            if let Some(known) = known.filter(|known| *known != term[1]) {
                differing.extend([term[0].to_vec(), known.to_vec()]);
            }
        }
        let (mut state, mut begins) = ("joined", at.is_none());
        if let (Some(at), false) = (at, differing.is_empty()) {
            if is_joined && self.store.field(key, "set") == Some(b"1") {
                state = "changed";
            } else if is_joined && number(since)? < at {
                begins = true;
            } else {
                let stamp = self.store.field(key, "stamp").unwrap_or_default().to_vec();
                write(("differs", &stamp, now_ms), &differing, &[], out);
                return Some(());
            }
        }
        let until_ms = now_ms + number(lease_ms)?;
        let text = until_ms.to_string();
        self.store.put(nodes, node, Some(text.as_bytes()));
        let before = self.store.fields(key);
        if begins {
            let now = now_ms.to_string();
            let at = if is_joined { since } else { now.as_bytes() };
            self.store.put(key, b"at", Some(at));
            self.store.put(key, b"set", None);
            differing.clear();
        }
        for term in terms.chunks_exact(2) {
            let name = name(b"s", term[0]);
            if begins || self.store.value(key, &name).is_none() {
                self.store.put(key, &name, Some(term[1]));
            }
        }
        let own = [name(b"r", node), name(b"l", node)];
        let is_known =
            |(field, value): (&Vec<u8>, &[u8])| self.store.value(key, field) == Some(value);
        let mut changed = begins || !own.iter().zip([*rules, *limits]).all(is_known);
        for (field, value) in own.iter().zip([rules, limits]) {
            self.store.put(key, field, Some(value));
        }
        let own = (*node, [*rules, *limits]);
        let (others, is_less) = self.others(key, nodes, &before, own);
        changed |= is_less;
        let known = self.store.field(key, "stamp").and_then(number);
        let stamp = match known {
            Some(stamp) if !changed => stamp,
            known => now_ms.max(known.unwrap_or(0) + 1),
        };
        let stamp = stamp.to_string();
        self.store.put(key, b"stamp", Some(stamp.as_bytes()));
        let seen = name(b"a", node);
        self.store.put(key, &seen, Some(stamp.as_bytes()));
        self.store.set_field(fence, "agreed", stamp.as_bytes());
        write((state, stamp.as_bytes(), now_ms), &differing, &others, out);
        Some(())
    }

    /// The other nodes that live and differ, and whether some do not live any more: those are removed.
    fn others(
        &mut self,
        key: &[u8],
        nodes: &[u8],
        before: &[(Vec<u8>, Vec<u8>)],
        (node, [rules, limits]): (&[u8], [&[u8]; 2]),
    ) -> (Vec<Vec<u8>>, bool) {
        let (mut others, mut is_less) = (Vec::new(), false);
        for (field, other_rules) in before {
            let Some(other) = field.strip_prefix(b"r:").filter(|other| *other != node) else {
                continue;
            };
            let ends = self.store.value(nodes, other).and_then(number);
            let part = |kind: &[u8]| {
                self.store
                    .value(key, &name(kind, other))
                    .unwrap_or_default()
            };
            let (other_limits, seen) = (part(b"l").to_vec(), part(b"a").to_vec());
            if ends.is_none_or(|ends| ends < self.store.unix_ms) {
                for kind in [b"r", b"l", b"a"] {
                    self.store.put(key, &name(kind, other), None);
                }
                is_less = true;
            } else if other_rules != rules || other_limits != limits {
                others.extend([other.to_vec(), other_rules.clone(), other_limits, seen]);
            }
        }
        (others, is_less)
    }
}

/// The field of a kind.
fn name(kind: &[u8], name: &[u8]) -> Vec<u8> {
    [kind, b":", name].concat()
}

fn write(
    (state, stamp, now_ms): (&str, &[u8], u64),
    differing: &[Vec<u8>],
    others: &[Vec<u8>],
    out: &mut Vec<u8>,
) {
    reply::array(out, 5);
    reply::text(out, state.as_bytes());
    reply::text(out, stamp);
    reply::text(out, now_ms.to_string().as_bytes());
    for list in [differing, others] {
        reply::array(out, list.len());
        list.iter().for_each(|text| reply::text(out, text));
    }
}
