//! A network that cuts, stalls and lies, between the client and the server.

use crate::common::{
    DEADLINE, config, connect_with, find, payloads, publish, server_config, start, wait_until,
};
use crate::websocket::{accept, next as next_said};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidewire_client::{Client, Error, Event};
use tidewire_testkit::websocket::{Incoming, Said};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards bytes until the test cuts all connections or holds them.
struct Proxy {
    address: SocketAddr,
    cuts: watch::Sender<u32>,
    stalls: Arc<AtomicBool>,
}

impl Proxy {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let cuts = watch::Sender::new(0);
        let stalls = Arc::new(AtomicBool::new(false));
        let (cut, stalled) = (cuts.clone(), stalls.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(server).await else {
                    continue;
                };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pass(
                    from_client,
                    to_server,
                    cut.subscribe(),
                    stalled.clone(),
                ));
                tokio::spawn(pass(
                    from_server,
                    to_client,
                    cut.subscribe(),
                    stalled.clone(),
                ));
            }
        });
        Self {
            address,
            cuts,
            stalls,
        }
    }

    fn url(&self) -> String {
        format!("ws://{}/ws", self.address)
    }

    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    fn stall(&self, stalls: bool) {
        self.stalls.store(stalls, Ordering::SeqCst);
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut cuts: watch::Receiver<u32>,
    stalled: Arc<AtomicBool>,
) {
    let mut buffer = vec![0; 4_096];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or(0),
            _ = cuts.changed() => 0,
        };
        while stalled.load(Ordering::SeqCst) && !cuts.has_changed().unwrap_or(true) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn cut_again_and_again_nothing_of_a_topic_is_missing() {
    let (server, _) = start(server_config());
    let proxy = Proxy::start(server.address()).await;
    let (client, mut events) = connect_with(config(proxy.url())).await;
    client.subscribe(["kept.a"]).await.unwrap();
    for round in 0..10u64 {
        for number in 0..50 {
            publish(&server, "kept.a", round * 50 + number);
        }
        proxy.cut();
    }
    assert_eq!(
        payloads(&mut events, 500).await,
        (0..500).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn silence_is_noticed_and_the_next_connection_tried() {
    let (server, _) = start(server_config());
    let proxy = Proxy::start(server.address()).await;
    let mut config = config(proxy.url());
    config.idle_timeout = Duration::from_millis(500);
    let (_client, mut events) = connect_with(config).await;
    proxy.stall(true);
    let reason = find(&mut events, |event| match event {
        Event::Disconnected(ended) => Some(ended.reason),
        _ => None,
    });
    assert!(reason.await.contains("silent"));
    proxy.stall(false);
    find(&mut events, |event| {
        matches!(event, Event::Connected(_)).then_some(())
    })
    .await;
}

/// Answers every connection with the same bytes.
async fn liar(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = accept(&mut stream).await;
                let _ = stream.write_all(answer).await;
                // The client ends it.
                let _ = stream.read_to_end(&mut Vec::new()).await;
            });
        }
    });
    address
}

/// Upgrades a connection, writes `bytes` N times and reads nothing.
async fn flood(bytes: Vec<u8>, times: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = accept(&mut stream).await;
            for _ in 0..times {
                if stream.write_all(&bytes).await.is_err() {
                    break;
                }
            }
        }
    });
    address
}

#[tokio::test]
async fn broken_servers_are_errors_and_never_panics() {
    for (answer, words) in [
        (&b"\xff\xff\xff\xff"[..], "reserved"),
        (b"\x81\x85hello", "masked"),
        (b"\x82\x7f\x00\x00\x00\xff\xff\xff\xff\xff", "larger"),
        (b"\x81\x02\xff\xff", "UTF-8"),
        (b"\x81\x05hello", "in time"),
        (b"\x82\x02C:", "in time"),
        (b"\x82\x05E:abc", "in time"),
        (b"\x88\x02\x03\xe8", "closed"),
        (b"", "in time"),
    ] {
        let address = liar(answer).await;
        let mut config = config(format!("ws://{address}/ws"));
        config.connect_timeout = Duration::from_millis(300);
        let error = Client::connect(config).await.unwrap_err().to_string();
        assert!(error.contains(words), "{error} for {answer:?}");
    }
}

#[tokio::test]
async fn a_connection_that_hangs_in_the_handshake_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = config(format!("ws://{}/ws", listener.local_addr().unwrap()));
    config.connect_timeout = Duration::from_millis(100);
    let error = Client::connect(config).await.unwrap_err();
    assert!(error.to_string().contains("in time"), "{error}");
}

#[tokio::test]
async fn a_publication_whose_answer_was_cut_off_is_there_once() {
    let (server, _) = start(server_config());
    let proxy = Proxy::start(server.address()).await;
    let (client, mut events) = connect_with(config(proxy.url())).await;
    client.subscribe(["kept.a"]).await.unwrap();
    let publishing = tokio::spawn({
        let client = client.clone();
        async move {
            for number in 0..200u64 {
                let text = number.to_string();
                let publication = tidewire_client::Publication::new("kept.a", "count", text);
                client.publish(publication).await.unwrap();
            }
        }
    });
    while !publishing.is_finished() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        proxy.cut();
    }
    publishing.await.unwrap();
    assert_eq!(
        payloads(&mut events, 200).await,
        (0..200).collect::<Vec<_>>()
    );
    wait_until("connected", || {
        client.state() == tidewire_client::ClientState::Connected
    })
    .await;
}

#[tokio::test]
async fn a_server_that_sends_its_clients_back_at_once_makes_no_storm() {
    // `reconnect` with no time at all and a close with 4300, each time.
    let address = liar(
        b"\x81\x33{\"c\":\"WSE\",\"t\":\"reconnect\",\"p\":{\"after_ms\":0}}     \x88\x02\x10\xcc",
    )
    .await;
    let client = Client::start(config(format!("ws://{address}/ws"))).unwrap();
    let mut events = client.events();
    let mut waits = Vec::new();
    for _ in 0..6 {
        let wait = find(&mut events, |event| match event {
            Event::Disconnected(ended) => {
                assert_eq!(ended.code, Some(4300), "{}", ended.reason);
                ended.retry_in
            }
            _ => None,
        });
        waits.push(wait.await);
    }
    assert_eq!(waits[0], Duration::ZERO);
    assert!(waits.iter().any(|wait| !wait.is_zero()), "{waits:?}");
}

#[tokio::test]
async fn a_server_that_asks_without_end_and_never_reads_is_given_up() {
    let ping = [&[0x89, 125][..], &[b'x'; 125]].concat().repeat(500);
    let address = flood(ping, 4_000).await;
    let mut config = config(format!("ws://{address}/ws"));
    config.idle_timeout = Duration::from_millis(500);
    config.connect_timeout = DEADLINE;
    let error = Client::connect(config).await.unwrap_err().to_string();
    assert!(error.contains("silent"), "{error}");
}

/// The server's side of a connection.
struct Peer {
    stream: TcpStream,
    incoming: Incoming,
}

impl Peer {
    async fn next(&mut self) -> Said {
        let said = next_said(&mut self.stream, &mut self.incoming).await;
        said.expect("a client that is still there")
    }

    /// The text of the next message.
    async fn next_text(&mut self) -> String {
        match self.next().await {
            Said::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("it is open");
    }
}

const READY: &[u8] = b"\x81\x25{\"c\":\"WSE\",\"t\":\"server_ready\",\"p\":{}}";
const HELLO: &[u8] = b"\x81\x25{\"c\":\"WSE\",\"t\":\"server_hello\",\"p\":{}}";

/// A client that a server has accepted, and the server's side of the connection.
async fn let_in() -> (Client, Peer) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let connecting = tokio::spawn(Client::connect(config(format!("ws://{address}/ws"))));
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let _ = accept(&mut stream).await;
    let incoming = Incoming::of_client();
    let mut peer = Peer { stream, incoming };
    peer.write(READY).await;
    let client = connecting.await.expect("no panic");
    (client.expect("let in"), peer)
}

#[tokio::test]
async fn closing_before_the_servers_hello_is_a_close() {
    let (client, mut peer) = let_in().await;
    let closing = tokio::spawn(async move { client.close_with(4_001, "").await });
    assert!(peer.next_text().await.contains("client_hello"));
    assert!(matches!(peer.next().await, Said::Close(Some(4_001), _)));
    peer.write(b"\x88\x02\x0f\xa1").await;
    closing.await.unwrap();
}

#[tokio::test]
async fn an_endpoint_that_never_says_hello_is_a_bad_one() {
    let address = liar(READY).await;
    let mut config = config(format!("ws://{address}/ws"));
    config.connect_timeout = Duration::from_millis(50);
    let client = Client::connect(config).await.unwrap();
    wait_until("attempts that fail", || client.endpoints()[0].score < 50).await;
}

#[tokio::test]
async fn an_endpoint_that_nobody_listens_at_is_told_in_plain_words() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/ws", unused.local_addr().unwrap());
    drop(unused);
    let error = Client::connect(config(url.clone())).await.unwrap_err();
    let words = format!("cannot connect: {url}: Connection refused");
    assert_eq!(error.to_string(), words);
}

#[tokio::test]
async fn one_that_is_closed_as_soon_as_it_is_let_in_is_not_connected() {
    let ended = [READY, b"\x88\x02\x03\xf3"].concat().leak();
    let address = liar(ended).await;
    let error = Client::connect(config(format!("ws://{address}/ws"))).await;
    assert!(matches!(error, Err(Error::Connect { .. })), "{error:?}");
}

#[tokio::test]
async fn a_close_waits_for_what_a_slow_server_has_not_taken() {
    let (client, mut peer) = let_in().await;
    peer.write(HELLO).await;
    let large = format!("\"{}\"", "x".repeat(60_000));
    for _ in 0..500 {
        client.send("large", &large).await.unwrap();
        if client.waiting_bytes() > 2_000_000 {
            break;
        }
    }
    client.send("last", "17").await.unwrap();
    let closing = tokio::spawn(async move { client.close().await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut last = String::new();
    while let Said::Text(text) = peer.next().await {
        last = text;
    }
    assert!(last.contains("\"last\""), "{last}");
    peer.write(b"\x88\x02\x03\xe8").await;
    closing.await.unwrap();
}

#[tokio::test]
async fn what_is_said_before_the_servers_hello_waits_for_it_and_so_does_the_close() {
    let (client, mut peer) = let_in().await;
    client.send("order", "17").await.unwrap();
    let closing = tokio::spawn(async move { client.close().await });
    assert!(peer.next_text().await.contains("client_hello"));
    let early = tokio::time::timeout(Duration::from_millis(50), peer.next());
    assert!(early.await.is_err(), "nothing comes before the hello");
    peer.write(HELLO).await;
    let order = peer.next_text().await;
    assert!(order.contains("\"order\""), "{order}");
    assert!(matches!(peer.next().await, Said::Close(Some(1_000), _)));
    peer.write(b"\x88\x02\x03\xe8").await;
    closing.await.unwrap();
}
