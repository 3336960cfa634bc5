//! The protocol's test vectors, run by both sides of this crate. Those of encryption and signatures are
//! run by `crypto/vectors`.

mod client;
mod deflate;
mod frames;
mod handshake;
mod messages;
mod publications;
mod said;
mod scalars;
mod server;

use serde_json::Value;
use std::collections::BTreeSet;
use tidewire_testkit::vectors;
use tidewire_wire::envelope::EnvelopeError;
use tidewire_wire::format::{Format, msgpack_to_json};

/// Makes one test of each file, and the list of the files that have one.
macro_rules! run_files {
    ($($test:ident: $file:literal => $run:path;)*) => {
        $(
            #[test]
            fn $test() {
                $run($file);
            }
        )*

        const FILES: &[&str] = &[$($file),*];
    };
}

run_files! {
    binary: "binary" => publications::run_binary;
    client_dialogues: "client-dialogues" => dialogues;
    deflate: "deflate" => deflate::run;
    deflate_frames: "deflate-frames" => frames::run;
    deflate_negotiation: "deflate-negotiation" => deflate::run_negotiation;
    envelopes: "envelopes" => messages::run;
    fragmentation: "fragmentation" => frames::run;
    frames: "frames" => frames::run;
    handshake_interims: "handshake-interims" => handshake::run_responses;
    handshake_requests: "handshake-requests" => handshake::run_requests;
    handshake_responses: "handshake-responses" => handshake::run_responses;
    http_requests: "http-requests" => handshake::run_http_requests;
    history: "history" => dialogues;
    limits: "limits" => messages::run;
    malformed: "malformed" => messages::run;
    publications: "publications" => publications::run;
    recovery: "recovery" => dialogues;
    scalars: "scalars" => scalars::run;
    server_dialogues: "server-dialogues" => dialogues;
    topics: "topics" => dialogues;
}

/// Files that `crypto/vectors` runs, which needs the feature `crypto`, those of the engine, which has a clock and decides who may
/// connect, and those of `tidewire-http`.
const ELSEWHERE: [&str; 5] = [
    "admissions",
    "encryption",
    "http-responses",
    "liveness",
    "signatures",
];

#[test]
fn every_file_is_run() {
    let run: BTreeSet<_> = FILES
        .iter()
        .chain(&ELSEWHERE)
        .map(|file| (*file).to_owned())
        .collect();
    assert_eq!(run, vectors::names());
}

/// Each case for each format, by the session of the side it names.
fn dialogues(file: &str) {
    use tidewire_testkit::vectors::dialogue::Case;
    use tidewire_testkit::vectors::frames::Side;
    for case in vectors::load::<Case>(file) {
        match case.side {
            Side::Server => server::run(&case),
            Side::Client => client::run(&case),
        }
    }
}

/// The word of the vectors for an error.
fn reason(error: &EnvelopeError) -> &'static str {
    match error {
        EnvelopeError::NotAnObject => "not_an_object",
        EnvelopeError::NoType => "no_type",
        EnvelopeError::InvalidType => "invalid_type",
        EnvelopeError::InvalidField(_) => "invalid_field",
        EnvelopeError::Malformed => "malformed",
        EnvelopeError::TooLarge => "too_large",
        EnvelopeError::TooDeep => "too_deep",
    }
}

/// A message as JSON, whatever its encoding.
fn json_of(encoding: Format, message: &[u8]) -> Value {
    let mut text = Vec::new();
    match encoding {
        Format::Json => text.extend_from_slice(message),
        Format::MessagePack => msgpack_to_json(message, &mut text).expect("MessagePack"),
    }
    serde_json::from_slice(&text).expect("JSON")
}
