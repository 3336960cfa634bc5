//! Signatures checked, and made anew.

use tidewire_testkit::vectors::load;
use tidewire_testkit::vectors::secure::SignatureCase;
use tidewire_wire::format::Format;
use tidewire_wire::secure::{
    NonceWindow, SignatureError, SignatureVersion, SignedMessage, SigningKey, VerifyingKey,
};

pub(crate) fn run(file: &str) {
    for case in load::<SignatureCase>(file) {
        check(&case);
        if case.expected == "accepted" && case.algorithm == "hs256" {
            sign_anew(&case);
        }
    }
}

fn check(case: &SignatureCase) {
    let mut nonces = NonceWindow::default();
    let found = verify(case, &mut nonces);
    match case.expected.as_str() {
        "accepted" => {
            assert_eq!(found, Ok(version(case)), "{}", case.name);
            let again = verify(case, &mut nonces);
            assert_eq!(again, Err(SignatureError::Replayed), "{}", case.name);
        }
        expected => {
            let found = found.as_ref().map_err(word);
            assert_eq!(found, Err(expected), "{}", case.name);
            assert!(
                nonces.is_empty(),
                "{}: a refused nonce is remembered",
                case.name
            );
        }
    }
}

fn verify(
    case: &SignatureCase,
    nonces: &mut NonceWindow,
) -> Result<SignatureVersion, SignatureError> {
    let key = match (&case.secret, &case.public_key) {
        (Some(secret), None) => VerifyingKey::hmac(secret),
        (None, Some(public_key)) => {
            VerifyingKey::ecdsa(public_key[..].try_into().expect("65 bytes"))
        }
        _ => panic!("{}: one key", case.name),
    };
    let message = SignedMessage::find(format(case), &case.message)?;
    key.expect("a key")
        .verify(&message, case.now_unix_s, nonces)
}

fn sign_anew(case: &SignatureCase) {
    let secret = case.secret.as_ref().expect("a secret");
    let key = SigningKey::hmac(secret).expect("a key");
    let message = SignedMessage::find(format(case), &case.message).expect("a message");
    let nonce = case.nonce.as_ref().expect("a nonce");
    let Ok(nonce) = nonce[..].try_into() else {
        // Of a peer that draws more than 16 bytes.
        assert!(nonce.len() > 16, "{}", case.name);
        return;
    };
    let time = case.time_unix_s.expect("a time");
    let signature = key.sign(version(case), &message, time, &nonce);
    assert_eq!(signature.ok(), case.signature, "{}", case.name);
}

fn format(case: &SignatureCase) -> Format {
    match case.format.as_str() {
        "json" => Format::Json,
        "messagepack" => Format::MessagePack,
        other => panic!("{}: {other}", case.name),
    }
}

fn version(case: &SignatureCase) -> SignatureVersion {
    match case.version {
        Some(1) => SignatureVersion::One,
        Some(2) => SignatureVersion::Two,
        other => panic!("{}: {other:?}", case.name),
    }
}

fn word(error: &SignatureError) -> &'static str {
    match error {
        SignatureError::Envelope(_) => "envelope",
        SignatureError::Ambiguous => "ambiguous",
        SignatureError::Missing => "missing",
        SignatureError::Malformed => "malformed",
        SignatureError::Wrong => "wrong",
        SignatureError::Stale => "stale",
        SignatureError::Replayed => "replayed",
        SignatureError::Full => "full",
    }
}
