//! A worker that is a process of its own: it is started by a command and speaks the worker contract.
//!
//! Four threads serve it, so that a worker that stands still stops nothing else: one reads its lines, one
//! writes, one keeps the end of its standard error, and one acts on the lines.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::process::{self, Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidewire_net::Waker;

use super::crew::Hand;
use super::error::FleetError;
use super::relay::{Line, Relay};
use crate::worker::contract::CONTRACT;
use crate::worker::contract::orders::Order;
use crate::worker::contract::words::{Hello, Word};

/// The way to a worker's process.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) name: String,
    pub(super) hello: Hello,
    lines: Sender<Line>,
    clock: Arc<Clock>,
    child: Arc<Mutex<Child>>,
    threads: Vec<JoinHandle<()>>,
}

/// The difference between the worker's clock and that of this process.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// The worker's clock at the zero of the run.
    zero_ns: AtomicI64,
    /// The most by which that is wrong: half of the shortest round trip.
    error_ns: AtomicU64,
}

impl Clock {
    pub(super) fn zero_ns(&self) -> i64 {
        self.zero_ns.load(Ordering::Relaxed)
    }

    pub(super) fn error(&self) -> Duration {
        Duration::from_nanos(self.error_ns.load(Ordering::Relaxed))
    }
}

/// Where a worker's words go.
pub(super) struct Ears {
    pub(super) index: usize,
    pub(super) relay: Arc<Relay>,
    /// The zero of the run.
    pub(super) epoch: Instant,
    pub(super) listener: Box<dyn Listener>,
}

/// Checks the introduction of a worker; `Err` has the reason for a refusal.
pub(super) type Suits<'a> = &'a dyn Fn(&Hello) -> Result<(), String>;

/// Receives the words of a worker about its work.
pub(super) trait Listener: Send {
    /// Acts on a word; `Err` with the reason if it is not one of this work.
    fn hear(&mut self, word: Word) -> Result<(), String>;

    /// The worker has ended, for this reason.
    fn end(&mut self, name: String, reason: String);
}

impl Remote {
    /// Starts a worker, whose introduction `suits` judges. `stop` ends the wait for it.
    ///
    /// # Errors
    /// [`FleetError::Worker`]: it does not start, speaks another contract or does not suit. [`FleetError::Interrupted`].
    pub(super) fn start(
        command: &str,
        ears: Ears,
        suits: Suits<'_>,
        stop: &AtomicBool,
    ) -> Result<Self, FleetError> {
        let index = ears.index;
        let failed = |name: &str, reason: String, is_mute| FleetError::Worker {
            name: name.to_owned(),
            reason,
            is_mute,
        };
        let name = format!("worker {}", index + 1);
        let mut child = shell(command)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                failed(
                    &name,
                    format!("its command cannot be started: {error}"),
                    true,
                )
            })?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed(
                &name,
                "it has no standard streams".to_owned(),
                false,
            ));
        };
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        let (said, words) = channel();
        let (lines, to_write) = channel();
        let keeper = {
            let last_words = Arc::clone(&last_words);
            std::thread::spawn(move || keep(stderr, &last_words))
        };
        // It is not waited for: what the command has left behind may hold the other end of the pipe.
        let heard = Arc::new(Heard::default());
        std::thread::spawn({
            let heard = Arc::clone(&heard);
            move || read(Listened(stdout, heard), &said)
        });
        let threads = vec![{
            let relay = Arc::clone(&ears.relay);
            std::thread::spawn(move || write(stdin, &to_write, &relay, index))
        }];
        let mut remote = Self {
            name,
            hello: Hello::default(),
            lines,
            clock: Arc::default(),
            child: Arc::new(Mutex::new(child)),
            threads,
        };
        let mut ending = Ending {
            child: Arc::clone(&remote.child),
            keeper: Some(keeper),
            last_words,
        };
        let mut clocks = Clocks::new(ears.epoch, Arc::clone(&remote.clock), remote.lines.clone());
        match remote.introduce(&words, &mut clocks, (suits, stop)) {
            Ok(()) => {}
            Err(_) if stop.load(Ordering::Relaxed) => return Err(FleetError::Interrupted),
            Err(reason) => {
                let is_mute = reason.is_none();
                let reason = reason.unwrap_or_else(|| ending.in_words());
                return Err(failed(&remote.name, reason, is_mute));
            }
        }
        let name = remote.name.clone();
        let manager =
            std::thread::spawn(move || manage(&words, ears, clocks, (ending, &heard), name));
        remote.threads.push(manager);
        Ok(remote)
    }

    /// The first words of both sides; `Err(None)` if the worker has ended.
    fn introduce(
        &mut self,
        words: &Receiver<Word>,
        clocks: &mut Clocks,
        (suits, stop): (Suits<'_>, &AtomicBool),
    ) -> Result<(), Option<String>> {
        let silent = || {
            let seconds = HELLO_TIMEOUT.as_secs();
            Some(format!("it did not introduce itself within {seconds} s"))
        };
        let hello = match heard_first(words, stop) {
            Ok(Word::Hello(hello)) => hello,
            Ok(Word::Failed { reason }) => return Err(Some(reason)),
            Ok(_) => {
                return Err(Some(
                    "its first line is no `hello`: it is no worker of this contract".to_owned(),
                ));
            }
            Err(RecvTimeoutError::Timeout) => return Err(silent()),
            Err(RecvTimeoutError::Disconnected) => return Err(None),
        };
        check_version(&hello)
            .and_then(|()| suits(&hello))
            .map_err(Some)?;
        let host = match hello.host.as_str() {
            "" => String::new(),
            host => format!(" on {host}"),
        };
        self.name = format!("{} ({}{host})", self.name, hello.language);
        self.hello = hello;
        for _ in 0..CLOCK_PROBES {
            clocks.ask();
            let deadline = Instant::now() + HELLO_TIMEOUT;
            loop {
                let wait = deadline.saturating_duration_since(Instant::now());
                match words.recv_timeout(wait) {
                    Ok(Word::Clock { id, clock_ns }) => {
                        clocks.hear(id, clock_ns);
                        break;
                    }
                    Ok(_) => {}
                    Err(RecvTimeoutError::Timeout) => return Err(silent()),
                    Err(RecvTimeoutError::Disconnected) => return Err(None),
                }
            }
        }
        Ok(())
    }

    /// The difference between its clock and this one.
    pub(super) fn clock(&self) -> Arc<Clock> {
        Arc::clone(&self.clock)
    }

    /// The way to write lines to it.
    pub(super) fn lines(&self) -> Sender<Line> {
        self.lines.clone()
    }

    /// Writes it an order.
    pub(super) fn tell(&self, order: Order) {
        // The writer ends with the worker, whose end is reported.
        let _ = self.lines.send(Line::Order(Box::new(order)));
    }
}

impl Hand<Order> for Remote {
    fn send(&self, order: Order) -> Result<(), FleetError> {
        let is_last = matches!(order, Order::Quit);
        self.tell(order);
        if is_last {
            let _ = self.lines.send(Line::End);
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        // Its end is reported.
        false
    }

    fn join(&mut self) {
        let deadline = Instant::now() + QUIT_TIMEOUT;
        while Instant::now() < deadline && !has_ended(&self.child) {
            std::thread::sleep(Duration::from_millis(5));
        }
        kill(&mut lock(&self.child));
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to do.
            let _ = thread.join();
        }
    }

    fn waker(&self) -> Option<Waker> {
        None
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // One that was not joined has failed at its start.
        if !self.threads.is_empty() {
            let _ = self.lines.send(Line::End);
            kill(&mut lock(&self.child));
        }
    }
}

/// The shell command of a worker, in a process group of its own, so that a Ctrl-C is for the controller alone.
pub(super) fn shell(command: &str) -> process::Command {
    let mut program = process::Command::new("sh");
    program
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut program, 0);
    program
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has_ended(child: &Mutex<Child>) -> bool {
    !matches!(lock(child).try_wait(), Ok(None))
}

/// Ends the command and all that it has started.
pub(super) fn kill(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        #[cfg(target_os = "linux")]
        if let Some(group) = i32::try_from(child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            // It may have ended between the two calls.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn check_version(hello: &Hello) -> Result<(), String> {
    match hello.contract {
        CONTRACT => Ok(()),
        other => Err(format!(
            "it speaks version {other} of the worker contract, and this program version {CONTRACT}: use the same \
             version of Tidewire on both sides"
        )),
    }
}

/// The first word of a worker. It may take its time, and the user may not want to wait.
fn heard_first(words: &Receiver<Word>, stop: &AtomicBool) -> Result<Word, RecvTimeoutError> {
    let deadline = Instant::now() + HELLO_TIMEOUT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match words.recv_timeout(left.min(STOP_LOOK)) {
            Err(RecvTimeoutError::Timeout) if !left.is_zero() && !stop.load(Ordering::Relaxed) => {}
            heard => return heard,
        }
    }
}

/// When something was last heard of a worker: any byte, because a long line may take its time.
#[derive(Debug)]
struct Heard(Mutex<Instant>);

impl Default for Heard {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Heard {
    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn silence(&self) -> Duration {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.elapsed()
    }
}

/// The output of a worker, of which each piece is a sign of life.
struct Listened<R>(R, Arc<Heard>);

impl<R: Read> Read for Listened<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.1.note();
        Ok(read)
    }
}

fn read(stdout: impl Read, said: &Sender<Word>) {
    let mut lines = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        // A worker that writes no end of a line must not fill this process's memory.
        let read = (&mut lines)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            return;
        }
        let value = serde_json::from_slice(&line).map_err(|error| error.to_string());
        let word = value.and_then(|value| Word::of(&value));
        let word = word.unwrap_or_else(|fault| Word::Failed {
            reason: format!(
                "it wrote a line that is no word of the contract ({fault}): {}",
                String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES_MAX)]).trim_end()
            ),
        });
        if said.send(word).is_err() {
            return;
        }
    }
}

fn write(stdin: ChildStdin, lines: &Receiver<Line>, relay: &Relay, index: usize) {
    // Inputs of many megabytes leave piece by piece.
    let mut stdin = BufWriter::with_capacity(PIECE_BYTES, stdin);
    for line in lines {
        let order = match line {
            Line::Order(order) => *order,
            Line::Progress => match relay.take_progress(index) {
                Some(received) => Order::Progress { received },
                None => continue,
            },
            Line::End => return,
        };
        let is_written = serde_json::to_writer(&mut stdin, &order).is_ok()
            && stdin.write_all(b"\n").is_ok()
            && stdin.flush().is_ok();
        if !is_written {
            return;
        }
    }
}

fn keep(stderr: impl Read, last_words: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let mut words = last_words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.len() == LAST_WORDS_MAX {
            words.pop_front();
        }
        words.push_back(line.chars().take(SHOWN_BYTES_MAX).collect());
    }
}

/// How a worker has ended.
struct Ending {
    child: Arc<Mutex<Child>>,
    keeper: Option<JoinHandle<()>>,
    last_words: Arc<Mutex<VecDeque<String>>>,
}

impl Ending {
    /// Its exit status and the end of its standard error.
    fn in_words(&mut self) -> String {
        let deadline = Instant::now() + STATUS_TIMEOUT;
        while Instant::now() < deadline && !has_ended(&self.child) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let status = {
            let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            child.try_wait().ok().flatten()
        };
        let how = match status {
            Some(status) => {
                if let Some(keeper) = self.keeper.take() {
                    let deadline = Instant::now() + STATUS_TIMEOUT;
                    while !keeper.is_finished() && Instant::now() < deadline {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                status.to_string()
            }
            None => "it closed its standard output".to_owned(),
        };
        let words = self
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.is_empty() {
            true => how,
            false => format!("{how}: {}", words.join("; ")),
        }
    }
}

/// Acts on the words of a worker until its end.
fn manage(
    words: &Receiver<Word>,
    mut ears: Ears,
    mut clocks: Clocks,
    (mut ending, heard): (Ending, &Heard),
    name: String,
) {
    let mut asked = Instant::now();
    let reason = loop {
        match words.recv_timeout(CLOCK_EVERY / 4) {
            Ok(word) => {
                if let Some(reason) = hear(word, &mut ears, &mut clocks) {
                    break reason;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break ending.in_words(),
            Err(RecvTimeoutError::Timeout) if heard.silence() > SILENCE_MAX => {
                break format!("it said nothing for {} s", SILENCE_MAX.as_secs());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if asked.elapsed() >= CLOCK_EVERY {
            asked = Instant::now();
            clocks.ask();
        }
    };
    kill(&mut lock(&ending.child));
    ears.relay.leave(ears.index);
    ears.listener.end(name, reason);
}

/// Acts on one word; returns the reason of a failure.
fn hear(word: Word, ears: &mut Ears, clocks: &mut Clocks) -> Option<String> {
    match word {
        Word::Hello(_) => return Some("it introduced itself twice".to_owned()),
        Word::Clock { id, clock_ns } => clocks.hear(id, clock_ns),
        Word::Progress { received } => ears.relay.progress(ears.index, received),
        Word::Published { publications } => ears.relay.published(ears.index, publications),
        Word::Failed { reason } => return Some(reason),
        other => return ears.listener.hear(other).err(),
    }
    None
}

/// The comparison of the clocks by round trips.
struct Clocks {
    epoch: Instant,
    clock: Arc<Clock>,
    lines: Sender<Line>,
    /// The last question, and when it was asked.
    asked: (u64, Instant),
    /// The newest answers: the round-trip time of each, and the worker's clock at the zero of the run.
    answers: VecDeque<(Duration, i64)>,
}

impl Clocks {
    fn new(epoch: Instant, clock: Arc<Clock>, lines: Sender<Line>) -> Self {
        Self {
            epoch,
            clock,
            lines,
            asked: (0, epoch),
            answers: VecDeque::new(),
        }
    }

    fn ask(&mut self) {
        let id = self.asked.0 + 1;
        self.asked = (id, Instant::now());
        let _ = self.lines.send(Line::Order(Box::new(Order::Clock { id })));
    }

    /// Records an answer. The shortest of the last round trips is the most accurate.
    fn hear(&mut self, id: u64, clock_ns: i64) {
        let (asked_id, asked) = self.asked;
        if id != asked_id {
            return;
        }
        let took = asked.elapsed();
        let middle = (asked + took / 2).saturating_duration_since(self.epoch);
        if self.answers.len() == CLOCK_PROBES {
            self.answers.pop_front();
        }
        let zero_ns = clock_ns.saturating_sub(middle.as_nanos() as i64);
        self.answers.push_back((took, zero_ns));
        if let Some((took, zero_ns)) = self.answers.iter().min_by_key(|(took, _)| *took) {
            self.clock.zero_ns.store(*zero_ns, Ordering::Relaxed);
            let error_ns = took.as_nanos() as u64 / 2;
            self.clock.error_ns.store(error_ns, Ordering::Relaxed);
        }
    }
}

/// The time that a worker has for its first line: a remote shell may have to log in.
const HELLO_TIMEOUT: Duration = Duration::from_secs(30);

/// The time that a worker has to end by itself.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time until the end of a worker shows in its exit status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);

/// A worker that sends nothing for this long is considered gone.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(10);

const CLOCK_EVERY: Duration = Duration::from_secs(1);
const CLOCK_PROBES: usize = 8;
/// The counts of a long load of many steps have some kilobytes for each second.
const LINE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Between two looks whether the user still waits for a worker.
const STOP_LOOK: Duration = Duration::from_millis(100);
/// So much of an order is written at once.
const PIECE_BYTES: usize = 64 * 1024;
const SHOWN_BYTES_MAX: usize = 200;
const LAST_WORDS_MAX: usize = 4;
