//! A proxy that spoils its connections at a byte that comes from a seed.

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The effect of a proxy on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cut,
    Stall,
    HalfClose,
    Corrupt,
}

/// The fault of one connection, and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    kind: Kind,
    /// Whether it happens to what the client sends.
    is_up: bool,
    /// How many bytes pass in that direction before.
    at: usize,
    /// The change of a byte.
    flip: u8,
}

impl Plan {
    /// The same for every implementation: see `protocol/scenarios/README.md`.
    pub(super) fn new(seed: u64, connection: u64, kinds: &Value) -> Self {
        let mut random = SplitMix(seed.wrapping_shl(32).wrapping_add(connection));
        let kinds = kinds.as_array().expect("kinds are a list");
        let kind = kinds[random.below(kinds.len() as u64) as usize].as_str();
        let kind = match kind.expect("a kind is a text") {
            "cut" => Kind::Cut,
            "stall" => Kind::Stall,
            "half_close" => Kind::HalfClose,
            "corrupt" => Kind::Corrupt,
            other => panic!("no proxy does {other}"),
        };
        let is_up = random.below(2) == 0;
        let bits = 5 + random.below(9);
        Self {
            kind,
            is_up,
            at: random.below(1 << bits) as usize,
            flip: 1 + random.below(255) as u8,
        }
    }

    pub(super) fn to_json(self) -> Value {
        let kind = match self.kind {
            Kind::Cut => "cut",
            Kind::Stall => "stall",
            Kind::HalfClose => "half_close",
            Kind::Corrupt => "corrupt",
        };
        let direction = if self.is_up { "up" } else { "down" };
        json!({"kind": kind, "direction": direction, "at": self.at, "flip": self.flip})
    }
}

/// The generator splitmix64.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Breaks its first connections by their plans, and forwards the later ones.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    spoiled: usize,
    _task: JoinSet<()>,
}

impl Proxy {
    pub(super) async fn start(server: SocketAddr, plans: Vec<Plan>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let accepted = Arc::new(AtomicUsize::new(0));
        let spoiled = plans.len();
        let counter = accepted.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let plan = plans.get(counter.fetch_add(1, Ordering::SeqCst)).copied();
                connections.spawn(relay(client, server, plan));
                while connections.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            accepted,
            spoiled,
            _task: task,
        }
    }

    /// Whether every plan has been carried out, and a connection accepted that nothing happens to.
    pub(super) fn is_calm(&self) -> bool {
        self.accepted.load(Ordering::SeqCst) > self.spoiled
    }
}

/// The state that both directions of a connection share.
struct Link {
    /// Both ends are to be closed.
    is_over: watch::Sender<bool>,
    /// Nothing is passed on any more.
    is_stalled: watch::Sender<bool>,
}

async fn relay(client: TcpStream, server: SocketAddr, plan: Option<Plan>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let link = Link {
        is_over: watch::Sender::new(false),
        is_stalled: watch::Sender::new(false),
    };
    let up = pass(
        from_client,
        to_server,
        plan.filter(|plan| plan.is_up),
        &link,
    );
    let down = pass(
        from_server,
        to_client,
        plan.filter(|plan| !plan.is_up),
        &link,
    );
    tokio::join!(up, down);
}

/// Passes bytes on in one direction.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, plan: Option<Plan>, link: &Link) {
    let over = async {
        let mut is_over = link.is_over.subscribe();
        let _ = is_over.wait_for(|is_over| *is_over).await;
    };
    let work = async {
        let mut plan = plan;
        let mut passed = 0;
        let mut cut_at = None;
        let mut is_open = true;
        let mut buffer = vec![0; 4_096];
        loop {
            let read = from.read(&mut buffer).await.unwrap_or(0);
            let is_stalled = *link.is_stalled.borrow();
            if read == 0 {
                // Who has stalled gives both ends up when one of them has gone.
                link.is_over
                    .send_if_modified(|is_over| is_stalled && !std::mem::replace(is_over, true));
                return;
            }
            if is_stalled || !is_open {
                continue;
            }
            let mut chunk = &mut buffer[..read];
            if let Some(Plan { kind, at, flip, .. }) = plan.filter(|plan| plan.at < passed + read) {
                plan = None;
                match kind {
                    Kind::Corrupt => chunk[at - passed] ^= flip,
                    _ => chunk = &mut chunk[..at - passed],
                }
                let _ = to.write_all(chunk).await;
                match kind {
                    Kind::Corrupt => cut_at = Some(at + PASSED_CORRUPT),
                    Kind::Cut => {
                        link.is_over.send_replace(true);
                        return;
                    }
                    Kind::Stall => {
                        link.is_stalled.send_replace(true);
                    }
                    Kind::HalfClose => {
                        let _ = to.shutdown().await;
                        is_open = false;
                    }
                }
            } else if to.write_all(chunk).await.is_err() {
                return;
            }
            passed += read;
            if cut_at.is_some_and(|at| at <= passed) {
                link.is_over.send_replace(true);
                return;
            }
        }
    };
    tokio::select! {
        () = work => {
            let _ = to.shutdown().await;
        }
        () = over => {}
    }
}

/// Bytes between a change, which nobody may notice, and the cut.
const PASSED_CORRUPT: usize = 16_384;
