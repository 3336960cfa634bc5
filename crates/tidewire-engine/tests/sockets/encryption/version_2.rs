//! A server that requires version 2.

use super::*;

#[test]
fn a_server_that_requires_version_2_refuses_version_1() {
    let server = start(encrypting(Encryption::RequiredV2), Echo);
    let opening = Opening::new(server.address());
    let pair = ExchangeKeyPair::from_seed(&[7; 32]).unwrap();
    let mut session = ClientSession::new(Format::Json, Now::default());
    let version_1 = hello(&mut session, &pair, EncryptionVersion::One);
    for first in [
        version_1.as_str(),
        r#"{"t":"client_hello"}"#,
        r#"{"t":"trade"}"#,
    ] {
        let mut client = connect_v1(&server);
        client.send_text(first);
        assert_eq!(
            client.next_json()["p"]["code"],
            "ENCRYPTION_REQUIRED",
            "{first}"
        );
        client.assert_closed(CloseCode::POLICY_VIOLATION);
    }
    assert_eq!(server.handle().counters().key_exchanges, 0);
    let mut peer = exchange(&opening, EncryptionVersion::Two, None).unwrap();
    let echo = json!({ "t": "trade" });
    assert_eq!(peer.ask(&echo), echo);
    // A second hello does not lead back to version 1.
    let again = hello(&mut peer.session, &pair, EncryptionVersion::One);
    peer.send(again.as_bytes());
    assert_eq!(peer.next_json()["p"]["encryption_version"], 2);
    assert_eq!(peer.ask(&echo), echo);
    drop(peer);
    assert_settled(&server.handle());
}
