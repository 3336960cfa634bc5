//! Asking those who know where a master is: sentinels, or nodes of a cluster.

use super::blocking::{Blocking, Commands, Named, Patience, Reply};
use super::secrets::Login;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_net::io_words;
use tidewire_net::tls::ClientConfig;

/// Which master is searched.
#[derive(Debug, Clone)]
pub(super) enum Wanted {
    /// The one that sentinels call so.
    Name(String),
    /// The one that has this slot of a cluster.
    Slot(u16),
}

/// Those who know where a master is. Each search begins with those that the one before did not ask.
#[derive(Debug, Clone)]
pub(super) struct Search {
    pub(super) places: Vec<Named>,
    pub(super) wanted: Wanted,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Search {
    /// The master that most of them name; among equals `known`, else the one that was named first. Blocks for at
    /// most a few seconds.
    ///
    /// # Errors
    /// Nobody names a master in time; the error is that of the last one.
    pub(super) fn master(&mut self, known: Option<&Named>) -> io::Result<Named> {
        let deadline = self.deadline();
        let enough = self.places.len() / 2 + 1;
        let mut votes: Vec<(Named, usize)> = Vec::new();
        let mut failed = io::Error::other("nobody can be asked");
        for _ in 0..self.places.len() {
            let place = self.places.remove(0);
            let answer = self.ask(&place, deadline);
            self.places.push(place.clone());
            match answer {
                Ok(master) => match votes.iter_mut().find(|(named, _)| *named == master) {
                    Some((_, count)) => *count += 1,
                    None => votes.push((master, 1)),
                },
                Err(error) => {
                    let who = match self.wanted {
                        Wanted::Name(_) => "sentinel",
                        Wanted::Slot(_) => "node",
                    };
                    let (host, port) = place;
                    let words = format!("{who} {host}:{port}: {}", io_words(&error));
                    failed = io::Error::new(error.kind(), words);
                }
            }
            if votes.iter().any(|(_, count)| *count >= enough) || Instant::now() >= deadline {
                break;
            }
        }
        // `pop` returns the last of the greatest: the reversal moves the first that was named to the end, and
        // the sort prefers `known`.
        votes.reverse();
        votes.sort_by_key(|(named, count)| (*count, Some(named) == known));
        votes.pop().map(|(master, _)| master).ok_or(failed)
    }

    /// Uses another login of the broker. The nodes of a cluster have the same users; sentinels have their own.
    pub(super) fn log_in(&mut self, login: Option<&Login>) {
        if let (Wanted::Slot(_), Some(login)) = (&self.wanted, login) {
            self.user.clone_from(&login.user);
            self.password.clone_from(&login.password);
        }
    }

    /// When questions that begin now must have been answered.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + PATIENCE
    }

    /// A connection to one that knows where a master is, or to a node that uses the same login.
    pub(super) fn connect(&self, place: &Named, deadline: Instant) -> io::Result<Blocking> {
        let patience = Patience {
            deadline: Some(deadline),
            step: STEP,
        };
        let mut connection = Blocking::tcp(place, self.tls.as_ref(), patience, ANSWER_BYTES_MAX)?;
        let mut commands = Commands::default();
        commands.log_in(self.user.as_deref(), self.password.as_deref());
        connection.ask_all(commands)?;
        Ok(connection)
    }

    /// The answer of one of them.
    fn ask(&self, place: &Named, deadline: Instant) -> io::Result<Named> {
        let replies = self.connect(place, deadline)?.ask_all(self.question())?;
        let answer = replies.first().unwrap_or(&Reply::Nothing);
        self.read_answer(answer, &place.0)
    }

    fn question(&self) -> Commands {
        let mut commands = Commands::default();
        match &self.wanted {
            Wanted::Name(name) => {
                commands.push(&[b"SENTINEL", b"get-master-addr-by-name", name.as_bytes()]);
            }
            Wanted::Slot(_) => commands.push(&[b"CLUSTER", b"SLOTS"]),
        }
        commands
    }

    /// The master of an answer of `asked`.
    fn read_answer(&self, value: &Reply, asked: &str) -> io::Result<Named> {
        let (named, words) = match &self.wanted {
            Wanted::Name(name) => (master_of(value), format!("it knows no master {name:?}")),
            Wanted::Slot(slot) => (
                master_of_slot(value, *slot, asked),
                format!("it knows no master of slot {slot}"),
            ),
        };
        named.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, words))
    }
}

/// Reads `[host, port]`; nothing stands for a name that the sentinel does not know.
fn master_of(value: &Reply) -> Option<Named> {
    let [host, port, ..] = value.items() else {
        return None;
    };
    let host = String::from_utf8(host.text()?.to_vec()).ok()?;
    Some((host, port.number()?.try_into().ok()?))
}

/// Reads ranges of slots `[first, last, [host, port, ...] of the master, replicas ...]`. A node that does not know its
/// own name stands at the host that was asked.
fn master_of_slot(value: &Reply, slot: u16, asked: &str) -> Option<Named> {
    let slot = i64::from(slot);
    value.items().iter().find_map(|range| {
        let [first, last, master, ..] = range.items() else {
            return None;
        };
        if !(first.number()?..=last.number()?).contains(&slot) {
            return None;
        }
        let [host, port, ..] = master.items() else {
            return None;
        };
        let host = host.text().filter(|host| !host.is_empty());
        let host = match host {
            Some(host) => String::from_utf8(host.to_vec()).ok()?,
            None => asked.to_owned(),
        };
        Some((host, port.number()?.try_into().ok()?))
    })
}

/// The time limit for all of them together.
const PATIENCE: Duration = Duration::from_secs(3);

/// The time limit of one server: for accepting the connection, and for each part of its answer.
const STEP: Duration = Duration::from_millis(700);

/// More than any answer has: a cluster may have hundreds of nodes.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A sentinel that names this host as the master to everybody; `None` accepts and sends nothing.
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

    fn sentinels(masters: &[Option<&'static str>]) -> Search {
        Search {
            places: masters.iter().map(|master| sentinel(*master)).collect(),
            wanted: Wanted::Name("main".to_owned()),
            user: None,
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
