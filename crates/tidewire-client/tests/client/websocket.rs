//! The server's side of a WebSocket connection, as far as tests need it to do what no server should.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Reads the head of a request; `None` if the client goes before its end.
pub(crate) async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// Reads a request and accepts it.
pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> Option<()> {
    let head = read_head(stream).await?;
    let key = head
        .lines()
        .find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "))?;
    let mut answer = Vec::new();
    tidewire_wire::handshake::server::write_accept(key, None, &[], &mut answer);
    stream.write_all(&answer).await.ok()
}

/// Takes the next frame off, and its mask: its opcode and its payload.
pub(crate) async fn read_frame<S: AsyncRead + Unpin>(stream: &mut S) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).await.ok()?;
    let length = match head[1] & 0x7f {
        126 => u64::from(stream.read_u16().await.ok()?),
        127 => stream.read_u64().await.ok()?,
        length => u64::from(length),
    };
    let mut mask = [0; 4];
    stream.read_exact(&mut mask).await.ok()?;
    let mut payload = vec![0; usize::try_from(length).ok()?];
    stream.read_exact(&mut payload).await.ok()?;
    for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    Some((head[0] & 0x0f, payload))
}
