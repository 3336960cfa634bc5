use super::*;
use crate::auth::key_set::{KeySetSource, Selection};

/// The key of RFC 8037, appendix A.2, under this name.
fn set_of(kid: &str) -> String {
    format!(
        r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"{kid}","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}}]}}"#
    )
}

fn at(ms: u64) -> Now {
    Now {
        monotonic_ms: ms,
        unix_ms: ms + 1,
        steady_unix_ms: ms + 1,
    }
}

/// Fetches of `https://a.example/keys`, every 300 seconds.
fn fetch() -> Fetch {
    let url = HttpUrl::parse("https://a.example/keys?token=x").unwrap();
    let source = KeySetUrl::new(url);
    let set = KeySet::new(&KeySetSource::Url(Box::new(source.clone()))).unwrap();
    Fetch::new(Arc::new(set), &source)
}

fn answer(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// Gives a fetch that is due this answer.
fn answered(fetch: &mut Fetch, answer: &[u8], ms: u64) {
    assert_eq!(fetch.turn(at(ms)), Some(Action::Open));
    assert!(matches!(fetch.connected(), Some(Action::Send(_))));
    assert_eq!(
        fetch.received(answer, at(ms)),
        (answer.len(), Some(Action::Close))
    );
    assert!(matches!(fetch.stage, Stage::Idle));
}

fn knows(fetch: &Fetch, kid: &str) -> bool {
    matches!(fetch.set.select("EdDSA", Some(kid)), Selection::Key(..))
}

#[test]
fn keys_come_and_are_replaced_at_the_interval() {
    let mut fetch = fetch();
    assert!(!fetch.set.is_loaded());
    assert_eq!(fetch.turn(at(5)), Some(Action::Open));
    assert_eq!(fetch.turn(at(5)), None);
    let Some(Action::Send(request)) = fetch.connected() else {
        panic!("no request");
    };
    let request = String::from_utf8(request).unwrap();
    assert!(request.starts_with("GET /keys?token=x HTTP/1.1\r\nHost: a.example\r\n"));
    let bytes = answer(&set_of("one"));
    let mut given = 0;
    // Byte by byte, as a slow server sends it.
    for end in 1..bytes.len() {
        let (used, action) = fetch.received(&bytes[given..end], at(6));
        assert_eq!(action, None);
        given += used;
    }
    assert!(!fetch.set.is_loaded());
    let rest = &bytes[given..];
    assert_eq!(
        fetch.received(rest, at(7)),
        (rest.len(), Some(Action::Close))
    );
    assert!(fetch.set.is_loaded() && knows(&fetch, "one"));
    assert_eq!(fetch.set.counts.fetched_unix_ms.load(Ordering::Relaxed), 8);
    assert_eq!(fetch.deadline_ms(), 300_007);
    assert_eq!(fetch.turn(at(300_006)), None);
    answered(&mut fetch, &answer(&set_of("two")), 300_007);
    assert!(knows(&fetch, "two") && !knows(&fetch, "one"));
}

#[test]
fn keys_stay_whatever_goes_wrong() {
    let mut fetch = fetch();
    answered(&mut fetch, &answer(&set_of("one")), 0);
    let long = format!("{{\"keys\":[],\"more\":\"{}\"}}", "x".repeat(SET_BYTES_MAX));
    let mut ms = 300_000;
    for bad in [
        b"HTTP/1.1 302 Found\r\nLocation: https://b.example/\r\nContent-Length: 0\r\n\r\n".to_vec(),
        b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n".to_vec(),
        b"no HTTP at all\r\n\r\n".to_vec(),
        answer("[]"),
        answer("{\"keys\":[]}"),
        answer(&long),
    ] {
        answered(&mut fetch, &bad, ms);
        assert!(knows(&fetch, "one"));
        ms = fetch.deadline_ms();
    }
    assert_eq!(fetch.set.counts.failed.load(Ordering::Relaxed), 6);
    assert_eq!(ms, 300_000 + (1 + 2 + 4 + 8 + 16 + 32) * 1_000);
    answered(&mut fetch, &answer(&set_of("two")), ms);
    assert!(knows(&fetch, "two"));
    assert_eq!(fetch.deadline_ms(), ms + 300_000);
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let mut fetch = fetch();
    assert_eq!(fetch.turn(at(0)), Some(Action::Open));
    assert_eq!(fetch.deadline_ms(), PATIENCE_MS);
    assert_eq!(fetch.turn(at(PATIENCE_MS)), Some(Action::Close));
    let next = fetch.deadline_ms();
    assert_eq!(next, PATIENCE_MS + FETCH_RETRY_MS);
    assert_eq!(fetch.turn(at(next)), Some(Action::Open));
    fetch.connected();
    assert_eq!(fetch.turn(at(next + PATIENCE_MS)), Some(Action::Close));
    // Late bytes of a connection that is closed change nothing.
    let late = answer(&set_of("one"));
    assert_eq!(fetch.received(&late, at(next)).1, Some(Action::Close));
    assert!(!fetch.set.is_loaded());
}

#[test]
fn an_answer_may_end_with_its_connection() {
    let mut fetch = fetch();
    fetch.turn(at(0));
    fetch.connected();
    let bytes = format!("HTTP/1.1 200 OK\r\n\r\n{}", set_of("one"));
    assert_eq!(fetch.received(bytes.as_bytes(), at(0)), (bytes.len(), None));
    fetch.closed("the server closed the connection", true, at(0));
    assert!(knows(&fetch, "one"));
}

#[test]
fn an_unknown_name_fetches_once_in_half_a_minute() {
    let mut fetch = fetch();
    answered(&mut fetch, &answer(&set_of("one")), 1_000);
    for _ in 0..1_000 {
        assert!(!knows(&fetch, "two"));
    }
    assert_eq!(fetch.turn(at(2_000)), None);
    assert_eq!(fetch.deadline_ms(), 31_000);
    answered(&mut fetch, &answer(&set_of("two")), 31_000);
    assert!(knows(&fetch, "two"));
    assert_eq!(fetch.deadline_ms(), 331_000);
    // Nothing has been fetched for longer: at once.
    assert!(!knows(&fetch, "three"));
    assert_eq!(fetch.turn(at(100_000)), Some(Action::Open));
    // A key that is asked for meanwhile is remembered, and its fetch does not begin earlier.
    assert!(!knows(&fetch, "four"));
    assert_eq!(fetch.turn(at(100_001)), None);
    fetch.connected();
    fetch.received(&answer(&set_of("three")), at(100_002));
    assert_eq!(fetch.deadline_ms(), 130_000);
}

#[test]
fn a_reload_fetches_at_once_and_a_stop_ends() {
    let mut fetch = fetch();
    answered(&mut fetch, &answer(&set_of("one")), 0);
    fetch.set.wish(Wish::Early);
    fetch.set.wish(Wish::Now);
    answered(&mut fetch, &answer(&set_of("two")), 10);
    assert!(!fetch.is_stopped());
    fetch.set.stop();
    assert!(fetch.is_stopped());
}
