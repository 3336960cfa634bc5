//! The physical limit of a load generator on plain sockets: a request is written, and as many bytes are read as its
//! response has. Nothing is parsed, timed or checked after the first response.
//!
//! `peer-bareloop ADDRESS CONNECTIONS SECONDS` prints one line of JSON: responses and the seconds that they took.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match &arguments[..] {
        [address, connections, seconds] => address
            .parse()
            .ok()
            .zip(connections.parse().ok())
            .zip(seconds.parse().ok()),
        _ => None,
    };
    let Some(((address, connections), seconds)) = parsed else {
        eprintln!("usage: peer-bareloop ADDRESS CONNECTIONS SECONDS");
        return ExitCode::from(2);
    };
    match run(address, connections, Duration::from_secs(seconds)) {
        Ok((responses, elapsed)) => {
            let elapsed_s = elapsed.as_secs_f64();
            println!(r#"{{"responses":{responses},"elapsed_s":{elapsed_s:.6}}}"#);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{address}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(address: SocketAddr, connections: usize, length: Duration) -> io::Result<(u64, Duration)> {
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let response_bytes = response_bytes(address, &request)?;
    let readiness = epoll::create(CreateFlags::CLOEXEC)?;
    let mut streams = Vec::new();
    for number in 0..connections {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let data = EventData::new_u64(number as u64);
        epoll::add(&readiness, &stream, data, EventFlags::IN)?;
        streams.push((stream, response_bytes));
    }
    let start = Instant::now();
    for (stream, _) in &mut streams {
        stream.write_all(request.as_bytes())?;
    }
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut responses = 0;
    while start.elapsed() < length {
        events.clear();
        let room = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&readiness, room, None)?;
        for event in &events {
            let (stream, left) = &mut streams[event.data.u64() as usize];
            match stream.read(&mut buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                bytes if bytes > *left => return Err(io::Error::other("too long a response")),
                bytes => *left -= bytes,
            }
            if *left == 0 {
                responses += 1;
                *left = response_bytes;
                stream.write_all(request.as_bytes())?;
            }
        }
    }
    Ok((responses, start.elapsed()))
}

/// The length of the response, which the server must send each time.
fn response_bytes(address: SocketAddr, request: &str) -> io::Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let bytes = stream.read(&mut buffer)?;
        response.extend_from_slice(&buffer[..bytes]);
        let text = String::from_utf8_lossy(&response).to_lowercase();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let body_bytes: Option<usize> = head
                .split("\r\n")
                .find_map(|line| line.strip_prefix("content-length:"))
                .and_then(|length| length.trim().parse().ok());
            let body_bytes = body_bytes.ok_or_else(|| io::Error::other("no Content-Length"))?;
            let whole = head.len() + 4 + body_bytes;
            if response.len() >= whole {
                return Ok(whole);
            }
        }
        if bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}

const EVENTS_MAX: usize = 1024;
const BUFFER_BYTES: usize = 64 * 1024;
