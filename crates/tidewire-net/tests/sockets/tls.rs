//! The same over TLS, and what TLS adds.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Running, TestHandler, assert_same, dial, pattern, read_to_end};
use rustls::{
    ClientConnection, HandshakeKind, ServerConnection, StreamOwned, SupportedProtocolVersion,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use tidewire_net::{Closed, Connect, ShardConfig, tls};

struct Identity {
    certificate: String,
    server: Arc<tls::ServerConfig>,
}

/// A server's certificate for `localhost`, and its configuration.
fn identity() -> Identity {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let server = tls::server_config_from(vec![made.cert.der().clone()], key).unwrap();
    Identity {
        certificate: made.cert.pem(),
        server,
    }
}

fn serve(lab: TestHandler) -> Running {
    Running::start(
        lab,
        "127.0.0.1:0",
        Some(identity().server),
        &ShardConfig::default(),
    )
}

fn client_config_of(version: &'static SupportedProtocolVersion) -> Arc<tls::ClientConfig> {
    let ours = tls::client_config(None).unwrap();
    let provider = Arc::clone(ours.crypto_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth();
    Arc::new(config)
}

/// Takes any certificate and any signature.
#[derive(Debug)]
struct Trusting;

impl rustls::client::danger::ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn session<S: Read + Write>(
    config: &Arc<tls::ClientConfig>,
    stream: S,
) -> StreamOwned<ClientConnection, S> {
    let name = tls::server_name("localhost").unwrap();
    let client = ClientConnection::new(Arc::clone(config), name).unwrap();
    StreamOwned::new(client, stream)
}

/// Writes and reads in turn, in parts that fit the buffers between, so that no side waits for the other.
fn check_echo(stream: &mut (impl Read + Write), sent: &[u8]) {
    let mut received = vec![0; sent.len()];
    for (sent, received) in sent.chunks(200_000).zip(received.chunks_mut(200_000)) {
        stream.write_all(sent).unwrap();
        stream.flush().unwrap();
        stream.read_exact(received).unwrap();
    }
    assert_same(&received, sent);
}

#[test]
fn everything_comes_back_under_both_versions() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let server = serve(TestHandler::echo());
        let mut stream = session(&client_config_of(version), dial(server.address));
        for bytes in [1, 175, 16_384, 16_385, 65_536, 1 << 20, 8 << 20] {
            check_echo(&mut stream, &pattern(bytes));
        }
        assert_eq!(stream.conn.protocol_version(), Some(version.version));
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        assert!(
            matches!(server.closed(), Closed::ByPeer),
            "a close_notify ends without a FIN"
        );
        server.stop();
    }
}

#[test]
fn a_client_resumes_its_session_with_a_shard() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let server = serve(TestHandler::echo());
        let config = client_config_of(version);
        let mut kinds = Vec::new();
        for _ in 0..3 {
            let mut stream = session(&config, dial(server.address));
            check_echo(&mut stream, b"one round brings the ticket");
            kinds.push(stream.conn.handshake_kind().unwrap());
        }
        let expected = [
            HandshakeKind::Full,
            HandshakeKind::Resumed,
            HandshakeKind::Resumed,
        ];
        assert_eq!(kinds, expected);
        server.stop();
    }
}

fn connect_to(address: SocketAddr, config: &Arc<tls::ClientConfig>, name: &str) -> Connect {
    let name = tls::server_name(name).unwrap();
    Connect {
        address: address.into(),
        source: None,
        tls: Some((Arc::clone(config), name)),
        usage: tidewire_net::Usage::Any,
    }
}

#[test]
fn a_shard_resumes_its_session_with_a_server() {
    let config = identity().server;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client_config = tls::client_config(None).unwrap();
    let client = Running::plain(TestHandler::echo());
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let connect = connect_to(address, &client_config, "localhost");
        client.ask(move |_, io| io.connect(connect)).unwrap();
        let stream = common::with_deadline(listener.accept().unwrap().0);
        let server = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = StreamOwned::new(server, stream);
        check_echo(&mut stream, &pattern(100_000));
        kinds.push(stream.conn.handshake_kind().unwrap());
        client.connected();
    }
    assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed]);
    client.stop();
}

#[test]
fn shards_talk_to_each_other() {
    let server = serve(TestHandler::echo());
    let sent = Arc::new(pattern(4 << 20));
    let mut received = Vec::new();
    let mut lab = TestHandler::with_data({
        let sent = Arc::clone(&sent);
        move |io, id, data| {
            received.extend_from_slice(data);
            if received.len() == sent.len() {
                assert_same(&received, &sent);
                io.close(id);
            }
            data.len()
        }
    });
    lab.on_connect = Box::new(move |io, id| assert!(io.send(id, &sent)));
    let client = Running::plain(lab);
    let connect = connect_to(
        server.address,
        &tls::client_config(None).unwrap(),
        "localhost",
    );
    client.ask(move |_, io| io.connect(connect)).unwrap();
    assert!(matches!(client.closed(), Closed::ByUs));
    assert!(matches!(server.closed(), Closed::ByPeer));
    client.wait_until_empty();
    server.wait_until_empty();
    client.stop();
    server.stop();
}

#[test]
fn tails_and_records_fit_the_smallest_read_buffer() {
    let config = ShardConfig {
        read_buffer_bytes: 1,
        ..ShardConfig::default()
    };
    let lab = TestHandler::with_data(|io, id, data| {
        let used = data.len() / 32_000 * 32_000;
        io.send(id, &data[..used]);
        used
    });
    let server = Running::start(lab, "127.0.0.1:0", Some(identity().server), &config);
    let mut stream = session(
        &client_config_of(&rustls::version::TLS13),
        dial(server.address),
    );
    let sent = pattern(3_200_000);
    for sent in sent.chunks(160_000) {
        check_echo(&mut stream, sent);
    }
    server.stop();
}

/// Sends one byte at a time.
struct Trickle(TcpStream);

impl Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Trickle {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn records_may_arrive_byte_by_byte() {
    let server = serve(TestHandler::echo());
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut stream = session(&client_config_of(version), Trickle(dial(server.address)));
        check_echo(&mut stream, &pattern(3_000));
    }
    server.stop();
}

#[test]
fn a_greeting_before_the_handshake_arrives_whole() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let greeting = Arc::new(pattern(3 << 20));
        let mut lab = TestHandler::echo();
        lab.on_accept = Box::new({
            let greeting = Arc::clone(&greeting);
            move |io, id| {
                assert!(io.send(id, &greeting));
                io.close(id);
            }
        });
        let server = serve(lab);
        let mut stream = session(&client_config_of(version), dial(server.address));
        assert_same(&read_to_end(&mut stream), &greeting);
        drop(stream);
        server.wait_until_empty();
        server.stop();
    }
}

#[test]
fn write_now_moves_much_without_queueing() {
    const CHUNK: usize = 1 << 20;
    const TOTAL: usize = 16 << 20;
    let chunk = Arc::new(pattern(CHUNK));
    let mut sent = 0;
    let source = Arc::clone(&chunk);
    let mut pump = move |io: &mut tidewire_net::Io, id| {
        while sent < TOTAL {
            let taken = io.write_now(id, &source[sent % CHUNK..]);
            assert_eq!(io.queued_bytes(id), 0);
            sent += taken;
            if taken == 0 {
                return;
            }
        }
        io.close(id);
    };
    let mut lab = TestHandler::with_data(|_, _, data| data.len());
    // The handshake is done by the time that data arrives; until then little can be written.
    lab.on_accept = Box::new(|io, id| assert_eq!(io.write_now(id, b""), 0));
    let (go, gone) = std::sync::mpsc::channel();
    lab.on_data = Box::new(move |io, id, data| {
        go.send(id).unwrap();
        assert_eq!(io.queued_bytes(id), 0);
        data.len()
    });
    lab.on_drained = Box::new(move |io, id| pump(io, id));
    let server = serve(lab);
    let mut stream = session(
        &client_config_of(&rustls::version::TLS13),
        dial(server.address),
    );
    stream.write_all(b"go").unwrap();
    stream.flush().unwrap();
    let id = gone.recv_timeout(common::DEADLINE).unwrap();
    server.ask(move |lab, io| (lab.on_drained)(io, id));
    let received = read_to_end(&mut stream);
    assert_eq!(received.len(), TOTAL);
    for part in received.chunks(CHUNK) {
        assert_same(part, &chunk);
    }
    server.stop();
}

#[test]
fn a_peer_without_tls_is_told_off() {
    let server = serve(TestHandler::echo());
    let mut stream = dial(server.address);
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let why = server.closed();
    assert!(matches!(why, Closed::Tls(_)), "{why:?}");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    server.stop();
}

#[test]
fn a_server_that_is_not_trusted_is_not_connected_to() {
    let identity = identity();
    let trusted = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("trusted.pem");
    std::fs::write(&trusted, &identity.certificate).unwrap();
    let config = tls::client_config(Some(&trusted)).unwrap();
    let server = Running::start(
        TestHandler::echo(),
        "127.0.0.1:0",
        Some(identity.server),
        &ShardConfig::default(),
    );
    let stranger = serve(TestHandler::echo());
    let client = Running::plain(TestHandler::echo());

    let good = connect_to(server.address, &config, "localhost");
    let id = client.ask(move |_, io| io.connect(good)).unwrap();
    assert_eq!(client.connected(), id);
    for (address, name) in [
        (stranger.address, "localhost"),
        (server.address, "example.org"),
    ] {
        let bad = connect_to(address, &config, name);
        client.ask(move |_, io| io.connect(bad)).unwrap();
        let why = client.closed();
        assert!(matches!(why, Closed::Tls(_)), "{why:?}");
    }
    assert_eq!(client.stop().connected, 1);
    server.stop();
    stranger.stop();
}

#[test]
fn an_end_within_the_handshake_is_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = Running::plain(TestHandler::echo());
    let connect = connect_to(address, &tls::client_config(None).unwrap(), "localhost");
    client.ask(move |_, io| io.connect(connect)).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    drop(stream);
    let why = client.closed();
    assert!(matches!(why, Closed::NotConnected(_)), "{why:?}");
    assert_eq!(client.stop().connected, 0);
}

#[test]
fn a_pause_while_connecting_holds_what_came_with_the_handshake() {
    let mut config = (*identity().server).clone();
    config.send_half_rtt_data = true;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, received) = std::sync::mpsc::channel();
    let client = Running::plain(TestHandler::with_data(move |_, _, data| {
        sender.send(data.to_vec()).unwrap();
        data.len()
    }));
    let connect = connect_to(address, &tls::client_config(None).unwrap(), "localhost");
    let id = client.ask(move |_, io| {
        let id = io.connect(connect).unwrap();
        io.pause_reading(id);
        id
    });
    let (mut stream, _) = listener.accept().unwrap();
    let mut server = ServerConnection::new(Arc::new(config)).unwrap();
    while server.is_handshaking() && !server.wants_write() {
        server.read_tls(&mut stream).unwrap();
        server.process_new_packets().unwrap();
    }
    // TLS 1.3 lets a server speak with its first flight, before the client's Finished.
    server.writer().write_all(b"early").unwrap();
    let mut flight = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut flight).unwrap();
    }
    stream.write_all(&flight).unwrap();
    assert_eq!(client.connected(), id);
    for _ in 0..3 {
        client.ask(|_, _| ());
    }
    assert!(received.try_recv().is_err());
    server.read_tls(&mut stream).unwrap();
    server.process_new_packets().unwrap();
    while server.wants_write() {
        server.write_tls(&mut stream).unwrap();
    }
    client.ask(move |_, io| io.resume_reading(id));
    assert_eq!(received.recv_timeout(common::DEADLINE).unwrap(), b"early");
    client.stop();
}

#[test]
fn data_and_close_notify_may_come_together() {
    let (sender, received) = std::sync::mpsc::channel();
    let server = serve(TestHandler::with_data(move |_, _, data| {
        sender.send(data.to_vec()).unwrap();
        data.len()
    }));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut stream = session(&client_config_of(version), dial(server.address));
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).unwrap();
        }
        stream.conn.writer().write_all(b"last words").unwrap();
        stream.conn.send_close_notify();
        let mut flight = Vec::new();
        while stream.conn.wants_write() {
            stream.conn.write_tls(&mut flight).unwrap();
        }
        stream.sock.write_all(&flight).unwrap();
        assert!(matches!(server.closed(), Closed::ByPeer));
        assert_eq!(
            received.try_iter().flatten().collect::<Vec<_>>(),
            b"last words"
        );
    }
    server.stop();
}

/// The fate of a piece.
#[derive(PartialEq)]
enum Piece {
    Taken,
    Queued,
    Refused,
}

const PIECE_BYTES: usize = 16 * 1024;

/// A TLS shard and a session with it between which the kernel's buffers are small and do not grow.
fn serve_with_small_buffers(
    lab: TestHandler,
) -> (Running, StreamOwned<ClientConnection, TcpStream>) {
    let listener = tidewire_net::bind("127.0.0.1:0".parse().unwrap(), 1, 16)
        .unwrap()
        .remove(0);
    let address = listener.local_addr().unwrap();
    socket2::SockRef::from(&listener)
        .set_send_buffer_size(32 * 1024)
        .unwrap();
    let tls = Some(identity().server);
    let server = Running::start_on(lab, listener, tls, &ShardConfig::default());
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(32 * 1024).unwrap();
    socket.connect(&address.into()).unwrap();
    let stream = common::with_deadline(socket.into());
    (
        server,
        session(&client_config_of(&rustls::version::TLS13), stream),
    )
}

/// Fills the connection until a piece has to wait, then reads all, and does it again but stops with
/// the piece before, of which TLS holds a part: nothing but the report of the socket's room can bring
/// that part out.
fn check_no_part_is_left(
    lab: TestHandler,
    put: impl Fn(&Running, tidewire_net::ConnectionId) -> Piece,
) {
    let (server, mut stream) = serve_with_small_buffers(lab);
    let id = server.accepted();
    // The shard has read the end of the handshake when it answers.
    check_echo(&mut stream, b"x");
    for _ in 0..10 {
        let mut limit = usize::MAX;
        for _ in 0..2 {
            let mut taken = 0;
            let mut last = Piece::Taken;
            while taken < limit && last == Piece::Taken {
                last = put(&server, id);
                taken += usize::from(last == Piece::Taken);
            }
            limit = taken;
            let mut received = vec![0; (taken + usize::from(last == Piece::Queued)) * PIECE_BYTES];
            stream.read_exact(&mut received).unwrap();
        }
    }
    server.stop();
}

#[test]
fn no_part_of_a_written_piece_stays_in_tls() {
    check_no_part_is_left(TestHandler::echo(), |server, id| {
        match server.ask(move |_, io| io.write_now(id, &[7; PIECE_BYTES])) {
            0 => Piece::Refused,
            PIECE_BYTES => Piece::Taken,
            bytes => panic!("{bytes} of a piece"),
        }
    });
}

#[test]
fn no_part_of_a_corked_piece_stays_in_tls() {
    let mut lab = TestHandler::echo();
    lab.on_timer = Box::new(|io, id| assert!(io.send(id, &[7; PIECE_BYTES])));
    check_no_part_is_left(lab, |server, id| {
        server.ask(move |_, io| io.set_timer(id, 0));
        server.wait_for(|seen| matches!(seen, common::Seen::Timer(..)).then_some(()));
        match server.ask(move |_, io| io.queued_bytes(id)) {
            0 => Piece::Taken,
            _ => Piece::Queued,
        }
    });
}
