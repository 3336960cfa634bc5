//! The script of the agreement.

use crate::redis_model::Redis;
use tidewire_redis::layout::number;
use tidewire_redis::resp::reply;

/// The arguments of the script, but for the terms.
struct Head<'a> {
    node: &'a [u8],
    is_joined: bool,
    since: &'a [u8],
    rules: &'a [u8],
    limits: &'a [u8],
    lease_ms: u64,
    own_names: &'a [u8],
    were_shared: bool,
    may_begin: bool,
    servers: &'a [u8],
}

impl<'a> Head<'a> {
    fn of(arguments: &[&'a [u8]]) -> Option<Self> {
        let [
            node,
            joined,
            since,
            rules,
            limits,
            lease_ms,
            own_names,
            shared,
            may_begin,
            servers,
        ] = *arguments
        else {
            return None;
        };
        Some(Self {
            node,
            is_joined: joined == b"1",
            since,
            rules,
            limits,
            lease_ms: number(lease_ms)?,
            own_names,
            were_shared: shared == b"1",
            may_begin: may_begin == b"1",
            servers,
        })
    }

    /// Whether a term is the cluster's.
    fn is_same(&self, value: &[u8], known: &[u8]) -> bool {
        known == value || !self.own_names.is_empty() && known == [value, MOVED].concat()
    }
}

impl Redis {
    pub(super) fn agree(
        &mut self,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let ([key, nodes, fence, first @ ..], (head, terms)) =
            (keys, arguments.split_at_checked(10)?)
        else {
            return None;
        };
        let head = Head::of(head)?;
        let now_ms = self.store.unix_ms;
        let stamp = self.store.field(key, "stamp").unwrap_or_default().to_vec();
        if let Some(servers) = self.other_servers(key, first, head.servers) {
            let differing = [SERVERS.to_vec(), servers];
            write(("differs", &stamp, now_ms), [&differing, &[]], None, out);
            return Some(());
        }
        let at = self.store.field(key, "at").and_then(number);
        let mut differing = self.differing(key, &head, terms);
        let (mut state, mut begins) = ("joined", at.is_none());
        if let (Some(at), false) = (at, differing.is_empty()) {
            if head.is_joined && self.store.field(key, "set") == Some(b"1") {
                state = "changed";
            } else if head.is_joined && number(head.since)? < at {
                begins = true;
            } else {
                write(("differs", &stamp, now_ms), [&differing, &[]], None, out);
                return Some(());
            }
        }
        if begins && !head.is_joined && !head.may_begin {
            write(("unbegun", b"", now_ms), [&[], &[]], None, out);
            return Some(());
        }
        if let [first] = first {
            self.store.put(first, b"elsewhere", Some(head.servers));
        }
        let text = (now_ms + head.lease_ms).to_string();
        self.store.put(nodes, head.node, Some(text.as_bytes()));
        let before = self.store.fields(key);
        if begins {
            let now = now_ms.to_string();
            let at = match head.is_joined {
                true => head.since,
                false => now.as_bytes(),
            };
            self.store.put(key, b"at", Some(at));
            self.store.put(key, b"set", None);
            differing.clear();
        }
        self.put_terms(key, terms, begins);
        let mut changed = begins | self.put_own(key, &head);
        let own = (head.node, [head.rules, head.limits]);
        let (others, is_less) = self.others(key, nodes, &before, own);
        changed |= is_less;
        let known_at = self.store.field(key, "channels_at").map(<[u8]>::to_vec);
        let channels = self.own_channels((key, nodes), &head, begins);
        let is_new = channels.is_some() && (begins || known_at.is_none());
        changed |= is_new;
        let mut terms = terms.chunks_exact(2);
        if let (true, Some(term)) = (is_new, terms.find(|term| term[0] == RECORDS)) {
            let value = [term[1], MOVED].concat();
            self.store.put(key, &name(b"s", RECORDS), Some(&value));
        }
        let stamp = self.put_stamp(key, fence, &head, changed);
        let head = (state, stamp.as_bytes(), now_ms);
        write(head, [&differing, &others], channels, out);
        Some(())
    }

    /// The servers that this Redis is one of, if it is not one of `servers` or has another place among them. `first` is the
    /// key of the first partition's agreement, if that partition is elsewhere.
    fn other_servers(&self, key: &[u8], first: &[&[u8]], servers: &[u8]) -> Option<Vec<u8>> {
        let own = self.store.field(key, "elsewhere");
        let (None, Some(first)) = (own, first.first()) else {
            return own.map(<[u8]>::to_vec);
        };
        let known = self.store.field(first, "elsewhere");
        let own = || (!self.store.fields(first).is_empty()).then_some(IS_FIRST);
        let known = known.or_else(own).filter(|known| *known != servers);
        known.map(<[u8]>::to_vec)
    }

    /// The terms that are not those of the cluster, each with what the cluster has.
    fn differing(&self, key: &[u8], head: &Head<'_>, terms: &[&[u8]]) -> Vec<Vec<u8>> {
        let has_begun = self.store.field(key, "at").is_some();
        let mut differing = Vec::new();
        for term in terms.chunks_exact(2) {
            let known = self.store.value(key, &name(b"s", term[0]));
            let earlier = EARLIER.iter().find(|(name, _)| *name == term[0]);
            let earlier = earlier.filter(|_| has_begun).map(|(_, value)| *value);
            if let Some(known) = known
                .or(earlier)
                .filter(|known| !head.is_same(term[1], known))
            {
                differing.extend([term[0].to_vec(), known.to_vec()]);
            }
        }
        differing
    }

    fn put_terms(&mut self, key: &[u8], terms: &[&[u8]], begins: bool) {
        for term in terms.chunks_exact(2) {
            let name = name(b"s", term[0]);
            if begins || self.store.value(key, &name).is_none() {
                self.store.put(key, &name, Some(term[1]));
            }
        }
    }

    /// Stores the stamp, another one if something has changed.
    fn put_stamp(&mut self, key: &[u8], fence: &[u8], head: &Head<'_>, changed: bool) -> String {
        let stamp = match self.store.field(key, "stamp").and_then(number) {
            Some(stamp) if !changed => stamp,
            known => self.store.unix_ms.max(known.unwrap_or(0) + 1),
        };
        let stamp = stamp.to_string();
        self.store.put(key, b"stamp", Some(stamp.as_bytes()));
        let seen = name(b"a", head.node);
        self.store.put(key, &seen, Some(stamp.as_bytes()));
        self.store.set_field(fence, "agreed", stamp.as_bytes());
        stamp
    }

    /// Stores what a node reports about itself. Returns whether its rules or limits have changed.
    fn put_own(&mut self, key: &[u8], head: &Head<'_>) -> bool {
        let own = [
            (name(b"r", head.node), head.rules),
            (name(b"l", head.node), head.limits),
        ];
        let is_known =
            |(field, value): &(Vec<u8>, &[u8])| self.store.value(key, field) == Some(*value);
        let is_new = !own.iter().all(is_known);
        for (field, value) in own {
            self.store.put(key, &field, Some(value));
        }
        if !head.own_names.is_empty() {
            self.store.put(key, &name(b"c", head.node), Some(b"1"));
        }
        is_new
    }

    /// For how long channels have had names of the database's own; they get them when all nodes know them.
    fn own_channels(
        &mut self,
        (key, nodes): (&[u8], &[u8]),
        head: &Head<'_>,
        begins: bool,
    ) -> Option<u64> {
        let now_ms = self.store.unix_ms;
        let field = |name| self.store.field(key, name).filter(|_| !begins);
        if head.own_names.is_empty() {
            return None;
        }
        if let Some(since) = field("channels_at").and_then(number) {
            return Some(now_ms.saturating_sub(since));
        }
        let mut wait = field("channels_wait").and_then(number).unwrap_or(0);
        if begins && head.were_shared {
            wait = now_ms + head.lease_ms;
            let text = wait.to_string();
            self.store.put(key, b"channels_wait", Some(text.as_bytes()));
        }
        let alive = self.store.fields(nodes).into_iter();
        let alive = alive.filter(|(_, ends)| number(ends).is_some_and(|ends| ends >= now_ms));
        let alive: Vec<_> = alive.map(|(other, _)| other).collect();
        let knows = |other: &Vec<u8>| {
            other.as_slice() == head.node || self.store.value(key, &name(b"c", other)).is_some()
        };
        let all_know = now_ms >= wait && alive.iter().all(knows);
        if begins {
            self.store.put(key, b"channels", None);
            self.store.put(key, b"channels_at", None);
        }
        if !all_know {
            return None;
        }
        let since = if begins || alive.len() == 1 {
            0
        } else {
            now_ms
        };
        let text = since.to_string();
        self.store.put(key, b"channels", Some(head.own_names));
        self.store.put(key, b"channels_at", Some(text.as_bytes()));
        Some(now_ms - since)
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
                for kind in [b"r", b"l", b"a", b"c"] {
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
    lists: [&[Vec<u8>]; 2],
    channels: Option<u64>,
    out: &mut Vec<u8>,
) {
    reply::array(out, 6);
    reply::text(out, state.as_bytes());
    reply::text(out, stamp);
    reply::text(out, now_ms.to_string().as_bytes());
    for list in lists {
        reply::array(out, list.len());
        list.iter().for_each(|text| reply::text(out, text));
    }
    let channels = channels.map(|for_ms| for_ms.to_string());
    reply::text(out, channels.unwrap_or_default().as_bytes());
}

/// What a cluster with channels of its own has behind its protocol.
const MOVED: &[u8] = b" with channels of its own";

/// What servers of earlier versions have in common.
const EARLIER: [(&[u8], &[u8]); 2] = [(b"broker_partitions", b"1"), (SERVERS, b"")];

/// The name of the list of servers, and its value for a Redis that has the first partition.
const SERVERS: &[u8] = b"the list of brokers";
const IS_FIRST: &[u8] = b"a first partition";

/// The name of the protocol.
const RECORDS: &[u8] = b"protocol of records";
