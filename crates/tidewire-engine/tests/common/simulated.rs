//! A server on the simulated network, and the client of the tests there.

use tidewire_engine::{Application, Config, Handle, simulation};
use tidewire_net::Handler;
use tidewire_testkit::simulation::{Driver, Faults};
pub use tidewire_testkit::websocket::simulated::{SimulatedClient, upgrade};

/// [`serve`] with a broker that answers late.
pub fn serve_late<A: Application>(
    config: Config,
    application: impl FnMut(usize) -> A,
    seed: u64,
) -> (Driver<impl Handler>, Handle, simulation::LateAnswers) {
    let (shards, handle, answers) =
        simulation::shards_with_late_broker(config, application, seed).expect("a server");
    let mut driver = Driver::new(Faults {
        delay_ms: 0..=0,
        ..Faults::default()
    });
    for shard in shards {
        driver.add(shard);
    }
    (driver, handle, answers)
}

/// A server on a network without delays.
pub fn serve<A: Application>(
    config: Config,
    application: impl FnMut(usize) -> A,
) -> (Driver<impl Handler>, Handle) {
    let (shards, handle) = simulation::shards(config, application, 0).expect("a server");
    let mut driver = Driver::new(Faults {
        delay_ms: 0..=0,
        ..Faults::default()
    });
    for shard in shards {
        driver.add(shard);
    }
    (driver, handle)
}
