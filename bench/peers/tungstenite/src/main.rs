//! Echo, sink and broadcast server on tokio-tungstenite.

use std::pin::pin;
use std::process::ExitCode;

use futures_util::future::{Either, select};
use futures_util::{FutureExt, SinkExt, StreamExt};
use peer_args::{Mode, Options};
use tokio::net::TcpStream;
use tokio::sync::broadcast::Sender;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};

fn main() -> ExitCode {
    let everyone = Sender::new(BROADCAST_MESSAGES_MAX);
    let modes = [Mode::Echo, Mode::Sink, Mode::Broadcast];
    peer_args::run(&modes, move |stream, options: Options| {
        let everyone = everyone.clone();
        async move {
            // An error is a client that broke the protocol or went away: its own affair.
            let _ = serve(stream, options.mode, everyone).await;
        }
    })
}

/// Serves one connection until it closes. The configuration is the library's default, whose documentation
/// names its 128 KiB buffers as the choice for high load; pongs and UTF-8 checks are its own.
async fn serve(stream: TcpStream, mode: Mode, everyone: Sender<Message>) -> Result<(), Error> {
    let mut socket = tokio_tungstenite::accept_async(stream).await?;
    match mode {
        Mode::Echo => echo(&mut socket).await,
        Mode::Sink => sink(&mut socket).await,
        Mode::Broadcast => broadcast(&mut socket, &everyone).await,
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

/// Tokio's broadcast channel, whose messages share their bytes. All that waits for a connection leaves with
/// one flush. A connection that lags by more than the channel holds is ended.
async fn broadcast(
    socket: &mut WebSocketStream<TcpStream>,
    everyone: &Sender<Message>,
) -> Result<(), Error> {
    let mut receiver = everyone.subscribe();
    loop {
        let event = match select(pin!(socket.next()), pin!(receiver.recv())).await {
            Either::Left((said, _)) => Either::Left(said),
            Either::Right((heard, _)) => Either::Right(heard),
        };
        match event {
            Either::Left(Some(said)) => publish(said?, everyone),
            Either::Right(Ok(heard)) => {
                socket.feed(heard).await?;
                while let Ok(heard) = receiver.try_recv() {
                    socket.feed(heard).await?;
                }
                socket.flush().await?;
            }
            Either::Left(None) | Either::Right(Err(_)) => return Ok(()),
        }
    }
}

fn publish(message: Message, everyone: &Sender<Message>) {
    if message.is_text() || message.is_binary() {
        // It fails without receivers only, and this connection is one.
        let _ = everyone.send(message);
    }
}

/// More than the load generator has under way at any time.
const BROADCAST_MESSAGES_MAX: usize = 16_384;
