//! All connections, and the loop that is measured.

use crate::connection::Connection;
use crate::frames::{self, Ring};
use crate::options::{Mode, Options};
use crate::report::{self, Report};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::time::{Duration, Instant};

/// Opens the connections, sends for as long as the options say, and waits until all is confirmed.
pub fn run(options: &Options) -> io::Result<Report> {
    let mut fleet = Fleet::open(options)?;
    let (cpu, server_cpu) = (
        report::own_cpu(),
        options.server_pid.and_then(report::cpu_of),
    );
    let start = Instant::now();
    fleet.send_until(start + options.duration)?;
    let sending = start.elapsed();
    let client_cpu = report::own_cpu() - cpu;
    let kernel_bytes = report::kernel_bytes();
    fleet.confirm(Instant::now() + CONFIRM_WITHIN)?;
    let elapsed = start.elapsed();
    let server_cpu_after = options.server_pid.and_then(report::cpu_of);
    Ok(Report {
        confirmed: fleet.confirmed(),
        elapsed_s: elapsed.as_secs_f64(),
        client_cpu_s: client_cpu.as_secs_f64(),
        client_busy: client_cpu.as_secs_f64() / sending.as_secs_f64(),
        server_cpu_s: server_cpu_after
            .zip(server_cpu)
            .map(|(after, before)| (after - before).as_secs_f64()),
        kernel_bytes,
    })
}

struct Fleet<'a> {
    options: &'a Options,
    ring: Ring,
    connections: Vec<Connection>,
    readiness: OwnedFd,
    events: Vec<Event>,
    buffer: Vec<u8>,
}

impl<'a> Fleet<'a> {
    fn open(options: &'a Options) -> io::Result<Self> {
        let readiness = epoll::create(CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(options.connections);
        for number in 0..options.connections {
            let connection = Connection::open(options)?;
            epoll::add(
                &readiness,
                &connection.stream,
                EventData::new_u64(number as u64),
                EventFlags::IN,
            )?;
            connections.push(connection);
        }
        Ok(Self {
            options,
            ring: Ring::new(options.payload_bytes),
            connections,
            readiness,
            events: Vec::with_capacity(EVENTS_MAX),
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Has room in the sockets reported as long as there is some, or not.
    fn watch_room(&self, is_watched: bool) -> io::Result<()> {
        for number in 0..self.connections.len() {
            self.watch(number, is_watched)?;
        }
        Ok(())
    }

    fn watch(&self, number: usize, is_watched: bool) -> io::Result<()> {
        let room = if is_watched {
            EventFlags::OUT
        } else {
            EventFlags::empty()
        };
        let stream = self.connections[number].stream.as_fd();
        let data = EventData::new_u64(number as u64);
        Ok(epoll::modify(
            &self.readiness,
            stream,
            data,
            EventFlags::IN | room,
        )?)
    }

    /// Reports until `deadline`; false when it has come.
    fn wait(&mut self, deadline: Instant) -> io::Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let timeout =
            Timespec::try_from(left.max(Duration::from_millis(1))).map_err(io::Error::other)?;
        self.events.clear();
        let room = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.readiness, room, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// The loop that is measured.
    fn send_until(&mut self, deadline: Instant) -> io::Result<()> {
        let is_echo = self.options.mode != Mode::Sink;
        match self.options.mode {
            Mode::Sink => self.watch_room(true)?,
            Mode::Echo { .. } => {
                for connection in &mut self.connections {
                    connection.send(&self.ring, self.options)?;
                }
            }
        }
        while self.wait(deadline)? {
            for event in &self.events {
                let (flags, number) = (event.flags, event.data.u64() as usize);
                let connection = &mut self.connections[number];
                if flags.intersects(TO_BE_READ) {
                    connection.receive(&mut self.buffer, self.options.payload_bytes)?;
                }
                if flags.contains(EventFlags::OUT) || is_echo {
                    connection.send(&self.ring, self.options)?;
                }
            }
        }
        Ok(())
    }

    /// Ends every connection's messages with a ping and waits for the pongs, or for the answers that are missing.
    fn confirm(&mut self, deadline: Instant) -> io::Result<()> {
        let ping = frames::ping();
        self.watch_room(true)?;
        let mut open = self.connections.len();
        while open > 0 {
            if !self.wait(deadline)? {
                return Err(io::Error::other(format!(
                    "{open} connections are not confirmed"
                )));
            }
            for index in 0..self.events.len() {
                let event = self.events[index];
                let (flags, number) = (event.flags, event.data.u64() as usize);
                let connection = &mut self.connections[number];
                let was_confirmed = connection.is_confirmed;
                if flags.contains(EventFlags::OUT) && connection.finish(&self.ring, &ping)? {
                    self.watch(number, false)?;
                }
                let connection = &mut self.connections[number];
                if flags.intersects(TO_BE_READ) {
                    connection.receive(&mut self.buffer, self.options.payload_bytes)?;
                }
                if connection.is_confirmed && !was_confirmed {
                    open -= 1;
                }
            }
        }
        Ok(())
    }

    /// The messages that the server has read, or has sent back.
    fn confirmed(&self) -> u64 {
        self.connections
            .iter()
            .map(|connection| match self.options.mode {
                Mode::Sink => connection.sent(&self.ring),
                Mode::Echo { .. } => connection.answered(),
            })
            .sum()
    }
}

/// Reports taken from the kernel at a time.
const EVENTS_MAX: usize = 1024;

/// Something came, or the end did.
const TO_BE_READ: EventFlags = EventFlags::IN.union(EventFlags::HUP).union(EventFlags::ERR);

/// Room for what one read returns.
const READ_BYTES: usize = 256 * 1024;

/// How long the server may take for what is queued when sending ends.
const CONFIRM_WITHIN: Duration = Duration::from_secs(60);
