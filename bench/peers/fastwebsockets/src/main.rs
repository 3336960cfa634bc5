//! Echo and sink server on fastwebsockets, set up as that library's own echo example is.

use std::convert::Infallible;
use std::future::ready;
use std::process::ExitCode;

use fastwebsockets::{FragmentCollector, OpCode, WebSocketError, upgrade};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use peer_args::{Mode, Options};
use tokio::net::TcpStream;

fn main() -> ExitCode {
    peer_args::run(&[Mode::Echo, Mode::Sink], accept)
}

async fn accept(stream: TcpStream, options: Options) {
    let mode = options.mode;
    let service = service_fn(move |request| ready(Ok::<_, Infallible>(answer(request, mode))));
    // An error here is a client that spoke no HTTP or went away: its own affair.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

fn answer(mut request: Request<Incoming>, mode: Mode) -> Response<Empty<Bytes>> {
    match upgrade::upgrade(&mut request) {
        Ok((response, upgraded)) => {
            // Unconstrained, as in the library's example: the task then never yields between two frames
            // that are already in its buffer.
            tokio::task::spawn_local(tokio::task::unconstrained(serve(upgraded, mode)));
            response
        }
        Err(_) => {
            let mut response = Response::new(Empty::new());
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
        }
    }
}

/// Serves one connection until it closes. Pongs, close replies and UTF-8 checks are the library's own,
/// on by default; frames above 1 KiB leave by `writev` without a copy, also its default.
async fn serve(upgraded: upgrade::UpgradeFut, mode: Mode) -> Result<(), WebSocketError> {
    let mut socket = FragmentCollector::new(upgraded.await?);
    loop {
        let frame = socket.read_frame().await?;
        match frame.opcode {
            OpCode::Close => return Ok(()),
            OpCode::Text | OpCode::Binary if mode == Mode::Echo => {
                socket.write_frame(frame).await?
            }
            _ => {}
        }
    }
}
