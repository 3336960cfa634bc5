//! The broker of several servers.

use super::SettingError;
use super::given::Settings;
use crate::config::broker::{BrokerAddress, BrokerConfig};

pub(super) fn broker(settings: &Settings) -> Result<Option<BrokerConfig>, SettingError> {
    let Some(url) = settings.text("broker") else {
        return Ok(None);
    };
    let address =
        BrokerAddress::parse(&url).map_err(|error| settings.wrong("broker", error.to_string()))?;
    let mut broker = BrokerConfig::new(address);
    broker.authorities = settings.text("broker_ca_file").map(Into::into);
    broker.prefix = settings.text("broker_prefix").unwrap_or(broker.prefix);
    broker.is_durable = settings.flag("broker_is_durable");
    if broker.is_durable && broker.address.fails_over() {
        let words = "a master with sentinels or in a cluster may be replaced by a replica that lacks \
                     its last writes: it is not durable";
        return Err(settings.wrong("broker_is_durable", words));
    }
    broker.wait_ms = settings.integer("broker_wait_ms").unwrap_or(broker.wait_ms);
    Ok(Some(broker))
}
