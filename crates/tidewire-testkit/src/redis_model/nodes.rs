//! The scripts about nodes and presence. Sets and sorted sets are hashes here.

use crate::redis_model::Redis;
use crate::redis_model::store::Stored;
use tidewire_redis::layout::{NodeId, number};
use tidewire_redis::resp::reply;

/// The names of a topic: its members, the number of nodes of each user, the channel.
struct Names([Vec<u8>; 3]);

impl Names {
    fn of(prefixes: &[&[u8]], topic: &[u8]) -> Option<Self> {
        let name = |index: usize| Some([prefixes.get(index)?, topic].concat());
        Some(Self([name(0)?, name(1)?, name(2)?]))
    }
}

impl Redis {
    pub(super) fn lease(
        &mut self,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let ([lease, fence, channel, nodes, groups, idle], [lease_ms, probe, node, info]) =
            (keys, arguments)
        else {
            return None;
        };
        let held = self.store.text(lease).is_some();
        let now_ms = self.store.unix_ms;
        let until_ms = now_ms + number(lease_ms)?;
        self.store
            .set(lease, Stored::Text(info.to_vec()), Some(until_ms));
        self.tell(channel, &[b"p", *probe].concat());
        self.store
            .put(nodes, node, Some(until_ms.to_string().as_bytes()));
        let mut ended = self.store.fields(nodes);
        ended.retain(|(_, at)| number(at).is_some_and(|at| at < now_ms));
        ended.sort_by_key(|(node, at)| (number(at), node.clone()));
        ended.truncate(16);
        self.end_idle_groups(groups, idle)?;
        reply::array(out, 7);
        reply::integer(out, i64::from(held));
        self.time(out);
        for field in ["run", "least"] {
            reply::text(out, self.store.field(fence, field).unwrap_or_default());
        }
        reply::array(out, ended.len());
        for (node, _) in ended {
            reply::text(out, &node);
        }
        let agreed = self.store.field(fence, "agreed").unwrap_or_default();
        reply::text(out, agreed);
        Some(())
    }

    pub(super) fn presence(
        &mut self,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let ([lease, writer, own], [node, generation, rest @ ..]) = (keys, arguments) else {
            return None;
        };
        if self.store.text(lease).is_none() {
            reply::text(out, b"lost");
            return Some(());
        }
        let known = self.store.field(writer, "c").and_then(number);
        if known.unwrap_or(0) > number(generation)? {
            reply::text(out, b"stale");
            return Some(());
        }
        let (prefixes, changes) = rest.split_at_checked(3)?;
        for change in changes.chunks_exact(4) {
            let [topic, user, connections, data] = change else {
                return None;
            };
            let names = Names::of(prefixes, topic)?;
            self.set_member(&names, (node, user), number(connections)?, data);
            let length = topic.len().to_string();
            let name = [length.as_bytes(), b":", topic, user].concat();
            let value: Option<&[u8]> = (**connections != *b"0").then_some(b"");
            self.store.put(own, &name, value);
        }
        reply::text(out, b"ok");
        Some(())
    }

    /// The effect of `set_member`.
    fn set_member(
        &mut self,
        names: &Names,
        (node, user): (&[u8], &[u8]),
        connections: u64,
        data: &[u8],
    ) {
        let Names([members, users, channel]) = names;
        let field = [node, user].concat();
        let before = self.store.value(members, &field).map(<[u8]>::to_vec);
        let parts: Option<[Vec<u8>; 3]> = before.as_ref().and_then(|value| {
            let parts = value.splitn(3, |byte| *byte == b' ').map(<[u8]>::to_vec);
            parts.collect::<Vec<_>>().try_into().ok()
        });
        let had = parts
            .as_ref()
            .and_then(|parts| number(&parts[0]))
            .unwrap_or(0);
        let is_same = parts.as_ref().is_some_and(|parts| parts[2] == data);
        if had == connections && (connections == 0 || is_same) {
            return;
        }
        let last = self.store.field(members, "v").and_then(number).unwrap_or(0);
        let version = (last + 1).max(self.store.unix_ms * 1_000);
        let text = version.to_string();
        let nodes = self.store.value(users, user).and_then(number).unwrap_or(0);
        let (mut seen, mut value) = ("c", Vec::new());
        if connections == 0 {
            self.store.put(members, &field, None);
            let left = nodes.saturating_sub(1);
            let kept = left.to_string();
            self.store
                .put(users, user, (left > 0).then_some(kept.as_bytes()));
            if left == 0 {
                seen = "l";
            }
        } else {
            let at = match parts {
                Some([_, at, _]) if is_same => at,
                _ => text.clone().into_bytes(),
            };
            if !is_same && !data.is_empty() {
                seen = "d";
            }
            value = [connections.to_string().as_bytes(), b" ", &at, b" ", data].concat();
            self.store.put(members, &field, Some(&value));
            if had == 0 {
                let more = (nodes + 1).to_string();
                self.store.put(users, user, Some(more.as_bytes()));
                if nodes == 0 {
                    seen = "j";
                }
            }
        }
        self.store.put(members, b"v", Some(text.as_bytes()));
        match self.store.fields(members).len() {
            1 => self.store.keep(members, 60_000),
            2 if had == 0 => self.store.persist(members),
            _ => {}
        }
        let head = format!("u{version} {last} {seen} {} ", field.len());
        let message = [head.as_bytes(), &field, &value].concat();
        self.tell(channel, &message);
    }

    pub(super) fn roster(&mut self, keys: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
        let [members] = keys else { return None };
        let before_now = self.store.unix_ms * 1_000 - 1;
        let version = self.store.field(members, "v").map(<[u8]>::to_vec);
        let version = version.unwrap_or_else(|| before_now.to_string().into_bytes());
        let fields = self.store.fields(members);
        reply::array(out, 3);
        reply::text(out, &version);
        reply::text(out, b"0");
        reply::array(out, 2 * fields.len());
        for (field, value) in fields {
            reply::text(out, &field);
            reply::text(out, &value);
        }
        Some(())
    }

    pub(super) fn sweep(
        &mut self,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let ([nodes, lease, own, own_groups, groups, idle], [node, count, prefixes @ .., ends]) =
            (keys, arguments)
        else {
            return None;
        };
        if **ends == *b"1" {
            self.store.remove(lease);
        } else if self.store.text(lease).is_some() {
            reply::text(out, b"alive");
            return Some(());
        }
        if self.store.value(nodes, node).is_none() {
            reply::text(out, b"gone");
            return Some(());
        }
        self.store.put(nodes, node, Some(b"0"));
        let all = self.store.fields(own);
        let count = usize::try_from(number(count)?).ok()?;
        for (name, _) in all.iter().take(count) {
            let colon = name.iter().position(|byte| *byte == b':')?;
            let length = usize::try_from(number(&name[..colon])?).ok()?;
            let (topic, user) = name[colon + 1..].split_at_checked(length)?;
            self.store.put(own, name, None);
            let names = Names::of(prefixes, topic)?;
            self.set_member(&names, (node, user), 0, b"");
        }
        let own_groups_before = self.store.fields(own_groups);
        for (name, _) in own_groups_before.iter().take(10) {
            let colon = name.iter().position(|byte| *byte == b':')?;
            let length = usize::try_from(number(&name[..colon])?).ok()?;
            let topic = name.get(colon + 1..colon + 1 + length)?;
            let channel = [prefixes.get(2)?, topic].concat();
            self.leave_group((groups, idle, own_groups), &channel, node, name)?;
        }
        if all.len() > count || !self.store.fields(own_groups).is_empty() {
            reply::text(out, b"more");
            return Some(());
        }
        self.store.put(nodes, node, None);
        reply::text(out, b"swept");
        Some(())
    }

    pub(super) fn nodes(
        &mut self,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let ([nodes], [leases, count]) = (keys, arguments) else {
            return None;
        };
        let mut all = self.store.fields(nodes);
        all.sort_by_key(|(node, at)| (number(at), node.clone()));
        all.truncate(usize::try_from(number(count)?).ok()?);
        all.sort();
        let found = all.into_iter().filter_map(|(node, _)| {
            let info = self.store.text(&[leases, node.as_slice()].concat())?;
            Some((node, info.to_vec()))
        });
        let found: Vec<_> = found.collect();
        reply::array(out, 2 * found.len());
        for (node, info) in found {
            reply::text(out, &node);
            reply::text(out, &info);
        }
        Some(())
    }

    /// Whether a node is in the list of nodes at `key`. A node that has ended stays there until another one removes it.
    #[must_use]
    pub fn lists_node(&self, key: &[u8], node: NodeId) -> bool {
        let name = node.to_string();
        let nodes = self.store.fields(key);
        nodes.iter().any(|(field, _)| field == name.as_bytes())
    }

    /// The users on a topic of each node, as `<node> <user>`, with their connections.
    #[must_use]
    pub fn members(&self, key: &[u8]) -> Vec<(String, u64)> {
        let fields = self.store.fields(key).into_iter();
        let members = fields.filter(|(field, _)| field != b"v");
        let shown = members.map(|(field, value)| {
            let (node, user) = field.split_at(field.len().min(16));
            let texts = [node, user].map(|part| String::from_utf8_lossy(part).into_owned());
            let connections = value.split(|byte| *byte == b' ').next().and_then(number);
            (texts.join(" "), connections.unwrap_or(0))
        });
        shown.collect()
    }
}
