//! Whatever a server sends, a link does not panic, and asks for another connection if it cannot go on.

use proptest::prelude::*;
use tidewire_redis::{Action, Event, Keep, Link, LinkOptions, NodeId, Now, Position, Slot};
use tidewire_testkit::redis_model::{ClientId, Redis};

/// Pieces that a server sends, so that random sequences of them go deep.
const PIECES: &[&[u8]] = &[
    b"+OK\r\n",
    b"-NOSCRIPT no\r\n",
    b"-READONLY no\r\n",
    b"-OOM no\r\n",
    b"-ERR no\r\n",
    b":1\r\n",
    b"_\r\n",
    b"$6\r\nfenced\r\n",
    b"$3\r\ngap\r\n",
    b"$5\r\nbegin\r\n",
    b"$5\r\nstale\r\n",
    b"$9\r\nforgotten\r\n",
    b"$7\r\n5-1 5-2\r\n",
    b"*4\r\n$1\r\n7\r\n:0\r\n$1\r\n1\r\n$1\r\n2\r\n",
    b"*4\r\n$10\r\n4294967295\r\n:1\r\n$20\r\n18446744073709551615\r\n$1\r\n2\r\n",
    b"*2\r\n$3\r\n9-0\r\n$0\r\n\r\n",
    b"*2\r\n$3\r\n9-3\r\n*1\r\n*2\r\n$3\r\n9-3\r\n*2\r\n+d\r\n+x\r\n",
    b"*5\r\n:1\r\n$1\r\n1\r\n$1\r\n2\r\n$0\r\n\r\n$0\r\n\r\n",
    b">3\r\n+subscribe\r\n$9\r\ntw:{0}:t:a\r\n:1\r\n",
    b">3\r\n+message\r\n$9\r\ntw:{0}:t:a\r\n$5\r\n9-4 x\r\n",
    b">3\r\n+message\r\n$9\r\ntw:{0}:t:a\r\n$25\r\n9-18446744073709551615 xx\r\n",
    b">3\r\n+message\r\n$9\r\ntw:{0}:t:a\r\n$4\r\n99-0\r\n",
    b">3\r\n+message\r\n$26\r\ntw:{0}:in:0000000000000001\r\n$2\r\np1\r\n",
    b">4\r\n+pmessage\r\n+x\r\n$9\r\ntw:{0}:t:b\r\n$3\r\n- x\r\n",
    b">3\r\n+message\r\n$9\r\ntw:{0}:t:a\r\n$14\r\n4294967295-1 x\r\n",
    b">3\r\n+message\r\n$9\r\ntw:{0}:t:a\r\n$33\r\n4294967295-18446744073709551615 x\r\n",
    b">3\r\n+message\r\n$9\r\ntw:{0}:t:a\r\n$14\r\n4294967294-1 x\r\n",
    b"*2\r\n$31\r\n4294967295-18446744073709551615\r\n*1\r\n*2\r\n\
      $31\r\n4294967295-18446744073709551615\r\n*2\r\n+d\r\n+x\r\n",
    b"*2\r\n$12\r\n4294967294-9\r\n*1\r\n*2\r\n$12\r\n4294967295-0\r\n*2\r\n+d\r\n+x\r\n",
    b"+lost\r\n",
    b"+joined\r\n",
    b"+new\r\n",
    b"+full\r\n",
    b"+left\r\n",
    b"*4\r\n:9223372036854775807\r\n:1\r\n*0\r\n*3\r\n+9-1\r\n+-\r\n+x\r\n",
    b"*4\r\n:-1\r\n:0\r\n*3\r\n+9-1\r\n+9-4\r\n+x\r\n*0\r\n",
    b"*1\r\n*4\r\n+9-2\r\n+x\r\n:1\r\n:1\r\n",
    b">3\r\n+message\r\n$9\r\ntw:{0}:t:a\r\n$1\r\ng\r\n",
    b">1\r\n:3\r\n",
    b">0\r\n",
];

fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => prop::sample::select(PIECES).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

/// A link and a model, until the link is connected if `is_ready`; then the pieces.
fn feed(is_ready: bool, pieces: &[(u8, Vec<u8>)]) {
    let mut redis = Redis::new(1, 1_700_000_000_000);
    let mut link = Link::new(LinkOptions::default(), NodeId(1), 1);
    let mut clients = [None; 3];
    let keep = Some(Keep {
        publications_max: 5,
        idle_ms: 0,
    });
    link.want(
        &"a".into(),
        keep,
        Now {
            ms: 1,
            unix_ms: 1_700_000_000_000,
        },
    );
    link.watch(&"*".into());
    for ms in 1..600 {
        let now = Now {
            ms,
            unix_ms: 1_700_000_000_000 + ms,
        };
        redis.set_time(now.unix_ms);
        turn(&mut link, &mut redis, &mut clients, now);
        if !is_ready && ms > 3 || link.health().is_connected {
            break;
        }
    }
    assert_eq!(link.health().is_connected, is_ready);
    for (number, (slot, bytes)) in (600..).zip(pieces) {
        let now = Now {
            ms: number * 7,
            unix_ms: 1_700_000_000_000 + number,
        };
        let draft = tidewire_redis::Draft {
            category: tidewire_redis::Category::Update,
            priority: tidewire_redis::Priority::Normal,
            ttl_ms: Some(u64::MAX),
            excluded: None,
            also_excluded: &[],
            volatile: false,
            binary: false,
            t: "t",
            id: Some("i"),
            key: None,
            payload: b"1",
        };
        link.publish(number, &"a".into(), keep, &draft, now);
        link.forget(number, &"a".into(), now);
        link.join_group(&"a".into(), &"g".into());
        link.set_group_room(&"a".into(), &"g".into(), 3);
        let done = Position {
            epoch: 9,
            offset: 1,
        };
        link.finish_work(&"a".into(), &"g".into(), &[done], &[]);
        link.tick(now);
        link.received(Slot::ALL[usize::from(*slot % 3)], bytes, now);
        link.tick(now);
        while let Some(event) = link.poll_event() {
            assert!(!matches!(event, Event::Read { .. }));
        }
        while let Some(action) = link.poll_action() {
            if let Action::Open(slot) = action {
                link.connected(slot, now);
            }
        }
    }
}

fn turn(link: &mut Link, redis: &mut Redis, clients: &mut [Option<ClientId>; 3], now: Now) {
    link.tick(now);
    while let Some(action) = link.poll_action() {
        if let Action::Open(slot) = action {
            clients[slot.index()] = Some(redis.open());
            link.connected(slot, now);
        }
    }
    for slot in Slot::ALL {
        if let Some(client) = clients[slot.index()] {
            let output = std::mem::take(link.output(slot));
            redis.receive(client, &output);
        }
    }
    for slot in Slot::ALL {
        if let Some(client) = clients[slot.index()] {
            link.received(slot, &redis.take_output(client), now);
        }
    }
    while link.poll_event().is_some() {}
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_of_a_server_make_a_link_panic(
        is_ready in any::<bool>(),
        pieces in prop::collection::vec((any::<u8>(), piece()), 0..40),
    ) {
        feed(is_ready, &pieces);
    }
}
