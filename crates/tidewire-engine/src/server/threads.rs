//! Threads of a server: their start, their end, and the end of the server when one fails.

use crate::handle::Handle;
use crate::model::ShardHealth;
use crate::model::callback::words;
use crate::session::application::Application;
use crate::shard::EngineShard;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::Duration;
use tidewire_net::{Handler, Shard};

/// Runs a shard on a thread of its own. If it ends by a panic or an error, the server ends.
pub(crate) fn spawn<A: Application>(
    index: usize,
    shard: Shard<EngineShard<A>>,
    handle: Handle,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("tidewire-{index}"))
        .spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| {
                shard.run().map(|mut handler| {
                    // The sessions that were left ended after the last turn.
                    handler.contained_all(|app| app.on_turn());
                })
            }));
            match result {
                Ok(Ok(())) => {}
                Ok(Err(error)) => handle.fail(index, error.to_string()),
                Err(panic) => handle.fail(index, words(&*panic).to_owned()),
            }
        })
}

/// Runs the link to the broker or to the backend on a thread of its own. If it ends by a panic or an error, the server
/// ends.
pub(crate) fn spawn_link(
    name: &str,
    link: Shard<impl Handler + Send + 'static>,
    handle: Handle,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("tidewire-{name}"))
        .spawn(move || {
            let link_number = handle.shard_health().len();
            match catch_unwind(AssertUnwindSafe(|| link.run().map(drop))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => handle.fail(link_number, error.to_string()),
                Err(panic) => handle.fail(link_number, words(&*panic).to_owned()),
            }
        })
}

/// Stops the shards and waits for their threads. One that is stuck is left to itself, as nothing
/// can end it.
pub(crate) fn stop(handle: &Handle, threads: Vec<JoinHandle<()>>) {
    handle.stop_shards();
    for (shard, thread) in threads.into_iter().enumerate() {
        while !thread.is_finished() {
            if let Some(ShardHealth::Stuck { turn_ms }) = handle.shard_health().get(shard) {
                tracing::error!(
                    shard,
                    turn_ms,
                    "a shard is stuck in the application and does not stop; its thread is left behind",
                );
                break;
            }
            std::thread::sleep(STOP_POLL);
        }
    }
}

/// How often it is looked whether a thread has ended.
const STOP_POLL: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::Sink;
    use crate::config::{Config, Protocol};
    use crate::model::Outgoing;
    use crate::model::SendError;
    use crate::queue::queue;
    use crate::server::Server;
    use std::net::SocketAddr;
    use std::time::Instant;

    fn config() -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            shards: 2,
            protocol: Protocol::Raw,
            ..Config::default()
        }
    }

    /// Makes the engine of a shard panic.
    fn break_shard(handle: &Handle, shard: u32) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let broken = handle.ask(shard, deadline, |_| -> () { panic!("on purpose") });
        assert_eq!(broken, Err(SendError::Stopped));
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !condition() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(STOP_POLL);
        }
    }

    #[test]
    fn a_panic_of_the_engine_ends_the_server() {
        let server = Server::start(config(), |_| Sink).unwrap();
        let handle = server.handle();
        break_shard(&handle, 1);
        wait_until(|| handle.shard_health() == [ShardHealth::Ended; 2]);
        let failure = handle.failure().unwrap();
        assert_eq!(failure.to_string(), "shard 1 has failed: on purpose");
        let message = Outgoing::Text("x".into());
        assert_eq!(handle.broadcast(message), Err(SendError::Stopped));
        drop(server);
    }

    #[test]
    fn whoever_reads_the_queue_finds_out() {
        let (sender, receiver) = queue(1024);
        let server = Server::start(config(), |_| sender.application()).unwrap();
        drop(sender);
        break_shard(&server.handle(), 0);
        let deadline = Instant::now() + Duration::from_secs(30);
        while receiver.receive(Duration::from_millis(10)).is_ok() {
            assert!(Instant::now() < deadline);
        }
        wait_until(|| server.handle().is_stopped());
        assert_eq!(server.handle().failure().unwrap().shard, 0);
    }
}
