//! Compressed and encrypted messages are measured as they are, and servers that lie about them found out.

#![allow(clippy::unwrap_used)]

use crate::common;
use crate::schema;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::layer::{Answer, Skill};
use common::{Conduct, LIMIT, Server};
use tidewire_load::options::load::LoadOptions;
use tidewire_load::options::matching::matching;
use tidewire_load::plan::bench::TestKind;
use tidewire_load::plan::load;
use tidewire_load::plan::run::{BenchOptions, RunError, run};
use tidewire_load::report::{TestResult, Verdict};
use tidewire_load::worker::target::Target;
use tidewire_load::worker::websocket::layer::Layer;
use tidewire_load::worker::websocket::profile::Profile;

fn options(server: &Server, test: TestKind, profile: Profile, layer: Layer) -> BenchOptions {
    let mut options = BenchOptions::new(Target::parse(&server.url()).unwrap());
    options.profile = profile;
    options.layer = layer;
    options.tests = vec![test];
    options.tiers = vec![CONNECTIONS as usize];
    options.duration = Duration::from_millis(300);
    options.pings_per_connection = 5;
    options.echo_sizes = vec![175, 1_024];
    options.sizes = vec![1_024, 16_384];
    options.threads = 1;
    options.timeouts.close_ms = 500;
    options
}

fn results(options: &BenchOptions) -> Vec<TestResult> {
    let report = run(options, &mut (), &AtomicBool::new(false)).unwrap();
    let written = serde_json::to_value(&report).unwrap();
    assert_eq!(schema::violations(&written), Vec::<String>::new());
    report.results
}

/// The results of a test on a server that answers in this way.
fn bench(test: TestKind, profile: Profile, layer: Layer, answer: Answer) -> Vec<TestResult> {
    let conduct = match test {
        TestKind::Echo => Conduct::Echo,
        _ => Conduct::Sink,
    };
    let server = Server::skilled(conduct, profile == Profile::V1, Skill { layer, answer });
    let results = results(&options(&server, test, profile, layer));
    let offered = results.iter().filter_map(|result| result.messages);
    let received = server.received.load(Ordering::Relaxed);
    assert_eq!(
        received,
        offered.map(|messages| messages.offered).sum::<u64>()
    );
    results
}

#[track_caller]
fn assert_honest(result: &TestResult) {
    assert!(result.verdict < Verdict::Failed, "{result:#?}");
    assert_eq!(
        (result.connected, result.failed),
        (Some(CONNECTIONS), Some(0))
    );
    if let Some(messages) = result.messages {
        assert_eq!((messages.confirmed, messages.lost), (messages.offered, 0));
        assert!(messages.offered > 100, "{messages:?}");
    }
}

#[track_caller]
fn assert_failed(results: &[TestResult], note: &str) {
    for result in results {
        assert_eq!(result.verdict, Verdict::Failed, "{result:#?}");
    }
    let notes = &results[0].notes;
    assert!(notes.iter().any(|line| line.contains(note)), "{notes:#?}");
}

#[test]
fn compressed_messages_are_confirmed_and_their_size_told() {
    for profile in [Profile::Raw, Profile::V1] {
        for test in [TestKind::Echo, TestKind::Throughput, TestKind::SizeMatrix] {
            for result in bench(test, profile, Layer::Deflate, Answer::Honest) {
                assert_honest(&result);
                assert_eq!(result.extensions, ["permessage-deflate"]);
                let (wire, payload) = (result.wire_bytes.unwrap(), result.payload_bytes.unwrap());
                if payload >= 1_024 {
                    assert!(wire < payload as f64 * 0.6, "{wire} of {payload}");
                }
            }
        }
    }
}

#[test]
fn a_server_may_answer_uncompressed() {
    for profile in [Profile::Raw, Profile::V1] {
        for result in bench(
            TestKind::Echo,
            profile,
            Layer::Deflate,
            Answer::Uncompressed,
        ) {
            assert_honest(&result);
        }
    }
}

#[test]
fn a_server_without_the_extension_fails_the_connections() {
    let server = Server::raw(Conduct::Echo);
    let options = options(&server, TestKind::Echo, Profile::Raw, Layer::Deflate);
    let results = results(&options);
    assert_failed(
        &results,
        "20 ended: the server does not accept permessage-deflate",
    );
    assert_eq!(
        (results[0].connected, results[0].failed),
        (Some(0), Some(CONNECTIONS))
    );
}

/// A load of messages with a layer, which are answered by a field.
fn load(server: &Server, profile: Profile, layer: Layer) -> TestResult {
    let mut options = LoadOptions {
        connections: 4,
        threads: 1,
        requests: Some(MESSAGES),
        ..LoadOptions::new(&server.url())
    };
    options.messages.deflate = layer == Layer::Deflate;
    options.messages.encrypt = layer == Layer::Encryption;
    options.messages.profile = Some(profile);
    options.messages.matching = matching("field:id").unwrap();
    let text = format!(r#"{{"id":{{{{seq}}}},"text":"{}"}}"#, "tide ".repeat(200));
    options.messages.message = Some(text);
    let plan = options.plan().unwrap();
    let mut report = load::run(&plan, &mut (), &AtomicBool::new(false)).unwrap();
    let written = serde_json::to_value(&report).unwrap();
    assert_eq!(schema::violations(&written), Vec::<String>::new());
    report.results.remove(0)
}

#[test]
fn a_load_compresses_its_messages_and_reads_compressed_replies() {
    let layer = Layer::Deflate;
    for profile in [Profile::Raw, Profile::V1] {
        for answer in [Answer::Honest, Answer::Uncompressed] {
            let skill = Skill { layer, answer };
            let server = Server::skilled(Conduct::Echo, profile == Profile::V1, skill);
            let result = load(&server, profile, layer);
            let requests = result.load.requests.unwrap();
            assert_eq!(requests.succeeded, MESSAGES, "{:?}", result.load.errors);
            assert_eq!(result.extensions, ["permessage-deflate"]);
            let bytes = result.load.bytes.unwrap();
            // The text of each message alone has a thousand bytes.
            assert!(bytes.sent.body > MESSAGES * 1_000, "{bytes:?}");
            assert!(bytes.sent.wire < bytes.sent.body / 2, "{bytes:?}");
            let is_small = bytes.received.wire < bytes.received.body / 2;
            assert_eq!(is_small, answer == Answer::Honest, "{bytes:?}");
        }
    }
}

#[test]
fn a_load_says_what_is_wrong_with_compression() {
    let names = |result: TestResult| -> Vec<String> { result.load.errors.into_keys().collect() };
    let server = Server::raw(Conduct::Echo);
    assert_eq!(
        names(load(&server, Profile::Raw, Layer::Deflate)),
        ["no-deflate"]
    );
    let skill = Skill {
        layer: Layer::Deflate,
        answer: Answer::Garbage,
    };
    let server = Server::skilled(Conduct::Echo, false, skill);
    let result = load(&server, Profile::Raw, Layer::Deflate);
    assert_eq!(result.load.requests.unwrap().succeeded, 0);
    assert_eq!(names(result), ["bad-deflate"]);
    let mut options = LoadOptions::new("http://127.0.0.1:9/");
    options.messages.deflate = true;
    let error = options.plan().unwrap_err().to_string();
    assert!(error.contains("--deflate is for ws://"), "{error}");
}

#[test]
fn a_load_encrypts_its_messages_and_reads_encrypted_replies() {
    let layer = Layer::Encryption;
    let skill = Skill {
        layer,
        answer: Answer::Honest,
    };
    let server = Server::skilled(Conduct::Echo, true, skill);
    let result = load(&server, Profile::V1, layer);
    let requests = result.load.requests.unwrap();
    assert_eq!(requests.succeeded, MESSAGES, "{:?}", result.load.errors);
    assert_eq!(result.encryption_version, Some(1));
    let bytes = result.load.bytes.unwrap();
    // Prefix, nonce and tag of each message, in both directions.
    let sealed = bytes.sent.body + MESSAGES * (2 + 12 + 16);
    assert!(bytes.sent.wire > sealed, "{bytes:?}");
    assert!(bytes.received.wire > bytes.received.body, "{bytes:?}");
    // Every session has a key of its own, and a message confirmed by a pong was decrypted, too.
    assert_eq!(server.received.load(Ordering::Relaxed), MESSAGES);
}

#[test]
fn a_load_says_what_is_wrong_with_encryption() {
    let layer = Layer::Encryption;
    let names = |result: TestResult| -> Vec<String> { result.load.errors.into_keys().collect() };
    let server = Server::v1(Conduct::Echo);
    assert_eq!(names(load(&server, Profile::V1, layer)), ["no-encryption"]);
    for (answer, name) in [
        (Answer::Garbage, "bad-encryption"),
        (Answer::Reflected, "bad-encryption"),
        (Answer::Uncompressed, "bad-encryption"),
    ] {
        let skill = Skill { layer, answer };
        let server = Server::skilled(Conduct::Echo, true, skill);
        let result = load(&server, Profile::V1, layer);
        assert_eq!(result.load.requests.unwrap().succeeded, 0, "{answer:?}");
        assert_eq!(names(result), [name], "{answer:?}");
    }
    let error = |url: &str, change: fn(&mut LoadOptions)| {
        let mut options = LoadOptions::new(url);
        options.messages.encrypt = true;
        change(&mut options);
        options.plan().unwrap_err().to_string()
    };
    let plain = error("http://127.0.0.1:9/", |_| {});
    assert!(plain.contains("--encrypt is for ws://"), "{plain}");
    let websocket = "ws://127.0.0.1:9/";
    let raw = error(websocket, |options| {
        options.messages.profile = Some(Profile::Raw);
    });
    assert!(raw.contains("remove --profile raw"), "{raw}");
    let both = error(websocket, |options| options.messages.deflate = true);
    assert!(both.contains("exclude each other"), "{both}");
}

#[test]
fn what_does_not_inflate_breaks_the_protocol() {
    for profile in [Profile::Raw, Profile::V1] {
        let results = bench(TestKind::Echo, profile, Layer::Deflate, Answer::Garbage);
        assert_failed(&results, "20 broke the protocol");
    }
}

#[test]
fn another_message_in_the_reply_is_no_echo() {
    for (profile, layer) in [
        (Profile::Raw, Layer::Deflate),
        (Profile::V1, Layer::Deflate),
        (Profile::V1, Layer::Encryption),
    ] {
        let results = bench(TestKind::Echo, profile, layer, Answer::Other);
        assert_failed(&results, "does not echo");
    }
}

#[test]
fn encrypted_messages_are_confirmed() {
    for test in [TestKind::Echo, TestKind::Throughput, TestKind::SizeMatrix] {
        for result in bench(test, Profile::V1, Layer::Encryption, Answer::Honest) {
            assert_honest(&result);
            assert_eq!(result.encryption_version, Some(1));
            let wire = result.payload_bytes.unwrap() + 2 + 12 + 16;
            assert_eq!(result.wire_bytes, Some(wire as f64));
        }
    }
}

#[test]
fn pings_of_encrypted_and_compressed_sessions_are_answered() {
    for layer in [Layer::Deflate, Layer::Encryption] {
        for test in [TestKind::ConnectionStorm, TestKind::PingLatency] {
            for result in bench(test, Profile::V1, layer, Answer::Honest) {
                assert_honest(&result);
                assert!(result.latency_us.unwrap().count >= 20);
            }
        }
    }
}

#[test]
fn refusals_of_an_encrypted_session_are_heard() {
    let skill = Skill {
        layer: Layer::Encryption,
        answer: Answer::Honest,
    };
    for (conduct, test) in [
        (Conduct::Limiting, TestKind::Echo),
        (Conduct::Limiting, TestKind::Throughput),
    ] {
        let server = Server::skilled(conduct, true, skill);
        let mut options = options(&server, test, Profile::V1, Layer::Encryption);
        options.echo_sizes = vec![175];
        let result = &results(&options)[0];
        let messages = result.messages.unwrap();
        assert_eq!(messages.confirmed, CONNECTIONS * LIMIT, "{result:#?}");
        assert_eq!(
            messages.refused.unwrap() + messages.confirmed,
            messages.offered
        );
    }
}

#[test]
fn what_the_server_has_not_encrypted_breaks_the_protocol() {
    for answer in [Answer::Garbage, Answer::Reflected, Answer::Uncompressed] {
        let results = bench(TestKind::Echo, Profile::V1, Layer::Encryption, answer);
        assert_failed(&results, "20 broke the protocol");
    }
}

#[test]
fn a_server_without_a_key_fails_the_connections() {
    let server = Server::v1(Conduct::Echo);
    let options = options(&server, TestKind::Echo, Profile::V1, Layer::Encryption);
    assert_failed(
        &results(&options),
        "20 ended: the server does not agree on a key",
    );
}

#[test]
fn plain_websocket_has_no_encryption() {
    let server = Server::raw(Conduct::Echo);
    let options = options(&server, TestKind::Echo, Profile::Raw, Layer::Encryption);
    let error = run(&options, &mut (), &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, RunError::NothingToEncryptWith));
}

const MESSAGES: u64 = 40;
const CONNECTIONS: u64 = 20;
