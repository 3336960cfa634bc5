//! The standing of a move, which every agreement that it concerns has in one field, so that an interrupted call goes on.

use super::lanes::{Lane, Lanes};
use super::outcome::RepartitionError;
use crate::config::broker::{BrokerAddress, BrokerConfig};
use tidewire_redis::link::{PARTITIONS_TERM, SERVERS_TERM};

/// Where topics are: a number of partitions, and the brokers in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Division {
    pub(super) partitions: u16,
    brokers: String,
}

/// How far a move has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Everything is where it was, and some of it also where it will be.
    Copying,
    /// Everything is where it will be.
    Cleaning,
}

/// A move that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) phase: Phase,
    pub(super) from: Division,
    pub(super) to: Division,
}

/// What the cluster knows of itself.
pub(super) struct Standing {
    /// Where the topics are.
    pub(super) partitions: u16,
    /// A move that was interrupted.
    pub(super) begun: Option<Move>,
}

impl Division {
    pub(super) fn of(config: &BrokerConfig, partitions: u16) -> Self {
        let brokers = config
            .addresses
            .iter()
            .map(BrokerAddress::place_and_database);
        Self {
            partitions,
            // The text of a move has spaces between its words.
            brokers: brokers.collect::<Vec<_>>().join(",").replace(' ', "%20"),
        }
    }

    /// For a person.
    pub(super) fn describe(&self) -> String {
        format!("{} partitions of {}", self.partitions, self.brokers)
    }

    fn read<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        Some(Self {
            partitions: words.next()?.parse().ok()?,
            brokers: words.next()?.to_owned(),
        })
    }
}

impl Move {
    pub(super) fn text(&self) -> String {
        let phase = match self.phase {
            Phase::Copying => "copying",
            Phase::Cleaning => "cleaning",
        };
        let Self { from, to, .. } = self;
        format!(
            "{phase} {} {} {} {}",
            from.partitions, from.brokers, to.partitions, to.brokers
        )
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        Some(Self {
            phase: match words.next()? {
                "copying" => Phase::Copying,
                "cleaning" => Phase::Cleaning,
                _ => return None,
            },
            from: Division::read(&mut words)?,
            to: Division::read(&mut words)?,
        })
    }
}

impl Standing {
    /// What the first partition says, at its old place and at its new one.
    pub(super) fn read(
        lanes: &mut Lanes,
        homes: [Lane; 2],
        (from, to): (&BrokerConfig, &BrokerConfig),
    ) -> Result<Self, RepartitionError> {
        let home = homes[0];
        let is_here = field(lanes, home, "at")?.is_some();
        // The old place says that the cluster is elsewhere before the new one is opened. While it does not, what the new one
        // has is of a move that was taken back.
        let begun = match moved(lanes, home)? {
            None if !is_here => moved(lanes, homes[1])?,
            begun => begun,
        };
        if let Some(begun) = begun {
            let (is_from, is_to) = (
                begun.from == Division::of(from, begun.from.partitions),
                begun.to == Division::of(to, to.partitions()),
            );
            // Taken back: everything is where it was.
            let is_back =
                begun.phase == Phase::Copying && begun.from == Division::of(to, to.partitions());
            if !is_from || !(is_to || is_back) {
                return Err(RepartitionError::Unfinished {
                    from: begun.from.describe(),
                    to: begun.to.describe(),
                });
            }
            return Ok(Self {
                partitions: begun.from.partitions,
                begun: Some(begun),
            });
        }
        if !is_here {
            return Err(match field(lanes, home, "elsewhere")? {
                Some(place) => RepartitionError::Elsewhere(place),
                None => RepartitionError::NoCluster,
            });
        }
        let known = field(lanes, home, &format!("s:{SERVERS_TERM}"))?.unwrap_or_default();
        let given = from.servers().join(" ");
        if known != given {
            return Err(RepartitionError::OtherServers { known, given });
        }
        let partitions = field(lanes, home, &format!("s:{PARTITIONS_TERM}"))?;
        Ok(Self {
            partitions: partitions.and_then(|text| text.parse().ok()).unwrap_or(1),
            begun: None,
        })
    }
}

/// The move that concerns a lane, if one has begun and not ended.
pub(super) fn moved(lanes: &mut Lanes, lane: Lane) -> Result<Option<Move>, RepartitionError> {
    Ok(field(lanes, lane, MOVE)?.as_deref().and_then(Move::read))
}

/// A field of the agreement of a lane.
pub(super) fn field(
    lanes: &mut Lanes,
    lane: Lane,
    name: &str,
) -> Result<Option<String>, RepartitionError> {
    let key = lanes.key(lane, "agreed");
    let value = lanes.ask(lane, &[b"HGET", &key, name.as_bytes()])?;
    Ok(value
        .text()
        .map(|text| String::from_utf8_lossy(text).into_owned()))
}

/// The field of the move.
pub(super) const MOVE: &str = "move";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_read_as_it_is_written() {
        let addresses = BrokerAddress::parse_list("redis://a,unix:///b%20c?db=2").expect("URLs");
        let mut config = BrokerConfig::new(addresses[0].clone());
        let from = Division::of(&config, 3);
        config.addresses = addresses;
        let begun = Move {
            phase: Phase::Cleaning,
            from,
            to: Division::of(&config, 64),
        };
        assert_eq!(Move::read(&begun.text()), Some(begun.clone()));
        assert_eq!(
            begun.to.describe(),
            "64 partitions of redis://a:6379/0,unix:///b%20c/2"
        );
        assert_eq!(Move::read("copying 1 a 2"), None);
    }
}
