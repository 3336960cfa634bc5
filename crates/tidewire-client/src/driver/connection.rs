//! One connection at work: bytes in and out of the socket, with the session between.

use crate::clock::after;
use crate::driver::connect::{Opened, Stream};
use crate::driver::dial::Dialer;
use crate::error::Ending;
use crate::event::BatchBuilder;
use crate::outbox::Burst;
use crate::queue::job::StoreEvent;
use crate::session::Session;
use crate::shared::Shared;
use std::io;
use std::time::Duration;
use tidewire_wire::close::CloseCode;
use tidewire_wire::connection::{self, Output};
use tidewire_wire::frame::{OpCode, Role};
use tidewire_wire::message::Input;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// The buffers of a connection, and how far it is.
struct Connection<'a> {
    shared: &'a Shared,
    session: &'a mut Session,
    burst: &'a mut Burst,
    websocket: connection::Connection,
    input: Vec<u8>,
    /// The part of `input` that has been received and not read.
    unread: std::ops::Range<usize>,
    /// Events may be left in `input`, because there was no room for them.
    has_more: bool,
    out: Vec<u8>,
    written: usize,
    written_at: Instant,
    /// How much of `out` answers the server at most.
    reply_bytes: usize,
    /// True if the socket may hold back written bytes until a flush: TLS does.
    is_buffered: bool,
    has_to_flush: bool,
    batch: BatchBuilder,
    /// When the session has to be established, or what the close waits for has to be there.
    limit: Option<Instant>,
    closing: Closing,
    /// When something was received last, or the close began.
    heard_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// Nothing can be sent before the server's hello, which is waited for.
    Greeting,
    /// Waiting messages are still sent.
    Draining,
    /// Our close has been sent; the server's is waited for.
    Sent,
}

/// Runs a connection to its end.
pub(crate) async fn run(
    opened: Opened,
    deadline: Instant,
    shared: &Shared,
    session: &mut Session,
    burst: &mut Burst,
    dialer: &mut Dialer,
    store: &mut UnboundedReceiver<StoreEvent>,
) -> Ending {
    let message_bytes_max = shared.config.message_bytes_max;
    let mut websocket = connection::Connection::new(Role::Client, message_bytes_max);
    if opened.deflate.is_some() {
        websocket = websocket.with_compression();
    }
    let rest_bytes = opened.rest.len();
    let mut input = opened.rest;
    input.resize(rest_bytes.max(READ_BYTES_MIN), 0);
    let is_buffered = matches!(opened.stream, Stream::Tls(_));
    let (mut receiver, mut sender) = split(opened.stream);
    let batch = BatchBuilder::new(session.serial());
    let mut connection = Connection {
        shared,
        session,
        burst,
        websocket,
        input,
        unread: 0..rest_bytes,
        has_more: rest_bytes > 0,
        out: Vec::new(),
        written: 0,
        written_at: Instant::now(),
        reply_bytes: 0,
        is_buffered,
        has_to_flush: false,
        batch,
        limit: Some(deadline),
        closing: Closing::No,
        heard_at: Instant::now(),
    };
    let work = connection.work(&mut receiver, &mut sender, dialer, store);
    let ending = match work.await {
        Ok(ending) | Err(ending) => ending,
    };
    let ending = match connection.closing {
        Closing::Sent if ending.by_server => Ending {
            reason: "closed by the application".to_owned(),
            ..ending
        },
        _ => ending,
    };
    connection.flush_batch();
    connection.end(&ending, &mut sender).await;
    ending
}

impl Connection<'_> {
    async fn work(
        &mut self,
        receiver: &mut ReadHalf<Stream>,
        sender: &mut WriteHalf<Stream>,
        dialer: &mut Dialer,
        store: &mut UnboundedReceiver<StoreEvent>,
    ) -> Result<Ending, Ending> {
        let timer = sleep_until(self.deadline());
        tokio::pin!(timer);
        loop {
            if self.has_more && self.may_read() {
                self.read_events()?;
            }
            self.fill_out()?;
            self.flush_batch();
            self.arm(timer.as_mut());
            let is_full = self.is_full();
            // A server that sends pings without end and reads no answer would fill the memory.
            let can_read = !is_full && self.reply_bytes < REPLY_BYTES_MAX;
            let can_send = self.session.is_established() && self.closing == Closing::No;
            let wants_more =
                can_send && self.burst.is_empty() && self.pending_bytes() < OUT_BYTES_MAX;
            let input = &mut self.input[self.unread.end..];
            let has_to_write = self.written < self.out.len() || self.has_to_flush;
            let wants_token = can_send && self.session.wants_token(self.shared.moment());
            tokio::select! {
                written = write_or_flush(sender, &self.out[self.written..]), if has_to_write => {
                    self.handle_written(written)?;
                }
                read = receiver.read(input), if can_read => {
                    self.handle_read(read)?;
                }
                () = self.shared.inbox.room(), if is_full => {
                    // Nothing was read meanwhile, so that silence does not count.
                    self.session.handle_heard(self.shared.moment());
                }
                () = self.shared.outbox.filled(), if wants_more => self.yield_to_senders().await,
                () = self.shared.life.closing(), if self.closing == Closing::No => self.start_close(),
                token = dialer.token(), if wants_token => {
                    let moment = self.shared.moment();
                    self.session.handle_token(token, moment, &mut self.out)?;
                }
                Some(event) = store.recv() => self.handle_store(event)?,
                () = timer.as_mut() => self.handle_timeout()?,
            }
        }
    }

    /// Encodes what waits, and our close behind it.
    fn fill_out(&mut self) -> Result<(), Ending> {
        let room = OUT_BYTES_MAX.saturating_sub(self.pending_bytes());
        if self.session.is_established() && self.closing != Closing::Sent && room > 0 {
            if self.burst.is_empty() {
                self.shared.outbox.take(self.burst);
            }
            if !self.burst.is_empty() {
                let moment = self.shared.moment();
                let bytes_max = self.out.len() + room;
                let (burst, out) = (&mut *self.burst, &mut self.out);
                self.session
                    .handle_burst(burst, bytes_max, moment, out, &mut self.batch)?;
            }
        }
        match self.closing {
            Closing::Greeting if self.session.is_established() => {
                self.closing = Closing::Draining;
                self.limit = Some(after(CLOSE_TIMEOUT));
            }
            Closing::Draining if !self.has_to_wait() => self.send_close(),
            _ => {}
        }
        Ok(())
    }

    fn send_close(&mut self) {
        self.closing = Closing::Sent;
        let (code, reason) = self.shared.life.close_code_and_reason();
        let mut frames = ControlFrames {
            session: self.session,
            out: &mut self.out,
        };
        self.websocket
            .control
            .close(Some(code), &reason, &mut frames);
    }

    /// An application that sends one message after another, and shares a core or a thread with this task, would have
    /// it woken for each of them: the application goes first then, and what it sends meanwhile leaves together.
    async fn yield_to_senders(&self) {
        if self.written_at.elapsed() < STREAMING {
            std::thread::yield_now();
            tokio::task::yield_now().await;
        }
    }

    /// Whether something that was given to be sent has not been encoded.
    fn has_to_send(&self) -> bool {
        !self.burst.is_empty() || self.shared.outbox.waiting_bytes() > 0
    }

    /// True while our close has to wait: for messages that have not been sent, or for answers of a server that
    /// is not silent. The close does not wait for answers while the application receives no events, because the
    /// answers cannot be read then.
    fn has_to_wait(&self) -> bool {
        let is_answering = self.heard_at.elapsed() < ANSWERING;
        self.has_to_send() || (is_answering && self.session.awaits_answers() && !self.is_full())
    }

    fn handle_written(&mut self, written: io::Result<Option<usize>>) -> Result<(), Ending> {
        let written = match written.map_err(|error| Ending::lost(error.to_string()))? {
            None => {
                self.has_to_flush = false;
                return Ok(());
            }
            Some(0) => return Err(Ending::lost("the connection takes no more bytes")),
            Some(written) => written,
        };
        self.written += written;
        self.has_to_flush = self.is_buffered;
        self.written_at = Instant::now();
        self.reply_bytes = self.reply_bytes.min(self.pending_bytes());
        if self.written == self.out.len() {
            self.out.clear();
            self.out.shrink_to(OUT_BYTES_MAX);
            self.written = 0;
        } else if self.written >= OUT_BYTES_MAX {
            self.out.drain(..self.written);
            self.written = 0;
        }
        Ok(())
    }

    fn handle_read(&mut self, read: std::io::Result<usize>) -> Result<(), Ending> {
        let read = read.map_err(|error| Ending::lost(error.to_string()))?;
        if read == 0 {
            return Err(Ending::lost("the server has gone without a close"));
        }
        self.heard_at = Instant::now();
        self.session.handle_heard(self.shared.moment());
        self.unread.end += read;
        let was_full = self.unread.end == self.input.len();
        self.read_events()?;
        if was_full && self.input.len() < READ_BYTES_MAX {
            let bytes = (self.input.len() * 4).min(READ_BYTES_MAX);
            self.input.resize(bytes, 0);
        }
        Ok(())
    }

    /// Reads events from the input while there is room for them.
    fn read_events(&mut self) -> Result<(), Ending> {
        let moment = self.shared.moment();
        let bytes_max = self.shared.config.inbox_bytes_max;
        let was_accepted = self.session.is_accepted();
        let was_established = self.session.is_established();
        let answered = self.session.quality(moment).answered;
        let mut input = Input::new(&mut self.input[self.unread.clone()]);
        let out_bytes = self.out.len();
        self.has_more = true;
        while self.batch.bytes() < bytes_max {
            let mut frames = ControlFrames {
                session: self.session,
                out: &mut self.out,
            };
            let event = self.websocket.receive(&mut input, &mut frames);
            let event =
                event.map_err(|error| Ending::ours(error.close_code(), error.to_string()))?;
            let Some(event) = event else {
                self.has_more = false;
                break;
            };
            self.session
                .handle_event(event, moment, &mut self.out, &mut self.batch)?;
        }
        self.unread.start += input.consumed();
        if !self.has_more {
            // The rest is shorter than a control frame.
            self.input.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        let quality = self.session.quality(moment);
        if quality.answered != answered {
            self.shared.set_quality(quality);
        }
        if !was_accepted && self.session.is_accepted() {
            self.shared.handle_accepted(self.session.takes_binary());
        }
        if was_established == self.session.is_established() {
            self.reply_bytes += self.out.len() - out_bytes;
        } else {
            self.shared.handle_established();
            if self.closing == Closing::No {
                self.limit = None;
            }
        }
        Ok(())
    }

    fn handle_store(&mut self, event: StoreEvent) -> Result<(), Ending> {
        let moment = self.shared.moment();
        self.session
            .handle_store(event, moment, &mut self.out, &mut self.batch)
    }

    fn handle_timeout(&mut self) -> Result<(), Ending> {
        if self.limit.is_some_and(|limit| limit <= Instant::now()) {
            let (code, _) = self.shared.life.close_code_and_reason();
            return Err(match self.closing {
                Closing::No => Ending::lost("the server did not say hello in time"),
                Closing::Greeting => {
                    let words = "the server did not say hello; what waited for it was not sent";
                    Ending::ours(code, words)
                }
                Closing::Draining if self.has_to_send() => {
                    Ending::ours(code, "what waited could not be sent in time")
                }
                Closing::Draining => Ending::ours(code, "what was sent was not answered in time"),
                Closing::Sent => Ending::lost("the server did not answer the close in time"),
            });
        }
        let moment = self.shared.moment();
        if self.is_full() {
            // Nothing is read, so that silence does not count.
            self.session.handle_heard(moment);
        }
        self.session
            .handle_timeout(moment, &mut self.out, &mut self.batch)?;
        let quality = self.session.quality(moment);
        self.shared.set_quality(quality);
        Ok(())
    }

    fn start_close(&mut self) {
        self.heard_at = Instant::now();
        let has_to_wait = !self.session.is_established() && self.has_to_send();
        if has_to_wait && self.session.is_accepted() {
            self.closing = Closing::Greeting;
            self.limit = Some(after(HELLO_TIMEOUT));
            return;
        }
        self.limit = Some(after(CLOSE_TIMEOUT));
        if has_to_wait {
            // A server that has not accepted the client accepts no messages either.
            self.send_close();
        } else {
            self.closing = Closing::Draining;
        }
    }

    fn flush_batch(&mut self) {
        let serial = self.session.serial();
        let batch = std::mem::replace(&mut self.batch, BatchBuilder::new(serial));
        if self.may_keep() {
            self.shared.inbox.push(batch);
        }
    }

    /// Sends our close or the answer to the server's, as far as the socket accepts it.
    async fn end(&mut self, ending: &Ending, sender: &mut WriteHalf<Stream>) {
        if let Some(code) = ending.code {
            let mut frames = ControlFrames {
                session: self.session,
                out: &mut self.out,
            };
            self.websocket.control.fail(code, "", &mut frames);
        }
        let last_words = async {
            sender.write_all(&self.out[self.written..]).await?;
            sender.shutdown().await
        };
        // A peer that does not read is abandoned after this time.
        let _ = timeout(LAST_WORDS_TIMEOUT, last_words).await;
    }

    /// Sets the timer if it is due later than it has to be.
    fn arm(&self, timer: std::pin::Pin<&mut Sleep>) {
        let deadline = self.deadline();
        if timer.is_elapsed() || deadline < timer.deadline() {
            timer.reset(deadline);
        }
    }

    fn deadline(&self) -> Instant {
        let moment = self.shared.moment();
        let mut deadline_ms = self.session.poll_deadline_ms(moment);
        if !self.burst.is_empty() && self.pending_bytes() == 0 {
            deadline_ms = deadline_ms.min(self.session.next_send_ms(moment));
        }
        // The quality is reported and forgotten requests are purged at least at this interval.
        let tick_ms = match self.closing {
            Closing::Draining => CLOSING_TICK_MS,
            _ => TICK_MS,
        };
        let wait_ms = deadline_ms.saturating_sub(moment.ms()).clamp(1, tick_ms);
        let deadline = after(Duration::from_millis(wait_ms));
        self.limit.map_or(deadline, |limit| limit.min(deadline))
    }

    /// True if reading stops, because the application has not received the events already read.
    fn is_full(&self) -> bool {
        self.closing != Closing::Sent && (self.has_more || !self.shared.inbox.has_room())
    }

    /// True if received bytes may be read: after our close always, because the server's close is among them.
    fn may_read(&self) -> bool {
        self.closing == Closing::Sent || self.shared.inbox.has_room()
    }

    /// True if the application gets the events that were read. After our close the queue may stay full, because an
    /// application that closes may have stopped receiving.
    fn may_keep(&self) -> bool {
        self.closing != Closing::Sent || self.shared.inbox.has_room()
    }

    fn pending_bytes(&self) -> usize {
        self.out.len() - self.written
    }
}

/// Writes some of `bytes` and returns how many; flushes if there are none. A caller that stops waiting loses nothing.
async fn write_or_flush(sender: &mut WriteHalf<Stream>, bytes: &[u8]) -> io::Result<Option<usize>> {
    if bytes.is_empty() {
        sender.flush().await?;
        return Ok(None);
    }
    sender.write(bytes).await.map(Some)
}

/// The output of control frames: behind the bytes already encoded, masked with the session's random numbers.
struct ControlFrames<'a> {
    session: &'a mut Session,
    out: &'a mut Vec<u8>,
}

impl Output for ControlFrames<'_> {
    fn buffer(&mut self, _opcode: OpCode) -> Option<&mut Vec<u8>> {
        self.session.has_connection().then_some(self.out)
    }

    fn mask(&mut self) -> Option<[u8; 4]> {
        self.session.mask()
    }

    /// A close frame without a code is answered as a normal close.
    fn close_code(&self, received: Option<CloseCode>) -> Option<CloseCode> {
        received.or(Some(CloseCode::NORMAL))
    }
}

const READ_BYTES_MIN: usize = 8 * 1024;
const READ_BYTES_MAX: usize = 128 * 1024;

/// Encoded bytes that wait for the socket at most, but for one message.
const OUT_BYTES_MAX: usize = 256 * 1024;

/// Answers to the server's pings that wait for the socket, past which nothing more is read.
const REPLY_BYTES_MAX: usize = 1024 * 1024;

/// A message that follows the last write so soon is part of a stream; an answer to the server's reaction to
/// that write needs longer.
const STREAMING: Duration = Duration::from_micros(20);

/// How long a close waits for the server's hello, which is one round trip after the client was accepted.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);

/// The time limit for sending the waiting messages before our close, and then for the server's close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);

/// After this silence of the server a close does not wait for its answers any more.
const ANSWERING: Duration = Duration::from_secs(1);

const TICK_MS: u64 = 1_000;
const CLOSING_TICK_MS: u64 = 100;
