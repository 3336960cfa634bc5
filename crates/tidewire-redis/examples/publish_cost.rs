//! Cost of a publication for Redis: the script in batches of 64, compared with `XADD` and `PUBLISH` in a pipeline.
//!
//! `cargo run --release -p tidewire-redis --example publish_cost [PUBLICATIONS [ROUNDS]]` starts a `redis-server`,
//! runs each kind several times in turn, and prints medians: publications per second, and microseconds of the server's
//! CPU for each. One subscriber reads everything.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidewire_redis::connection::PubSub;
use tidewire_redis::resp::{Frames, Limits, Value, command};
use tidewire_redis::script::{Fence, Hashes, PublishCall, PublishItem, sources};
use tidewire_redis::{Mark, NodeId};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let publications = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let rounds = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("socket");
    let child = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--unixsocket"])
        .arg(&path)
        .stdout(Stdio::null())
        .spawn()?;
    let _server = Killed(child);
    while UnixStream::connect(&path).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let subscriber = UnixStream::connect(&path)?;
    subscribe(subscriber)?;
    let mut kinds: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
    for _ in 0..rounds {
        for (index, kind) in KINDS.into_iter().enumerate() {
            let measured = measure(&path, kind, publications)?;
            if kinds.len() <= index {
                kinds.push((kind, Vec::new()));
            }
            kinds[index].1.push(measured);
        }
    }
    println!(
        "{publications} publications of {RECORD_BYTES} bytes, {TOPICS} topics, median of {rounds}"
    );
    for (kind, measured) in &mut kinds {
        let rate = median(measured.iter().map(|(rate, _)| *rate));
        let cpu = median(measured.iter().map(|(_, cpu)| *cpu));
        println!("{kind:<28} {rate:>9.0} /s  {cpu:>6.2} us of Redis each");
    }
    Ok(())
}

const KINDS: [&str; 5] = [
    "script, 64 each, history",
    "script, 64 each, no history",
    "script, 1 each, history",
    "XADD + PUBLISH, pipeline 64",
    "PUBLISH, pipeline 64",
];

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = (self.0.kill(), self.0.wait());
    }
}

fn subscribe(mut socket: UnixStream) -> Result<(), Box<dyn Error>> {
    let mut out = Vec::new();
    command(&mut out, &[b"SUBSCRIBE", b"t0"]);
    socket.write_all(&out)?;
    std::thread::spawn(move || {
        let mut bytes = vec![0; 262_144];
        while socket.read(&mut bytes).is_ok_and(|length| length > 0) {}
    });
    Ok(())
}

/// Publications per second, and microseconds of CPU for each.
fn measure(path: &Path, kind: &str, publications: usize) -> Result<(f64, f64), Box<dyn Error>> {
    let mut client = Client::connect(path)?;
    let batch = if kind.contains("1 each") { 1 } else { 64 };
    let publications = if batch == 1 {
        publications / 4
    } else {
        publications
    };
    let hashes = Hashes::default();
    let fence = Fence {
        run_id: "run".to_owned(),
        least_epoch: 1,
    };
    let before = client.cpu_us()?;
    let start = Instant::now();
    let (mut in_flight, mut done) = (0, 0);
    for number in 1..=publications / batch {
        let mut out = Vec::new();
        let replies = if kind.starts_with("script") {
            let has_history = !kind.contains("no history");
            script(&hashes, &fence, number as u64, batch, has_history, &mut out);
            1
        } else {
            plain(number, batch, kind.starts_with("XADD"), &mut out)
        };
        client.socket.write_all(&out)?;
        in_flight += replies;
        done += batch;
        // Four batches in flight, as the link has.
        while in_flight > 3 * replies {
            in_flight -= client.replies()?;
        }
    }
    while in_flight > 0 {
        in_flight -= client.replies()?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let used_us = client.cpu_us()? - before;
    Ok((done as f64 / seconds, used_us / done as f64))
}

fn record(number: usize) -> Vec<u8> {
    let mark = Mark {
        node: NodeId(1),
        batch: number as u64,
        index: 0,
    };
    let mut record = [&[1][..], &mark.to_bytes()].concat();
    record.resize(RECORD_BYTES, b'x');
    record
}

fn script(
    hashes: &Hashes,
    fence: &Fence,
    batch: u64,
    items: usize,
    has_history: bool,
    out: &mut Vec<u8>,
) {
    let record = record(batch as usize);
    let names: Vec<_> = (0..TOPICS)
        .map(|topic| format!("t{topic}").into_bytes())
        .collect();
    let items: Vec<_> = (0..items)
        .map(|index| PublishItem {
            stream: &names[(batch as usize + index) % TOPICS],
            id_key: None,
            expected_epoch: has_history.then_some(EPOCH),
            publications_max: 100,
            record: &record,
            keep_ms: None,
        })
        .collect();
    let call = PublishCall {
        fence_key: b"f",
        writer_key: b"w",
        fence,
        generation: 1,
        batch,
        after: batch - 1,
        may_begin: batch == 1,
        id_memory_ms: 1,
        groups_key: b"q",
        work_max: 100_000,
        work_bytes_max: 16 * 1024 * 1024,
        work_drops_newest: false,
        channels: "",
        begun_ms: 0,
        items: &items,
    };
    call.write(hashes, out);
}

fn plain(number: usize, items: usize, has_history: bool, out: &mut Vec<u8>) -> usize {
    let record = record(number);
    for index in 0..items {
        let name = format!("t{}", (number + index) % TOPICS);
        let name = name.as_bytes();
        if has_history {
            command(
                out,
                &[b"XADD", name, b"MAXLEN", b"~", b"100", b"*", b"d", &record],
            );
        }
        command(out, &[b"PUBLISH", name, &record]);
    }
    if has_history { 2 * items } else { items }
}

struct Client {
    socket: UnixStream,
    frames: Frames,
    buffer: Vec<u8>,
}

impl Client {
    /// On an empty server with the scripts, and streams in the epoch.
    fn connect(path: &Path) -> Result<Self, Box<dyn Error>> {
        let mut client = Self {
            socket: UnixStream::connect(path)?,
            frames: Frames::new(Limits::default()),
            buffer: vec![0; 262_144],
        };
        client.ask(&[b"FLUSHALL"])?;
        for source in sources(PubSub::Plain) {
            client.ask(&[b"SCRIPT", b"LOAD", source.as_bytes()])?;
        }
        client.ask(&[b"HSET", b"f", b"run", b"run", b"least", b"1"])?;
        for topic in 0..TOPICS {
            let (name, begin) = (format!("t{topic}"), format!("{EPOCH}-0"));
            client.ask(&[
                b"XADD",
                name.as_bytes(),
                b"MAXLEN",
                b"0",
                begin.as_bytes(),
                b"d",
                b"",
            ])?;
            client.ask(&[b"DEL", b"w"])?;
        }
        Ok(client)
    }

    fn ask(&mut self, arguments: &[&[u8]]) -> Result<(), Box<dyn Error>> {
        let mut out = Vec::new();
        command(&mut out, arguments);
        self.socket.write_all(&out)?;
        while self.replies()? == 0 {}
        Ok(())
    }

    /// How many replies came; an error if one is an error.
    fn replies(&mut self) -> Result<usize, Box<dyn Error>> {
        let length = self.socket.read(&mut self.buffer)?;
        let (mut count, mut error) = (0, None);
        self.frames.read(&self.buffer[..length], |value| {
            count += 1;
            if let Value::Error(text) | Value::Text(text @ (b"gap" | b"begin" | b"fenced")) = value
            {
                error = Some(String::from_utf8_lossy(text).into_owned());
            }
            ControlFlow::Continue(())
        })?;
        error.map_or(Ok(count), |error| Err(error.into()))
    }

    fn cpu_us(&mut self) -> Result<f64, Box<dyn Error>> {
        let mut out = Vec::new();
        command(&mut out, &[b"INFO", b"cpu"]);
        self.socket.write_all(&out)?;
        let mut sum = 0.0;
        let mut is_read = false;
        while !is_read {
            let length = self.socket.read(&mut self.buffer)?;
            self.frames.read(&self.buffer[..length], |value| {
                is_read = true;
                let text = String::from_utf8_lossy(value.text().unwrap_or_default()).into_owned();
                let used = |line: &str| {
                    let line = line
                        .strip_prefix("used_cpu_user:")
                        .or(line.strip_prefix("used_cpu_sys:"));
                    line.and_then(|used| used.trim().parse::<f64>().ok())
                };
                sum = text.lines().filter_map(used).sum();
                ControlFlow::Continue(())
            })?;
        }
        Ok(sum * 1e6)
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const TOPICS: usize = 100;
const RECORD_BYTES: usize = 200;
/// Any epoch that the fence allows.
const EPOCH: u32 = 4_000_000_000;
