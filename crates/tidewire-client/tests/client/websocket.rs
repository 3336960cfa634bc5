//! The server's side of a WebSocket connection, for servers that do what no server should.

use tidewire_testkit::websocket::{Incoming, Said};
use tidewire_wire::frame::{OpCode, write_frame};
use tidewire_wire::handshake::server::{Limits, parse_request, write_accept};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Reads the head of a request; `None` if the client goes before its end.
pub(crate) async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(head)
}

/// Reads a request, which must be a good one, and accepts it.
pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> Option<()> {
    let head = read_head(stream).await?;
    let request = parse_request(&head, &Limits::default()).expect("a good request");
    let request = request.expect("a whole request");
    let mut answer = Vec::new();
    write_accept(request.key(), None, &[], &mut answer);
    stream.write_all(&answer).await.ok()
}

/// The next message or control frame of the client; `None` if it has gone.
pub(crate) async fn next<S: AsyncRead + Unpin>(
    stream: &mut S,
    incoming: &mut Incoming,
) -> Option<Said> {
    let mut part = [0; 4_096];
    loop {
        if let Some(said) = incoming.next() {
            return Some(said);
        }
        match stream.read(&mut part).await.ok()? {
            0 => return None,
            bytes => incoming.push(&part[..bytes]),
        }
    }
}

/// A frame of a server.
pub(crate) fn frame(opcode: OpCode, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, opcode, payload, None);
    bytes
}
