//! Payloads of bytes, in every format and layer: the same bytes arrive, and texts stay texts.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use crate::common::{config, connect_with, find, server_config, start, url};
use tidewire_client::config::{Compression, Encryption, Queue};
use tidewire_client::{
    Client, Config, Event, Events, Format, HistoryQuery, Message, Payload, Priority, Publication,
    QueueOptions,
};
use tidewire_engine::{
    Config as ServerConfig, ConnectionQuery, Content, NewCall, NewPublication, Server,
};

const SIZES: [usize; 4] = [0, 1, 65_535, 1024 * 1024];

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

/// Some connections of a server.
fn all() -> ConnectionQuery {
    ConnectionQuery {
        limit: 10,
        ..ConnectionQuery::default()
    }
}

fn large() -> ServerConfig {
    let mut config = server_config();
    config.limits.message_bytes_max = 4 << 20;
    config.topics.limits.payload_bytes_max = 2 << 20;
    if let Some(history) = &mut config.topics.rules[0].history {
        history.bytes_max = 64 << 20;
    }
    config
}

async fn message(events: &mut Events) -> Message {
    let wanted = |event| match event {
        Event::Message(message) => Some(message),
        _ => None,
    };
    find(events, wanted).await
}

/// Bytes and a text of the same base64 arrive as what they are.
async fn arrives(events: &mut Events, length: usize) {
    let sent = bytes(length);
    let arrived = message(events).await;
    assert!(arrived.bytes().unwrap() == Some(sent), "{length}");
    let text = message(events).await;
    assert_eq!(text.bytes().unwrap(), None);
    assert!(text.payload().unwrap() == Payload::binary(bytes(length)).as_json().as_bytes());
}

/// The bytes, and their base64 as a text.
fn both(length: usize) -> [Payload<'static>; 2] {
    let binary = Payload::binary(bytes(length));
    let text = Payload::json(binary.as_json().to_owned());
    [binary, text]
}

async fn client_and_server(
    server: ServerConfig,
    change: impl FnOnce(&mut Config),
) -> (impl std::ops::Deref<Target = Server>, Client, Events) {
    let (server, _) = start(server);
    let mut config = config(url(&server));
    config.outbox_bytes_max = 16 << 20;
    config.inbox_bytes_max = 16 << 20;
    change(&mut config);
    let (client, events) = connect_with(config).await;
    (server, client, events)
}

/// Every way of a client, with messages of each size.
async fn works(server: ServerConfig, change: impl FnOnce(&mut Config)) {
    let (server, client, mut events) = client_and_server(server, change).await;
    client.subscribe(["kept.a"]).await.unwrap();
    for length in SIZES {
        for payload in both(length) {
            client.send("echo", payload).await.unwrap();
        }
        arrives(&mut events, length).await;
        for payload in both(length) {
            let publication = Publication::new("kept.a", "data", payload.clone());
            client.publish(publication).await.unwrap();
            let answer = client.request("mirror", payload.clone(), None).await;
            assert!(answer.unwrap() == payload, "{length}");
        }
        arrives(&mut events, length).await;
        for payload in both(length) {
            let content = match payload.to_bytes() {
                Some(bytes) => Content::binary(bytes),
                None => Content::from(payload.as_json()),
            };
            let publication = NewPublication::new("own", content.clone());
            server.handle().publish("kept.a", &publication).unwrap();
        }
        arrives(&mut events, length).await;
        for payload in both(length) {
            let content = match payload.to_bytes() {
                Some(bytes) => Content::binary(bytes),
                None => Content::from(payload.as_json()),
            };
            is_asked(&server, &mut events, content).await;
        }
    }
    let mut query = HistoryQuery::new("kept.a");
    query.limit = 1_000;
    let page = client.history(query).await.unwrap();
    assert!(page.publications.len() >= 2);
    let kept = page.publications.iter().map(|message| message.bytes());
    let kept: Vec<_> = kept.map(Result::unwrap).collect();
    assert_eq!(kept[..2], [Some(Vec::new()), None]);
    client.close().await;
}

/// The server asks the client, which answers with what it is asked.
async fn is_asked(server: &Server, events: &mut Events, content: Content) {
    let connections = server.handle().list_connections(&all()).unwrap();
    let key = connections.items[0].connection;
    let (told, mut outcomes) = tokio::sync::mpsc::unbounded_channel();
    let call = NewCall::new("confirm", content.clone());
    server.handle().call(key, call, move |outcome| {
        told.send(outcome).expect("the test listens");
    });
    let wanted = |event| match event {
        Event::Call(call) => Some(call),
        _ => None,
    };
    let call = find(events, wanted).await;
    assert_eq!(call.is_binary, content.is_binary());
    let answer = match call.bytes() {
        Some(bytes) => Payload::binary(bytes),
        None => Payload::from(call.payload),
    };
    call.responder.respond(answer).unwrap();
    let answer = outcomes.recv().await.unwrap().unwrap();
    assert!(answer == content);
}

#[tokio::test]
async fn bytes_arrive_in_json_and_messagepack() {
    for format in [Format::Json, Format::MessagePack] {
        works(large(), |config| config.format = format).await;
    }
}

#[tokio::test]
async fn bytes_arrive_compressed_and_encrypted() {
    for format in [Format::Json, Format::MessagePack] {
        let mut server = large();
        server.encryption = tidewire_engine::Encryption::Required;
        works(server, |config| {
            config.format = format;
            config.compression = Compression::Zlib;
            config.encryption = Encryption::On;
        })
        .await;
    }
}

#[tokio::test]
async fn bytes_are_recovered() {
    for format in [Format::Json, Format::MessagePack] {
        let (server, client, mut events) =
            client_and_server(large(), |config| config.format = format).await;
        client.subscribe(["kept.a"]).await.unwrap();
        for payload in both(1) {
            client
                .publish(Publication::new("kept.a", "data", payload))
                .await
                .unwrap();
        }
        arrives(&mut events, 1).await;
        for connection in server.handle().list_connections(&all()).unwrap().items {
            let code = tidewire_client::CloseCode::from_wire(4300).expect("a code");
            server
                .handle()
                .close_with(connection.connection, code, "")
                .unwrap();
        }
        for length in SIZES {
            for payload in both(length) {
                let content = match payload.to_bytes() {
                    Some(bytes) => Content::binary(bytes),
                    None => Content::from(payload.as_json()),
                };
                let publication = NewPublication::new("own", content);
                server.handle().publish("kept.a", &publication).unwrap();
            }
        }
        for length in SIZES {
            arrives(&mut events, length).await;
        }
    }
}

#[tokio::test]
async fn the_queue_keeps_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for path in [None, Some(folder.path().join("queue.db"))] {
        let (_server, client, mut events) = client_and_server(large(), |config| {
            config.queue = Some(Queue {
                path,
                ..Queue::default()
            });
        })
        .await;
        for payload in both(1_000) {
            let options = QueueOptions::default();
            let receipt = client.send_acknowledged("echo", payload, options).await;
            receipt.unwrap().wait().await.unwrap();
        }
        arrives(&mut events, 1_000).await;
        client.subscribe(["kept.a"]).await.unwrap();
        for payload in both(1_000) {
            let options = QueueOptions::default();
            let receipt = client
                .publish_acknowledged("kept.a", "data", payload, options)
                .await;
            receipt.unwrap().wait().await.unwrap();
        }
        arrives(&mut events, 1_000).await;
        client.close().await;
    }
}

#[tokio::test]
async fn what_looks_like_bytes_stays_an_object() {
    for format in [Format::Json, Format::MessagePack] {
        let (_server, client, mut events) =
            client_and_server(large(), |config| config.format = format).await;
        let text = r#"{"b":true,"p":"AAH/","binary":true,"payload":"AAH/"}"#;
        client.try_send("echo", text, Priority::Normal).unwrap();
        let arrived = message(&mut events).await;
        assert_eq!(arrived.bytes().unwrap(), None);
        assert_eq!(arrived.payload().unwrap(), text.as_bytes());
        let envelope = r#"{"t":"echo","b":true,"p":"AAH/"}"#;
        client.try_send_envelope(envelope).unwrap();
        assert_eq!(
            message(&mut events).await.bytes().unwrap(),
            Some(vec![0, 1, 255])
        );
    }
}
