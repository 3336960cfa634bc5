//! The real engine on a simulated network, for tests.

use crate::config::Config;
use crate::handle::Handle;
use crate::server::{StartError, assemble};
use crate::session::application::Application;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tidewire_net::{Handler, Shard};

/// The shards of a server for [`Driver::add`](tidewire_net::simulation::Driver::add). All that they draw comes
/// from `seed`. Of the handle only what reads counters, histories and presence keeps a run the same: publishing
/// from outside reads the real clock.
///
/// # Errors
/// As [`Server::start`](crate::Server::start). Addresses and TLS are not looked at.
pub fn shards<A: Application>(
    config: Config,
    application: impl FnMut(usize) -> A,
    seed: u64,
) -> Result<(Vec<Shard<impl Handler>>, Handle), StartError> {
    assemble(config, application, |index| {
        StdRng::seed_from_u64(seed ^ ((index as u64) << 32))
    })
}
