//! A connection to a Redis or a sentinel that blocks, for threads that are no event loops.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_net::tls::{self, ClientConfig, ClientConnection, StreamOwned};
use tidewire_redis::resp::{Frames, Limits, Value, command};

/// A host as it was named, and a port.
pub(super) type Named = (String, u16);

/// A reply that outlives the bytes it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Nothing,
    Text(Vec<u8>),
    Number(i64),
    List(Vec<Reply>),
    /// An error.
    Refused(String),
}

/// Commands to be sent at once.
#[derive(Debug, Default)]
pub(super) struct Commands {
    bytes: Vec<u8>,
    count: usize,
}

/// The time limits of an exchange.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// The end of the whole exchange; `None`: it may last for ever.
    pub(super) deadline: Option<Instant>,
    /// The longest time of one step: to open a connection, or to wait for a part of a reply.
    pub(super) step: Duration,
}

trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// The connection.
pub(super) struct Blocking {
    stream: Box<dyn Stream>,
    frames: Frames,
    patience: Patience,
}

impl Patience {
    fn left(&self) -> io::Result<Duration> {
        let Some(deadline) = self.deadline else {
            return Ok(self.step);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(left.min(self.step)),
        }
    }
}

impl Commands {
    pub(super) fn push(&mut self, words: &[&[u8]]) {
        command(&mut self.bytes, words);
        self.count += 1;
    }

    /// Pushes `AUTH`, if there is a password.
    pub(super) fn log_in(&mut self, user: Option<&str>, password: Option<&str>) {
        if let Some(password) = password {
            let words = [Some("AUTH"), user, Some(password)];
            let words: Vec<_> = words.into_iter().flatten().map(str::as_bytes).collect();
            self.push(&words);
        }
    }
}

impl Reply {
    fn of(value: Value<'_>) -> Self {
        match value {
            Value::Error(text) => Self::Refused(String::from_utf8_lossy(text).into_owned()),
            Value::Text(text) | Value::Number(text) => Self::Text(text.to_vec()),
            Value::Integer(number) => Self::Number(number),
            Value::Boolean(truth) => Self::Number(i64::from(truth)),
            Value::Array(items) | Value::Map(items) | Value::Push(items) => {
                Self::List(items.map(Self::of).collect())
            }
            Value::Null => Self::Nothing,
        }
    }

    /// The bytes of a text; `None` for anything else.
    pub(super) fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number, also if it is written as a text.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The items of a list; nothing for anything else.
    pub(super) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }
}

impl Blocking {
    /// Opens a connection to the first address of a name that answers.
    pub(super) fn tcp(
        (host, port): &Named,
        tls: Option<&Arc<ClientConfig>>,
        patience: Patience,
        bytes_max: usize,
    ) -> io::Result<Self> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (host.as_str(), *port).to_socket_addrs()? {
            let socket = patience
                .left()
                .and_then(|left| TcpStream::connect_timeout(&address, left));
            match socket {
                Ok(socket) => {
                    let left = patience.left()?;
                    socket.set_nodelay(true)?;
                    socket.set_read_timeout(Some(left))?;
                    socket.set_write_timeout(Some(left))?;
                    let stream: Box<dyn Stream> = match tls {
                        None => Box::new(socket),
                        Some(config) => {
                            let server = tls::server_name(host).map_err(io::Error::other)?;
                            let session = ClientConnection::new(Arc::clone(config), server);
                            let session = session.map_err(io::Error::other)?;
                            Box::new(StreamOwned::new(session, socket))
                        }
                    };
                    return Ok(Self::over(stream, patience, bytes_max));
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    pub(super) fn unix(path: &Path, patience: Patience, bytes_max: usize) -> io::Result<Self> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(patience.left()?))?;
        Ok(Self::over(Box::new(socket), patience, bytes_max))
    }

    fn over(stream: Box<dyn Stream>, patience: Patience, bytes_max: usize) -> Self {
        Self {
            stream,
            patience,
            frames: Frames::new(Limits {
                string_bytes_max: bytes_max,
                value_bytes_max: bytes_max,
            }),
        }
    }

    /// Sends commands, and returns the reply to each.
    ///
    /// # Errors
    /// The connection fails, a reply is no RESP, or the server refuses one of the commands: then all were sent.
    pub(super) fn ask_all(&mut self, commands: Commands) -> io::Result<Vec<Reply>> {
        let replies = self.ask_each(commands)?;
        let refused = replies.iter().find_map(|reply| match reply {
            Reply::Refused(text) => Some(text),
            _ => None,
        });
        match refused {
            Some(text) => Err(io::Error::other(text.as_str())),
            None => Ok(replies),
        }
    }

    /// The same; the server may refuse some of the commands.
    ///
    /// # Errors
    /// The connection fails, or a reply is no RESP.
    pub(super) fn ask_each(&mut self, commands: Commands) -> io::Result<Vec<Reply>> {
        let mut replies = Vec::with_capacity(commands.count);
        if commands.count == 0 {
            return Ok(replies);
        }
        self.stream.write_all(&commands.bytes)?;
        let mut bytes = vec![0; 64 * 1024];
        while replies.len() < commands.count {
            // The deadline holds also for a reply that arrives byte by byte.
            self.patience.left()?;
            let read = self.stream.read(&mut bytes)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let scanned = self.frames.read(&bytes[..read], |value| {
                replies.push(Reply::of(value));
                ControlFlow::Continue(())
            });
            scanned.map_err(io::Error::other)?;
        }
        Ok(replies)
    }
}
