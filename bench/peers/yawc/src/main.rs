//! Echo and sink server on yawc, with permessage-deflate where it is asked for.

use std::convert::Infallible;
use std::future::ready;
use std::process::ExitCode;

use futures_util::{FutureExt, SinkExt, StreamExt};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use peer_args::{Mode, Options};
use tokio::net::TcpStream;
use yawc::frame::{Frame, OpCode};
use yawc::{CompressionLevel, DeflatePool, HttpWebSocket, UpgradeFut, WebSocket, WebSocketError};

fn main() -> ExitCode {
    // What its documentation advises for many connections: the state of compression is shared by all
    // that agreed to have no memory between messages.
    let pool = DeflatePool::new(POOL_SIZE);
    let modes = [Mode::Echo, Mode::Sink];
    peer_args::run(&modes, move |stream, options| {
        accept(stream, options, pool.clone())
    })
}

async fn accept(stream: TcpStream, options: Options, pool: DeflatePool) {
    let service = service_fn(move |request| {
        ready(Ok::<_, Infallible>(answer(request, options, pool.clone())))
    });
    // An error here is a client that spoke no HTTP or went away: its own affair.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

fn answer(
    mut request: Request<Incoming>,
    options: Options,
    pool: DeflatePool,
) -> Response<Empty<Bytes>> {
    let plain = yawc::Options::default().with_utf8().without_compression();
    let settings = match options.deflate_level {
        None => plain,
        Some(level) => plain
            .with_compression_level(CompressionLevel::new(level))
            .with_deflate_pool(pool),
    };
    match WebSocket::upgrade_with_options(&mut request, settings) {
        Ok((response, upgraded)) => {
            tokio::task::spawn_local(tokio::task::unconstrained(serve(upgraded, options.mode)));
            response
        }
        Err(_) => {
            let mut response = Response::new(Empty::new());
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
        }
    }
}

/// Serves one connection until it closes. Pongs and close replies are the library's own. Replies are
/// flushed only when no further message is at hand, so that those to all messages of one read leave
/// together.
async fn serve(upgraded: UpgradeFut, mode: Mode) -> Result<(), WebSocketError> {
    let mut socket: HttpWebSocket = upgraded.await?;
    loop {
        let next = match socket.next().now_or_never() {
            Some(next) => next,
            None => {
                socket.flush().await?;
                socket.next().await
            }
        };
        let Some(frame) = next else { return Ok(()) };
        match (frame.opcode(), mode) {
            (OpCode::Text, Mode::Echo) => socket.feed(Frame::text(frame.into_payload())).await?,
            (OpCode::Binary, Mode::Echo) => {
                socket.feed(Frame::binary(frame.into_payload())).await?
            }
            _ => {}
        }
    }
}

/// More than one thread ever uses at once.
const POOL_SIZE: usize = 64;
