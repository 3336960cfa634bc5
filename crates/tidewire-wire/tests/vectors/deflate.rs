//! permessage-deflate: messages inflated and compressed again, and both sides of the negotiation.

use super::frames::broken;
use tidewire_testkit::vectors::deflate::{Case, Negotiation, Parameters};
use tidewire_testkit::vectors::load;
use tidewire_wire::deflate::{Compressor, Decompressor, DeflateError, DeflateParameters};

pub(crate) fn run(file: &str) {
    for case in load::<Case>(file) {
        inflate(&case);
        compress(&case);
    }
}

pub(crate) fn run_negotiation(file: &str) {
    for case in load::<Negotiation>(file) {
        match case {
            Negotiation::Server {
                name,
                encryption,
                wanted,
                offers,
                agreed,
                response,
            } => {
                // A server that requires encryption does not ask: the engine's tests run these cases.
                if encryption.as_deref() == Some("required") {
                    assert_eq!((agreed, response), (None, None), "{name}");
                    continue;
                }
                let offers = offers.iter().map(String::as_str);
                let accepted = DeflateParameters::accept(ours(wanted), offers);
                let found = accepted.map(|found| (found.parameters, found.header_value));
                assert_eq!(found, agreed.map(ours).zip(response), "{name}");
            }
            Negotiation::Client {
                name,
                offered,
                offer,
                response,
                agreed,
                error,
            } => {
                let offered = ours(offered);
                assert_eq!(offered.offer(), offer, "{name}");
                match offered.parse_response(&response) {
                    Ok(found) => {
                        assert_eq!((Some(found), None), (agreed.map(ours), error), "{name}");
                    }
                    Err(found) => {
                        let found = Some(word(found).to_owned());
                        assert_eq!((None, found), (agreed.map(ours), error), "{name}");
                    }
                }
            }
        }
    }
}

fn inflate(case: &Case) {
    let mut decompressor = Decompressor::new(case.window_bits, case.keeps_context);
    for message in &case.messages {
        let mut out = b"before".to_vec();
        let result = decompressor.decompress(&message.payload, &mut out, case.inflated_bytes_max);
        match &message.plain {
            Some(plain) => {
                assert_eq!(result, Ok(()), "{}", case.name);
                assert_eq!(out[6..], plain[..], "{}", case.name);
            }
            None => {
                assert_eq!(result.map_err(broken).err(), case.error, "{}", case.name);
                assert_eq!(out, b"before", "{}", case.name);
            }
        }
    }
    let refused = case
        .messages
        .iter()
        .filter(|message| message.plain.is_none())
        .count();
    assert_eq!(refused, usize::from(case.error.is_some()), "{}", case.name);
}

/// How a message is compressed is the compressor's choice, so that only the way back is fixed.
fn compress(case: &Case) {
    for level in [1, 6, 9] {
        let mut compressor = Compressor::new(level, case.window_bits, case.keeps_context);
        let mut decompressor = Decompressor::new(case.window_bits, case.keeps_context);
        for plain in case
            .messages
            .iter()
            .filter_map(|message| message.plain.as_ref())
        {
            let (mut compressed, mut out) = (Vec::new(), Vec::new());
            compressor.compress(plain, &mut compressed);
            let result = decompressor.decompress(&compressed, &mut out, plain.len());
            assert_eq!(result, Ok(()), "{}", case.name);
            assert_eq!(out, plain.0, "{}", case.name);
        }
    }
}

fn ours(parameters: Parameters) -> DeflateParameters {
    DeflateParameters {
        server_no_context_takeover: parameters.server_no_context_takeover,
        client_no_context_takeover: parameters.client_no_context_takeover,
        server_max_window_bits: parameters.server_max_window_bits,
        client_max_window_bits: parameters.client_max_window_bits,
    }
}

fn word(error: DeflateError) -> &'static str {
    match error {
        DeflateError::NotOffered => "not_offered",
        DeflateError::InvalidParameter => "invalid_parameter",
        DeflateError::NotAsOffered => "not_as_offered",
    }
}
