//! Asking sentinels where a master is.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_net::tls::{self, ClientConfig, ClientConnection, StreamOwned};
use tidewire_redis::resp::{Frames, Limits, Value, command};

/// A host as it was named, and a port.
pub(super) type Named = (String, u16);

/// The sentinels of a master. Each search begins with those that the one before did not ask.
#[derive(Debug, Clone)]
pub(super) struct Sentinels {
    pub(super) places: Vec<Named>,
    /// What they call the master.
    pub(super) name: String,
    pub(super) password: Option<String>,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Sentinels {
    /// The master that most sentinels name; among equals `known`, else the one that was named first. Blocks for at
    /// most a few seconds.
    ///
    /// # Errors
    /// No sentinel names a master in time; the error is that of the last one.
    pub(super) fn master(&mut self, known: Option<&Named>) -> io::Result<Named> {
        let deadline = Instant::now() + PATIENCE;
        let enough = self.places.len() / 2 + 1;
        let mut votes: Vec<(Named, usize)> = Vec::new();
        let mut failed = io::Error::other("there is no sentinel");
        for _ in 0..self.places.len() {
            let sentinel = self.places.remove(0);
            let answer = self.ask(&sentinel, deadline);
            self.places.push(sentinel.clone());
            match answer {
                Ok(master) => match votes.iter_mut().find(|(named, _)| *named == master) {
                    Some((_, count)) => *count += 1,
                    None => votes.push((master, 1)),
                },
                Err(error) => {
                    let (host, port) = sentinel;
                    failed =
                        io::Error::new(error.kind(), format!("sentinel {host}:{port}: {error}"));
                }
            }
            if votes.iter().any(|(_, count)| *count >= enough) || Instant::now() >= deadline {
                break;
            }
        }
        // The last of the greatest is taken: so the first that was named comes last, but for the known one.
        votes.reverse();
        votes.sort_by_key(|(named, count)| (*count, Some(named) == known));
        votes.pop().map(|(master, _)| master).ok_or(failed)
    }

    /// What one sentinel says.
    fn ask(&self, (host, port): &Named, deadline: Instant) -> io::Result<Named> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (host.as_str(), *port).to_socket_addrs()? {
            let socket = left(deadline).and_then(|left| TcpStream::connect_timeout(&address, left));
            match socket {
                Ok(socket) => return self.talk_by(socket, host, deadline),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn talk_by(&self, socket: TcpStream, host: &str, deadline: Instant) -> io::Result<Named> {
        socket.set_read_timeout(Some(left(deadline)?))?;
        socket.set_write_timeout(Some(left(deadline)?))?;
        let Some(config) = &self.tls else {
            return self.talk(socket, deadline);
        };
        let server = tls::server_name(host).map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::clone(config), server);
        let session = session.map_err(io::Error::other)?;
        self.talk(StreamOwned::new(session, socket), deadline)
    }

    fn talk(&self, mut stream: impl Read + Write, deadline: Instant) -> io::Result<Named> {
        let mut out = Vec::new();
        let mut expected = 1;
        if let Some(password) = &self.password {
            command(&mut out, &[b"AUTH", password.as_bytes()]);
            expected += 1;
        }
        let name = self.name.as_bytes();
        command(&mut out, &[b"SENTINEL", b"get-master-addr-by-name", name]);
        stream.write_all(&out)?;
        let mut frames = Frames::new(Limits {
            string_bytes_max: ANSWER_BYTES_MAX,
            value_bytes_max: ANSWER_BYTES_MAX,
        });
        let mut bytes = [0; ANSWER_BYTES_MAX];
        loop {
            // An answer that trickles does not take for ever.
            left(deadline)?;
            let read = stream.read(&mut bytes)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut answer = None;
            let scanned = frames.read(&bytes[..read], |value| {
                expected -= 1;
                if let Value::Error(text) = value {
                    answer = Some(Err(io::Error::other(String::from_utf8_lossy(text))));
                } else if expected == 0 {
                    answer = Some(self.master_of(value));
                }
                match answer {
                    Some(_) => ControlFlow::Break(()),
                    None => ControlFlow::Continue(()),
                }
            });
            scanned.map_err(io::Error::other)?;
            if let Some(answer) = answer {
                return answer;
            }
        }
    }

    /// Reads `[host, port]`; nothing stands for a name that the sentinel does not know.
    fn master_of(&self, value: Value<'_>) -> io::Result<Named> {
        let mut items = value.items();
        let mut next = || {
            let text = items.next()?.text()?;
            String::from_utf8(text.to_vec()).ok()
        };
        let unknown = || {
            let words = format!("it knows no master {:?}", self.name);
            io::Error::new(io::ErrorKind::NotFound, words)
        };
        let (host, port) = next().zip(next()).ok_or_else(unknown)?;
        let port = port.parse().map_err(|_| unknown())?;
        Ok((host, port))
    }
}

/// The time until the deadline, at most as much as one step may take.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left.min(STEP)),
    }
}

/// How long all sentinels together may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a sentinel may take to accept, and for each part of its answer.
const STEP: Duration = Duration::from_millis(700);

/// More than any answer has.
const ANSWER_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A sentinel that names this host as the master to everybody; `None` accepts and says nothing.
    fn sentinel(master: Option<&'static str>) -> Named {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for socket in listener.incoming() {
                let mut socket = socket.expect("a connection");
                if let Some(host) = master {
                    let answer = format!("*2\r\n${}\r\n{host}\r\n$4\r\n6379\r\n", host.len());
                    let _bytes = socket.read(&mut [0; 256]).expect("a question");
                    socket.write_all(answer.as_bytes()).expect("an answer");
                }
                kept.push(socket);
            }
        });
        ("127.0.0.1".to_owned(), port)
    }

    fn sentinels(masters: &[Option<&'static str>]) -> Sentinels {
        Sentinels {
            places: masters.iter().map(|master| sentinel(*master)).collect(),
            name: "main".to_owned(),
            password: None,
            tls: None,
        }
    }

    #[test]
    fn most_sentinels_decide() {
        let mut sentinels = sentinels(&[Some("old"), Some("new"), Some("new")]);
        for _ in 0..4 {
            let master = sentinels.master(None).expect("a master");
            assert_eq!(master, ("new".to_owned(), 6379));
        }
    }

    #[test]
    fn of_two_that_disagree_the_known_master_stays() {
        let mut sentinels = sentinels(&[Some("a"), Some("b")]);
        for known in ["a", "b", "b", "a", "a"] {
            let known = (known.to_owned(), 6379);
            let master = sentinels.master(Some(&known)).expect("a master");
            assert_eq!(master, known);
        }
    }

    #[test]
    fn one_that_says_nothing_holds_up_no_search() {
        let mut silent = sentinels(&[None, Some("a")]);
        let master = silent.master(None).expect("a master");
        assert_eq!(master.0, "a");
        let error = sentinels(&[None]).master(None).expect_err("no answer");
        assert!(
            error.to_string().starts_with("sentinel 127.0.0.1:"),
            "{error}"
        );
    }
}
