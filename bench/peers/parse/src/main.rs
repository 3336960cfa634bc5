//! Prints how fast tungstenite and fastwebsockets read the frames that Tidewire's example `read_frames`
//! reads, from memory on one core: one JSON object a line.

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use fastwebsockets::{FragmentCollector, OpCode, WebSocket as FastWebSocket};
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::WebSocket;
use tokio_tungstenite::tungstenite::protocol::Role;

fn main() {
    for payload_bytes in [64, 175, 1024, 16 * 1024, 64 * 1024] {
        let (stream, frames) = stream(payload_bytes);
        for (reader, read) in READERS {
            let fastest = (0..ROUNDS).map(|_| timed_s(read, &stream, frames));
            let frames_per_s = frames as f64 / fastest.fold(f64::INFINITY, f64::min);
            let bytes_per_s = frames_per_s * payload_bytes as f64;
            println!(
                r#"{{"measure":"frames","reader":"{reader}","payload_bytes":{payload_bytes},"frames_per_s":{frames_per_s:.0},"bytes_per_s":{bytes_per_s:.0}}}"#
            );
        }
    }
}

fn timed_s(read: Reader, stream: &[u8], frames: usize) -> f64 {
    let memory = Memory { unread: stream };
    let start = Instant::now();
    assert_eq!(
        black_box(read(black_box(memory))),
        frames,
        "not all frames were read"
    );
    start.elapsed().as_secs_f64()
}

/// Messages read until the end; both check UTF-8.
type Reader = fn(Memory<'_>) -> usize;

const READERS: [(&str, Reader); 2] = [
    ("tungstenite", read_tungstenite),
    ("fastwebsockets", read_fastwebsockets),
];

fn read_tungstenite(memory: Memory<'_>) -> usize {
    let mut socket = WebSocket::from_raw_socket(memory, Role::Server, None);
    let mut messages = 0;
    while let Ok(message) = socket.read() {
        messages += usize::from(black_box(message).is_text());
    }
    messages
}

fn read_fastwebsockets(memory: Memory<'_>) -> usize {
    let socket = FastWebSocket::after_handshake(memory, fastwebsockets::Role::Server);
    let mut socket = FragmentCollector::new(socket);
    let read = async {
        let mut messages = 0;
        while let Ok(frame) = socket.read_frame().await {
            messages += usize::from(black_box(frame).opcode == OpCode::Text);
        }
        messages
    };
    read.now_or_never()
        .expect("memory never keeps a reader waiting")
}

/// Received bytes, as a stream that fills every buffer.
struct Memory<'a> {
    unread: &'a [u8],
}

impl Read for Memory<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.unread.read(buffer)
    }
}

impl Write for Memory<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Memory<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (now, later) = self
            .unread
            .split_at(self.unread.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.unread = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Memory<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// As many masked text frames as one read of an event loop may bring, and their number.
fn stream(payload_bytes: usize) -> (Vec<u8>, usize) {
    let mut payload = br#"{"t":"trade","p":{"symbol":"BTC-USD","text":""#.to_vec();
    payload.resize(payload_bytes - 3, b'x');
    payload.extend_from_slice(b"\"}}");
    let (mut stream, mut frames) = (Vec::new(), 0);
    while stream.len() < BUFFER_BYTES {
        stream.push(0x81);
        match payload_bytes {
            0..126 => stream.push(0x80 | payload_bytes as u8),
            126..65_536 => {
                stream.push(0x80 | 126);
                stream.extend_from_slice(&(payload_bytes as u16).to_be_bytes());
            }
            _ => {
                stream.push(0x80 | 127);
                stream.extend_from_slice(&(payload_bytes as u64).to_be_bytes());
            }
        }
        stream.extend_from_slice(&MASK);
        let masked = payload
            .iter()
            .zip(MASK.iter().cycle())
            .map(|(byte, mask)| byte ^ mask);
        stream.extend(masked);
        frames += 1;
    }
    (stream, frames)
}

const BUFFER_BYTES: usize = 512 * 1024;
const MASK: [u8; 4] = [0x1f, 0x2e, 0x3d, 0x4c];
const ROUNDS: usize = 200;
