//! Echo and sink server on tokio-tungstenite.

use std::process::ExitCode;

use futures_util::{FutureExt, SinkExt, StreamExt};
use peer_args::{Mode, Options};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Error;

fn main() -> ExitCode {
    peer_args::run(async |stream, options: Options| {
        // An error is a client that broke the protocol or went away: its own affair.
        let _ = serve(stream, options.mode).await;
    })
}

/// Serves one connection until it closes. The configuration is the library's default, whose documentation
/// names its 128 KiB buffers as the choice for high load; pongs and UTF-8 checks are its own.
async fn serve(stream: TcpStream, mode: Mode) -> Result<(), Error> {
    let mut socket = tokio_tungstenite::accept_async(stream).await?;
    match mode {
        Mode::Echo => echo(&mut socket).await,
        Mode::Sink => sink(&mut socket).await,
    }
}

/// Replies are flushed only when no further message is at hand, so that the replies to all messages of one
/// read leave in one write.
async fn echo(socket: &mut WebSocketStream<TcpStream>) -> Result<(), Error> {
    loop {
        let next = match socket.next().now_or_never() {
            Some(next) => next,
            None => {
                socket.flush().await?;
                socket.next().await
            }
        };
        match next.transpose()? {
            Some(message) if message.is_text() || message.is_binary() => {
                socket.feed(message).await?
            }
            Some(_) => {}
            None => return Ok(()),
        }
    }
}

async fn sink(socket: &mut WebSocketStream<TcpStream>) -> Result<(), Error> {
    while socket.next().await.transpose()?.is_some() {}
    Ok(())
}
