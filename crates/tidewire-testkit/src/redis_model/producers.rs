//! The scripts about producers.

use crate::redis_model::Redis;
use tidewire_redis::layout::number;
use tidewire_redis::resp::reply;

impl Redis {
    pub(super) fn open_producer(
        &mut self,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let ([fence, producer], [run, least, epoch, keep_ms, waited_ms, instance, attempt]) =
            (keys, arguments)
        else {
            return None;
        };
        if !self.is_fenced(fence, run, least) {
            reply::text(out, b"fenced");
            return Some(());
        }
        let known = |field| self.store.field(producer, field).map(<[u8]>::to_vec);
        let before = known("o").as_deref().and_then(number).unwrap_or(0);
        let waited_ms = number(waited_ms)?;
        let asked_ms = self.store.unix_ms.saturating_sub(waited_ms);
        let is_same = !instance.is_empty() && known("i").as_deref() == Some(*instance);
        let is_late = match is_same {
            true => number(attempt) < known("a").as_deref().and_then(number),
            false => waited_ms > 0 && before > asked_ms,
        };
        if is_late {
            reply::array(out, 3);
            for part in [known("e")?.as_slice(), &known("n")?, b"0"] {
                reply::text(out, part);
            }
            return Some(());
        }
        let opening = asked_ms.max(before + 1).to_string();
        let (epoch, last) = match (known("e"), known("n"), known("f")) {
            (Some(epoch), Some(last), Some(kept)) if kept == *least => (epoch, last),
            _ => (epoch.to_vec(), b"0".to_vec()),
        };
        self.set_producer(producer, [&epoch, &last, least, opening.as_bytes()]);
        self.store.set_field(producer, "i", instance);
        self.store.set_field(producer, "a", attempt);
        self.store.keep(producer, number(keep_ms)?);
        reply::array(out, 3);
        for part in [epoch.as_slice(), &last, opening.as_bytes()] {
            reply::text(out, part);
        }
        Some(())
    }

    pub(super) fn keep_producers(
        &mut self,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let ([fence, producers @ ..], [run, least, keep_ms, rest @ ..]) = (keys, arguments) else {
            return None;
        };
        if !self.is_fenced(fence, run, least) {
            reply::text(out, b"fenced");
            return Some(());
        }
        reply::array(out, producers.len());
        for (producer, told) in producers.iter().zip(rest.chunks_exact(3)) {
            let [opening, epoch, last] = told else {
                return None;
            };
            let known = self.store.field(producer, "o").and_then(number);
            let is_held = known <= number(opening);
            if is_held {
                self.set_producer(producer, [epoch, last, least, opening]);
                self.store.keep(producer, number(keep_ms)?);
            }
            reply::integer(out, i64::from(is_held));
        }
        Some(())
    }

    fn set_producer(&mut self, key: &[u8], values: [&[u8]; 4]) {
        for (field, value) in ["e", "n", "f", "o"].into_iter().zip(values) {
            self.store.set_field(key, field, value);
        }
    }
}
