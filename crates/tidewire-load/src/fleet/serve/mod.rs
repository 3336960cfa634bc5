//! The worker's side of the contract: a process that carries out the orders of a controller.
//!
//! It is a fleet of threads in a process of its own. The main thread carries out one order after
//! the other; a second one reads the controller's lines, so that questions and a stop are heard at any
//! time.

mod fan_out;
mod load;
mod voice;

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::pulse::Pulse;
use super::remote::SILENCE_MAX;
use super::stop::StopRule;
use super::{Fleet, FleetError, Part, Watch, Wish, preflight};
use crate::accounting::live::{Live, ServiceLive};
use crate::accounting::resources;
use crate::accounting::tally::Tally;
use crate::worker::contract::CONTRACT;
use crate::worker::contract::figures::{LiveFigures, OpenedFigures, RanFigures};
use crate::worker::contract::load::{Counted, Load, Loading};
use crate::worker::contract::orders::{self, Begin, Message, Open, Order, Run};
use crate::worker::contract::words::{Hello, Word};
use crate::worker::inputs::Readable;
use crate::worker::order::{Activity, Again, Numbers, Setup, Timeouts};
use crate::worker::pace::{Pace, Share};
use crate::worker::target::{Target, TokenPlace, TokenSource};
use crate::worker::websocket::fan_out::{FanOut, Tempo};
use crate::worker::websocket::layer::Layer;
use crate::worker::websocket::payload::{Content, Encoding, PAYLOAD_BYTES, Payload};
use crate::worker::websocket::profile::Profile;
use crate::worker::websocket::ring::FrameRing;
use fan_out::{FanOutLink, Others};
use load::{LoadWork, WatchLoad};
pub use load::{Planned, Planner};
use voice::{Ear, Voice, base, clock_ns, live, sleep_until};

/// Carries out the orders on standard input until it ends, with this number of threads. `planner` makes the plan of a
/// service load from its terms.
///
/// # Errors
/// The text for the controller, which has been written to standard output as well.
pub fn serve(threads: usize, planner: Planner) -> Result<(), String> {
    let voice = Voice::default();
    voice.say(&Word::Hello(hello(threads)));
    let ears = Arc::new(Ears::default());
    let (sender, orders) = channel();
    std::thread::spawn({
        let (voice, ears) = (voice.clone(), Arc::clone(&ears));
        move || listen(&voice, &ears, &sender)
    });
    let worked = Serving {
        threads,
        voice: voice.clone(),
        ears,
        rings: Vec::new(),
        tokens: Arc::default(),
        fleet: None,
        planner,
        load: None,
        clock_zero_ns: 0,
        pulse: Arc::new(Pulse::start()),
    }
    .work(&orders);
    worked.inspect_err(|reason| {
        voice.say(&Word::Failed {
            reason: reason.clone(),
        });
    })
}

fn hello(threads: usize) -> Hello {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Hello {
        contract: CONTRACT,
        language: "rust".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: resources::host_name().unwrap_or_default(),
        pid: std::process::id(),
        cores: std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64),
        rss_bytes: resources::own_rss_bytes().unwrap_or(0),
        connections_max: preflight::connections_room() as u64,
        profiles: names(&Profile::ALL.map(Profile::as_str)),
        encodings: names(&Encoding::ALL.map(Encoding::as_str)),
        layers: names(&Layer::ALL.map(Layer::as_str)),
        encryption_version: None,
        accepts_any_certificate: true,
        load_threads: threads,
    }
}

/// The controller's commands for the current order.
#[derive(Debug, Default)]
struct Ears {
    stops: AtomicBool,
    abandons: AtomicBool,
    fan_out: Mutex<Option<Others>>,
}

/// Reads the lines of the controller. Ends the process when it is gone.
fn listen(voice: &Voice, ears: &Ears, orders: &Sender<Order>) {
    voice.note();
    std::thread::spawn({
        let voice = voice.clone();
        move || end_in_silence(&voice)
    });
    let input = BufReader::new(Ear(voice.clone()));
    for line in input.lines().map_while(Result::ok) {
        let order = match serde_json::from_str(&line) {
            Ok(order) => order,
            Err(error) => {
                let reason = format!("an order cannot be read: {error}");
                voice.say(&Word::Failed { reason });
                break;
            }
        };
        match order {
            Order::Clock { id } => voice.say(&Word::Clock {
                id,
                clock_ns: clock_ns(),
            }),
            Order::Stop => ears.stops.store(true, Ordering::Relaxed),
            Order::Abandon => ears.abandons.store(true, Ordering::Relaxed),
            Order::Progress { received } => ears.with_others(|others| {
                others.plan.set_received(others.slot, received);
                others.plan.wake();
            }),
            Order::Published { publications } => ears.with_others(|others| {
                others.plan.set_total(publications);
            }),
            Order::Quit => break,
            order => {
                // Before the order is sent on, so that a stop that is read next belongs to it.
                ears.begin_order();
                if orders.send(order).is_err() {
                    break;
                }
            }
        }
    }
    std::process::exit(0);
}

/// Ends the process when the controller has been silent for [`SILENCE_MAX`].
fn end_in_silence(voice: &Voice) {
    loop {
        std::thread::sleep(Duration::from_millis(500));
        if voice.silence() > SILENCE_MAX {
            std::process::exit(1);
        }
    }
}

impl Ears {
    fn with_others(&self, act: impl FnOnce(&Others)) {
        let others = self.fan_out.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(others) = &*others {
            act(others);
        }
    }

    fn set_others(&self, others: Option<Others>) {
        *self.fan_out.lock().unwrap_or_else(PoisonError::into_inner) = others;
    }

    fn begin_order(&self) {
        self.stops.store(false, Ordering::Relaxed);
        self.abandons.store(false, Ordering::Relaxed);
    }

    fn wish(&self) -> Wish {
        match (
            self.abandons.load(Ordering::Relaxed),
            self.stops.load(Ordering::Relaxed),
        ) {
            (true, _) => Wish::Interrupt,
            (false, true) => Wish::Stop,
            (false, false) => Wish::GoOn,
        }
    }
}

/// The state of a worker between its orders.
struct Serving {
    threads: usize,
    voice: Voice,
    ears: Arc<Ears>,
    /// The messages that were made so far.
    rings: Vec<((Message, bool), Arc<FrameRing>)>,
    /// The tokens of the connections, by number.
    tokens: Arc<Mutex<std::collections::HashMap<usize, String>>>,
    fleet: Option<Fleet>,
    planner: Planner,
    load: Option<LoadWork>,
    clock_zero_ns: i64,
    pulse: Arc<Pulse>,
}

impl Serving {
    fn work(&mut self, orders: &Receiver<Order>) -> Result<(), String> {
        loop {
            let order = match orders.recv_timeout(IDLE_LIVE_EVERY) {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => {
                    self.voice.say(&Word::Live(self.figures()));
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            match order {
                Order::Begin(begin) => self.begin(&begin)?,
                Order::Open(open) => self.open(open, None)?,
                Order::Reconnect(reconnect) => {
                    let again = Again {
                        rounds: reconnect.rounds,
                        longest: reconnect.longest_ms.map(Duration::from_millis),
                    };
                    self.open(reconnect.open, Some(again))?;
                }
                Order::Run(run) => self.run(&run)?,
                Order::Load(load) => self.begin_load(&load)?,
                Order::Connect => self.load(LoadWork::connect)?,
                Order::Send(send) => {
                    let begin_ns = send.begin_ns.cast_signed();
                    sleep_until(begin_ns.saturating_add(self.clock_zero_ns));
                    self.load(|load, watch| load.send(&send, watch))?;
                }
                Order::Close => {
                    match &mut self.load {
                        Some(load) => load.close()?,
                        None => self.fleet()?.close().map_err(in_words)?,
                    }
                    self.voice.say(&Word::Closed);
                }
                // Heard where they are read.
                Order::Clock { .. }
                | Order::Stop
                | Order::Abandon
                | Order::Progress { .. }
                | Order::Published { .. }
                | Order::Quit => {}
            }
        }
    }

    /// Carries out an order and sends live figures to the controller ten times a second.
    fn watched<T>(
        &mut self,
        act: impl FnOnce(&mut Fleet, &mut Watch<'_>) -> Result<T, FleetError>,
    ) -> Result<T, String> {
        let (voice, ears) = (self.voice.clone(), Arc::clone(&self.ears));
        let pulse = Arc::clone(&self.pulse);
        let mut tick = |now: &Live| {
            voice.say(&Word::Live(live(now, pulse.counted())));
            ears.wish()
        };
        let mut watch = Watch {
            tick: &mut tick,
            stop: &AtomicBool::new(false),
        };
        act(self.fleet()?, &mut watch).map_err(in_words)
    }

    /// The figures between two orders.
    fn figures(&self) -> LiveFigures {
        let now = match &self.load {
            Some(load) => load.live(),
            None => self.fleet.as_ref().map(Fleet::live).unwrap_or_default(),
        };
        live(&now, self.pulse.stopped())
    }

    fn fleet(&mut self) -> Result<&mut Fleet, String> {
        self.fleet
            .as_mut()
            .ok_or_else(|| "an order came before the terms of the run".to_owned())
    }

    fn begin(&mut self, begin: &Begin) -> Result<(), String> {
        check_version(begin.contract)?;
        let mut target = Target::parse(&begin.url).map_err(in_words)?;
        if let Some(pem) = &begin.authorities_pem {
            target = trusting(target, pem)?;
        }
        if let Some(name) = &begin.cookie_name {
            target.token_place = TokenPlace::Cookie(name.clone());
        }
        let tokens = Arc::clone(&self.tokens);
        target.token = TokenSource::PerConnection(Arc::new(move |number| {
            let tokens = tokens.lock().unwrap_or_else(PoisonError::into_inner);
            tokens.get(&number).cloned()
        }));
        let mut setup = Setup::new(
            target,
            one_of(&Profile::ALL, Profile::as_str, &begin.profile)?,
        );
        setup.layer = one_of(&Layer::ALL, Layer::as_str, &begin.layer)?;
        setup.timeouts = Timeouts {
            connect_ms: begin.connect_timeout_ms,
            pong_ms: begin.pong_timeout_ms,
            barrier_ms: begin.barrier_timeout_ms,
            close_ms: begin.close_timeout_ms,
        };
        setup.sources = begin.sources.clone().into();
        setup.seed = begin.seed;
        setup.epoch = self.set_zero(begin.zero_clock_ns)?;
        self.load = None;
        self.fleet = Some(Fleet::start(setup, self.threads).map_err(in_words)?);
        Ok(())
    }

    /// Sets the zero of all times, and returns its moment.
    fn set_zero(&mut self, zero_clock_ns: i64) -> Result<Instant, String> {
        self.clock_zero_ns = zero_clock_ns;
        let zero = Duration::from_nanos(zero_clock_ns.unsigned_abs());
        let epoch = match zero_clock_ns < 0 {
            true => base().checked_sub(zero),
            false => base().checked_add(zero),
        };
        epoch.ok_or_else(|| "the controller's zero is too far from this machine's clock".to_owned())
    }

    fn begin_load(&mut self, terms: &Load) -> Result<(), String> {
        check_version(terms.contract)?;
        let mut planned = (self.planner)(terms)?;
        planned.setup.epoch = self.set_zero(terms.zero_clock_ns)?;
        self.load = Some(LoadWork::begin(planned, terms)?);
        Ok(())
    }

    /// Carries out an order of a load, reports its figures meanwhile, and its counts at the end.
    fn load(
        &mut self,
        act: impl FnOnce(&mut LoadWork, WatchLoad<'_>) -> Result<Tally, String>,
    ) -> Result<(), String> {
        let (voice, ears) = (self.voice.clone(), Arc::clone(&self.ears));
        let pulse = Arc::clone(&self.pulse);
        let load = self.load.as_mut();
        let load = load.ok_or("an order of a load came before its terms")?;
        let mut watch = |now: &ServiceLive| {
            let figures = Live {
                connected: now.connected,
                ..Live::default()
            };
            voice.say(&Word::Loading(Box::new(Loading {
                load: now.clone(),
                live: live(&figures, pulse.counted()),
            })));
            ears.wish()
        };
        let counted = Counted {
            tally: Box::new(act(load, &mut watch)?),
            live: self.figures(),
        };
        self.voice.say(&Word::Counted(Box::new(counted)));
        Ok(())
    }

    fn open(&mut self, open: Open, again: Option<Again>) -> Result<(), String> {
        let numbers = Numbers {
            first: open.first,
            end: open.end,
            step: open.step.max(1),
        };
        if !open.tokens.is_empty() && open.tokens.len() != numbers.len() {
            return Err(format!(
                "{} tokens came for {} connections",
                open.tokens.len(),
                numbers.len()
            ));
        }
        {
            let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            tokens.extend(numbers.zip(open.tokens));
        }
        let encoding = one_of(&Encoding::ALL, Encoding::as_str, &open.encoding)?;
        let opened = self.watched(|fleet, watch| {
            fleet.connect_numbers(numbers, open.in_flight, encoding, again, watch)
        })?;
        let mut figures = OpenedFigures::from(&opened);
        figures.live = self.figures();
        self.voice.say(&Word::Opened(Box::new(figures)));
        Ok(())
    }

    fn run(&mut self, run: &Run) -> Result<(), String> {
        let seed = self.fleet()?.setup().seed;
        let activity = self.activity(run, seed)?;
        let stop = match run.longest_ms {
            Some(longest_ms) => StopRule::Duration(Duration::from_millis(longest_ms)),
            None => StopRule::Count(0),
        };
        let begin_ns = run
            .begin_ns
            .cast_signed()
            .saturating_add(self.clock_zero_ns);
        let mut fan = FanOutLink::begin(activity.fan_out(), run, &self.voice, begin_ns);
        self.ears.set_others(fan.as_ref().map(FanOutLink::others));
        if fan.is_none() {
            sleep_until(begin_ns);
        }
        let ran = self.watched(|fleet, watch| fleet.run(|part| activity.part(part), stop, watch));
        if let Some(fan) = &mut fan {
            fan.end();
        }
        let mut figures = RanFigures::from(&ran?);
        figures.live = self.figures();
        self.ears.set_others(None);
        self.voice.say(&Word::Ran(Box::new(figures)));
        Ok(())
    }
}

fn check_version(contract: u32) -> Result<(), String> {
    match contract {
        CONTRACT => Ok(()),
        other => Err(format!(
            "the controller speaks version {other} of the worker contract, and this worker version {CONTRACT}"
        )),
    }
}

/// What each thread of this worker does.
enum Work {
    Simple(Activity),
    Paced {
        ring: Arc<FrameRing>,
        share: Share,
        replies: bool,
    },
}

impl Work {
    fn fan_out(&self) -> Option<&Arc<FanOut>> {
        match self {
            Self::Simple(Activity::FanOut(plan)) => Some(plan),
            _ => None,
        }
    }

    fn part(&self, part: Part<'_>) -> Activity {
        match self {
            Self::Simple(activity) => activity.clone(),
            Self::Paced {
                ring,
                share,
                replies,
            } => Activity::Paced {
                ring: Arc::clone(ring),
                pace: share.among(part.members, part.index),
                replies: *replies,
            },
        }
    }
}

impl Serving {
    /// The work of an order.
    fn activity(&mut self, run: &Run, seed: u64) -> Result<Work, String> {
        Ok(Work::Simple(match &run.activity {
            orders::Activity::Hold { ping_every_ms } => Activity::Hold {
                ping_every_ms: *ping_every_ms,
            },
            orders::Activity::Pings { per_connection } => Activity::Pings {
                per_connection: per_connection.unwrap_or(u64::MAX),
            },
            orders::Activity::Blast {
                message,
                per_connection,
            } => Activity::Blast {
                ring: self.ring(message, false)?,
                per_connection: per_connection.unwrap_or(u64::MAX),
            },
            orders::Activity::Window {
                message,
                in_flight,
                per_connection,
            } => Activity::Window {
                ring: self.ring(message, true)?,
                in_flight: *in_flight,
                per_connection: per_connection.unwrap_or(u64::MAX),
            },
            orders::Activity::Paced {
                message,
                per_s,
                poisson,
                replies,
            } => {
                let pace = Pace::at(*per_s, *poisson, seed);
                return Ok(Work::Paced {
                    ring: self.ring(message, *replies)?,
                    share: Share::of(pace, *per_s, &run.members, run.index),
                    replies: *replies,
                });
            }
            orders::Activity::Subscribe { publisher } => Activity::Subscribe {
                publisher: *publisher,
            },
            orders::Activity::FanOut {
                message_bytes,
                publisher,
                subscribers,
                in_flight,
                per_s,
                poisson,
                ..
            } => {
                let tempo = match (per_s, in_flight) {
                    (Some(per_s), _) => Tempo::Paced {
                        pace: Pace::at(*per_s, *poisson, seed),
                        per_s: *per_s,
                    },
                    (None, Some(window)) => Tempo::Window(*window),
                    (None, None) => {
                        return Err("a fan-out has neither a rate nor a window".to_owned());
                    }
                };
                // One slot more, for all other workers.
                let workers = self.threads.max(1) + 1;
                Activity::FanOut(Arc::new(FanOut::new(
                    *message_bytes,
                    tempo,
                    *publisher,
                    *subscribers,
                    workers,
                )))
            }
        }))
    }

    /// The messages of an activity, made once.
    fn ring(&mut self, message: &Message, are_answered: bool) -> Result<Arc<FrameRing>, String> {
        let setup = self.fleet()?.setup();
        let (layer, seed) = (setup.layer, setup.seed);
        let key = (message.clone(), are_answered);
        if let Some((_, ring)) = self.rings.iter().find(|(known, _)| *known == key) {
            return Ok(Arc::clone(ring));
        }
        let payload = Payload {
            json_bytes: message.json_bytes,
            encoding: one_of(&Encoding::ALL, Encoding::as_str, &message.encoding)?,
            content: one_of(&Content::ALL, Content::as_str, &message.content)?,
        };
        if !PAYLOAD_BYTES.contains(&message.json_bytes) {
            return Err(format!("a message of {} bytes is none", message.json_bytes));
        }
        let ring = Arc::new(FrameRing::of(payload, layer, seed, are_answered));
        if self.rings.len() == RINGS_MAX {
            self.rings.remove(0);
        }
        self.rings.push((key, Arc::clone(&ring)));
        Ok(ring)
    }
}

fn one_of<T: Copy>(all: &[T], name: fn(T) -> &'static str, wanted: &str) -> Result<T, String> {
    let found = all.iter().copied().find(|one| name(*one) == wanted);
    found.ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|one| name(*one)).collect();
        format!("`{wanted}` is not known, only: {}", known.join(", "))
    })
}

/// A target that trusts these authorities, which only a file can hold.
fn trusting(target: Target, pem: &str) -> Result<Target, String> {
    let file = Readable::copy(pem.as_bytes())
        .map_err(|error| format!("the authorities cannot be written to a file: {error}"))?;
    target.trusting(file.path()).map_err(in_words)
}

fn in_words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Between two signs of life without an order.
const IDLE_LIVE_EVERY: Duration = Duration::from_secs(1);

/// Kinds of messages that are kept for the next activity.
const RINGS_MAX: usize = 8;
