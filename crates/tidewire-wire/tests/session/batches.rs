//! Batches, both ways.

use super::*;

#[test]
fn batches() {
    let mut session = fresh(Format::Json);
    let text =
        r#"{"t":"batch","p":{"count":2,"messages":[{"t":"a","p":{"x":[1]}}, {"t":"ping"}]}}"#;
    let expected = vec![
        br#"{"t":"a","p":{"x":[1]}}"#.to_vec(),
        br#"{"t":"ping"}"#.to_vec(),
    ];
    assert_eq!(
        handle(&mut session, text),
        SystemEvent::Batch(expected.clone())
    );
    let event =
        ClientSession::new(Format::Json, NOW).handle_message(Format::Json, text.as_bytes(), NOW);
    assert_eq!(event, Ok(ClientEvent::Batch(expected)));

    let mut packed = Vec::new();
    json_to_msgpack(text.as_bytes(), &mut packed).unwrap();
    let system = SystemType::Batch;
    let event = session.handle_system(&profile(), system, Format::MessagePack, &packed);
    let SystemEvent::Batch(messages) = event else {
        panic!("{event:?}")
    };
    assert_eq!(
        parse_msgpack(&messages[0]).unwrap().payload,
        json!({"x": [1]})
    );
    assert_eq!(messages.len(), 2);
    for (broken, why) in [
        (packed[..packed.len() - 1].to_vec(), "cut"),
        ([packed.clone(), vec![1]].concat(), "too long"),
    ] {
        let event = session.handle_system(&profile(), system, Format::MessagePack, &broken);
        assert_eq!(error_code(event), ErrorCode::InvalidMessage, "{why}");
    }

    let of = |messages: &str| format!(r#"{{"t":"batch","p":{{"messages":[{messages}]}}}}"#);
    let full = of(&vec![r#"{"t":"a"}"#; BATCH_MESSAGES_MAX].join(","));
    assert!(matches!(handle(&mut session, &full), SystemEvent::Batch(_)));
    // The bad one is refused alone, when its turn comes.
    let one_bad = handle(&mut session, &of(r#"{"t":"a"},{"x":1},{"t":"\ud83d"}"#));
    assert!(matches!(one_bad, SystemEvent::Batch(messages) if messages.len() == 3));
    for refused in [
        of(&vec![r#"{"t":"a"}"#; BATCH_MESSAGES_MAX + 1].join(",")),
        of(r#"{"t":"batch","p":{"messages":[]}}"#),
        of(r#"{"t":"b\u0061tch"}"#),
        of(r#"{"t":"client_hello"}"#),
        of(r#"{"t":"key_update"}"#),
        of("1"),
        of(r#"{"t":"a"},"#),
        r#"{"t":"batch"}"#.to_owned(),
        r#"{"t":"batch","p":{}}"#.to_owned(),
        r#"{"t":"batch","p":{"messages":{}}}"#.to_owned(),
    ] {
        assert_eq!(
            error_code(handle(&mut session, &refused)),
            ErrorCode::InvalidMessage,
            "{refused}"
        );
        let mut packed = Vec::new();
        if json_to_msgpack(refused.as_bytes(), &mut packed).is_ok() {
            let event = session.handle_system(&profile(), system, Format::MessagePack, &packed);
            assert_eq!(error_code(event), ErrorCode::InvalidMessage, "{refused}");
        }
    }
}

#[test]
fn batches_outward() {
    let messages: [&[u8]; 2] = [
        br#"{"t":"a","p":{"x":[1]}}"#,
        br#"{"c":"U","t":"b","p":"\u00e9"}"#,
    ];
    for format in BOTH {
        let (mut server, mut client) = (fresh(format), ClientSession::new(format, NOW));
        encoded(&mut server, &Reply::Ping);
        let mut out = Vec::new();
        let op_code = server.encode_batch(&messages, id(), NOW, &mut out).unwrap();
        let batch = content(format, op_code, &out);
        let envelope = match format {
            Format::Json => parse_json(batch),
            Format::MessagePack => parse_msgpack(batch),
        };
        let envelope = envelope.unwrap();
        assert_eq!(
            (envelope.seq, &envelope.payload["count"]),
            (Some(2), &json!(2))
        );
        let Ok(ClientEvent::Batch(read)) = client.handle_message(format, batch, NOW) else {
            panic!("no batch")
        };
        let same = read.iter().map(|read| match format {
            Format::Json => parse_json(read).unwrap(),
            Format::MessagePack => parse_msgpack(read).unwrap(),
        });
        assert!(same.eq(messages.iter().map(|message| parse_json(message).unwrap())));

        out.clear();
        let op_code = client.encode_batch(&messages, id(), NOW, &mut out).unwrap();
        let batch = content(format, op_code, &out);
        let event = server.handle_system(&profile(), SystemType::Batch, format, batch);
        let SystemEvent::Batch(read) = event else {
            panic!("{event:?}")
        };
        assert_eq!(read.len(), 2);
    }
    // What MessagePack cannot take leaves no trace, not even in `seq`.
    let mut server = fresh(Format::MessagePack);
    let mut out = b"x".to_vec();
    let refused = server.encode_batch(&[b"{"], id(), NOW, &mut out);
    assert!(refused.is_err() && out == b"x");
    assert_eq!(encoded(&mut server, &Reply::Ping)["seq"], json!(1));
}

#[test]
fn batches_go_only_to_clients_that_name_them() {
    let without = ServerProfile {
        features: Features::default(),
        ..profile()
    };
    for (features, profile, takes) in [
        (r#"{"batching":true}"#, profile(), true),
        (r#"{"batching":true}"#, without, false),
        (r#"{"batching":false}"#, profile(), false),
        (r#"{"batching":1}"#, profile(), false),
        ("{}", profile(), false),
        ("null", profile(), false),
    ] {
        let mut session = fresh(Format::Json);
        assert!(!session.client_takes_batches());
        let text = format!(r#"{{"t":"client_hello","p":{{"features":{features}}}}}"#);
        let system = SystemType::ClientHello;
        session.handle_system(&profile, system, Format::Json, text.as_bytes());
        assert_eq!(session.client_takes_batches(), takes, "{features}");
    }
}
