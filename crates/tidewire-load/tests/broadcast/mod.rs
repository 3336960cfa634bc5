//! A small server that sends what one connection says to all others, as it should or not.

// Each test program uses a part of it.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidewire_net::{Closed, ConnectionId, Handler, Io, ListenerId, tls};
use tidewire_testkit::shard::{LOOPBACK, ShardThread};
use tidewire_wire::frame::{OpCode, Role, write_close, write_frame};
use tidewire_wire::handshake::server::{Limits, parse_request, write_accept};
use tidewire_wire::message::{Event, Input, MessageReader};

/// The fault of the publication with this number, counted from 1. All but `Pinging` and `Lying` do it to
/// one subscriber only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Honest,
    /// Leaves it out.
    Dropping(u64),
    /// Sends it twice.
    Doubling(u64),
    /// Sends it after the next one.
    Swapping(u64),
    /// Changes its content.
    Changing(u64),
    /// Ends the connection in place of it.
    Closing(u64),
    /// Sends every N-th publication in two fragments with a ping between them, and, with version 1, a
    /// `ping` behind it; to all.
    Pinging(u64),
    /// Version 1: gives publications a position, whose offset jumps at this one.
    Jumping(u64),
    /// Version 1: refuses the topic.
    Refusing,
    /// Claims to have delivered one more than it has.
    Lying,
}

/// A server on its own thread; ends when dropped.
pub(crate) struct Broadcaster {
    pub(crate) address: SocketAddr,
    /// Where its counters are.
    pub(crate) stats: SocketAddr,
    shard: ShardThread,
}

impl Broadcaster {
    pub(crate) fn start(manner: Manner, is_v1: bool) -> Self {
        Self::start_with(manner, is_v1, None)
    }

    /// Under TLS, with a certificate of its own.
    pub(crate) fn secure(manner: Manner, is_v1: bool) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = made.signing_key.serialize_der().try_into().unwrap();
        let tls = tls::server_config_from(vec![made.cert.der().clone()], key).unwrap();
        Self::start_with(manner, is_v1, Some(tls))
    }

    fn start_with(manner: Manner, is_v1: bool, tls: Option<Arc<tls::ServerConfig>>) -> Self {
        let deliveries = Arc::new(AtomicU64::new(u64::from(manner == Manner::Lying)));
        let stats = serve_stats(Arc::clone(&deliveries));
        let app = App {
            manner,
            is_v1,
            deliveries,
            published: 0,
            kept: None,
            peers: Vec::new(),
        };
        let shard = ShardThread::start(app, LOOPBACK, tls);
        Self {
            address: shard.address,
            stats,
            shard,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.shard.url()
    }
}

struct App {
    manner: Manner,
    is_v1: bool,
    deliveries: Arc<AtomicU64>,
    published: u64,
    /// The message after the next publication.
    kept: Option<String>,
    peers: Vec<Option<Peer>>,
}

struct Peer {
    id: ConnectionId,
    reader: MessageReader,
    is_upgraded: bool,
    is_subscribed: bool,
}

impl Handler for App {
    type Mail = ();

    fn handle_accept(&mut self, _io: &mut Io, id: ConnectionId, _listener: ListenerId) {
        if self.peers.len() <= id.index() {
            self.peers.resize_with(id.index() + 1, || None);
        }
        self.peers[id.index()] = Some(Peer {
            id,
            reader: MessageReader::new(Role::Server, 1 << 20),
            is_upgraded: false,
            is_subscribed: !self.is_v1,
        });
    }

    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        let Some(peer) = self.peers[id.index()].as_mut() else {
            return data.len();
        };
        let mut head_bytes = 0;
        if !peer.is_upgraded {
            head_bytes = accept(self.is_v1, io, id, data);
            peer.is_upgraded = head_bytes > 0;
            if head_bytes == 0 {
                return 0;
            }
        }
        let mut said = Vec::new();
        let mut input = Input::new(&mut data[head_bytes..]);
        while let Some(event) = peer.reader.read(&mut input).unwrap() {
            match event {
                Event::Text(text) => said.push(text.as_str().to_owned()),
                Event::Ping(payload) => {
                    write_frame(io.buffer(id).unwrap(), OpCode::Pong, payload, None);
                }
                Event::Close(code, _) => {
                    write_close(io.buffer(id).unwrap(), code, "", None);
                    io.close(id);
                    break;
                }
                _ => {}
            }
        }
        let used = head_bytes + input.consumed();
        for message in said {
            self.receive(io, id, &message);
        }
        used
    }

    fn handle_close(&mut self, _io: &mut Io, id: ConnectionId, _closed: Closed) {
        self.peers[id.index()] = None;
    }

    fn handle_mail(&mut self, io: &mut Io, (): ()) {
        io.stop();
    }
}

impl App {
    fn receive(&mut self, io: &mut Io, id: ConnectionId, message: &str) {
        if !self.is_v1 {
            return self.publish(io, id, message.to_owned());
        }
        if message.contains("subscription_update") {
            let is_taken = self.manner != Manner::Refusing;
            let (success, failed) = if is_taken {
                (r#""fan-out""#, "")
            } else {
                ("", r#""fan-out""#)
            };
            let answer = format!(
                r#"{{"c":"WSE","t":"subscription_update","p":{{"action":"subscribe","success_topics":[{success}],"failed_topics":[{failed}]}}}}"#
            );
            write_frame(
                io.buffer(id).unwrap(),
                OpCode::Text,
                answer.as_bytes(),
                None,
            );
            self.peers[id.index()].as_mut().unwrap().is_subscribed = is_taken;
        } else if let Some((_, payload)) = message.split_once(r#""payload":"#) {
            let payload = payload.strip_suffix(r#"},"v":1}"#).unwrap();
            let position = self.position();
            let text = format!(r#"{{"c":"U","t":"f","tp":"fan-out",{position}"p":{payload}}}"#);
            self.publish(io, id, text);
        }
    }

    /// The place in the history that a publication names.
    fn position(&self) -> String {
        let number = self.published + 1;
        match self.manner {
            Manner::Jumping(at) => {
                let offset = 95 + number + u64::from(number >= at);
                format!(r#""e":"0badcafe","o":{offset},"#)
            }
            _ => String::new(),
        }
    }

    fn publish(&mut self, io: &mut Io, publisher: ConnectionId, text: String) {
        self.published += 1;
        let ids: Vec<ConnectionId> = self
            .peers
            .iter()
            .flatten()
            // A plain server sends the publisher its own words back.
            .filter(|peer| peer.is_subscribed && (!self.is_v1 || peer.id != publisher))
            .map(|peer| peer.id)
            .collect();
        let Some(victim) = ids.iter().copied().find(|id| *id != publisher) else {
            return;
        };
        for id in ids {
            if id == victim {
                self.send_to_victim(io, id, &text);
            } else {
                self.send(io, id, &text);
            }
        }
    }

    fn send_to_victim(&mut self, io: &mut Io, id: ConnectionId, text: &str) {
        let number = self.published;
        match self.manner {
            Manner::Dropping(at) if at == number => {}
            Manner::Doubling(at) if at == number => {
                self.send(io, id, text);
                self.send(io, id, text);
            }
            Manner::Swapping(at) if at == number => self.kept = Some(text.to_owned()),
            Manner::Changing(at) if at == number => self.send(io, id, &text.replace("xx", "xy")),
            Manner::Closing(at) if at == number => io.abort(id),
            _ => self.send(io, id, text),
        }
        if matches!(self.manner, Manner::Swapping(at) if at < number)
            && let Some(kept) = self.kept.take()
        {
            self.send(io, id, &kept);
        }
    }

    fn send(&self, io: &mut Io, id: ConnectionId, text: &str) {
        let Some(out) = io.buffer(id) else { return };
        self.deliveries.fetch_add(1, Ordering::Relaxed);
        if !matches!(self.manner, Manner::Pinging(nth) if self.published.is_multiple_of(nth)) {
            return write_frame(out, OpCode::Text, text.as_bytes(), None);
        }
        let (front, rest) = text.as_bytes().split_at(40);
        let start = out.len();
        write_frame(out, OpCode::Text, front, None);
        out[start] &= 0x7f;
        write_frame(out, OpCode::Ping, b"between", None);
        write_frame(out, OpCode::Continuation, rest, None);
        if self.is_v1 {
            let ping = br#"{"c":"WSE","t":"ping","p":{"timestamp":1}}"#;
            write_frame(out, OpCode::Text, ping, None);
        }
    }
}

/// Answers the upgrade; how many bytes it took.
fn accept(is_v1: bool, io: &mut Io, id: ConnectionId, data: &[u8]) -> usize {
    let Some(request) = parse_request(data, &Limits::default()).unwrap() else {
        return 0;
    };
    let out = io.buffer(id).unwrap();
    write_accept(request.key(), None, &[], out);
    if is_v1 {
        let ready = br#"{"c":"WSE","t":"server_ready","p":{"details":{"version":"test/1"}}}"#;
        write_frame(out, OpCode::Text, ready, None);
    }
    request.head_bytes()
}

/// An operations listener that tells the deliveries.
fn serve_stats(deliveries: Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (asked, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 1024]);
            // What it claims too much, it claims after the first look.
            let count = deliveries.load(Ordering::Relaxed);
            let count = if asked == 0 { 0 } else { count };
            let body = format!(r#"{{"total":{{"messages_delivered":0,"deliveries":{count}}}}}"#);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}");
        }
    });
    address
}
