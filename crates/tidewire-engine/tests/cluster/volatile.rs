//! Volatile publications, on another server than the one that publishes them.

use crate::common;

use common::cluster::{shared_history, start_connected};
use common::topics::subscribe;
use common::{connect_v1, wait_until};
use serde_json::json;
use tidewire_engine::NewPublication;
use tidewire_testkit::redis::RedisServer;

#[test]
fn who_lags_at_another_server_does_not_get_it() {
    let redis = RedisServer::start("");
    let servers = [(); 2].map(|()| {
        let mut config = shared_history(&redis.url(), 100);
        config.limits.outbox_bytes_max = 256 << 20;
        start_connected(config)
    });
    let mut quick = connect_v1(&servers[1]);
    let mut slow = connect_v1(&servers[1]);
    subscribe(&mut quick, json!(["plain"]));
    subscribe(&mut slow, json!(["plain", "local"]));
    let handles = [servers[0].handle(), servers[1].handle()];
    let filling = NewPublication::new("filling", format!(r#""{}""#, "x".repeat(60_000)));
    for _ in 0..200 {
        wait_until("there is room", || {
            handles[1].publish("local", &filling).is_ok()
        });
    }
    wait_until("it lags", || handles[1].counters().deliveries >= 200);
    let (mut sent, mut seen) = (0, 0);
    while handles[1].counters().deliveries_skipped == 0 {
        sent += 1;
        let news = NewPublication::new("count", format!(r#"{{"n":{sent}}}"#));
        let published = handles[0].publish("plain", &news.as_volatile());
        published.expect("a broker");
        // In this one turn both subscribers are served.
        while seen < sent {
            seen = quick.next_json()["p"]["n"].as_u64().expect("a number");
        }
    }
    let everyone = NewPublication::new("count", r#"{"n":0}"#).as_volatile();
    handles[0].publish_to_everyone(&everyone).expect("a broker");
    wait_until("it is skipped, too", || {
        handles[1].counters().deliveries_skipped == 2
    });
    assert_eq!(quick.next_json()["p"]["n"], 0);
}
