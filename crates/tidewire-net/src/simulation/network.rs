//! The simulated network: pieces between clients and shards, in the order of their arrival.

use super::client::ClientEnd;
use crate::id::ConnectionId;
use crate::readiness::Readiness;
use crate::simulated::{
    Blocked, Common, Direction, End, Faults, Random, SimulatedSocket, Wire, lock,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

/// The connections of a [`Driver`](super::Driver), and its virtual time.
#[derive(Debug)]
pub struct Network {
    faults: Faults,
    random: Random,
    common: Arc<Common>,
    now_ms: u64,
    /// By number; `None` once both ends are gone.
    wires: Vec<Option<Arc<Mutex<Wire>>>>,
    under_way: BinaryHeap<Reverse<Arrival>>,
    sent: u64,
    touched: Vec<usize>,
    news: Vec<usize>,
    /// Events of sockets that the shards have not received yet.
    pub(super) reports: Vec<Report>,
    /// Connections that have arrived at a shard.
    pub(super) opened: Vec<(usize, SimulatedSocket)>,
}

/// A socket event that the kernel would report to a shard.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) shard: usize,
    pub(super) id: ConnectionId,
    pub(super) readiness: Readiness,
}

/// Something that arrives, in the order of time and then of sending.
#[derive(Debug)]
struct Arrival {
    due_ms: u64,
    sequence: u64,
    number: usize,
    event: NetworkEvent,
}

#[derive(Debug)]
enum NetworkEvent {
    Connection(SimulatedSocket),
    Bytes(Way, Vec<u8>),
    End(Way),
    Reset(Way),
    /// The shard's socket accepts bytes again.
    Room,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To the shard.
    Up,
    /// To the client.
    Down,
}

impl Network {
    pub(super) fn new(faults: Faults) -> Self {
        Self {
            random: Random::new(faults.seed),
            common: Arc::new(Common::new(faults.clone())),
            faults,
            now_ms: 0,
            wires: Vec::new(),
            under_way: BinaryHeap::new(),
            sent: 0,
            touched: Vec::new(),
            news: Vec::new(),
            reports: Vec::new(),
            opened: Vec::new(),
        }
    }

    /// The virtual time in milliseconds, from 0.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// A connection to this shard from an address of its own; the shard is notified after a delay.
    pub fn connect(&mut self, shard: usize) -> ClientEnd {
        let number = self.wires.len() as u32;
        let host = Ipv4Addr::from_bits(NET_10 | number & 0x00ff_ffff);
        self.connect_from(shard, SocketAddr::from((host, CLIENT_PORT)))
    }

    /// The same from this address.
    pub fn connect_from(&mut self, shard: usize, address: SocketAddr) -> ClientEnd {
        let number = self.wires.len();
        let random = Random::new(self.random.next());
        let common = Arc::clone(&self.common);
        let mut wire = Wire::new(number, shard, address, random, common);
        let due_ms = self.now_ms + self.random.within(&self.faults.delay_ms);
        wire.up.last_due_ms = due_ms;
        let wire = Arc::new(Mutex::new(wire));
        self.wires.push(Some(Arc::clone(&wire)));
        let socket = SimulatedSocket(Arc::clone(&wire));
        self.send(due_ms, number, NetworkEvent::Connection(socket));
        ClientEnd::new(number, wire)
    }

    /// Sets the faults of everything that is sent from now on. The seed is not used again.
    pub fn set_faults(&mut self, faults: Faults) {
        lock(&self.common.faults).clone_from(&faults);
        self.faults = faults;
    }

    /// The faults of everything that is sent.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The numbers of the clients for which bytes, an end or a reset have arrived since the last call, in
    /// ascending order.
    pub fn take_news(&mut self) -> Vec<usize> {
        self.news.sort_unstable();
        self.news.dedup();
        std::mem::take(&mut self.news)
    }

    pub(super) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    pub(super) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// When the next thing arrives.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.under_way.peek().map(|first| first.0.due_ms)
    }

    /// Sends what the ends of the connections have written since the last call.
    pub(super) fn tend(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        loop {
            self.common.take_touched(&mut touched);
            if touched.is_empty() {
                break;
            }
            for number in touched.drain(..) {
                let Some(Some(wire)) = self.wires.get(number) else {
                    continue;
                };
                let wire = Arc::clone(wire);
                let mut wire = lock(&wire);
                wire.mark_looked_at();
                self.tend_wire(&mut wire);
                if wire.is_over() {
                    self.wires[number] = None;
                }
            }
        }
        self.touched = touched;
    }

    fn tend_wire(&mut self, wire: &mut Wire) {
        self.send_written(wire, Way::Up);
        self.send_written(wire, Way::Down);
        if std::mem::take(&mut wire.client.resets) {
            self.send_reset(wire, Way::Up);
        }
        if wire.shard_gone && !wire.up.arrived.is_empty() {
            // A socket that is closed with something unread resets the connection.
            wire.up.arrived.clear();
            self.send_reset(wire, Way::Down);
        }
        match wire.blocked {
            Blocked::Full if wire.down.held_bytes() < self.faults.pipe_bytes.max(1) => {
                wire.blocked = Blocked::No;
                wire.report.writable = true;
            }
            Blocked::Fault => {
                wire.blocked = Blocked::FaultUntil;
                let due_ms = self.now_ms + self.random.within(&self.faults.delay_ms);
                self.send(due_ms, wire.number, NetworkEvent::Room);
            }
            _ => {}
        }
        let Some(id) = wire.id.filter(|_| !wire.shard_gone) else {
            return;
        };
        let readiness = std::mem::take(&mut wire.report);
        if readiness.readable || readiness.writable || readiness.ending {
            self.reports.push(Report {
                shard: wire.shard,
                id,
                readiness,
            });
        }
    }

    /// Sends the written bytes that the pipe has room for, in pieces, and the end behind them.
    fn send_written(&mut self, wire: &mut Wire, way: Way) {
        let number = wire.number;
        let direction = way.of(wire);
        loop {
            let held_bytes = direction.held_bytes();
            let room = self.faults.pipe_bytes.max(1).saturating_sub(held_bytes);
            let piece_bytes = self.draw_piece_bytes().min(room);
            let bytes = piece_bytes.min(direction.waiting.len());
            if bytes == 0 {
                break;
            }
            let piece = direction.waiting.drain(..bytes).collect();
            direction.under_way_bytes += bytes;
            self.send_after(direction, number, NetworkEvent::Bytes(way, piece));
        }
        if direction.end == End::Written && direction.waiting.is_empty() {
            direction.end = End::UnderWay;
            self.send_after(direction, number, NetworkEvent::End(way));
        }
    }

    fn draw_piece_bytes(&mut self) -> usize {
        let (least, most) = (
            self.faults.piece_bytes.start(),
            self.faults.piece_bytes.end(),
        );
        let range = *least as u64..=*most as u64;
        self.random.within(&range).max(1) as usize
    }

    fn send_reset(&mut self, wire: &mut Wire, way: Way) {
        let number = wire.number;
        self.send_after(way.of(wire), number, NetworkEvent::Reset(way));
    }

    /// Sends an event behind the earlier ones of this direction.
    fn send_after(&mut self, direction: &mut Direction, number: usize, event: NetworkEvent) {
        let due_ms = self.now_ms + self.random.within(&self.faults.delay_ms);
        direction.last_due_ms = direction.last_due_ms.max(due_ms);
        self.send(direction.last_due_ms, number, event);
    }

    fn send(&mut self, due_ms: u64, number: usize, event: NetworkEvent) {
        self.sent += 1;
        self.under_way.push(Reverse(Arrival {
            due_ms,
            sequence: self.sent,
            number,
            event,
        }));
    }

    /// Delivers everything that is due.
    pub(super) fn deliver(&mut self) {
        while let Some(first) = self.under_way.peek()
            && first.0.due_ms <= self.now_ms
            && let Some(Reverse(arrival)) = self.under_way.pop()
        {
            let Some(Some(wire)) = self.wires.get(arrival.number) else {
                continue;
            };
            let wire = Arc::clone(wire);
            let mut wire = lock(&wire);
            match arrival.event {
                NetworkEvent::Connection(socket) => self.opened.push((wire.shard, socket)),
                NetworkEvent::Bytes(way, piece) => self.deliver_bytes(&mut wire, way, piece),
                NetworkEvent::End(way) => {
                    way.of(&mut wire).end = End::Arrived;
                    match way {
                        Way::Up => {
                            wire.report.readable = true;
                            wire.report.ending = true;
                        }
                        Way::Down => self.news.push(arrival.number),
                    }
                }
                NetworkEvent::Reset(Way::Up) => wire.reset_shard(),
                NetworkEvent::Reset(Way::Down) => {
                    wire.reset_client();
                    self.news.push(arrival.number);
                }
                NetworkEvent::Room => {
                    wire.blocked = Blocked::No;
                    wire.report.writable = true;
                }
            }
            wire.touch();
        }
    }

    fn deliver_bytes(&mut self, wire: &mut Wire, way: Way, piece: Vec<u8>) {
        way.of(wire).under_way_bytes -= piece.len();
        let (is_reset, is_gone) = match way {
            Way::Up => (wire.shard_reset, wire.shard_gone),
            Way::Down => (wire.client.reset, wire.client.gone),
        };
        if is_reset {
            return;
        }
        if is_gone {
            return self.send_reset(wire, way.other());
        }
        if self.faults.reset_chance > 0.0 && self.random.happens(self.faults.reset_chance) {
            wire.reset_shard();
            wire.reset_client();
            self.news.push(wire.number);
            return;
        }
        way.of(wire).arrived.extend(piece);
        match way {
            Way::Up => wire.report.readable = true,
            Way::Down if !wire.client.is_stalled => {
                wire.read_by_client();
                self.news.push(wire.number);
            }
            Way::Down => {}
        }
    }
}

impl Way {
    fn of(self, wire: &mut Wire) -> &mut Direction {
        match self {
            Self::Up => &mut wire.up,
            Self::Down => &mut wire.down,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

impl Arrival {
    fn order(&self) -> (u64, u64) {
        (self.due_ms, self.sequence)
    }
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Arrival {}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Arrival {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

/// Clients have addresses of 10.0.0.0/8.
const NET_10: u32 = 0x0a00_0000;
const CLIENT_PORT: u16 = 40_000;
