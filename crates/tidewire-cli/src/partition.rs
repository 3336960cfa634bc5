//! `tidewire partition`: moves the topics of a cluster into another number of partitions, or to other brokers.

use crate::failure::Failure;
use crate::output::print;
use crate::serve::BrokerFlags;
use clap::Args;
use std::io::{IsTerminal, Write};
use tidewire_engine::{BrokerAddress, BrokerConfig, Repartitioned, repartition};

/// The options of `partition`.
#[derive(Debug, Args)]
pub(crate) struct PartitionFlags {
    /// The number of partitions that the topics are moved to, from 1 to 64
    #[arg(long, value_name = "PARTITIONS", value_parser = clap::value_parser!(u16).range(1..=64))]
    to: u16,
    /// The brokers that the topics are moved to, as `--broker` of `serve` names them [default: the ones that they are at]
    #[arg(long, value_name = "URLS")]
    to_broker: Option<String>,
    #[command(flatten)]
    broker: BrokerFlags,
}

pub(crate) fn run(flags: &PartitionFlags) -> Result<u8, Failure> {
    let from = flags.broker.broker()?;
    let mut to = from.clone();
    if let Some(urls) = &flags.to_broker {
        to.addresses = BrokerAddress::parse_list(urls)
            .map_err(|error| Failure::usage(format!("--to-broker: {error}")))?;
    }
    to.partitions = flags.to;
    to.check()
        .map_err(|words| Failure::usage(format!("--to-broker: {words}")))?;
    let shows = std::io::stderr().is_terminal();
    let mut progress = |keys: u64| {
        if shows {
            // Nobody may look.
            let _ = write!(std::io::stderr(), "\r{keys} keys");
        }
    };
    let done = repartition(&from, &to, &mut progress).map_err(Failure::run)?;
    if shows {
        let _ = write!(std::io::stderr(), "\r");
    }
    print(&summary(&done, &to, flags.to_broker.is_some())).map(|()| 0)
}

fn summary(done: &Repartitioned, to: &BrokerConfig, is_elsewhere: bool) -> String {
    let Repartitioned {
        partitions_before,
        topics,
        topics_moved,
    } = done;
    format!(
        "{topics_moved} of {topics} topics with a history were moved, from {partitions_before} to {} partitions; \
         start all servers with --broker-partitions {}{}\n",
        to.partitions,
        to.partitions,
        match is_elsewhere {
            true => " and the new --broker",
            false => "",
        }
    )
}
