//! Plain commands.

use crate::redis_model::{ClientId, Redis};
use tidewire_redis::connection::PubSub;
use tidewire_redis::resp::reply;
use tidewire_redis::script::Script;

impl Redis {
    pub(super) fn command(&mut self, id: ClientId, arguments: &[&[u8]]) {
        let name = String::from_utf8_lossy(arguments[0]).to_ascii_uppercase();
        let mut out = Vec::new();
        match name.as_str() {
            "HELLO" => self.hello(&mut out),
            "SELECT" => reply::simple(&mut out, "OK"),
            "PING" => reply::simple(&mut out, "PONG"),
            "INFO" => {
                let role = if self.is_replica { "slave" } else { "master" };
                let run_id = self.run_id();
                let info = format!("run_id:{run_id}\r\nrole:{role}\r\nconnected_slaves:0\r\n");
                reply::text(&mut out, info.as_bytes());
            }
            "PUBLISH" if arguments.len() == 3 => {
                let count = self.publish_to_all(arguments[1], arguments[2]);
                reply::integer(&mut out, count);
            }
            "SPUBLISH" if arguments.len() == 3 => {
                let count = self.publish_in_shard(arguments[1], arguments[2]);
                reply::integer(&mut out, count);
            }
            "CONFIG" => self.config(&mut out),
            "SCRIPT" => self.load(arguments, &mut out),
            "EVALSHA" => self.evaluate(arguments, &mut out),
            "SUBSCRIBE" | "UNSUBSCRIBE" | "PSUBSCRIBE" | "PUNSUBSCRIBE" | "SSUBSCRIBE"
            | "SUNSUBSCRIBE" => {
                self.subscribe(id, &name.to_ascii_lowercase(), &arguments[1..], &mut out);
            }
            "SSCAN" if arguments.len() >= 3 => {
                let members = self.store.fields(arguments[1]);
                reply::array(&mut out, 2);
                reply::text(&mut out, b"0");
                reply::array(&mut out, members.len());
                for (member, _) in members {
                    reply::text(&mut out, &member);
                }
            }
            "XPENDING" if arguments.len() == 7 => self.pending(&arguments[1..], &mut out),
            "HSET" if arguments.len() == 4 => {
                let field = String::from_utf8_lossy(arguments[2]);
                self.store.set_field(arguments[1], &field, arguments[3]);
                reply::integer(&mut out, 1);
            }
            _ => reply::error(&mut out, &format!("ERR unknown command '{name}'")),
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.output.extend_from_slice(&out);
        }
    }

    fn hello(&self, out: &mut Vec<u8>) {
        reply::map(out, 3);
        let mode = if self.is_cluster {
            "cluster"
        } else {
            "standalone"
        };
        for text in ["server", "redis", "version", "7.0.15", "mode", mode] {
            reply::text(out, text.as_bytes());
        }
    }

    fn config(&self, out: &mut Vec<u8>) {
        reply::map(out, 3);
        let appends = if self.syncs_always { "yes" } else { "no" };
        let values = [
            "appendonly",
            appends,
            "appendfsync",
            "always",
            "maxmemory-policy",
            "noeviction",
        ];
        for text in values {
            reply::text(out, text.as_bytes());
        }
    }

    fn load(&mut self, arguments: &[&[u8]], out: &mut Vec<u8>) {
        let text = arguments.get(2).copied().unwrap_or_default();
        // A script that notifies no subscribers is the same in both forms.
        let forms = [PubSub::Plain, PubSub::Sharded];
        let all = forms
            .iter()
            .flat_map(|form| Script::ALL.map(|script| (script, *form)));
        let known = all
            .into_iter()
            .find(|(script, form)| script.source(*form).as_bytes() == text);
        match known {
            Some((script, form)) => {
                let hash = script.hash(form).into_bytes();
                reply::text(out, &hash);
                self.scripts.insert(hash, (script, form));
            }
            None => reply::error(out, "ERR the model does not know this script"),
        }
    }

    fn evaluate(&mut self, arguments: &[&[u8]], out: &mut Vec<u8>) {
        if let Some(error) = self.refusal {
            reply::error(out, error);
            return;
        }
        let hash = arguments.get(1).copied().unwrap_or_default();
        let Some((script, form)) = self.scripts.get(hash).copied() else {
            reply::error(out, "NOSCRIPT No matching script. Please use EVAL.");
            return;
        };
        self.pub_sub = form;
        let count = arguments
            .get(2)
            .and_then(|text| tidewire_redis::layout::number(text))
            .unwrap_or(0);
        let split = usize::try_from(count)
            .ok()
            .and_then(|keys| arguments[3..].split_at_checked(keys));
        match split.map(|(keys, arguments)| self.run(script, keys, arguments, out)) {
            Some(Some(())) => {}
            _ => reply::error(out, "ERR wrong arguments of a script"),
        }
    }

    fn subscribe(&mut self, id: ClientId, kind: &str, names: &[&[u8]], out: &mut Vec<u8>) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        for name in names {
            let set = match kind {
                "psubscribe" | "punsubscribe" => &mut client.globs,
                "ssubscribe" | "sunsubscribe" => &mut client.shard_channels,
                _ => &mut client.channels,
            };
            if kind.contains("un") {
                set.remove(*name);
            } else {
                set.insert(name.to_vec());
            }
            reply::push(out, 3);
            reply::text(out, kind.as_bytes());
            reply::text(out, name);
            let listening = match kind {
                "ssubscribe" | "sunsubscribe" => client.shard_channels.len(),
                _ => client.channels.len() + client.globs.len(),
            };
            reply::integer(out, listening as i64);
        }
    }
}
